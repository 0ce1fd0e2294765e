"""Rows that stay where they are: polars lazy frames, DuckDB, Parquet files, Dask and Spark.

An engine is asked for two things. Counts and sums by arm are one query of integer sums, which it
runs itself: clip, scale, floor(x + 1/2) and cast are the same IEEE operations as in memory.
Everything else is a `fold`: a function of blocks of rows, which DuckDB and polars feed with batches
in bounded memory, and which Dask and Spark run where the partitions are. Only integers come back,
and they add up the same in every order: two engines with the same seed give the same numbers.
Float sums of an engine are never used.
"""

from __future__ import annotations

import glob
import operator
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, ClassVar

import narwhals.stable.v2 as nw
import numpy as np

from dpeffects.arrays import IntArray, Interval
from dpeffects.design.arms import ARMS, TREATED, ArmByCell, Outcome, ScaledSquare
from dpeffects.design.columns import Columns, Design, Recipe, present, refuse_missing
from dpeffects.design.sample import Sample, identifiers
from dpeffects.errors import DataError, DPEffectsError, OptionError
from dpeffects.files import LONGEST, Frame, by_declaration, refuse_text, scan, unreadable
from dpeffects.formula.encoding import Arrays
from dpeffects.formula.expression import Column, Compare, Expression, Survival
from dpeffects.formula.ranges import middle
from dpeffects.privacy.rows import (
    MOST_ROWS,
    ROWS,
    Block,
    ByRecord,
    Cells,
    Records,
    RowFunction,
    Rows,
    Summand,
    Totals,
    added,
    joined,
)
from dpeffects.privacy.sets import Box, BoxGrid
from dpeffects.privacy.units import UnitSizes

_BATCH = 4 * ROWS
_THREADS = os.cpu_count() or 1
_CHANGING = (
    "the frame gives other rows each time it is read, as a random sample or a limit without an "
    "order does: write them to a file or a table first, and use that"
)
MOST_STRATA = 2**21
"""Strata that are counted for rows on an engine: every block has a count for each."""

OutcomeFunction = Outcome | ScaledSquare
Ready = dict[tuple[Any, ...], IntArray]
"""Sums by arm that are known, by what they are of and on which grid."""
OnBatch = Callable[[Any], Totals | None]
"""From a native frame in memory to integers; None where it has no rows."""
Combine = Callable[[Iterable[Totals]], Totals]
"""`added`, or `joined` where values of each record are asked for."""


def open_if_path(data: Any) -> Any:
    """A path to Parquet or CSV files as a lazy frame; anything else as it is."""
    if not isinstance(data, str | os.PathLike):
        return data
    path = os.fspath(data)
    kind = Path(path).suffix.lower()
    if kind not in (".parquet", ".pq", ".csv"):
        advice = "read other files first, as pandas.read_excel(...)"
        advice = advice if kind else "data sets of the package are load_data(...)"
        raise DataError(
            f"data must be a frame, or the path of a .parquet or .csv file, not {path!r}: {advice}"
        )
    files = [path] if Path(path).exists() else sorted(glob.glob(path, recursive=True))
    if not files:
        raise DataError(f"there is no file {path!r}")
    headers = [scan(file) for file in files] if kind == ".csv" else []
    if any(names != headers[0] for names in headers):
        raise DataError(f"{path!r}: the files have different headers")
    try:
        return _with_duckdb([glob.escape(file) for file in files], headers)
    except ImportError:
        pass
    except Exception as error:
        why = error if isinstance(error, DataError) else type(error).__name__
        raise DataError(f"{path!r} cannot be read ({why})") from None
    try:
        import polars as pl
    except ImportError:
        raise OptionError(
            'files are read by DuckDB or polars: pip install "dpeffects[duckdb]", or give a frame, '
            "pandas.read_csv(...)"
        ) from None
    if not headers:
        return pl.scan_parquet(files, hive_partitioning=False, glob=False)
    said: dict[str, Any] = {"has_header": False, "skip_lines": 1, "eol_char": "\n", "glob": False}
    said |= {"separator": ",", "quote_char": '"', "null_values": [""], "encoding": "utf8"}
    return pl.scan_csv(files, schema=dict.fromkeys(headers[0], pl.String), **said)


