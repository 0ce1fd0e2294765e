"""Survival curves of two arms with their joint band, and the numbers at risk below them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpeffects.abilities.survival import SurvivalEffects
from dpeffects.report.blocks import percent
from dpeffects.report.plots import style as look
from dpeffects.results.numbers import number
from dpeffects.results.tabled import ARMS
from dpeffects.summary import draw, printed

_TICKS = 6


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
    'share without the event'
    """
    curves = fit.curves(conf_level)
    with look.canvas(ax, (look.WIDTH, 4.2)) as axes:
        for k, arm in enumerate(ARMS):
            rows, how = curves[curves["arm"] == arm], look.series(k)
            times, low, high = (rows[name] for name in ("time", "conf_low", "conf_high"))
            axes.fill_between(
                times, low, high, color=how.color, alpha=0.15, linewidth=0, gid="band"
            )
            axes.plot(
                times,
                rows["survival"].where(rows["noise_ratio"] <= 1.0),
                color=how.color,
                linestyle=how.linestyle,
                label=arm,
                gid=arm,
            )
        axes.set_xlim(0.0, fit.horizon)
        axes.set_ylim(0.0, 1.02)
        axes.set_ylabel("share without the event")
        axes.legend(loc="lower left", title=f"{percent(conf_level, 'g')} joint band")
        _at_risk(axes, fit, curves)
        look.finish(axes, look.alarms(fit))
    return axes


def _at_risk(ax: Any, fit: SurvivalEffects, curves: Any) -> None:
    """Write the numbers at risk below the axis of time."""
    last = len(fit.edges) - 1
    picked = np.unique(np.linspace(0, last, min(_TICKS, last) + 1).round().astype(int))
    ax.set_xticks([fit.edges[k] for k in picked], [number(fit.edges[k]) for k in picked])
    what = "weighted number at risk" if fit.life.weighted else "number at risk"
    noise = float(fit.life.at_risk(fit.n)[1].max())
    ax.set_xlabel(f"time\n{what} (standard deviation of noise: {noise:.0f})\n\n")
    for row, arm in enumerate(ARMS):
        own = curves[curves["arm"] == arm]
        cells = [
            printed(f"{x:.0f}", ratio)
            for x, ratio in zip(own["at_risk"], own["at_risk_noise_ratio"], strict=True)
        ]
        texts = [(arm, 0.0, -22.0, "right")]
        texts += [(cells[k], fit.edges[k], 0.0, "center") for k in picked]
        for text, time, aside, align in texts:
            ax.annotate(
                text,
                (time, 0.0),
                (aside, -46.0 - 11.0 * row),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha=align,
                va="top",
                fontsize=look.SMALL,
                color=look.series(row).color,
                annotation_clip=False,
                gid=f"at risk {arm}",
            )


draw.register(SurvivalEffects, survival)
