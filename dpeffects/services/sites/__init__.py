"""Many sites, one effect: what a site sends, and how a centre combines it."""

from dpeffects.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