def _with_duckdb(files: Sequence[str], headers: Sequence[Sequence[str]]) -> Any:
    """Files that were scanned, as text; or Parquet files, if they declare the same."""
    import duckdb

    if not headers:
        kinds = {str((one.columns, one.types)) for one in map(duckdb.read_parquet, files)}
        if len(kinds) > 1:
            raise DataError("the files have different columns or types")
        return duckdb.read_parquet(files, hive_partitioning=False, union_by_name=False)
    names = headers[0]
    if len({name.lower() for name in names}) < len(names):
        raise DataError("DuckDB takes names that differ in capital letters only as one")
    said: dict[str, Any] = {"header": True, "auto_detect": False, "strict_mode": True}
    said |= {"sep": ",", "quotechar": '"', "escapechar": '"', "comment": "", "skiprows": 0}
    said |= {"na_values": [""], "allow_quoted_nulls": True, "null_padding": False}
    said |= {"compression": "none", "encoding": "utf-8", "max_line_size": 2 * LONGEST}
    said |= {"hive_partitioning": False, "union_by_name": False, "ignore_errors": False}
    return duckdb.read_csv(files, columns=dict.fromkeys(names, "VARCHAR"), **said)


def memory() -> int:
    """Bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows does not say
        return 2**34


@dataclass(frozen=True)
class LazyTable:
    """Columns on an engine, checked there and not yet clipped.

    ``arm_counts`` are the numbers of records of the arms, ``ready`` sums by arm that came with the
    checks, ``kinds`` what the text of a CSV file was read as.
    """

    design: Design
    frame: nw.LazyFrame[Any]
    arm_counts: tuple[int, ...]
    ready: Ready
    kinds: Mapping[str, str]
    rows: int
    sample: Sample = field(default_factory=Sample)
    sizes: UnitSizes | None = None

    @property
    def treated_count(self) -> int:
        """Number of records that are not in the first arm."""
        return sum(self.arm_counts[1:])

    def column(self, *names: str) -> ColumnsOnEngine:
        """Columns as they are, in the place of covariates; the first in that of the outcome too."""
        return ColumnsOnEngine(self, names)

    def require_same_kinds(self, groups: Any) -> None:
        """Refuse a column of a CSV file that the formula and the groups read in two ways."""
        for name in self.kinds.keys() & groups.kinds.keys():
            if self.kinds[name] != groups.kinds[name]:
                raise DataError(
                    f"column {name!r} of the CSV file is read as {self.kinds[name]} by the formula "
                    f"and as {groups.kinds[name]} by the groups: read the file into a frame first"
                )

    def encode(self, groups: LazyTable | None = None) -> LazyRows:
        """Rows that are clipped and encoded where they are, by ``groups`` if given."""
        if groups is None:
            return LazyRows(self, dict(self.ready))
        both = replace(self, frame=by_declaration(self.frame, groups.kinds))
        strata = (groups.design.columns, groups.design.grouping())
        return LazyRows(both, dict(self.ready), strata)


class _OnEngine:
    """What is public about rows on an engine."""

    table: LazyTable

    @property
    def n(self) -> int:
        """Number of records or units."""
        return self.table.design.n

    @property
    def weighted(self) -> bool:
        """True where rows have weights."""
        return self.table.sample.weighted

    @property
    def most_rows(self) -> int:
        """Rows of a unit that can have a weight."""
        return 1 if self.table.sizes is None else MOST_ROWS


@dataclass(frozen=True)
class ColumnsOnEngine(_OnEngine):
    """Values of columns, in the place of covariates and outcome; there is nothing else."""

    table: LazyTable
    columns: tuple[str, ...]
    arms: ClassVar[int] = 2
    outcome_range: ClassVar[Interval] = (0.0, 0.0)
    n_strata: ClassVar[None] = None

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.columns)

    @property
    def values(self) -> tuple[int, ...]:
        """Nothing is known about their values."""
        return (0,) * (self.width + 1)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.columns

    def fold(self, function: Summand, *parts: str) -> Totals:
        """Add up a function of blocks of values."""
        table = self.table
        add = partial(
            _of_columns,
            columns=table.design.columns,
            names=self.columns,
            function=function,
            counted=(table.sample, table.sizes),
        )
        return run(
            table.frame, list(dict.fromkeys([*self.columns, *table.sample.read_columns])), add
        )

    def gather(self, function: ByRecord, *parts: str) -> Records:
        """Values of single records are not asked for."""
        raise NotImplementedError

    def in_engine(self, phi: RowFunction | None, grid: Any, cells: Cells | None) -> None:
        """An engine has no words for these."""

    def in_memory(self, why: str) -> Rows:
        """They are not in memory."""
        raise NotImplementedError


Counted = tuple[Sample, UnitSizes | None]
"""Which rows count, and how many rows each unit has."""


def _of_columns(
    native: Any, columns: Columns, names: tuple[str, ...], function: Summand, counted: Counted
) -> Totals | None:
    frame = nw.from_native(native, eager_only=True)
    if not len(frame):
        return None
    numbers = columns.numbers(frame, names)
    values = np.column_stack([numbers[name].astype(np.float64) for name in names])
    parts = counted[0].parts(frame, counted[1])
    block = Block(outcome=values[:, 0], covariates=values, **parts)
    starts = range(0, len(frame), ROWS)
    return added(function(block.some(slice(start, start + ROWS))) for start in starts)


def unit_sizes(frame: nw.LazyFrame[Any], sample: Sample) -> UnitSizes:
    """How many rows the units of a frame on an engine have, from one look at it."""
    found = run(frame, list(sample.read_columns), partial(_units_of, sample=sample), joined)
    return UnitSizes.of(found[0], found[1].astype(np.bool_))


def _units_of(native: Any, sample: Sample) -> Records | None:
    frame = nw.from_native(native, eager_only=True)
    if not len(frame):
        return None
    assert sample.unit is not None
    return identifiers(frame[sample.unit]), sample.own(frame) > 0.0


def refuse_unnamed(frame: nw.LazyFrame[Any], column: str) -> None:
    """Refuse names of units or clusters that cannot be used, before anything is released."""
    run(frame, [column], partial(_looked_at, column=column))


def _looked_at(native: Any, column: str) -> Totals:
    return (identifiers(nw.from_native(native, eager_only=True)[column])[:0],)


def typed(frame: Frame, kinds: Mapping[str, str]) -> Frame:
    """Read text, of a CSV file or of dates, as it is declared; refuse what does not fit."""
    if questions := unreadable(frame, kinds):
        refuse_text(asked(frame.lazy(), questions), kinds)
    return by_declaration(frame, kinds)


def rows_in(frame: nw.LazyFrame[Any]) -> int:
    """Number of rows: Parquet files know it."""
    return int(asked(frame, {"n": nw.len()})["n"])


def checked(
    frame: nw.LazyFrame[Any],
    columns: Columns,
    n: int,
    outcome: tuple[str, Interval] | None,
) -> tuple[tuple[int, ...], Ready]:
    """Refuse what cannot be used, and count the arms, in one query.

    Where the outcome is one column with a known range, its sums by arm come with it.
    """
    sums = _usual_sums(outcome[1], n) if outcome else {}
    look = partial(_refuse, columns=columns)
    everything = list(dict.fromkeys([*_named(columns), *columns.treatment_reads]))
    if columns.computed is not None:
        counts = tuple(run(frame, everything, look)[0].tolist())
        if not all(counts):
            raise columns.empty_arm()
        return counts, {}
    try:
        found = _by_arm(frame, columns, outcome, sums, check=True)
    except DataError:  # an engine that stumbles over a value does not say in which column
        found = {}
    arms = range(columns.arm_count)
    fine = set(found) == set(arms) and all(
        sum(arm[f"good {name}"] for arm in found.values()) == n for name in _named(columns)
    )
    if not fine:  # say why, as for rows in memory
        run(frame, everything, look)
        raise columns.empty_arm()
    if doubtful := _doubtful(frame, columns):
        run(frame, doubtful, look)
    ready = {_key(phi, grid): _pair(found, phi) for phi, grid in sums.items()}
    return tuple(found[arm]["count"] for arm in arms), ready


def _doubtful(frame: nw.LazyFrame[Any], columns: Columns) -> list[str]:
    """Columns whose levels an engine may find where `recipe.codes` would not, in later looks.

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


