"""Ledgers that outlive the process: in a SQLite file, or on a PostgreSQL server."""

from dpeffects.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
