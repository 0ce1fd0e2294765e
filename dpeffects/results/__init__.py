"""What a user gets back: frozen records, to and from JSON. How they look is in `report`."""

from dpeffects.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