def _refuse(native: Any, columns: Columns) -> Totals | None:
    """Raise where a value cannot be used as rows are read later; count the arms."""
    frame = nw.from_native(native, eager_only=True)
    if not len(frame):
        return None
    refuse_missing(frame, set(frame.columns) - columns.lenient)
    columns.read(frame, frame.columns)
    if not set(columns.treatment_reads) <= set(frame.columns):
        return (np.zeros(0, dtype=np.int64),)
    arm, treated = columns.arm(frame), columns.treated(frame)
    arm = treated.astype(np.int64) if arm is None else arm
    return (np.bincount(arm, minlength=columns.arm_count),)


def _by_arm(
    frame: nw.LazyFrame[Any],
    columns: Columns,
    outcome: tuple[str, Interval] | None,
    sums: Mapping[OutcomeFunction, BoxGrid],
    check: bool = False,
) -> dict[int, dict[Any, int]]:
    """Counts, sums of encoded outcomes and counts of usable values, by number of the arm.

    More entries than arms mean that some treatments are none of them.
    """
    schema = frame.collect_schema()
    names, kept = list(_named(columns)), {"t": nw.col(columns.treatment)}
    if check:
        kept |= {f"c{k}": nw.col(name) for k, name in enumerate(names)}
    if outcome:
        kept["y"] = _within(nw.col(outcome[0]).cast(nw.Float64), *outcome[1])
        if outcome[0] in columns.lenient:
            filled = nw.when(nw.col(outcome[0]).is_null()).then(nw.lit(middle(outcome[1])))
            kept["y"] = filled.otherwise(kept["y"])
    y = nw.col("y")
    made: dict[Any, nw.Expr] = {
        phi: grid.expression(phi.expression(y)) for phi, grid in sums.items()
    }
    if check:
        for k, name in enumerate(names):
            good = _good(nw.col(f"c{k}"), schema[name], columns.levels.get(name))
            if name in columns.events and schema[name] != nw.Boolean:
                good = good & _one_of(nw.col(f"c{k}"), (0, 1))
            if name in columns.whole:
                value = nw.col(f"c{k}").cast(nw.Float64)
                good = good & (value == value.floor())
            if name in columns.lenient:
                good = _blank(nw.col(f"c{k}"), schema[name]) | good
            made[f"good {name}"] = good.cast(nw.Int64)
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


