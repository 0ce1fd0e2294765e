"""Calls about people whose truth is known: an ability declares people, a call and what is true.

One run makes the call, and beside it an estimate without privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from harness import SE_300, Cell, Part, Row, Summary, Table, median, over, percent, root

import dpeffects as dpe


class Asked(NamedTuple):
    """One call, and what is true by the terms of its table.

    ``plain`` are a textbook's estimates without privacy; None stands for the same call without
    noise. ``then`` reads the table of the terms from what the call returns.
    """

    call: str
    formula: str
    data: Any
    truth: Mapping[str, float]
    options: Mapping[str, Any]
    plain: Mapping[str, float] | None = None
    then: Callable[[Any], Any] = lambda fit: fit


Make = Callable[..., Asked]


def run(make: Make, people: int, noise: int, epsilon: float = 1.0, **cell: Any) -> list[Row]:
    """A row for each term."""
    asked = make(people, **cell)
    given = {"epsilon": epsilon, "seed": noise, **asked.options}
    fit = getattr(dpe, asked.call)(asked.formula, asked.data, **given)
    own, rows = numbers(asked.then(fit)), []
    beside = {term: [(asked.plain or {}).get(term, np.nan)] * 3 for term in asked.truth}
    if asked.plain is None:
        same = dpe.reference(asked.formula, asked.data, call=asked.call, **given)
        beside = numbers(asked.then(same))
    for term, true in asked.truth.items():
        (found, low, high), slack = own[term], 1e-9 * abs(true)
        held = float(low - slack <= true <= high + slack) if low == low else np.nan
        row = {"run": people, "term": term, "error": found - true, "covered": held}
        estimate, lower, upper = beside[term]
        row |= {"plain": estimate - true, "width": high - low, "plain width": upper - lower}
        rows.append(row)
    return rows


def numbers(fit: Any) -> dict[str, list[float]]:
    """Estimates and intervals by term, not a number where there is none."""
    table = fit.tidy().set_index("term")[["estimate", "conf_low", "conf_high"]]
    return table.apply(pd.to_numeric, errors="coerce").T.astype(float).to_dict("list")


def covariates(made: Any) -> str:
    """Those of a simulator, for a formula."""
    return " + ".join(x for x in made.frame if x[0] == "x")


# What a row of a page says, and pages


def of(term: str, summary: Summary) -> Summary:
    """A column about one term only."""
    return lambda runs: summary(runs[runs["term"] == term])


def typical(name: str) -> Summary:
    """The median without the sign."""
    return lambda runs: float(f"{runs[name].abs().median():.3g}")


WORTH = {
    "covered": percent("covered"),
    "error": root("error"),
    "without privacy": root("plain"),
    "over non-private": over("error", "plain"),
    "width": median("width"),
}
LOT = {"design": "randomised"}
SE = f"The standard error of a coverage of 95 % in 300 runs is {SE_300}."


def part(title: str, make: Make, cells: list[Cell], columns: Any = WORTH, **more: Any) -> Part:
    """Cells of an ability; each run has what ``make`` declares."""
    return Part(title, cells, partial(run, make), columns, runs=300, chunk=20, **more)


def table(title: str, notes: Any, minutes: float, *parts: Part, **more: Any) -> Table:
    return Table(title, parts, notes, minutes=minutes, **more)
