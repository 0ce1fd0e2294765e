"""compare: results side by side, one column a fit, as regression tables are printed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from dpeffects import summary
from dpeffects.errors import OptionError, advised, checked_call
from dpeffects.guarantee import protected, status_warning
from dpeffects.inference.intervals import check_conf_level
from dpeffects.lazy import pd
from dpeffects.report.journal_table import about, line
from dpeffects.results.number_format import NOT_AVAILABLE, number
from dpeffects.results.scaled import SCALES, check_scale
from dpeffects.results.wording import capital, effect_cells, percent, rows_of
from dpeffects.summary import Summary

_STATS = ("std_error", "conf_int")
_FACTS = ("outcome", "estimand", "method", "level", "epsilon", "delta", "guarantee", "n")
_WIDTH, _LABEL, _CELL = 80, 26, 20
"""A line of text, and the most that a label and a cell take of it before they are wrapped."""
Cells = dict[tuple[int, str, int], str]
"""Cells of one fit by (0 for effects or 1 for facts, label, line)."""


@dataclass(frozen=True, repr=False)
class Comparison(summary.SummaryMixin):
    """Results side by side; made by `compare`.

    ``stat`` is what stands below each estimate: "std_error" or "conf_int".
    """

    fits: tuple[Any, ...]
    names: tuple[str, ...]
    stat: str = "std_error"
    conf_level: float = 0.95
    scale: str = "difference"

    def tidy(self) -> pd.DataFrame:
        """One row for each effect of each fit; the column ``fit`` has the fit's name.

        ``covers`` is what an interval is for: "effect", or "noise" where sampling error is left
        out.
        """
        frame = _bound(self.names, [fit.tidy(**self._asked) for fit in self.fits])
        if "covers" in frame:
            frame["covers"] = frame["covers"].fillna("effect")
        return frame

    @property
    def _asked(self) -> dict[str, Any]:
        """What the rows of each fit are asked for."""
        scale = {} if self.scale == "difference" else {"scale": self.scale}
        return {"conf_level": self.conf_level, **scale}

    def glance(self) -> pd.DataFrame:
        """One row for each fit: size, method, guarantee, share of noise."""
        return _bound(self.names, [fit.glance() for fit in self.fits])

    def summary(self, form: str = "full", *, width: int | None = None) -> Summary:
        """Return the table as a summary, in panels that fit a width; short: no notes."""
        columns = [self._column(fit) for fit in self.fits]
        labels = list(dict.fromkeys(label for column in columns for label in column))
        labels.sort(key=lambda label: label[0])  # effects above facts; a stable sort
        named = list(zip(self.names, columns, strict=True))
        panels = [named] if width is None else _panels(named, width)
        title = f"{len(self.fits)} result{'s' if len(self.fits) > 1 else ''} side by side"
        tables = (_table(labels, panel) for panel in panels)
        last: summary.Block = summary.Prose('Full results: summary("full")')
        if summary.check_form(form) == "full":
            last = summary.Notes(self._notes())
        return Summary(title, self._starred(), (*tables, last))

    def table(self) -> Summary:
        """Return a table for a manuscript: one line an effect, and one footnote about each fit."""
        rows, feet = [], []
        for name, fit in zip(self.names, self.fits, strict=True):
            found = rows_of(fit, **self._asked)
            size = number(fit.n), number(fit.guarantee.epsilon)
            for row in found:
                label = name if len(found) == 1 else f"{name}: {row['term']}"
                rows.append((label, *line(row, effect_cells(row)), *size))
            feet.append(f"{name}: {about(fit)}")
        columns = ("", "estimate", f"{percent(self.conf_level)} CI", "P", "n", "epsilon")
        lines = summary.Table("", columns, tuple(rows), "lrrrrr")
        foot = summary.Prose(" ".join((*feet, *self._notes()[1:])))
        title = capital(SCALES[self.scale]) + ", by result"
        return Summary(title, self._starred(), (lines, foot))

    def as_text(self, width: int = 80) -> str:
        """Return the table as text, in panels no wider than ``width``."""
        return self.summary(width=width).as_text(width)

    def as_html(self, standalone: bool = False) -> str:
        """Return the table as HTML."""
        return self.summary().as_html(standalone)

    def as_latex(self, standalone: bool = False) -> str:
        """Return the table as LaTeX, in panels that fit the line."""
        return self.summary(width=_WIDTH).as_latex(standalone)

    def as_markdown(self) -> str:
        """Return the table as Markdown."""
        return self.summary().as_markdown()

    def as_docx(self, path: str | PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the table to a Word file, in panels that fit a page; return the path."""
        return self.summary(width=_WIDTH).as_docx(path, overwrite=overwrite)

    def __str__(self) -> str:
        return self.as_text()

    __repr__ = __str__

    def _column(self, fit: Any) -> Cells:
        tidy, glance = fit.tidy(**self._asked), fit.glance().iloc[0]
        cells: Cells = {}
        for row in rows_of(fit, **self._asked):
            label = _unused(str(row["term"]), cells)
            cells[0, label, 0], cells[0, label, 1] = _effect(row, self.stat)
        facts = {name: tidy[name].iloc[0] for name in ("outcome", "estimand")} | dict(glance)
        if (count := tidy["outcome"].nunique()) > 1:
            facts["outcome"] = f"{count} outcomes"
        cells |= {(1, name, 0): number(facts[name]) for name in _FACTS}
        share = float(glance.get("noise_share", math.nan))
        cells[1, "noise share", 0] = "n/a" if math.isnan(share) else percent(share, ".1f")
        if identification := glance.get("identification"):
            cells[1, "identification", 0] = identification
        cells[1, "warnings", 0] = str(glance["warnings"]).split(":")[0] or "-"
        return cells

    def _starred(self) -> str:
        lines = []
        for name, row in zip(self.names, self.glance().to_dict("records"), strict=True):
            warnings = (status_warning(str(row["guarantee"])), row["warnings"])
            lines += [f"{name}: {words}" for words in summary.each_warning(*warnings)]
        return summary.starred(lines)

    def _notes(self) -> tuple[str, ...]:
        below = "standard errors in (...)"
        if self.stat == "conf_int":
            below = f"{percent(self.conf_level)} [intervals]"
        tidy, glance = self.tidy(), self.glance()
        parts = "sampling error and privacy noise"
        if "bias_variance" in glance and (glance["bias_variance"] > 0.0).any():
            parts = "sampling error, privacy noise and an allowance for possible bias"
        notes = [f"Below the estimates: {below}. They include {parts}."]
        if self.scale != "difference":
            notes.insert(0, f"All effects are on the scale {self.scale} ({SCALES[self.scale]}).")
        if "covers" in tidy and (tidy["covers"] == "noise").any():
            fits = ", ".join(dict.fromkeys(tidy.loc[tidy["covers"] == "noise", "fit"]))
            notes.append(f"Of privacy noise only, without sampling error: {fits}.")
        units = glance["unit"].unique()
        if len(units) > 1:
            said = "; ".join(map(protected, units))
            notes.append(f"Units of protection differ ({said}): epsilons are not comparable.")
        return tuple(notes)


