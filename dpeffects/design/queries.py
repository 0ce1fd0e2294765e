"""Counts and sums by arm that an engine computes in one query, in its own words.

Clip, scale, floor(x + 1/2) and cast are the same IEEE operations as in memory, and what is summed
are integers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from dpeffects.arrays import IntArray, Interval
from dpeffects.design.arms import Outcome, ScaledSquare
from dpeffects.design.columns import Columns, present
from dpeffects.design.engines import hide_engine_errors
from dpeffects.formula.ranges import middle
from dpeffects.lazy import pd
from dpeffects.privacy.sets import Box, BoxGrid
from dpeffects.privacy.tight_sets import in_steps

OutcomeFunction = Outcome | ScaledSquare
Ready = dict[tuple[Any, ...], IntArray]
"""Sums by arm that are known, by what they are of and on which grid."""


def by_arm(
    frame: nw.LazyFrame[Any],
    columns: Columns,
    outcome: tuple[str, Interval] | None,
    sums: Mapping[OutcomeFunction, BoxGrid],
    check: Iterable[str] = (),
) -> dict[int, dict[Any, int]]:
    """Counts, sums of encoded outcomes and counts of usable values, by number of the arm.

    ``check`` are the columns whose usable values are counted, by name. More entries than arms mean
    that some treatments are none of them.
    """
    schema = frame.collect_schema()
    checked = {f"c{k}": name for k, name in enumerate(check)}
    kept = {"t": nw.col(columns.treatment)}
    kept |= {key: nw.col(name) for key, name in checked.items()}
    if outcome:
        kept["y"] = within(nw.col(outcome[0]).cast(nw.Float64), *outcome[1])
        if outcome[0] in columns.lenient:
            filled = nw.when(nw.col(outcome[0]).is_null()).then(nw.lit(middle(outcome[1])))
            kept["y"] = filled.otherwise(kept["y"])
    y = nw.col("y")
    made: dict[Any, nw.Expr] = {
        phi: in_steps(grid, phi.expression(y)) for phi, grid in sums.items()
    }
    for key, name in checked.items():
        made[f"usable {name}"] = _usable(nw.col(key), name, schema[name], columns).cast(nw.Int64)
    named = {f"m{k}": expression for k, expression in enumerate(made.values())}
    totals = [nw.col(name).sum() for name in named]
    with hide_engine_errors(frame):
        part = frame.select(**kept)
        groups = (part.with_columns(**named) if named else part).group_by("t")
        some = groups.agg(nw.len().alias("count"), *totals).head(columns.arm_count + 4)
        rows = some.collect().rows(named=True)
    found: dict[int, dict[Any, int]] = {}
    number = _number_of_arm(columns, schema)
    for position, row in enumerate(rows):
        # missing treatments, where they may be, are in the first arm
        there = found.setdefault(number(row["t"], position), dict.fromkeys([*made, "count"], 0))
        for what, name in zip([*made, "count"], [*named, "count"], strict=True):
            there[what] += int(row[name] or 0)
    return found


def _usable(value: nw.Expr, name: str, dtype: Any, columns: Columns) -> nw.Expr:
    """True where a value can be used, as `Columns.read` says of rows in memory."""
    if name in columns.levels:
        fine = _one_of(value, present(columns.levels[name]))
    else:
        fine = value.is_finite() if dtype.is_float() else ~value.is_null()
    if name in columns.events and dtype != nw.Boolean:
        fine = fine & _one_of(value, (0, 1))
    if name in columns.whole:
        number = value.cast(nw.Float64)
        fine = fine & (number == number.floor())
    if name in columns.lenient:
        blank = value.is_null() | value.is_nan() if dtype.is_float() else value.is_null()
        fine = blank | fine
    return fine


def _one_of(column: nw.Expr, levels: Sequence[Any]) -> nw.Expr:
    """True for declared levels; comparisons are faster than a list as long as there are few."""
    if len(levels) > 8:
        return column.is_in(list(levels))
    return reduce(operator.or_, [column == level for level in levels])


def _number_of_arm(columns: Columns, schema: Any) -> Callable[[Any, int], int]:
    """From a treatment to its arm; one that is none of them gets a number beyond, by position."""
    arms: list[Any] = [False, True] if schema[columns.treatment] == nw.Boolean else [0, 1]
    if columns.arms is not None:
        arms = list(columns.arms)

    def number(value: Any, position: int) -> int:
        if pd.isna(value):
            return 0 if columns.treatment in columns.lenient else len(arms) + position
        return arms.index(value) if value in arms else len(arms) + position

    return number


def usual_sums(interval: Interval, n: int) -> dict[OutcomeFunction, BoxGrid]:
    """Sums and squares by arm, on the grids that they have unless epsilon is tiny."""
    return {
        Outcome(): Box(*interval).on(n, 1.0),
        ScaledSquare(*interval): Box(0.0, 1.0).on(n, 1.0),
    }


def key_of(phi: OutcomeFunction, grid: BoxGrid) -> tuple[Any, ...]:
    """What sums are of, and on which grid."""
    ends = (grid.box.low, grid.box.high, grid.box.centre)
    return (phi, grid.steps, *(float(end[0]) for end in ends))


def within(values: nw.Expr, lower: float, upper: float) -> nw.Expr:
    """`formula.ranges.clip` as an engine computes it.

    (Engines do not agree how NaN compares, so it is asked for first. Their own `clip` would look
    for missing values once more; they are refused anyway.)
    """
    below = nw.when(values < lower).then(nw.lit(lower)).otherwise(values)
    inside = nw.when(values > upper).then(nw.lit(upper)).otherwise(below)
    return nw.when(values.is_nan()).then(nw.lit(middle((lower, upper)))).otherwise(inside)


def in_two_arms(found: Mapping[int, Mapping[Any, int]], what: Any) -> IntArray:
    """Sums over (treated, control)."""
    treated = sum(sums[what] for arm, sums in found.items() if arm)
    return np.array([[treated], [found[0][what]]], dtype=np.int64)


def doubtful(frame: nw.LazyFrame[Any], columns: Columns) -> list[str]:
    """Columns whose levels an engine may find where `codes` would not, in later looks.

    Engines compare decimals, single precision, dates and texts with a collation in their own ways.
    """
    schema, levels = frame.collect_schema(), dict(columns.levels)
    if columns.arms is not None:
        levels[columns.treatment] = columns.arms
    levels = {name: tuple(present(found)) for name, found in levels.items()}
    exact = frame.implementation.is_polars() or frame.implementation.is_dask()

    def plain(name: str) -> bool:
        kinds, dtype = {type(level) for level in levels[name]}, schema[name]
        if kinds == {str}:
            return exact and dtype == nw.String
        return (kinds == {int} and dtype.is_integer()) or (kinds == {bool} and dtype == nw.Boolean)

    return [name for name in levels if not plain(name)]
