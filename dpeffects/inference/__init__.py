"""From released numbers to intervals and tests."""

from dpeffects.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