def _named(columns: Columns) -> dict[str, None]:
    """Columns that are read, each once."""
    return dict.fromkeys([*columns.numeric, *columns.levels])


def _good(column: nw.Expr, dtype: Any, levels: tuple[Any, ...] | None) -> nw.Expr:
    """True where a value can be used."""
    if levels is not None:
        return _one_of(column, present(levels))
    return column.is_finite() if dtype.is_float() else ~column.is_null()


def _blank(column: nw.Expr, dtype: Any) -> nw.Expr:
    """True where a value is missing."""
    return column.is_null() | column.is_nan() if dtype.is_float() else column.is_null()


def _one_of(column: nw.Expr, levels: Sequence[Any]) -> nw.Expr:
    """True for declared levels; comparisons are faster than a list as long as there are few."""
    if len(levels) > 8:
        return column.is_in(list(levels))
    return reduce(operator.or_, [column == level for level in levels])


def _number_of_arm(columns: Columns, schema: Any) -> Callable[[Any, int], int]:
    """From a treatment to its arm; one that is none of them gets a number beyond, by position."""
    import pandas as pd

    arms: list[Any] = [False, True] if schema[columns.treatment] == nw.Boolean else [0, 1]
    if columns.arms is not None:
        arms = list(columns.arms)

    def number(value: Any, position: int) -> int:
        if pd.isna(value):
            return 0 if columns.treatment in columns.lenient else len(arms) + position
        return arms.index(value) if value in arms else len(arms) + position

    return number


