"""Differentially private treatment effects, written the R way."""

from dpeffects.lazy import lazy_names

__version__ = "0.2.0"

__getattr__, __all__ = lazy_names(__name__, __file__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
