"""Pictures of results (matplotlib, extra "plot"): every function takes ``ax`` and returns the axes.

Nothing of matplotlib is imported before the first picture, and no setting of the user's changes.
"""

from dpeffects.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
