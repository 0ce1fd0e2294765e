"""Sites one under another, with what they add to the combined effect."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import Unavailable
from dpeffects.plots import look
from dpeffects.results.numbers import numbers


def forest(combined: Any, *, conf_level: float | None = None, ax: Any = None) -> Any:
    """Draw the sites' estimates and the combined effect; return the axes.

    Squares grow with a site's weight; hollow circles are sites without weight. The diamond is as
    wide as the interval of the combined effect.

    Parameters
    ----------
    combined
        What `combine` or `dp_multisite` returned.
    conf_level
        Level of the intervals; by default that of the combination.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> sent = [
    ...     dpe.site_release("earnings_1978 ~ treatment", nsw[start::2], site=site,
    ...                      method="diff_in_means", epsilon=1)
    ...     for start, site in enumerate(["North", "South"])
    ... ]
    >>> [t.get_text() for t in forest(dpe.combine(sent, "all")).get_yticklabels()]
    ['North', 'South', 'combined (all)']
    """
    level = combined.conf_level if conf_level is None else conf_level
    whole = combined.conf_int(level)
    intervals = [inference.interval(release.released, level) for release in combined.releases]
    last = len(intervals)
    with look.canvas(ax, (7.0, 1.6 + 0.3 * (last + 1))) as axes:
        for row, release in enumerate(combined.releases):
            _site(axes, row, release.estimate, intervals[row], combined.weights[row])
        _diamond(axes, last, combined.estimate, whole)
        look.zero(axes, vertical=True)
        axes.axhline(last - 0.5, color=look.SOFT, linewidth=0.6)
        axes.axvline(combined.estimate, color=look.BLUE, linewidth=0.8, zorder=0.4)
        names = [release.site for release in combined.releases]
        look.rows(axes, [*names, f"combined ({combined.rule})"])
        axes.set_ylim(top=-1.3)  # room for the head of the columns
        _columns(axes, combined, [*intervals, whole], level)
        axes.margins(x=0.06)
        axes.set_xlabel(look.effect_label(combined.treatment, combined.outcome))
        axes.set_title(_caption(combined))
        look.mark(axes, [look.alarm(combined.status)])
    return axes


def _site(ax: Any, row: int, estimate: float, interval: Any, weight: float) -> None:
    if not isinstance(interval, Unavailable):
        ax.plot(list(interval), [row, row], color=look.INK, linewidth=1.1, gid="interval")
    if weight > 0.0:
        size = 3.0 + 9.0 * np.sqrt(weight)  # an area that grows with the weight
        ax.plot([estimate], [row], "s", color=look.INK, markersize=size, gid="site")
    else:
        ax.plot([estimate], [row], "o", color=look.INK, mfc="white", markersize=5.0, gid="site")


def _diamond(ax: Any, row: int, estimate: float, interval: Any) -> None:
    if isinstance(interval, Unavailable):
        ax.plot([estimate], [row], "D", color=look.BLUE, mfc="white", gid="combined")
        return
    low, high = interval
    corners = ([low, estimate, high, estimate], [row, row - 0.28, row, row + 0.28])
    ax.fill(*corners, facecolor=look.BLUE, edgecolor=look.INK, linewidth=0.8, gid="combined")


def _columns(ax: Any, combined: Any, intervals: list[Any], level: float) -> None:
    """Write estimates, intervals and weights beside the rows."""
    estimates = [*(release.estimate for release in combined.releases), combined.estimate]
    known = [x for interval in intervals if not isinstance(interval, Unavailable) for x in interval]
    cells = numbers([float(f"{x:.4g}") for x in (*estimates, *known)])
    ends = iter(cells[len(estimates) :])
    texts = [f"estimate [{100 * level:g} % interval]"]
    for middle, interval in zip(cells, intervals, strict=False):
        missing = isinstance(interval, Unavailable)
        texts.append(f"{middle} [n/a]" if missing else f"{middle} [{next(ends)}, {next(ends)}]")
    weights = ["weight", *(f"{100 * weight:.1f} %" for weight in (*combined.weights, 1.0))]
    far = 50.0 + 4.4 * max(map(len, texts))
    for row, (text, weight) in enumerate(zip(texts, weights, strict=True), -1):
        for words, place, side in ((text, 8.0, "left"), (weight, far, "right")):
            ax.annotate(
                words,
                (1.0, row),
                xycoords=ax.get_yaxis_transform(),
                xytext=(place, 0.0),
                textcoords="offset points",
                ha=side,
                va="center",
                fontsize=look.SMALL,
                annotation_clip=False,
            )


def _caption(combined: Any) -> str:
    found = combined.heterogeneity
    if isinstance(found, Unavailable):
        return f"Heterogeneity {found}"
    absent = [site for site in combined.left_out if site not in {r.site for r in combined.releases}]
    silent = f"; no release from {', '.join(absent)}" if absent else ""
    p = "< 0.0001" if found.p_value < 1e-4 else f"= {found.p_value:.3g}"
    return (
        f"Heterogeneity: Q = {found.q:.3g} on {found.df} df, p {p}; "
        f"tau = {found.tau2**0.5:.3g}; $I^2$ = {100 * found.i2:.0f} %{silent}"
    )
