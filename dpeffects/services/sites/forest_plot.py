"""The forest plot: sites with what they add up to."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpeffects.errors import OptionError, refusal
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import NO_EFFECT, Unavailable
from dpeffects.report.plots import style as look
from dpeffects.report.plots.interval_plots import ROWS, labelled
from dpeffects.results.number_format import number, to_error
from dpeffects.services.sites.combination import CombinedEffect

_ERRORS = 4.0
"""Standard errors in an interval, about, for the digits that are shown."""


def forest(combined: CombinedEffect, *, conf_level: float | None = None, ax: Any = None) -> Any:
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
    ['North', 'South', 'Combined (all)']
    """
    if not isinstance(combined, CombinedEffect):
        raise OptionError(refusal("forest_plot", kind=type(combined).__name__))
    conf_level = combined.conf_level if conf_level is None else conf_level
    whole = combined.conf_int(conf_level)
    heaviest = np.argsort(combined.weights)[::-1][:ROWS]
    shown = [(combined.releases[i], combined.weights[i]) for i in sorted(heaviest)]
    last = len(shown)
    estimates = [*(release.estimate for release, _ in shown), combined.estimate]
    weights = [*(weight for _, weight in shown), 1.0]
    ends = [inference.interval(release.released, conf_level) for release, _ in shown]
    more, hidden = len(combined.releases) - last, look.percent(1.0 - sum(weights[:-1]), ".1f")
    left = f"; {more} more sites with {hidden} of the weight are not drawn" if more else ""
    with labelled(
        ax,
        [*(release.site for release, _ in shown), f"Combined ({combined.rule})"],
        ends,
        below=look.effect_axis(combined, look.ci(conf_level)),
        title=_caption(combined) + left,
        beside=_columns(estimates, weights, [*ends, whole], conf_level),
        warnings=[
            look.status_warning(combined.status),
            look.voiding(combined.associated * NO_EFFECT),
        ],
        width=7.0,
        marker="",
    ) as axes:
        for row, (value, weight) in enumerate(zip(estimates[:-1], weights[:-1], strict=True)):
            size = 3.0 + 9.0 * np.sqrt(weight)  # an area that grows with the weight
            mark = (
                {"marker": "s", "markersize": size}
                if weight > 0.0
                else {"marker": "o", "mfc": "white"}
            )
            axes.plot([value], [row], color=look.INK, gid="site", **mark)
        _diamond(axes, last, combined.estimate, whole)
        axes.axhline(last - 0.5, color=look.SOFT, linewidth=0.6)
        axes.axvline(combined.estimate, color=look.BLUE, linewidth=0.8, zorder=0.4)
    return axes


def _diamond(ax: Any, row: int, estimate: float, interval: Any) -> None:
    if isinstance(interval, Unavailable):
        ax.plot([estimate], [row], "D", color=look.BLUE, mfc="white", gid="combined")
        return
    low, high = interval
    corners = ([low, estimate, high, estimate], [row, row - 0.28, row, row + 0.28])
    ax.fill(*corners, facecolor=look.BLUE, edgecolor=look.INK, linewidth=0.8, gid="combined")


def _columns(
    estimates: list[float], weights: list[float], intervals: list[Any], conf_level: float
) -> list[tuple[str, ...]]:
    """Estimates, intervals and weights, to be written beside the rows."""
    texts: list[tuple[str, ...]] = [(f"Effect ({look.ci(conf_level)})", "Weight")]
    for middle, interval, weight in zip(estimates, intervals, weights, strict=True):
        text = f"{middle:.4g} (n/a)"
        if not isinstance(interval, Unavailable):
            low, high = interval
            text = "{} ({} to {})".format(*to_error((middle, low, high), (high - low) / _ERRORS))
        texts.append((text, look.percent(weight, ".1f")))
    return texts


def _caption(combined: CombinedEffect) -> str:
    test = combined.heterogeneity
    if isinstance(test, Unavailable):
        return f"Heterogeneity {test}"
    absent = [site for site in combined.left_out if site not in {r.site for r in combined.releases}]
    silent = f"; no release from {', '.join(absent)}" if absent else ""
    p = "< 0.0001" if test.p_value < 1e-4 else f"= {test.p_value:.3g}"
    return (
        f"Heterogeneity: Q = {test.q:.3g} on {test.df} df, p {p}; "
        f"tau = {number(test.tau2**0.5, 3)}; I² = {look.percent(test.i2, '.0f')}{silent}"
    )