def _usual_sums(interval: Interval, n: int) -> dict[OutcomeFunction, BoxGrid]:
    """Sums and squares by arm, on the grids that they have unless epsilon is tiny."""
    return {
        Outcome(): Box(*interval).on(n, 1.0),
        ScaledSquare(*interval): Box(0.0, 1.0).on(n, 1.0),
    }


def _key(phi: OutcomeFunction, grid: BoxGrid) -> tuple[Any, ...]:
    ends = (grid.box.low, grid.box.high, grid.box.centre)
    return (phi, grid.steps, *(float(end[0]) for end in ends))


def _within(values: nw.Expr, lower: float, upper: float) -> nw.Expr:
    """`formula.ranges.clip` as an engine computes it.

    (Engines do not agree how NaN compares, so it is asked for first. Their own `clip` would look
    for missing values once more; they are refused anyway.)
    """
    below = nw.when(values < lower).then(nw.lit(lower)).otherwise(values)
    inside = nw.when(values > upper).then(nw.lit(upper)).otherwise(below)
    return nw.when(values.is_nan()).then(nw.lit(middle((lower, upper)))).otherwise(inside)


def _pair(found: Mapping[int, Mapping[Any, int]], what: Any) -> IntArray:
    """Sums over (treated, control)."""
    treated = sum(sums[what] for arm, sums in found.items() if arm)
    return np.array([[treated], [found[0][what]]], dtype=np.int64)


@dataclass(frozen=True)
class LazyRows(_OnEngine):
    """Private rows on an engine. Only the curator looks inside.

    ``groups`` make the strata, where they are not those of the covariates.
    """

    table: LazyTable
    ready: Ready = field(default_factory=dict)
    groups: tuple[Columns, Recipe] | None = None

    @property
    def _recipe(self) -> Recipe:
        return self.table.design.recipe

    @property
    def width(self) -> int:
        """Number of encoded covariates."""
        return self.table.design.width

    @property
    def arms(self) -> int:
        """Number of levels of the treatment."""
        return self.table.design.columns.arm_count

    @property
    def outcome_range(self) -> Interval:
        """Range that outcomes are clipped to."""
        return self._recipe.outcome_range

    @property
    def values(self) -> tuple[int, ...]:
        """Number of values that each encoded column, and last the outcome, could take."""
        return self.table.design.values

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return self.table.design.encoding.names

    @property
    def n_strata(self) -> int | None:
        """Number of strata."""
        discrete = (self.groups[1] if self.groups else self._recipe).discrete
        return None if discrete is None else discrete.count

    def fold(self, function: Summand, *parts: str) -> Totals:
        """Add up a function of blocks, wherever they are."""
        return self._run(function, parts, added)

    def gather(self, function: ByRecord, *parts: str) -> Records:
        """A few values for each record, in the order in which the engine hands them out now."""
        return self._run(function, parts, joined)

    def _run(self, function: Summand, parts: tuple[str, ...], combine: Combine) -> Totals:
        table = self.table
        own = (table.design.columns, self._recipe)
        groups = (self.groups or own) if "strata" in parts else None
        parts = tuple(part for part in parts if part in ("outcome", "covariates"))
        names = [*table.design.columns.treatment_reads, *self._recipe.reads(parts)]
        names += table.sample.read_columns
        names += groups[1].reads(["strata"]) if groups else ()
        add = partial(
            _add,
            function=function,
            own=own,
            parts=parts,
            groups=groups,
            combine=combine,
            counted=(table.sample, table.sizes),
        )
        *found, seen = run(table.frame, list(dict.fromkeys(names)), add, combine)
        if seen.reshape(-1, 2).sum(axis=0).tolist() != [table.rows, table.treated_count]:
            raise DataError(_CHANGING)
        return tuple(found)

    def in_engine(self, phi: RowFunction | None, grid: Any, cells: Cells | None) -> IntArray | None:
        """Sums by arm of functions of the outcome, where that is a column; life tables."""
        if cells is not None and isinstance(cells.function, ArmByCell) and phi is None:
            return self._life_table(cells.function)
        if cells not in (ARMS, TREATED):
            return None
        if phi is None:
            treated = self.table.treated_count
            return np.array([[treated], [self.n - treated]], np.int64)[: cells.size]
        term = self._recipe.outcome_term
        if not (isinstance(phi, Outcome | ScaledSquare) and isinstance(term, Column)):
            return None
        if self.table.design.columns.computed is not None:
            return None
        key = _key(phi, grid)
        if key not in self.ready:
            outcome, columns = (term.name, self.outcome_range), self.table.design.columns
            found = _by_arm(self.table.frame, columns, outcome, {phi: grid})
            self.ready[key] = _pair(found, phi)
        return self.ready[key][: cells.size]

    def _life_table(self, function: ArmByCell) -> IntArray | None:
        """Counts by arm and cell of a life table, in one query."""
        term, columns = self._recipe.outcome_term, self.table.design.columns
        if not isinstance(term, Survival) or columns.computed is not None:
            return None
        made = _life_place(term, self._recipe.intervals)
        if made is None:
            return None
        with hide_engine_errors(self.table.frame):
            place, died = made
            part = self.table.frame.select(t=nw.col(columns.treatment), place=place, died=died)
            parts = part.group_by("t", "place", "died").agg(nw.len().alias("count"))
            rows = parts.select("t", "place", "died", "count").collect().rows()
        number = _number_of_arm(columns, self.table.frame.collect_schema())
        counts, bins = np.zeros((2, function.count), np.int64), function.count // 2
        for arm, passed, event, count in rows:
            there = passed > bins or (passed == bins and not event)
            cell = 2 * bins if there else 2 * min(int(passed), bins - 1) + int(event)
            counts[0 if number(arm, 0) else 1, cell] += int(count)
        if counts.sum(axis=1).tolist() != [self.table.treated_count, self.table.arm_counts[0]]:
            raise DataError(_CHANGING)
        return counts.reshape(-1, 1)

    def in_memory(self, why: str) -> Rows:
        """Refuse: these rows are not in memory."""
        raise OptionError(f"{why}: collect the lazy frame first")


