"""The public names of plots and their places (see `dpeffects.lazy`)."""

from dpeffects.evidence.simulations.pictures import errors, leaderboard
from dpeffects.report.plots.by_arm import distributions, levels, survival
from dpeffects.report.plots.diagnostics import budget, love, overlap, sensitivity
from dpeffects.report.plots.interval_plots import contrasts, curve, estimate, event_study
from dpeffects.report.plots.several_outcomes import outcomes
from dpeffects.services.planning.planned_plot import half_width
from dpeffects.services.sites.forest_plot import forest

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
