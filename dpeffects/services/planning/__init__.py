"""What a release will cost in accuracy, before any data is touched."""

from dpeffects.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