def _life_place(
    term: Survival, intervals: Mapping[str, Interval]
) -> tuple[nw.Expr, nw.Expr] | None:
    """How many ends of bins a time has passed, and whether the event came; for `Survival.cell`.

    To reach the last end is one, to pass it another. None where an engine has no words for it.
    """

    def column(x: Expression) -> nw.Expr | None:
        if not isinstance(x, Column):
            return None
        values = nw.col(x.name).cast(nw.Float64)
        return _within(values, *intervals[x.name]) if x.name in intervals else values

    equal = term.event if isinstance(term.event, Compare) and term.event.op == "==" else None
    time, event = column(term.time), column(equal.left if equal else term.event)
    if time is None or event is None:
        return None
    died = event == nw.lit(equal.right.value) if equal else event > nw.lit(0.5)
    *ends, last = term.edges[1:]
    steps = [*(time > end for end in ends), time >= last, time > last]
    return _taken(steps, 0, len(steps)), died


def _taken(steps: Sequence[nw.Expr], low: int, high: int) -> nw.Expr:
    """How many of some conditions hold, each of which implies those before it: by halving."""
    if low == high:
        return nw.lit(low)
    middle = (low + high) // 2
    more, fewer = _taken(steps, middle + 1, high), _taken(steps, low, middle)
    return nw.when(steps[middle]).then(more).otherwise(fewer)


