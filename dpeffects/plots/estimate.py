"""Estimates one under another, each interval split into what sampling and what privacy adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpeffects.errors import OptionError
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import Unavailable
from dpeffects.plots import look
from dpeffects.results.numbers import number

if TYPE_CHECKING:
    from dpeffects.results.result import Result


def estimate(
    *fits: Result,
    conf_level: float = 0.95,
    ax: Any = None,
    names: Sequence[str] | None = None,
) -> Any:
    """Draw estimates with their confidence intervals; return the axes.

    The thick bar is the interval that sampling error alone would give, the thin line with ends the
    whole interval: what sticks out is the price of privacy. Where no sampling variance was
    released, a dotted line shows how far noise alone can have moved the estimate.

    Parameters
    ----------
    *fits
        Results of `dp_ate`, `dp_att` or `dp_atc`.
    conf_level
        Level of the intervals.
    ax
        Axes to draw on; by default those of a new figure.
    names
        A label for each fit; by default its method and epsilon.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1)
    >>> estimate(fit, names=["trial"]).get_xlabel()
    'effect of treatment on earnings_1978'
    """
    labels = _labels(fits, names)
    with look.canvas(ax, (5.6, 1.3 + 0.5 * len(fits))) as axes:
        shown = [_one(axes, row, fit, conf_level) for row, fit in enumerate(fits)]
        look.zero(axes, vertical=True)
        look.rows(axes, labels)
        axes.set_xlabel(_label(fits))
        axes.margins(x=0.08)
        _legend(axes, {kind for kinds in shown for kind in kinds}, conf_level)
        lines = [label.replace("\n", ", ") for label in labels]
        look.mark(axes, look.with_names(lines, [look.alarms(fit) for fit in fits]))
    return axes


def _one(ax: Any, row: int, fit: Result, level: float) -> set[str]:
    """Draw one estimate; return what a legend has to explain."""
    released = fit.released
    whole = fit.conf_int(level)
    if isinstance(whole, Unavailable):
        noise = inference.noise_interval(released, level)
        kinds = set()
        if not isinstance(noise, Unavailable):
            ax.plot(list(noise), [row, row], color=look.SOFT, linestyle=":", gid="noise")
            kinds = {"noise"}
    else:
        alone = inference.interval(replace(released, laplace=(), gaussian=0.0), level)
        ends = {"marker": "|", "markersize": 9.0, "markeredgewidth": 1.2}
        ax.plot(list(whole), [row, row], color=look.INK, linewidth=1.2, gid="whole", **ends)
        ax.plot(
            list(alone),
            [row, row],
            color=look.YELLOW,
            linewidth=6.0,
            solid_capstyle="butt",
            gid="sampling",
        )
        kinds = {"whole", "sampling"}
    ax.plot([fit.estimate], [row], "o", color=look.INK, markersize=5.5, zorder=3, gid="estimate")
    return kinds


def _labels(fits: Sequence[Result], names: Sequence[str] | None) -> list[str]:
    if not fits:
        raise OptionError("there is nothing to draw: give at least one fit")
    if names is None:
        same = len({fit.estimand for fit in fits}) == 1
        return [
            ("" if same else f"{fit.estimand}, ")
            + f"{fit.method}\nepsilon = {number(float(fit.guarantee.epsilon))}"
            for fit in fits
        ]
    if isinstance(names, str) or len(names) != len(fits):
        raise OptionError(f"names must be a list of {len(fits)} labels, got {names!r}")
    return [str(name) for name in names]


def _label(fits: Sequence[Result]) -> str:
    labels = dict.fromkeys(look.effect_label(fit.treatment, fit.outcome) for fit in fits)
    return "; ".join(labels)


def _legend(ax: Any, kinds: set[str], level: float) -> None:
    from matplotlib.lines import Line2D

    percent = f"{100 * level:g} %"
    entries = {
        "sampling": Line2D([], [], color=look.YELLOW, linewidth=6.0, label="sampling error alone"),
        "whole": Line2D(
            [],
            [],
            color=look.INK,
            linewidth=1.2,
            marker="|",
            markersize=9.0,
            label=f"with privacy noise ({percent} interval)",
        ),
        "noise": Line2D(
            [],
            [],
            color=look.SOFT,
            linestyle=":",
            label="no interval; noise alone",
        ),
    }
    shown = [entry for kind, entry in entries.items() if kind in kinds]
    if shown:
        look.legend_above(ax, shown)
