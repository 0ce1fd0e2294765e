"""What results look like: summaries and their formats, paragraphs, release records, plots.

A class of results names the modules here that have its words and its pictures; they are loaded
when it is shown (`dpeffects.summary`).
"""

from dpeffects.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
