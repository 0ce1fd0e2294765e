"""Columns of private rows, checked and not yet clipped, in memory or on an engine.

Both are read, clipped and encoded by `RowBatch`: rows in memory are one, which is kept, and an
engine hands out one after the other each time that the curator asks for a sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, ClassVar

import narwhals.stable.v2 as nw
import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.design import queries
from dpeffects.design.arms import ARMS, TREATED, Outcome, ScaledSquare
from dpeffects.design.columns import Columns, Design, Recipe, refuse_missing
from dpeffects.design.engines import AnyFrame, Combine, run
from dpeffects.design.queries import Ready
from dpeffects.design.sample import Sample
from dpeffects.errors import DataError, OptionError
from dpeffects.files import by_declaration
from dpeffects.formula.encoding import Arrays
from dpeffects.formula.expression import Column, Expression, Number
from dpeffects.privacy.exact import scratch_buffer
from dpeffects.privacy.rows import (
    MOST_ROWS,
    ROWS,
    About,
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
from dpeffects.privacy.units import UnitSizes

MOST_STRATA = 2**21
"""Strata that are counted for rows on an engine: every block has a count for each."""
_CHANGING = (
    "the frame gives other rows each time it is read, as a random sample or a limit without an "
    "order does: write them to a file or a table first, and use that"
)

Counted = tuple[Sample, UnitSizes | None]
"""Which rows count, and how many rows each unit has."""


@dataclass(frozen=True)
class Unclipped:
    """Columns as they are, in the place of covariates; the first in that of the outcome too."""

    names: tuple[str, ...]
    outcome_term: ClassVar[Expression] = Number(0.0)

    def reads(self, parts: Iterable[str]) -> tuple[str, ...]:
        """The columns."""
        return self.names

    def outcome(self, numeric: Arrays, size: int) -> FloatArray:
        """The first column."""
        return np.asarray(numeric[self.names[0]], np.float64)

    def covariates(self, numeric: Arrays, coded: Arrays, out: FloatArray) -> FloatArray:
        """All columns, written to ``out``."""
        for k, name in enumerate(self.names):
            out[:, k] = numeric[name]
        return out

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.names)


@dataclass(frozen=True)
class RowBatch:
    """Columns of some rows in memory, in the types they came in."""

    treated: BoolArray
    arm: IntArray | None
    numeric: Arrays
    codes: Arrays
    counted: Mapping[str, Any]
    """Weights, units and clusters of the rows, where there are any (`Sample.parts`)."""

    @classmethod
    def read(
        cls, frame: nw.DataFrame[Any], columns: Columns, names: Iterable[str], counted: Counted
    ) -> RowBatch:
        """Read the treatment and some columns; raises where a value cannot be used."""
        parts = counted[0].parts(frame, counted[1])
        arm = columns.arm(frame)
        several = arm if columns.arm_count > 2 else None
        return cls(arm > 0, several, *columns.read(frame, names), parts)

    def arm_counts(self, arms: int) -> IntArray:
        """Number of rows of each arm, the reference first, whether they count or not."""
        arm = self.treated.astype(np.int64) if self.arm is None else self.arm
        return np.bincount(arm, minlength=arms)

    def _starts(self) -> range:
        return range(0, self.treated.size, ROWS)

    def _cut(self, start: int) -> tuple[Arrays, Arrays]:
        """Numbers and codes of a block."""
        some = slice(start, start + ROWS)
        one, other = (
            {name: x[some] for name, x in part.items()} for part in (self.numeric, self.codes)
        )
        return one, other

    def strata(self, recipe: Recipe) -> IntArray:
        """Stratum of each row."""
        return np.concatenate([recipe.strata(*self._cut(start)) for start in self._starts()])

    def blocks(
        self, recipe: Recipe | Unclipped, parts: Iterable[str], strata: IntArray | None
    ) -> Iterator[Block]:
        """Blocks of rows with some parts, clipped and encoded in memory that is used again."""
        whole = {**self.counted}
        whole |= {} if self.arm is None else {"arm": self.arm}
        whole |= {} if strata is None else {"strata": strata}
        for start in self._starts():
            some, (numeric, coded) = slice(start, start + ROWS), self._cut(start)
            treated, made = self.treated[some], {name: x[some] for name, x in whole.items()}
            if "outcome" in parts:
                made["outcome"] = recipe.outcome(numeric, treated.size)
            if "covariates" in parts:
                out = scratch_buffer("covariates", treated.size, recipe.width)
                made["covariates"] = recipe.covariates(numeric, coded, out)
            yield Block(treated, **made)

    def rows(self, recipe: Recipe | Unclipped, **about: Any) -> Rows:
        """These rows for the curator, covariates encoded when they are first asked for."""
        starts, size = self._starts(), self.treated.size

        def covariates() -> FloatArray:
            out = np.empty((size, recipe.width), order="F")
            for start in starts:
                recipe.covariates(*self._cut(start), out[start : start + ROWS])
            return out

        outcome = [recipe.outcome(self._cut(k)[0], min(ROWS, size - k)) for k in starts]
        return Rows(
            np.concatenate(outcome),
            treated=self.treated,
            covariates=cache(covariates),
            arm=self.arm,
            **about,
            **self.counted,
        )


@dataclass(frozen=True)
class PrivateTable:
    """Columns that were checked where they are: in a ``batch`` in memory, or on an engine.

    ``arm_counts`` are the numbers of records of the arms, ``ready`` sums by arm that came with the
    checks, ``kinds`` what the text of a CSV file was read as.
    """

    design: Design
    frame: AnyFrame
    arm_counts: tuple[int, ...]
    counted: Counted
    kinds: Mapping[str, str]
    ready: Ready = field(default_factory=dict)
    batch: RowBatch | None = None

    @classmethod
    def checked(
        cls, frame: AnyFrame, design: Design, rows: int, counted: Counted, kinds: Mapping[str, str]
    ) -> PrivateTable:
        """Refuse what cannot be used, and count the arms."""
        if isinstance(frame, nw.LazyFrame):
            counts, ready = _checked_on_engine(frame, design, rows)
            return cls(design, frame, counts, counted, kinds, ready)
        batch = _usable(frame, design.formula.columns, design.columns, counted)
        counts = tuple(batch.arm_counts(design.columns.arm_count).tolist())
        return cls(design, frame, counts, counted, kinds, batch=batch)

    @property
    def sample(self) -> Sample:
        """Which rows count."""
        return self.counted[0]

    @property
    def on_engine(self) -> bool:
        """Whether the rows are not in memory."""
        return self.batch is None

    def require_same_kinds(self, groups: PrivateTable) -> None:
        """Refuse a column of a CSV file that the formula and the groups read in two ways."""
        for name in self.kinds.keys() & groups.kinds.keys() if self.on_engine else ():
            if self.kinds[name] != groups.kinds[name]:
                raise DataError(
                    f"column {name!r} of the CSV file is read as {self.kinds[name]} by the formula "
                    f"and as {groups.kinds[name]} by the groups: read the file into a frame first"
                )

    def column(self, *names: str) -> Rows | LazyRows:
        """Columns as they are, in the place of covariates; the first in that of the outcome too."""
        recipe = Unclipped(names)
        about = {"outcome_range": (0.0, 0.0), "width": len(names), "names": names}
        if self.batch is not None:
            return self.batch.rows(recipe, units=self.design.n, **about)
        return LazyRows(self, recipe, self._about(**about))

    def encode(self, groups: PrivateTable | None = None) -> Rows | LazyRows:
        """Clip and encode, block by block, in the strata of ``groups`` if given."""
        design, recipe = self.design, self.design.recipe
        about: dict[str, Any] = {
            "outcome_range": recipe.outcome_range,
            "width": design.width,
            "values": design.values,
            "names": design.encoding.names,
            "arms": design.columns.arm_count,
        }
        table, grouping = (self, recipe) if groups is None else (groups, groups.design.grouping())
        if self.batch is None:
            frame = by_declaration(self.frame, table.kinds)
            how = (table.design.columns, grouping)
            known, ready = self._about(**about), dict(self.ready)
            return LazyRows(replace(self, frame=frame), recipe, known, how, ready)

        def strata() -> tuple[IntArray, int]:
            discrete = grouping.discrete or table.design.strata()  # the latter says why not
            assert table.batch is not None
            return table.batch.strata(grouping), discrete.count

        return self.batch.rows(recipe, strata=cache(strata), units=self.design.n, **about)

    def _about(self, **known: Any) -> About:
        """What is public of rows on an engine."""
        most = 1 if self.sample.unit is None else MOST_ROWS
        return About(self.design.n, weighted=self.sample.weighted, most_rows=most, **known)


def _usable(
    frame: nw.DataFrame[Any], names: Sequence[str], columns: Columns, counted: Counted
) -> RowBatch:
    """Read columns; raises where a value cannot be used."""
    refuse_missing(frame, [name for name in names if name not in columns.lenient])
    return RowBatch.read(frame, columns, names, counted)


def _counts(frame: nw.DataFrame[Any], names: Sequence[str], columns: Columns) -> Totals:
    """Numbers of records of the arms; raises where a value cannot be used."""
    batch = _usable(frame, names, columns, (Sample(), None))
    return (batch.arm_counts(columns.arm_count),)


def _checked_on_engine(
    frame: nw.LazyFrame[Any], design: Design, n: int
) -> tuple[tuple[int, ...], Ready]:
    """Refuse what cannot be used, and count the arms, in one query.

    Where the outcome is one column with a known range, its sums by arm come with it.
    """
    columns, bounds, outcome = design.columns, design.bounds, None
    match design.formula.outcome:
        case Column(name) if name in bounds:
            outcome = (name, bounds.interval(name))

    def look(names: Sequence[str]) -> tuple[int, ...]:
        names = tuple(dict.fromkeys([*names, *columns.treatment_reads]))
        return tuple(run(frame, names, partial(_counts, names=names, columns=columns))[0].tolist())

    if columns.computed is not None:
        counts = look(design.formula.columns)
        if not all(counts):
            raise columns.empty_arm()
        return counts, {}
    sums = queries.usual_sums(outcome[1], n) if outcome else {}
    read = tuple(dict.fromkeys([*columns.numeric, *columns.levels]))
    try:
        found = queries.by_arm(frame, columns, outcome, sums, read)
    except DataError:  # an engine that stumbles over a value does not say in which column
        found = {}
    arms = range(columns.arm_count)
    usable = [sum(arm[f"usable {name}"] for arm in found.values()) for name in read]
    if set(found) != set(arms) or any(count != n for count in usable):
        look(design.formula.columns)  # says why, as for rows in memory
        raise columns.empty_arm()
    if doubtful := queries.doubtful(frame, columns):
        look(doubtful)
    ready = {queries.key_of(phi, x): queries.in_two_arms(found, phi) for phi, x in sums.items()}
    return tuple(found[arm]["count"] for arm in arms), ready


@dataclass(frozen=True)
class LazyRows:
    """Private rows on an engine. Only the curator looks inside.

    ``strata`` says how rows find their stratum: by which columns, and by what is made of them.
    """

    table: PrivateTable
    recipe: Recipe | Unclipped
    about: About
    strata: tuple[Columns, Recipe] | None = None
    ready: Ready = field(default_factory=dict)

    @property
    def n_strata(self) -> int | None:
        """Number of strata."""
        discrete = self.strata[1].discrete if self.strata else None
        return None if discrete is None else discrete.count

    def fold(self, function: Summand, *parts: str) -> Totals:
        """Add up a function of blocks, wherever they are."""
        return self._run(function, parts, added)

    def gather(self, function: ByRecord, *parts: str) -> Records:
        """A few values for each record, in the order in which the engine hands them out now."""
        return self._run(function, parts, joined)

    def _run(self, function: Summand, parts: tuple[str, ...], combine: Combine) -> Totals:
        table, columns = self.table, self.table.design.columns
        strata = self.strata if "strata" in parts else None
        made = tuple(part for part in parts if part in ("outcome", "covariates"))
        names = [*columns.treatment_reads, *self.recipe.reads(made), *table.sample.read_columns]
        names += strata[1].reads(["strata"]) if strata else ()
        work = partial(
            _add,
            function=function,
            own=(columns, self.recipe),
            parts=made,
            strata=strata,
            combine=combine,
            counted=table.counted,
        )
        *found, seen = run(table.frame, names, work, combine)
        counts = [sum(table.arm_counts), sum(table.arm_counts[1:])]
        if seen.reshape(-1, 2).sum(axis=0).tolist() != counts:
            raise DataError(_CHANGING)
        return tuple(found)

    def in_engine(self, phi: RowFunction | None, grid: Any, cells: Cells | None) -> IntArray | None:
        """Sums by arm of functions of the outcome, where that is a column."""
        frame: Any = self.table.frame
        columns, counts = self.table.design.columns, self.table.arm_counts
        term, plain = self.recipe.outcome_term, columns.computed is None
        if cells not in (ARMS, TREATED):
            return None
        if phi is None:
            return np.array([[sum(counts[1:])], [counts[0]]], np.int64)[: cells.size]
        if not (isinstance(phi, Outcome | ScaledSquare) and isinstance(term, Column) and plain):
            return None
        key = queries.key_of(phi, grid)
        if key not in self.ready:
            outcome = (term.name, self.about.outcome_range)
            sums = queries.by_arm(frame, columns, outcome, {phi: grid})
            self.ready[key] = queries.in_two_arms(sums, phi)
        return self.ready[key][: cells.size]

    def in_memory(self, why: str) -> Rows:
        """Refuse: these rows are not in memory."""
        raise OptionError(f"{why}: collect the lazy frame first")


def _add(
    frame: nw.DataFrame[Any],
    function: Summand,
    own: tuple[Columns, Recipe | Unclipped],
    parts: tuple[str, ...],
    strata: tuple[Columns, Recipe] | None,
    combine: Combine,
    counted: Counted,
) -> Totals:
    """Apply a function to the blocks of a batch; last come counts, of all rows and of treated."""
    columns, recipe = own
    batch = RowBatch.read(frame, columns, recipe.reads(parts), counted)
    index = None
    if strata:
        by, how = strata
        read = by.read(frame, how.reads(["strata"]))
        index = replace(batch, numeric=read[0], codes=read[1]).strata(how)

    def totals(block: Block) -> Totals:
        counts = np.array([block.treated.size, np.count_nonzero(block.treated)], dtype=np.int64)
        with np.errstate(all="ignore"):  # of this thread
            return (*function(block), counts)

    return combine(map(totals, batch.blocks(recipe, parts, index)))
