"""Simulation studies: error and coverage of methods where the truth is known."""

from dpeffects.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
