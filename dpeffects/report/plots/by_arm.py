"""Distributions of the outcome in two arms: of numbers, of ordered levels, of times."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpeffects.abilities.ordinal import OrdinalEffects
from dpeffects.abilities.quantile import QuantileEffects
from dpeffects.abilities.survival import SurvivalEffects
from dpeffects.report.plots import style as look
from dpeffects.results.number_format import number
from dpeffects.results.table_results import ARMS
from dpeffects.results.wording import capital
from dpeffects.summary import printed

_SHOWN = 0.97
"""Share of records of both arms that the picture reaches to."""
_SKEWED, _DECADES = 10.0, 1000.0
"""Ratio of quantiles from which on outcomes are drawn by their logarithms, and up to which."""
_BAND = "Simultaneous "
_TICKS = 6
"""Times at which numbers at risk are written."""


def distributions(fit: QuantileEffects, *, conf_level: float = 0.95, ax: Any = None) -> Any:
    """Draw both cumulative distributions; return the axes.

    The band holds for both as a whole. Dots are the quantiles that were asked for.

    Parameters
    ----------
    fit
        What `dp_qte` returned.
    conf_level
        Level of the joint band.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("cate_1", n=2000, seed=1)
    >>> fit = dpe.dp_qte("outcome ~ treatment | x1 + x2", data, epsilon=1)
    >>> distributions(fit).get_ylabel()
    'Cumulative proportion of records'
    """
    found = fit.distribution(conf_level)
    least, most = min(1.0 - _SHOWN, *fit.asked), max(_SHOWN, *fit.asked)
    ends = np.stack([fit.distributions.quantile(arm, (least, most), 0.0).value for arm in (0, 1)])
    with look.canvas(ax, (look.WIDTH, 4.0), look.warnings(fit)) as axes:
        _curves(axes, found, fit.outcome, "share", steps=fit.whole)
        for k, how in enumerate(map(look.series, range(len(ARMS)))):
            asked = fit.distributions.quantile(k, fit.asked, 1.0).value
            axes.plot(asked, fit.asked, linestyle="none", marker=how.marker, color=how.color)
        _scale(axes, fit, float(ends.min()), float(ends.max()))
        log = "" if axes.get_xscale() == "linear" else " (logarithmic scale)"
        axes.set(xlabel=f"{fit.outcome}{log}", ylabel="Cumulative proportion of records")
        axes.set_ylim(0.0, 1.02)
        axes.legend(loc="lower right", title=_BAND + look.ci(conf_level))
    return axes


def _curves(ax: Any, found: Any, x: str, y: str, steps: bool = False) -> None:
    """Draw a column of both arms along another, with its band."""
    for k, arm in enumerate(ARMS):
        rows, how = found[found["arm"] == arm], look.series(k)
        band = {"color": how.color, "alpha": 0.15, "linewidth": 0, "gid": "band"}
        step = "post" if steps else None
        ax.fill_between(rows[x], rows["conf_low"], rows["conf_high"], step=step, **band)
        line = {"color": how.color, "linestyle": how.linestyle, "label": capital(arm), "gid": arm}
        ax.plot(rows[x], rows[y], drawstyle="steps-post" if steps else "default", **line)


def _scale(ax: Any, fit: QuantileEffects, first: float, last: float) -> None:
    """Show where most records are, on a scale of ratios where the outcome is skewed."""
    found = np.concatenate(
        [fit.distributions.quantile(arm, fit.asked, 0.0).value for arm in (0, 1)]
    )
    positive = found[found > 0.0]
    if (
        first >= 0.0
        and not fit.whole
        and positive.size
        and positive.max() > _SKEWED * positive.min()
    ):
        straight = max(float(positive.min()) / 2.0, float(positive.max()) / _DECADES)
        ax.set_xscale("symlog", linthresh=straight, linscale=0.5)
        look.plain_numbers(ax.xaxis)
    ax.set_xlim(first, last if last > first else first + 1.0)


def levels(fit: OrdinalEffects, *, conf_level: float = 0.95, ax: Any = None) -> Any:
    """Draw the shares of both arms at each level with their intervals; return the axes.

    Parameters
    ----------
    fit
        What `dp_ordinal` returned.
    conf_level
        Level of the intervals, each for itself.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> import pandas as pd
    >>> data = pd.DataFrame({"t": [0, 1] * 500, "grade": [1, 2, 3, 2] * 250})
    >>> fit = dpe.dp_ordinal("grade ~ t", data, bounds={"grade": [1, 2, 3]}, epsilon=1)
    >>> levels(fit).get_ylabel()
    'Proportion of records (95% CI)'
    """
    found, places = fit.distribution(conf_level), np.arange(len(fit.levels))
    with look.canvas(ax, (look.WIDTH, 3.6), look.warnings(fit)) as axes:
        for k, arm in enumerate(ARMS):
            rows, how = found[found["arm"] == arm], look.series(k)
            share = rows["share"].to_numpy()
            reach = np.stack([share - rows["conf_low"], rows["conf_high"] - share])
            axes.errorbar(
                places + (k - 0.5) * 0.2,
                share,
                np.maximum(reach, 0.0),
                linestyle="none",
                marker=how.marker,
                color=how.color,
                label=capital(arm),
            )
        look.places(axes, list(fit.levels))
        axes.set_ylim(bottom=0.0)
        axes.set(xlabel=fit.outcome, ylabel=f"Proportion of records ({look.ci(conf_level)})")
        look.legend_above(axes, axes.get_legend_handles_labels()[0])
    return axes


def survival(fit: SurvivalEffects, *, conf_level: float = 0.95, ax: Any = None) -> Any:
    """Draw both survival curves; return the axes.

    The band holds for both curves at all times at once; a curve ends where it is mostly noise. The
    numbers at risk below the picture have privacy noise.

    Parameters
    ----------
    fit
        What `dp_survival` returned.
    conf_level
        Level of the joint band.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> trial = dpe.simulate("survival", n=2000, seed=1, randomised=True)
    >>> fit = dpe.dp_survival(
    ...     "Surv(time, event) ~ treatment", trial, horizon=360, epsilon=1, design="randomised"
    ... )
    >>> survival(fit).get_ylabel()
    'Event-free survival probability'
    """
    curves = fit.curves(conf_level)
    with look.canvas(ax, (look.WIDTH, 4.2), look.warnings(fit)) as axes:
        told = curves.assign(survival=curves["survival"].where(curves["noise_ratio"] <= 1.0))
        _curves(axes, told, "time", "survival")
        axes.set(xlim=(0.0, fit.horizon), ylim=(0.0, 1.02))
        axes.set_ylabel("Event-free survival probability")
        axes.legend(loc="lower left", title=_BAND + look.ci(conf_level))
        _at_risk(axes, fit, curves)
    return axes


def _at_risk(ax: Any, fit: SurvivalEffects, curves: Any) -> None:
    """Write the numbers at risk below the axis of time."""
    last = len(fit.edges) - 1
    picked = np.unique(np.linspace(0, last, min(_TICKS, last) + 1).round().astype(int))
    ax.set_xticks([fit.edges[k] for k in picked], [number(fit.edges[k]) for k in picked])
    weighted = " (weighted)" if fit.arm_table.unequal != (1.0, 1.0) else ""
    noise = max(float(fit.life.at_risk(fit.n)[1].max()), 1.0)
    step = 10.0 ** math.floor(math.log10(noise))  # digits below those of the noise say nothing
    ax.set_xlabel(f"Time\nNumber at risk{weighted}, privacy noise SD {noise:.0f}\n\n")
    for row, arm in enumerate(ARMS):
        own = curves[curves["arm"] == arm]
        cells = [
            printed(f"{step * round(x / step):.0f}", ratio)
            for x, ratio in zip(own["at_risk"], own["at_risk_noise_ratio"], strict=True)
        ]
        texts = [(capital(arm), 0.0, -22.0, "right")]
        texts += [(cells[k], fit.edges[k], 0.0, "center") for k in picked]
        for text, time, aside, align in texts:
            where, by = ("data", "axes fraction"), (aside, -46.0 - 11.0 * row)
            how = {"ha": align, "va": "top", "color": look.series(row).color}
            look.outside(ax, text, (time, 0.0), where, by, gid=f"at risk {arm}", **how)
