"""The audit set: everything that touches private rows, with its proofs in PROOFS.md."""

from dpeffects.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
