"""What results look like: summaries and their formats, paragraphs, release records, plots.

A module registers how its types of results are shown when it is imported (`dpeffects.summary`);
`dpeffects.report.everything` imports them all.
"""

from dpeffects.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
