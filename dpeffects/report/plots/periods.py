"""Differences in differences by period: what was before treatment, and what came after."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpeffects.abilities.did import EventStudy
from dpeffects.report.plots import style as look
from dpeffects.results.words import percent
from dpeffects.summary import draw


def event_study(
    fit: EventStudy, *, conf_level: float = 0.95, simultaneous: bool = True, ax: Any = None
) -> Any:
    """Draw the difference of each period against the last one before treatment; return the axes.

    That period is a hollow point at zero. Periods before it show whether trends were parallel
    there, and the dashed line is where treatment begins.

    Parameters
    ----------
    fit
        What `dp_did` returned for more than two periods.
    conf_level
        Level of the intervals.
    simultaneous
        Whether they hold for all periods at once.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> before = ["earnings_1974", "earnings_1975"]
    >>> fit = dpe.dp_did("earnings_1978 ~ treatment", nsw, before=before, epsilon=2, seed=1)
    >>> event_study(fit).get_xlabel()
    'period'
    """
    places = np.delete(np.arange(len(fit.periods)), fit.leads)
    ends = fit.conf_int(conf_level, simultaneous=simultaneous)
    with look.canvas(ax) as axes:
        for place, (low, high) in zip(places, ends, strict=True):
            axes.plot(
                [place, place], [low, high], color=look.INK, linewidth=1.2, marker="_", gid="whole"
            )
        axes.plot(places, fit.estimates, "o", color=look.INK, markersize=5.5, gid="estimate")
        hollow = {"markerfacecolor": "white", "markersize": 5.5, "zorder": 3}
        axes.plot([fit.leads], [0.0], "o", color=look.INK, gid="reference", **hollow)
        axes.axvline(fit.leads + 0.5, color=look.SOFT, linestyle="--", linewidth=1.0, gid="start")
        look.zero(axes, vertical=False)
        look.places(axes, list(fit.periods))
        axes.margins(x=0.1)
        axes.set_xlabel("period")
        axes.set_ylabel(f"difference in the {fit.outcome}")
        at_once = ", all at once" if simultaneous else ""
        axes.set_title(f"{percent(conf_level, 'g')} intervals{at_once}", fontsize=look.SMALL)
        look.finish(axes, look.alarms(fit))
    return axes


draw.register(EventStudy, event_study)
