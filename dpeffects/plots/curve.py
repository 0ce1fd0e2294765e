"""Conditional effects: a curve with its band, or effects at points and by group as intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpeffects.errors import OptionError
from dpeffects.plots import look

_COVERED = {"noise": "noise only", "effect": "noise, sampling, shrinkage"}


def curve(
    fit: Any,
    along: str | None = None,
    *,
    at: Mapping[str, Any] | None = None,
    conf_level: float = 0.95,
    covers: str | None = None,
    simultaneous: bool = False,
    ax: Any = None,
) -> Any:
    """Draw conditional effects; return the axes.

    Parameters
    ----------
    fit
        A `CateFunction`, drawn along one covariate, or `CateEffects`, one interval each.
    along
        Covariate on the axis; by default the first of the formula. For a function only.
    at
        Values of the other covariates; by default the middle of their ranges.
    conf_level
        Of the band or of the intervals.
    covers
        "noise" or "effect": what the band covers.
    simultaneous
        Intervals at points or by group that hold for all at once.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("cate_1", n=500, seed=1)
    >>> fit = dpe.dp_cate("outcome ~ treatment | x1 + x2", data, epsilon=1, delta=1e-5)
    >>> curve(fit, "x1").get_xlabel()
    'x1'
    """
    if hasattr(fit, "curve"):
        return _function(fit, along or fit.covariates[0], at, conf_level, covers, ax)
    if along is not None or at is not None or covers is not None:
        raise OptionError("along, at and covers are for effect functions; these are single effects")
    return _effects(fit, conf_level, simultaneous, ax)


def _function(
    fit: Any, along: str, at: Mapping[str, Any] | None, level: float, covers: str | None, ax: Any
) -> Any:
    found = fit.curve(along, at=at, conf_level=level, covers=covers)
    low, high = found["conf_low"], found["conf_high"]
    with look.canvas(ax) as axes:
        if fit.space.is_levels(along):
            places = np.arange(len(found))
            _intervals(axes, places, found["effect"], low, high)
            axes.set_xticks(places, [str(level) for level in found[along]])
            axes.margins(x=0.15)
        else:
            axes.plot(found[along], found["effect"], color=look.INK, zorder=2)
            axes.fill_between(found[along], low, high, color=look.PALE, linewidth=0, zorder=1)
            for edge in (low, high):
                axes.plot(found[along], edge, color=look.SOFT, linewidth=0.6, zorder=1)
            axes.margins(x=0.0)
        axes.set_xlabel(along)
        _finish(axes, fit, f"{100 * level:g} % band: {_COVERED[found['covers'].iloc[0]]}", at)
    return axes


def _effects(fit: Any, level: float, simultaneous: bool, ax: Any) -> Any:
    found = fit.tidy(level, simultaneous=simultaneous)
    kind = "noise and sampling" if fit.kind == "groups" else "noise only"
    at_once = ", all at once" if simultaneous else ""
    with look.canvas(ax) as axes:
        places = np.arange(len(found))
        _intervals(axes, places, found["estimate"], found["conf_low"], found["conf_high"])
        labels = list(fit.labels)
        crowded = len(labels) > 6 or max(map(len, labels)) > 14
        turn = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
        axes.set_xticks(places, labels, **turn)
        axes.set_xlabel("group" if fit.kind == "groups" else "point")
        axes.margins(x=0.5 / max(len(found), 2))
        _finish(axes, fit, f"{100 * level:g} % intervals: {kind}{at_once}", None)
    return axes


def _intervals(ax: Any, places: Any, middle: Any, low: Any, high: Any) -> None:
    """Points with intervals; one without an interval is hollow."""
    known = np.isfinite(np.asarray(low, dtype=float))
    ax.vlines(places[known], low[known], high[known], color=look.INK, linewidth=1.2)
    ends = {"color": look.INK, "marker": "_", "linestyle": "", "markersize": 7.0}
    for side in (low, high):
        ax.plot(places[known], side[known], **ends)
    ax.plot(places[known], middle[known], "o", color=look.INK, gid="known")
    ax.plot(places[~known], middle[~known], "o", color=look.INK, mfc="white", gid="unknown")


def _finish(ax: Any, fit: Any, caption: str, at: Mapping[str, Any] | None) -> None:
    look.zero(ax, vertical=False)
    ax.set_ylabel(look.effect_label(fit.treatment, fit.outcome))
    if at:
        caption += "; at " + ", ".join(f"{name} = {value}" for name, value in at.items())
    ax.set_title(caption)
    look.mark(ax, look.alarms(fit))
