"""The public names of plots and their places (see `dpeffects.lazy`)."""

from dpeffects.evidence.simulations.pictures import errors, leaderboard
from dpeffects.report.plots.by_arm import distributions, levels, survival
from dpeffects.report.plots.diagnostics import budget, love, overlap, sensitivity
from dpeffects.report.plots.interval_plots import contrasts, curve, estimate, event_study, forest
from dpeffects.report.plots.planned import half_width
from dpeffects.report.plots.several_outcomes import outcomes

__all__ = [
    "budget",
    "contrasts",
    "curve",
    "distributions",
    "errors",
    "estimate",
    "event_study",
    "forest",
    "half_width",
    "leaderboard",
    "levels",
    "love",
    "outcomes",
    "overlap",
    "sensitivity",
    "survival",
]
