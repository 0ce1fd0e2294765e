"""Effects on several outcomes, on all records and by subgroup, one row each (forest plot)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpeffects.errors import OptionError
from dpeffects.report.blocks import percent, relation
from dpeffects.report.plots import style as look
from dpeffects.report.plots.diagnostics import love
from dpeffects.results.numbers import to_error
from dpeffects.results.study import StudyEffects
from dpeffects.summary import draw, printed

_ROWS = 60
"""Rows of a picture."""


@dataclass(frozen=True)
class _Row:
    """An effect with its interval: as it is written, and over ``unit`` as it is drawn."""

    label: str
    value: float
    low: float
    high: float
    error: float
    unit: float
    whole: bool = True
    noise_ratio: float = 0.0

    @property
    def drawn(self) -> tuple[float, float, float]:
        """Estimate and ends on the axis; NaN where there is no unit."""
        return self.value / self.unit, self.low / self.unit, self.high / self.unit

    @property
    def text(self) -> str:
        """Estimate and interval in units of the outcome."""
        value, low, high = to_error((self.value, self.low, self.high), self.error)
        return f"{printed(value, self.noise_ratio)} [{low}, {high}]"


def outcomes(
    fit: StudyEffects,
    *,
    conf_level: float = 0.95,
    simultaneous: bool = True,
    by: str | None = None,
    standardised: bool | None = None,
    ax: Any = None,
) -> Any:
    """Draw the effects on all outcomes with their intervals; return the axes.

    The numbers at the right are in units of the outcome. Filled squares are effects on all records,
    hollow circles those in subgroups.

    Parameters
    ----------
    fit
        What `dp_study` returned.
    conf_level
        Level of the intervals.
    simultaneous
        Whether intervals hold for all outcomes at once, and those in subgroups for all of these.
    by
        A factor of subgroups: effects at its levels below those on all records.
    standardised
        Whether effects are drawn over the standard deviation of their outcome within arms, as
        released; by default where outcomes have different ranges.
    ax
        Axes to draw on; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> fit = dpe.dp_study(
    ...     "earnings_1978 + I(earnings_1978 > 0) ~ treatment", nsw, epsilon=2, design="randomised"
    ... )
    >>> outcomes(fit).get_xlabel()
    'effect of treatment, in standard deviations of the outcome'
    """
    columns = fit.sums.outcomes
    if standardised is None:
        standardised = len({(column.low, column.high) for column in columns}) > 1
    units = [fit.sums.spread(j) if standardised else 1.0 for j in range(len(columns))]
    rows = list(_rows(fit, conf_level, simultaneous, by, units))
    left, rows = len(rows[_ROWS:]), rows[:_ROWS]
    with look.canvas(ax, (7.0, 1.3 + 0.25 * (len(rows) + 1))) as axes:
        for place, row in enumerate(rows):
            _draw(axes, place, row)
        look.zero(axes, vertical=True)
        look.rows(axes, [row.label for row in rows])
        if by is not None:
            _set_apart(axes, rows)
        axes.set_ylim(top=-1.3)  # room for the head of the numbers
        _numbers(axes, rows, conf_level)
        axes.margins(x=0.06)
        axes.locator_params(axis="x", nbins=6)
        axes.set_xlabel(_axis(fit, standardised))
        axes.set_title(_caption(conf_level, simultaneous and len(rows) > 1, by, left))
        look.finish(axes, look.alarms(fit))
    return axes


def _rows(
    fit: StudyEffects, conf_level: float, simultaneous: bool, by: str | None, units: list[float]
) -> Iterator[_Row]:
    """Effects on all records, each with those at the levels of a factor below it."""
    whole = fit.tidy(conf_level, simultaneous=simultaneous).to_dict("records")
    parts: list[Any] = []
    levels: tuple[str, ...] = ()
    count = len(whole)
    if by is not None:
        found = fit.by(by)
        levels = found.subsets
        parts = found.tidy(conf_level, simultaneous=simultaneous).to_dict("records")
    for i, row in enumerate(whole):
        unit = units[i // len(fit.sums.contrasts)]
        yield _made(row, str(row["term"]), unit, True)
        for k, part in enumerate(parts[i::count]):
            yield _made(part, levels[i + k * count], unit, False)


def _made(row: Any, label: str, unit: float, whole: bool) -> _Row:
    value, low, high = (row[name] for name in ("estimate", "conf_low", "conf_high"))
    return _Row(label, value, low, high, row["std_error"], unit, whole, row["noise_ratio"])


def _draw(ax: Any, place: int, row: _Row) -> None:
    value, low, high = row.drawn
    look.interval(ax, place, low, high, linewidth=1.1, marker="", gid="interval")
    if row.noise_ratio > 1.0:
        return
    if np.isfinite(value):
        shape: dict[str, Any] = {"marker": "s", "markersize": 6.0}
        if not row.whole:
            shape = {"marker": "o", "markersize": 5.0, "markerfacecolor": "white"}
        ax.plot([value], [place], color=look.INK, gid="estimate", zorder=3, **shape)
    else:
        ax.text(0.0, place, "n/a", ha="center", va="center", fontsize=look.SMALL, color=look.SOFT)


def _set_apart(ax: Any, rows: list[_Row]) -> None:
    """A line above each outcome, whose name is bold."""
    for place, (row, label) in enumerate(zip(rows, ax.get_yticklabels(), strict=True)):
        if row.whole:
            label.set_fontweight("bold")
            if place:
                ax.axhline(place - 0.5, color=look.PALE, linewidth=0.6, zorder=0.3)


def _numbers(ax: Any, rows: list[_Row], conf_level: float) -> None:
    """Write estimates and intervals beside the rows."""
    texts = [f"estimate [{percent(conf_level, 'g')} interval]", *(row.text for row in rows)]
    for place, text in enumerate(texts, -1):
        look.beside(ax, place, text)


def _axis(fit: StudyEffects, standardised: bool) -> str:
    more = ", in standard deviations of the outcome" if standardised else ""
    if len(fit.outcomes) == 1:
        return f"{relation(fit)}{more}"
    what = "association with" if fit.associated else "effect of"
    return f"{what} {fit.treatment}{more}"


def _caption(conf_level: float, simultaneous: bool, by: str | None, left: int) -> str:
    text = f"{percent(conf_level, 'g')} intervals"
    if simultaneous:
        text += " that hold for all outcomes at once"
        text += f"; those by {by} for all subgroups at once" if by else ""
    return f"{text}. {left} more rows are in tidy()" if left else text


@draw.register
def _(fit: StudyEffects, *, kind: str = "forest", most: int | None = None, **asked: Any) -> Any:
    if kind not in ("forest", "love"):
        raise OptionError(f'kind must be "forest" or "love", got {kind!r}')
    if kind == "love":
        return love(fit, most=most, ax=asked.get("ax"))
    return outcomes(fit, **asked)
