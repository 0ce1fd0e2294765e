"""An effect and its interval against the bias that confounding may have added."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpeffects.inference.estimate import Unavailable
from dpeffects.report.plots import style as look
from dpeffects.results.sensitivity import SensitivityAnalysis
from dpeffects.results.words import percent, relation
from dpeffects.summary import draw


def sensitivity(found: SensitivityAnalysis, *, ax: Any = None) -> Any:
    """Draw estimate and interval against the bias of confounding; return the axes.

    Dotted lines are the tipping points: biases that move the interval (dense dots), and the
    estimate, to zero. A stated bias is a triangle on the line of the estimate.

    Parameters
    ----------
    found
        What ``fit.sensitivity()`` returned.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1)
    >>> sensitivity(fit.sensitivity()).get_xlabel()
    'bias by confounding'
    """
    stated, limit = found.stated, found.limit
    far = 1.5 * max(abs(found.estimate), abs(stated or 0.0)) or 1.0
    sign = np.sign(found.estimate) or 1.0
    ends = sorted([0.0, sign * far, stated or 0.0])
    biases = np.linspace(ends[0], ends[-1], 61)
    intervals = [found.interval(float(bias)) for bias in biases]
    band = [tuple(x) for x in intervals if not isinstance(x, Unavailable)]
    with look.canvas(ax) as axes:
        if band:
            low, high = zip(*band, strict=True)
            words = f"its {percent(found.conf_level, 'g')} interval"
            fill = {"color": look.PALE, "linewidth": 0, "label": words, "gid": "interval"}
            axes.fill_between(biases, low, high, **fill)
        words = "estimate with this bias taken off"
        axes.plot(biases, found.estimate - biases, color=look.INK, label=words, gid="estimate")
        look.zero(axes, vertical=False)
        tips = {"estimate at zero": (found.estimate, (0, (1, 3)))}
        if not isinstance(limit, Unavailable):
            tips["interval reaches zero"] = limit, (0, (1, 1))
        for words, (tip, dots) in tips.items():
            axes.axvline(tip, color=look.SOFT, linestyle=dots, label=words, gid="tipping")
        if stated is not None:
            at = [stated], [found.estimate - stated]
            axes.plot(*at, "^", color=look.RED, label="stated bias", gid="stated")
        axes.margins(x=0.0)
        axes.set_xlabel("bias by confounding")
        axes.set_ylabel(relation(found))
        look.legend_above(axes, axes.get_legend_handles_labels()[0], 3)
        look.finish(axes, look.alarms(found))
    return axes


draw.register(SensitivityAnalysis, sensitivity)
