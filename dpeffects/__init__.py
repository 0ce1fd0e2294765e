"""Differentially private treatment effects, written the R way."""

from dpeffects.lazy import lazy_names

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
