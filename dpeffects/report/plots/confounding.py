"""An effect and its interval against the bias that confounding may have added."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpeffects.inference.estimate import Unavailable
from dpeffects.report.blocks import percent, relation
from dpeffects.report.plots import style as look
from dpeffects.results.sensitivity import SensitivityAnalysis
from dpeffects.summary import draw


def sensitivity(found: SensitivityAnalysis, *, ax: Any = None) -> Any:
    """Draw estimate and interval against the bias of confounding; return the axes.

    Dotted lines are the tipping points: biases that move the interval, and the estimate, to zero. A
    stated bias is a triangle on the line of the estimate.

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
            axes.fill_between(biases, low, high, color=look.PALE, linewidth=0, gid="interval")
            axes.set_title(f"band: {percent(found.conf_level, 'g')} interval with this bias off")
        axes.plot(biases, found.estimate - biases, color=look.INK, gid="estimate")
        look.zero(axes, vertical=False)
        tips = [found.estimate] if isinstance(limit, Unavailable) else [found.estimate, limit]
        for tip in tips:
            axes.axvline(tip, color=look.SOFT, linestyle=":", gid="tipping")
        if stated is not None:
            axes.plot([stated], [found.estimate - stated], "^", color=look.RED, gid="stated")
        axes.margins(x=0.0)
        axes.set_xlabel("bias by confounding")
        axes.set_ylabel(relation(found))
        look.mark(axes, look.alarms(found))
    return axes


draw.register(SensitivityAnalysis, sensitivity)