@checked_call
def compare(
    *fits: Any,
    names: Sequence[str] | None = None,
    stat: str = "std_error",
    conf_level: float = 0.95,
    scale: str = "difference",
) -> Comparison:
    """Put results side by side: one column a fit, estimates above, what they cost below.

    Parameters
    ----------
    *fits
        Results of `dp_ate`, `dp_att`, `dp_atc`, `dp_cate` or `combine`, in any mixture.
    names
        Names of the columns; by default (1), (2), ...
    stat
        What stands below each estimate: "std_error" or "conf_int".
    conf_level
        Level of the intervals.
    scale
        Scale of average effects: one of those of `Result.effect`. Other scales than the difference
        have intervals, and no standard errors.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> fits = [
    ...     dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=e, seed=1)
    ...     for e in (1, 4)
    ... ]
    >>> table = dpe.compare(*fits, names=["strict", "loose"])
    >>> table.tidy()[["fit", "term"]].values.tolist()
    [['strict', 'treatment'], ['loose', 'treatment']]
    """
    if not fits:
        raise OptionError("compare needs at least one result: compare(fit1, fit2)")
    scale = check_scale(scale)
    for fit in fits:
        if not all(hasattr(fit, name) for name in ("tidy", "glance", "report")):
            hint = advised("compared").get(type(fit).__name__, "")
            raise OptionError(f"compare takes results, not {type(fit).__name__}{hint}")
        if "estimate" not in fit.tidy():
            raise OptionError(f"compare takes effects; {type(fit).__name__} has none")
        if scale != "difference" and not hasattr(fit, "means"):
            told = "scale is for average effects, and {} has terms of its own: leave it out"
            raise OptionError(told.format(type(fit).__name__))
    if stat not in _STATS:
        raise OptionError(f'stat must be "std_error" or "conf_int", got {stat!r}')
    stat = stat if scale == "difference" else "conf_int"
    return Comparison(fits, _names(names, len(fits)), stat, check_conf_level(conf_level), scale)


def _names(names: Sequence[str] | None, size: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"({i})" for i in range(1, size + 1))
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise OptionError(f"names must be a list of texts, got {names!r}")
    if len(names) != size or len(set(names)) != size:
        raise OptionError(f"names must be {size} different names, one for each fit, got {names!r}")
    return tuple(names)


def _bound(names: Sequence[str], frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    own = [x.drop(columns="fit", errors="ignore") for x in frames]  # a covariate may be called so
    return pd.concat(own, keys=names, names=["fit"]).reset_index("fit").reset_index(drop=True)


def _unused(label: str, cells: Cells) -> str:
    """Two points may be called the same."""
    name, i = label, 1
    while (0, name, 0) in cells:
        i += 1
        name = f"{label} ({i})"
    return name


def _effect(row: dict[Any, Any], stat: str) -> tuple[str, str]:
    """The estimate, and what stands below it."""
    noise = row.get("covers") == "noise"
    estimate, error, low, high = effect_cells(
        row | {"std_error": row["noise_sd"]} if noise else row
    )
    if stat == "conf_int":
        return estimate, f"[{low}, {high}]" if low != NOT_AVAILABLE else f"[{NOT_AVAILABLE}]"
    return estimate, f"({error})"


def _table(labels: Sequence[tuple[int, str, int]], panel: list[tuple[str, Cells]]) -> summary.Table:
    names, columns = zip(*panel, strict=True)
    rows = [
        (label if line == 0 else "", *(column.get((kind, label, line), "") for column in columns))
        for kind, label, line in labels
        if kind or any((kind, label, line) in column for column in columns)
    ]
    return summary.Table("", ("", *names), tuple(rows), "l" + "r" * len(names))


def _panels(named: list[tuple[str, Cells]], width: int) -> list[list[tuple[str, Cells]]]:
    """Divide the columns so that each panel fits the width."""
    longest = max(len(label) for _, column in named for _, label, _ in column)
    left = 0
    panels: list[list[tuple[str, Cells]]] = []
    for name, column in named:
        size = 2 + min(max(len(name), *map(len, column.values())), _CELL)
        if not panels or size > left:
            panels.append([])
            left = width - min(longest, _LABEL)
        panels[-1].append((name, column))
        left -= size
    return panels
