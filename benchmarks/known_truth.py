"""Calls about people whose truth is known: what a run of any ability says, and its columns.

An ability declares people, a call and what is true (`Asked`). One run makes the call, and beside it
an estimate without privacy: a textbook's, or that of the same call without noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from harness import Cell, Part, Row, Summary, over, percent, root, standard_error

import dpeffects as dpe


class Asked(NamedTuple):
    """One call, and what is true by the terms of its table.

    ``plain`` are estimates without privacy by term; None stands for those of `dpe.reference`.
    ``then`` reads the table of the terms from what the call returns, and ``also`` what else holds.
    """

    call: str
    formula: str
    data: Any
    truth: Mapping[str, float]
    options: Mapping[str, Any]
    plain: Mapping[str, float] | None = None
    then: Callable[[Any], Any] = lambda fit: fit
    also: Callable[[Any], Mapping[str, Any]] = lambda fit: {}


def run(
    make: Callable[..., Asked],
    people: int,
    noise: int,
    epsilon: float = 1.0,
    widths: bool = False,
    **cell: Any,
) -> list[Row]:
    """A row for each term, and one for each thing that holds or does not."""
    asked = make(people, **cell)
    given = {"epsilon": epsilon, "seed": noise, **asked.options}
    fit = getattr(dpe, asked.call)(asked.formula, asked.data, **given)
    own, rows = asked.then(fit).tidy().set_index("term"), []
    beside = pd.DataFrame(index=own.index, columns=["estimate", "conf_low", "conf_high"])
    if widths or asked.plain is None:
        same = dpe.reference(asked.formula, asked.data, call=asked.call, **given)
        beside = asked.then(same).tidy().set_index("term")
    for term, true in asked.truth.items():
        found, low, high = numbers(own, term)
        plain, lower, upper = numbers(beside, term)
        plain, slack = (asked.plain or {}).get(term, plain), 1e-9 * abs(true)
        held = float(low - slack <= true <= high + slack) if low == low else np.nan
        row = {"error": found - true, "plain": plain - true, "covered": held}
        rows.append({"run": people, "term": term, **row, "width": high - low})
        rows[-1]["plain width"] = upper - lower
    return rows + [{"run": people, "term": x, "covered": y} for x, y in asked.also(fit).items()]


def numbers(table: pd.DataFrame, term: str) -> list[float]:
    """An estimate and its interval, not a number where there is none."""
    each = table.loc[term, ["estimate", "conf_low", "conf_high"]]
    return pd.to_numeric(each, errors="coerce").astype(float).tolist()


# Of people and calls


def sigmoid(z: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-z))


def logit(share: float) -> float:
    return float(np.log(share / (1.0 - share)))


def design(randomised: bool) -> dict[str, Any]:
    return {"design": "randomised" if randomised else "observational"}


# What a row of a page says


def of(term: str, summary: Summary) -> Summary:
    """A column about one term only."""
    return lambda runs: summary(runs[runs["term"] == term])


def every(runs: pd.DataFrame) -> float:
    """How often all intervals of a run cover at once, in per cent."""
    return round(100.0 * runs.groupby("run")["covered"].min().mean(), 1)


def typical(name: str) -> Summary:
    """The median without the sign."""
    return lambda runs: float(f"{runs[name].abs().median():.3g}")


def wider(runs: pd.DataFrame) -> float:
    """Median widths over those of intervals without privacy."""
    return round(runs["width"].median() / runs["plain width"].median(), 2)


def endless(runs: pd.DataFrame) -> float:
    """How often an interval has no end on a side."""
    return round(100.0 * np.isinf(runs["width"]).mean(), 1)


WORTH = {
    "covered": percent("covered"),
    "error": root("error"),
    "without privacy": root("plain"),
    "over non-private": over("error", "plain"),
}
OPEN = WORTH | {"without an end": endless}
SE = f"The standard error of a coverage of 95 % in 300 runs is {standard_error(300)}."
SAME = f"{SE} Each epsilon has the same people: coverages of one population go together."


def part(
    title: str,
    make: Callable[..., Asked],
    cells: list[Cell],
    columns: Mapping[str, Summary] | Callable[[pd.DataFrame], Row] = WORTH,
    runs: int = 300,
    **more: Any,
) -> Part:
    """Cells of an ability; each run has what ``make`` declares."""
    return Part(title, cells, partial(run, make), columns, runs=runs, chunk=20, **more)
