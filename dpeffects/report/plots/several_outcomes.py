"""Effects on several outcomes, on all records and in subgroups, one row each (forest plot)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from dpeffects.abilities.study import StudyEffects
from dpeffects.errors import OptionError, spelled
from dpeffects.report.plots import style as look
from dpeffects.report.plots.diagnostics import love
from dpeffects.report.plots.interval_plots import ROWS
from dpeffects.results.number_format import to_error
from dpeffects.results.wording import p_text
from dpeffects.summary import printed

_GAP = 2
"""Empty rows below a panel, for its axis."""
_LETTER, _INDENT = 4.8, "\N{NO-BREAK SPACE}" * 4
"""Points of a letter of a label, and what a level has before its name."""


@dataclass(frozen=True)
class _Row:
    """A row of a forest plot: its name and texts, and what is drawn of it, in its unit."""

    label: str
    texts: tuple[str, ...] = ("", "", "")
    unit: tuple[Any, ...] = ()
    drawn: tuple[float, ...] = (math.nan,) * 3
    whole: bool = False


def outcomes(
    fit: StudyEffects,
    by: str | Sequence[str] | None = None,
    *,
    conf_level: float = 0.95,
    simultaneous: bool = True,
    ax: Any = None,
) -> Any:
    """Draw the effects on all outcomes with their intervals (a forest plot); return the axes.

    Squares are effects on all records, hollow circles those in subgroups. Outcomes with different
    units have panels of their own, which are inset in the axes; effects on outcomes of 0 and 1 are
    in percentage points.

    Parameters
    ----------
    fit
        What `dp_study` returned.
    by
        A factor of subgroups, or a list of them: below the effect on all records, those at each
        level, with the p-value of the interaction of the factor with treatment.
    conf_level
        Level of the intervals.
    simultaneous
        Whether intervals hold for all outcomes at once, and those in subgroups for all of these.
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
    'Effect of treatment (95% CI)'
    """
    factors = [spelled(x, fit.subgroups) for x in ([by] if isinstance(by, str) else by or ())]
    rows = list(_rows(fit, conf_level, simultaneous, factors))
    left, panels = len(rows[ROWS:]), _panels(rows[:ROWS])
    gap = _GAP * (len(panels) > 1)
    rows = [row for _, own in panels for row in (*own, *[_Row("")] * gap)]
    rows = rows[: len(rows) - gap // 2]
    heads = f"Effect ({look.ci(conf_level)})", "n", "P for interaction"
    columns = 3 if factors else 1
    with look.canvas(ax, (7.0, 1.6 + 0.28 * len(rows)), look.warnings(fit)) as axes:
        look.rows(axes, [row.label for row in rows])
        axes.set_ylim(top=-1.3)  # room for the heads
        look.columns(axes, [heads[:columns], *(row.texts[:columns] for row in rows)])
        for label, row in zip(axes.get_yticklabels(), rows, strict=True):
            label.set(fontweight="bold" if row.whole and factors else "normal", ha="left")
        longest = max(len(look.short(row.label)) for row in rows)
        axes.tick_params(axis="y", pad=12.0 + _LETTER * longest)
        below, first = _axis(fit, conf_level), 0
        for unit, own in panels:
            _panel(_inset(axes, first, len(own), unit) if gap else axes, own, first)
            first += len(own) + gap
        if gap:
            axes.set_xticks([])
            axes.spines["bottom"].set_visible(False)
        axes.set_xlabel(below if gap else f"{below}\n{panels[0][0]}", labelpad=3.0 + 4.0 * gap)
        axes.set_title(_caption(simultaneous and len(rows) > 1, factors, left))
    return axes


def _rows(
    fit: StudyEffects, conf_level: float, simultaneous: bool, factors: list[str]
) -> Iterator[_Row]:
    """Effects on all records, each with those at the levels of factors below it."""
    asked: dict[str, Any] = {"conf_level": conf_level, "simultaneous": simultaneous}
    effects = fit.tidy(**asked).to_dict("records")
    tests = fit.interactions(**asked).set_index(["term", "subgroup"])["p_value"].to_dict()
    found, size = [], sum(fit.sizes.values()) if "size" in fit.sample else fit.n
    for factor in factors:
        part = fit.by(factor)
        own = part.tidy(**asked).to_dict("records")
        found.append((factor, part.subsets, own, size * _shares(fit, factor)))
    for i, row in enumerate(effects):
        name = "Overall" if factors and len(effects) == 1 else str(row["term"])
        whole = _row(fit, i, row, name, f"{size:,.0f}")
        yield replace(whole, whole=True)
        for factor, levels, own, sizes in found:
            p = tests.get((row["term"], factor))
            texts = "", "", "" if p is None else p_text(p)
            yield _Row(factor, texts, whole.unit)
            places = range(i, len(own), len(effects))
            for k, records in zip(places, sizes, strict=True):
                level = levels[k].removeprefix(f"{factor} ")
                yield _row(fit, i, own[k], f"{_INDENT}{level}", f"{records:,.0f}")


def _row(fit: StudyEffects, i: int, row: Any, label: str, records: str) -> _Row:
    """A row in the units of its outcome: percentage points where that is 0 or 1."""
    column, _ = fit._about(i)
    share = column.two_valued and (column.low, column.high) == (0.0, 1.0)
    what = "Difference, percentage points" if share else f"Difference in means of {column.name}"
    factor = 100.0 if share else 1.0
    value, low, high = (factor * row[x] for x in ("estimate", "conf_low", "conf_high"))
    shown, *ends = to_error((value, low, high), factor * row["std_error"])
    text = printed(f"{shown} ({' to '.join(ends)})", row["noise_ratio"])
    drawn = (math.nan if row["noise_ratio"] > 1.0 else value, low, high)
    return _Row(label, (text, records, ""), (column.low, column.high, share, what), drawn)


def _shares(fit: StudyEffects, factor: str) -> Any:
    """Shares of the records at the levels of a factor, as released."""
    sizes = np.array([site.whole.sizes.sum() for site in fit.sums.sites])
    if factor in fit.subgroups:
        sizes = fit.sums.groups[fit.subgroups.index(factor)].sizes.sum(axis=0)
    return np.maximum(sizes / sizes.sum(), 0.0)


def _panels(rows: list[_Row]) -> list[tuple[str, list[_Row]]]:
    """Rows of neighbouring outcomes with the same unit, and what they measure."""
    panels = []
    for _, part in groupby(rows, lambda row: row.unit[:-1]):
        own = list(part)
        names = {row.unit[-1] for row in own}
        panels.append((names.pop() if len(names) == 1 else "Difference in means", own))
    return panels


def _inset(ax: Any, first: int, count: int, unit: str) -> Any:
    """Axes for some of the rows, from one on, with a scale of their own."""
    from matplotlib.transforms import Bbox, TransformedBbox

    top, bottom = first - 0.6, first + count - 0.4
    rows = Bbox([[0.0, top], [1.0, bottom]])

    def place(*_: Any) -> Any:
        return TransformedBbox(rows, ax.get_yaxis_transform() - ax.figure.transSubfigure)

    inset = ax.inset_axes((0.0, 0.0, 1.0, 1.0))
    inset.set(axes_locator=place, ylim=(bottom, top), yticks=[])
    inset.spines[["left", "top", "right"]].set_visible(False)
    inset.patch.set_visible(False)
    inset.tick_params(labelsize=look.SMALL, length=3.0)
    inset.set_xlabel(unit, fontsize=look.SMALL, labelpad=1.0)
    return inset


def _panel(ax: Any, rows: list[_Row], first: int) -> None:
    """Draw intervals and estimates: on all records full squares, in subgroups hollow circles."""
    look.zero(ax, vertical=True)
    for place, row in enumerate(rows, first):
        value, low, high = row.drawn
        look.interval(ax, place, low, high, gid="interval", marker="")
        how: dict[str, Any] = {"marker": "s", "ms": 6.0} if row.whole else {"marker": "o"}
        if math.isfinite(value):
            face = look.INK if row.whole else "white"
            ax.plot([value], [place], color=look.INK, mfc=face, gid="estimate", zorder=3, **how)
        elif math.isnan(low) and row.texts[0]:
            look.lacking(ax, place, "n/a")
    ax.margins(x=0.08)
    ax.locator_params(axis="x", nbins=5)
    look.thousands(ax)


def _axis(fit: StudyEffects, conf_level: float) -> str:
    if len(fit.outcomes) == 1:
        return look.effect_axis(fit, look.ci(conf_level))
    what = "Association with" if fit.associated else "Effect of"
    return f"{what} {fit.treatment} ({look.ci(conf_level)})"


def _caption(simultaneous: bool, factors: list[str], left: int) -> str:
    text = "Intervals hold for all outcomes simultaneously" if simultaneous else ""
    text += ", those in subgroups for all levels of a factor" if text and factors else ""
    more = f"The other {left} rows are in tidy()" if left else ""
    return ". ".join(filter(None, (text, more)))


def of_study(
    fit: StudyEffects, *, kind: str = "forest", most: int | None = None, **asked: Any
) -> Any:
    """Draw the effects of a study, or the differences of its Table 1."""
    if kind not in ("forest", "love"):
        raise OptionError(f'kind must be "forest" or "love", got {kind!r}')
    if kind == "love":
        return love(fit, most=most, ax=asked.get("ax"))
    return outcomes(fit, **asked)
