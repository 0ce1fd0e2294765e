"""Summary and paragraph about released moments, and about regressions on them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpeffects.estimators import table_methods
from dpeffects.report.about_records import headline
from dpeffects.report.blocks import alert, closing, header
from dpeffects.report.paragraph import paragraph
from dpeffects.results.moments import Moments, Regression
from dpeffects.results.numbers import NOT_AVAILABLE, number, to_error
from dpeffects.results.words import (
    Lines,
    cells_of_rows,
    estimates,
    limits,
    p_cell,
    percent,
    with_limits,
)
from dpeffects.summary import MOST_ROWS, Block, Pairs, Summary, Table, describe, printed, summarise

_SHOWN = 40
_LOST = "n/a: {} varies by no more than the noise, given the other columns."
_FOLLOWS = (
    "What follows costs nothing: regression(), effect(), effects_by(), balance(). All of it comes "
    "out of one noisy matrix, so that its errors go together."
)
_ASSUMED = (
    "Noise and sampling error are compared for numbers that vary by an eighth of their range, "
    "levels that are equally frequent, and columns that are somewhat correlated. A regression has "
    "its own figures."
)


@summarise.register
def _(fit: Regression, conf_level: float = 0.95) -> Summary:
    lost = [name for name, gone in zip(fit.fit.names, fit.fit.lost, strict=True) if gone]
    notes = (*((_LOST.format(", ".join(lost)),) if lost else ()), *fit.notes)
    line = (
        ("Residual sd", _number(fit.residual_sd)),
        ("R squared (adjusted)", _number(fit.r_squared)),
    )
    blocks: tuple[Block, ...] = (_header(fit), *_coefficients(fit, conf_level), Pairs(line, "Line"))
    title = f"Private regression of {fit.outcome} on released moments"
    return Summary(title, alert(fit), (*blocks, *closing(fit, notes)))


@describe.register
def _(fit: Regression, conf_level: float) -> str:
    rows = fit.tidy(conf_level).to_dict("records")
    found = "; ".join(f"{row['term']}: {with_limits(row)}" for row in rows)
    finding = f"Coefficients, with {percent(conf_level)} confidence intervals: {found}."
    return paragraph(fit, [finding], subject=f"a regression of {fit.outcome}")


@summarise.register
def _(kept: Moments, conf_level: float = 0.95) -> Summary:
    tables: tuple[Block, ...] = (_worth(kept), _means(kept), *_differences(kept))
    title = "Private second moments, for regressions"
    alone = f"Effects by {' and by '.join(kept.levels)}, each by itself." if kept.levels else ""
    notes = (_ASSUMED, _FOLLOWS, alone, *kept.notes)
    return Summary(title, alert(kept), (_header(kept), *tables, *closing(kept, notes)))


@describe.register
def _(kept: Moments, conf_level: float) -> str:
    row = kept.worth.to_dict("records")[0]
    finding = (
        f"The noise in the coefficient of {kept.treatment} is about "
        f"{number(row['noise_to_sampling'], 2)} times its sampling error; it would be a "
        f"half of it at n = {row['n_for_half']}."
    )
    columns = f"the matrix of second moments of {len(kept.matrix.columns)} columns"
    return paragraph(kept, [finding], subject=columns, verb="released")


@headline.register
def _(fit: Regression, conf_level: float = 0.95) -> Lines:
    rows = fit.tidy(conf_level).to_dict("records")
    return estimates(rows, f"a regression of {fit.outcome}", conf_level)


@headline.register
def _(kept: Moments, conf_level: float = 0.95) -> Lines:
    rows = kept.worth.to_dict("records")[:MOST_ROWS]
    return [
        ("Released", f"second moments of {len(kept.matrix.columns)} columns, for regressions"),
        *((f"Noise, {row['column']}", _times(row)) for row in rows),
        (
            "What follows",
            "regression(), effect(), effects_by(), balance(), at no further cost",
        ),
    ]


def _times(row: Mapping[Any, Any]) -> str:
    return f"{number(row['noise_to_sampling'], 2)} times the sampling error of its coefficient"


def _header(record: Regression | Moments) -> Pairs:
    """What all results say, but for an estimand: a regression is not about an effect."""
    rows = dict(header(record).rows) | {"Assumes": table_methods()[record.method].assumes}
    return Pairs(tuple((name, text) for name, text in rows.items() if name != "Estimand"))


def _number(value: float) -> str:
    return NOT_AVAILABLE if math.isnan(value) else number(value, 4)


def _coefficients(fit: Regression, conf_level: float) -> tuple[Table, Table]:
    """The regression table, and the parts of its standard errors."""
    rows, parts = [], []
    shown = fit.tidy(conf_level).to_dict("records")
    for row, cells in zip(shown, cells_of_rows(shown), strict=True):
        rows.append((row["term"], *cells, p_cell(row)))
        errors = row["sampling_se"], row["noise_sd"]
        parts.append((row["term"], *to_error(errors, row["std_error"])))
    columns = ("", "estimate", "std. error", *limits(conf_level), "p-value")
    heads = ("", "sampling error", "privacy noise")
    return (
        Table("Coefficients", columns, tuple(rows), "lrrrrr"),
        Table("Parts of the standard errors", heads, tuple(parts), "lrr"),
    )


def _worth(kept: Moments) -> Table:
    """How large the noise is, from public numbers."""
    rows = tuple(
        (row["column"], f"{row['noise_to_sampling']:.2f}", str(row["n_for_half"]))
        for row in kept.worth.to_dict("records")
    )
    columns = ("coefficient of a", "noise / sampling error", "a half from n =")
    return Table("What these moments are worth, by public numbers", columns, rows, "lrr")


def _means(kept: Moments) -> Table:
    rows = _rows(kept.tidy().to_dict("records"), ("mean", "mean_noise_sd", "sd"), "mean_noise_sd")
    return Table("Released columns", ("", "mean", "noise sd", "sd"), rows, "lrrr")


def _differences(kept: Moments) -> tuple[Table, ...]:
    """Balance of the arms."""
    found = kept.balance().to_dict("records")
    if not found:
        return ()
    names = ("mean_reference", "mean", "smd", "std_error")
    rows = _rows([row | {"term": _of_arm(row)} for row in found], names, "std_error")
    first, *others = kept.arms
    heads = ("", first, others[0] if len(others) == 1 else "arm", "std. difference", "std. error")
    return (Table("Balance of the arms", heads, rows, "lrrrr"),)


def _of_arm(row: dict[Any, Any]) -> str:
    return f"{row['term']}, {row['arm']}" if "arm" in row else row["term"]


def _rows(
    found: list[dict[Any, Any]], names: tuple[str, ...], error: str
) -> tuple[tuple[str, ...], ...]:
    """Rows of numbers, to two digits of an error that is one of them; of many, the first."""
    rows = []
    for row in found[:_SHOWN]:
        cells = zip(names, to_error([row[name] for name in names], row[error]), strict=True)
        shown = (x if name == error else printed(x, row["noise_ratio"]) for name, x in cells)
        rows.append((row["term"], *shown))
    if left := len(found) - _SHOWN:
        rows += [(f"and {left} more", *[""] * len(names))] if left > 0 else []
    return tuple(rows)
