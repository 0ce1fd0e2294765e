"""Pictures of results (matplotlib, extra "plot"): every function takes ``ax`` and returns the axes.

Nothing of matplotlib is imported before the first picture, and no setting of the user's changes.
"""

from dpeffects.plots.balance import love, overlap
from dpeffects.plots.budget import budget
from dpeffects.plots.curve import curve
from dpeffects.plots.errors import errors
from dpeffects.plots.estimate import estimate
from dpeffects.plots.forest import forest
from dpeffects.plots.half_width import half_width
from dpeffects.plots.leaderboard import leaderboard

__all__ = [
    "budget",
    "curve",
    "errors",
    "estimate",
    "forest",
    "half_width",
    "leaderboard",
    "love",
    "overlap",
]