def _add(
    native: Any,
    function: Summand,
    own: tuple[Columns, Recipe],
    parts: tuple[str, ...],
    groups: tuple[Columns, Recipe] | None,
    combine: Combine,
    counted: Counted,
) -> Totals | None:
    """Apply a function to the blocks of a frame in memory; last come counts, of all and treated."""
    frame = nw.from_native(native, eager_only=True)
    if not len(frame):
        return None

    columns, recipe = own
    # of the whole batch: a look at a column costs more than rows
    arm, treated = columns.arm(frame), columns.treated(frame)
    whole = columns.read(frame, recipe.reads(parts))
    grouped = groups[0].read(frame, groups[1].reads(["strata"])) if groups else None
    weights = counted[0].parts(frame, counted[1])

    def totals(start: int) -> Totals:
        some = slice(start, start + ROWS)
        in_arm = None if arm is None else arm[some]
        block = recipe.block(treated[some], in_arm, *_cut(whole, some), parts)
        if groups and grouped:
            block = replace(block, strata=groups[1].strata(*_cut(grouped, some)))
        block = replace(block, **{name: part[some] for name, part in weights.items()})
        counts = np.array([block.treated.size, np.count_nonzero(block.treated)], dtype=np.int64)
        with np.errstate(all="ignore"):  # of this thread
            return (*function(block), counts)

    return combine(totals(start) for start in range(0, len(frame), ROWS))


def _cut(arrays: tuple[Arrays, Arrays], some: slice) -> tuple[Arrays, Arrays]:
    one, other = ({name: x[some] for name, x in part.items()} for part in arrays)
    return one, other


def asked(frame: nw.LazyFrame[Any], ask: Mapping[str, nw.Expr]) -> dict[str, Any]:
    """One row of sums, made by the engine."""
    named = {f"q{k}": expression for k, expression in enumerate(ask.values())}
    with hide_engine_errors(frame):
        found = frame.select(**named).collect()
        return dict(zip(ask, (found[name].to_list()[0] for name in named), strict=True))


def run(
    frame: nw.LazyFrame[Any], names: list[str], function: OnBatch, combine: Combine = added
) -> Totals:
    """Combine a function of the frame's rows, batch by batch or partition by partition."""
    implementation = frame.implementation
    with hide_engine_errors(frame):
        native: Any = frame.select(names).to_native()
        if implementation.is_duckdb():
            results = _streamed(native.to_arrow_reader(_BATCH), function)
        elif implementation.is_polars():
            results = _streamed(native.collect_batches(chunk_size=_BATCH), function)
        elif implementation.is_dask():
            results = _on_dask(native, function)
        else:
            results = _on_spark(native, function, combine)
        return combine(result for result in results if result is not None)


def _streamed(batches: Iterable[Any], function: OnBatch) -> Iterator[Totals | None]:
    """Work on a few batches at a time, so that memory does not grow with the rows."""
    waiting: deque[Future[Totals | None]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        for batch in batches:
            waiting.append(pool.submit(_on_batch, batch, function))
            if len(waiting) > 2 * _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _on_batch(batch: Any, function: OnBatch) -> Totals | None:
    if type(batch).__name__ == "RecordBatch":
        import pyarrow as pa

        batch = pa.Table.from_batches([batch])
    return function(batch)


def _on_dask(native: Any, function: OnBatch) -> Iterator[Totals | None]:
    import dask

    work = dask.delayed(function)
    yield from dask.compute(*[work(part) for part in native.to_delayed()])


def _on_spark(native: Any, function: OnBatch, combine: Combine) -> Iterator[Totals | None]:
    import pickle

    work = partial(_spark_partition, function=function, combine=combine)
    rows = native.mapInArrow(work, "totals binary")
    yield from (pickle.loads(row.totals) for row in rows.collect())


def _spark_partition(batches: Iterator[Any], function: OnBatch, combine: Combine) -> Iterator[Any]:
    import pickle

    import pyarrow as pa

    results = (_on_batch(batch, function) for batch in batches)
    found = [result for result in results if result is not None]
    if found:
        yield pa.record_batch([pa.array([pickle.dumps(combine(found))])], names=["totals"])


@contextmanager
def hide_engine_errors(frame: nw.LazyFrame[Any]) -> Iterator[None]:
    """Errors of an engine may quote values of the data: only their kind is passed on."""
    try:
        yield
    except DPEffectsError:
        raise
    except Exception as error:
        raise DataError(
            f"{frame.implementation.name.lower()} could not compute with the data "
            f"({type(error).__name__}); check the types of the columns, and that the frame can "
            "still be read"
        ) from None
