"""Columns of private rows, checked and not yet clipped, in memory or on an engine.

Both are read, clipped and encoded by `RowBatch`: rows in memory are one, which is kept, and an
engine hands out one after the other each time that the curator asks for a sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.design.arms import ARMS, TREATED, ArmByCell, Outcome, ScaledSquare, arm_cells
from dpeffects.design.clipped import AnyOutOfRange
from dpeffects.design.columns import Columns, Design, Recipe, refuse_missing
from dpeffects.design.engines import AnyFrame, Combine, run
from dpeffects.design.sample import AnalysisSample
from dpeffects.errors import DataError, OptionError, refusal
from dpeffects.files import by_declaration
from dpeffects.formula.encoding import Arrays
from dpeffects.formula.expression import Expression, Number, Ordered, Survival
from dpeffects.privacy.curator import GroupedSum, GroupedSums, all_reads
from dpeffects.privacy.domains import COUNT, Box, Cube
from dpeffects.privacy.exact import scratch_buffer
from dpeffects.privacy.rows import (
    MOST_ROWS,
    ROWS,
    Block,
    ByRecord,
    GroupIndex,
    Records,
    RowMetadata,
    Rows,
    Summand,
    Totals,
    added,
    joined,
)
from dpeffects.privacy.units import UnitSizes

MOST_STRATA = 2**21
"""Strata that are counted for rows on an engine: every block has a count for each."""

Counted = tuple[AnalysisSample, UnitSizes | None]
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
        return np.stack([numeric[name] for name in self.names], axis=1, out=out)

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
    """Weights, units and clusters of the rows, where there are any (`AnalysisSample.parts`)."""

    @classmethod
    def read(
        cls,
        frame: nw.DataFrame[Any],
        columns: Columns,
        names: Iterable[str],
        counted: Counted,
        check: Sequence[str] = (),
    ) -> RowBatch:
        """Read the treatment and some columns; raises where a value cannot be used.

        Columns to ``check`` are read too, and have no missing values but where these may be.
        """
        try:
            parts = counted[0].parts(frame, counted[1])
            arm = columns.arm(frame)
            several = arm if columns.arm_count > 2 else None
            wanted = dict.fromkeys([*check, *names])
            return cls(arm > 0, several, *columns.read(frame, wanted), parts)
        except Exception:  # missing values, where they may not be, are no numbers and no levels
            refuse_missing(frame, [name for name in check if name not in columns.lenient])
            raise

    def arm_counts(self, arms: int) -> IntArray:
        """Number of rows of each arm, the reference first, whether they count or not."""
        if self.arm is not None:
            return np.bincount(self.arm, minlength=arms)
        treated = np.count_nonzero(self.treated)
        return np.array([self.treated.size - treated, treated])

    def _cut(self) -> Iterator[tuple[slice, Arrays, Arrays]]:
        """Where each block is, its numbers and its codes."""
        for start in range(0, self.treated.size, ROWS):
            some = slice(start, start + ROWS)
            numeric = {name: x[some] for name, x in self.numeric.items()}
            yield some, numeric, {name: x[some] for name, x in self.codes.items()}

    def strata(self, recipe: Recipe) -> IntArray:
        """Stratum of each row."""
        return np.concatenate([recipe.strata(*parts) for _, *parts in self._cut()])

    def blocks(
        self, recipe: Recipe | Unclipped, parts: Iterable[str], strata: IntArray | None
    ) -> Iterator[Block]:
        """Blocks of rows with some parts, clipped and encoded in memory that is used again."""
        whole = {**self.counted}
        whole |= {} if self.arm is None else {"arm": self.arm}
        whole |= {} if strata is None else {"strata": strata}
        for some, numeric, coded in self._cut():
            treated, made = self.treated[some], {name: x[some] for name, x in whole.items()}
            if "outcome" in parts:
                made["outcome"] = recipe.outcome(numeric, treated.size)
            if "covariates" in parts:
                out = scratch_buffer("covariates", treated.size, recipe.width)
                made["covariates"] = recipe.covariates(numeric, coded, out)
            yield Block(treated, **made)

    def rows(self, recipe: Recipe | Unclipped, **about: Any) -> Rows:
        """These rows for the curator, covariates encoded when they are first asked for."""

        def covariates() -> FloatArray:
            out = np.empty((self.treated.size, recipe.width), order="F")
            for some, numeric, coded in self._cut():
                recipe.covariates(numeric, coded, out[some])
            return out

        outcome = [recipe.outcome(x, self.treated[some].size) for some, x, _ in self._cut()]
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

    ``arm_counts`` are the numbers of records of the arms, ``kinds`` what the text of a CSV file was
    read as, ``ready`` sums that came with the checks.
    """

    design: Design
    frame: AnyFrame
    arm_counts: tuple[int, ...]
    counted: Counted
    kinds: Mapping[str, str]
    batch: RowBatch | None = None
    ready: tuple[tuple[Any, IntArray], ...] = ()

    @classmethod
    def checked(
        cls, frame: AnyFrame, design: Design, rows: int, counted: Counted, kinds: Mapping[str, str]
    ) -> PrivateTable:
        """Refuse what cannot be used, and count the arms, in one look; rows in memory are kept.

        On an engine the sums that most methods begin with come from the same look.
        """
        check, table = design.formula.columns, cls(design, frame, (), counted, kinds)
        if isinstance(frame, nw.DataFrame):
            batch = RowBatch.read(frame, design.columns, (), counted, check)
            arms = batch.arm_counts(design.columns.arm_count)
            return replace(table, arm_counts=tuple(arms.tolist()), batch=batch)
        first = [] if counted[0].weighted or design.missing else _first_sums(design)
        read = [all_reads(*(f for x in sums for f in (x.phi, x.cells))) for _, sums in first]
        asks = [BlockQuery(x, parts, how) for (how, x), parts in zip(first, read, strict=True)]
        *found, arms = table.look(asks, check=check)
        if arms.sum() != rows:
            raise DataError(refusal("changing_frame"))
        asked = [(recipe, x) for recipe, sums in first for x in sums]
        ready = tuple(zip(asked, found, strict=True))
        return replace(table, arm_counts=tuple(arms.tolist()), ready=ready)

    def look(
        self, asks: Sequence[BlockQuery], combine: Combine = added, check: Sequence[str] = ()
    ) -> Totals:
        """Combine functions of blocks on an engine; last come the numbers of records of the arms.

        Columns to ``check`` are looked at too, for values that cannot be used.
        """
        columns = self.design.columns
        names = [*columns.treatment_reads, *self.sample.read_columns, *check]
        names += [name for ask in asks for name in ask.needs]
        work = partial(
            _add, columns=columns, asks=asks, combine=combine, counted=self.counted, check=check
        )
        *found, seen = run(self.frame, names, work, combine)
        arms = seen.reshape(-1, columns.arm_count).sum(axis=0)
        if self.arm_counts and tuple(arms) != self.arm_counts:
            raise DataError(refusal("changing_frame"))
        return (*found, arms)

    @property
    def sample(self) -> AnalysisSample:
        """Which rows count."""
        return self.counted[0]

    @property
    def on_engine(self) -> bool:
        """Whether the rows are not in memory."""
        return self.batch is None

    def require_same_kinds(self, groups: PrivateTable) -> None:
        """Refuse a column of a CSV file that the formula and the groups read in two ways."""
        for name in self.kinds.keys() & groups.kinds.keys() if self.on_engine else ():
            one, other = self.kinds[name], groups.kinds[name]
            if one != other:
                raise DataError(refusal("two_readings", name=name, one=one, other=other))

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
            return LazyRows(replace(self, frame=frame), recipe, self._about(**about), how)

        def strata() -> tuple[IntArray, int]:
            discrete = grouping.discrete or table.design.strata()  # the latter says why not
            assert table.batch is not None
            return table.batch.strata(grouping), discrete.count

        return self.batch.rows(recipe, strata=cache(strata), units=self.design.n, **about)

    def _about(self, **known: Any) -> RowMetadata:
        """What is public of rows on an engine."""
        most = 1 if self.sample.unit is None else MOST_ROWS
        return RowMetadata(self.design.n, weighted=self.sample.weighted, most_rows=most, **known)


def _first_sums(design: Design) -> list[tuple[Recipe | Unclipped, GroupedSums]]:
    """What most methods begin with, where all ranges are known: sums and squares of outcomes by
    arm, or a table of their cells, and how many records have a value outside its range."""
    n, recipe, names = design.n, design.recipe, design.declared
    found: list[tuple[Recipe | Unclipped, GroupedSums]] = []
    count, outcome = design.values[-1], design.formula.outcome
    if isinstance(outcome, Ordered | Survival) and count > 2:
        cells = GroupIndex(ArmByCell(count), 2 * count)
        found.append((recipe, GroupedSums([GroupedSum(None, 1, cells, COUNT.on(n, 1.0))])))
    elif design.formula.outcome_columns:
        ends, cells = recipe.outcome_range, arm_cells(design.columns.arm_count)
        sums = GroupedSum(Outcome(), 1, cells, Box(*ends).on(n, 1.0))
        squares = GroupedSum(ScaledSquare(*ends), 1, cells, Box(0.0, 1.0).on(n, 1.0))
        found.append((recipe, GroupedSums((sums, squares))))
    if names:
        lower, upper = zip(*map(design.bounds.interval, names), strict=True)
        outside = GroupedSum(AnyOutOfRange(lower, upper), 1, None, Cube(0.0, 1.0).on(n, 1.0))
        found.append((Unclipped(names), GroupedSums((outside,))))
    return found


class BlockQuery(NamedTuple):
    """A function of blocks, and what their parts are made of.

    ``strata`` says how rows find their stratum: by which columns, and by what is made of them.
    """

    function: Summand
    parts: tuple[str, ...]
    recipe: Recipe | Unclipped
    strata: tuple[Columns, Recipe] | None = None

    @property
    def own(self) -> tuple[str, ...]:
        """Columns that outcomes and covariates are made of."""
        return self.recipe.reads(x for x in self.parts if x in ("outcome", "covariates"))

    @property
    def needs(self) -> tuple[str, ...]:
        """All columns that are read."""
        return self.own + (self.strata[1].reads(["strata"]) if self.strata else ())


@dataclass(frozen=True)
class LazyRows:
    """Private rows on an engine. Only the curator looks inside.

    ``strata`` says how rows find their stratum: by which columns, and by what is made of them.
    """

    table: PrivateTable
    recipe: Recipe | Unclipped
    about: RowMetadata
    strata: tuple[Columns, Recipe] | None = None

    @property
    def n_strata(self) -> int | None:
        """Number of strata."""
        discrete = self.strata[1].discrete if self.strata else None
        return None if discrete is None else discrete.count

    def fold(self, function: Summand, *parts: str) -> Totals:
        """Add up a function of blocks, wherever they are, but where all its sums are known."""
        if isinstance(function, GroupedSums):
            known = [x for x in map(self._known, function) if x is not None]
            if len(known) == len(function):
                return tuple(known)
        return self._look(function, parts, added)

    def _known(self, asked: GroupedSum) -> IntArray | None:
        """Records by arm, and sums that came with the checks."""
        counts = self.table.arm_counts
        if asked.phi is None and asked.cells in (ARMS, TREATED) and not self.about.weighted:
            return np.array([[sum(counts[1:])], [counts[0]]])[: asked.cells.size]
        ready = self.table.ready
        return next((total for key, total in ready if key == (self.recipe, asked)), None)

    def gather(self, function: ByRecord, *parts: str) -> Records:
        """A few values for each record, in the order in which the engine hands them out now."""
        return self._look(function, parts, joined)

    def _look(self, function: Summand, parts: tuple[str, ...], combine: Combine) -> Totals:
        strata = self.strata if "strata" in parts else None
        return self.table.look([BlockQuery(function, parts, self.recipe, strata)], combine)[:-1]

    def in_memory(self, why: str) -> Rows:
        """Refuse: these rows are not in memory."""
        raise OptionError(f"{why}: collect the lazy frame first")


def _add(
    frame: nw.DataFrame[Any],
    columns: Columns,
    asks: Sequence[BlockQuery],
    combine: Combine,
    counted: Counted,
    check: Sequence[str],
) -> Totals:
    """Apply functions to the blocks of a batch; last come the numbers of records of the arms."""
    names = (name for ask in asks for name in ask.own)
    batch, found = RowBatch.read(frame, columns, names, counted, check), list[IntArray]()
    for function, parts, recipe, strata in asks:
        index = None
        if strata:
            by, how = strata
            read = by.read(frame, how.reads(["strata"]))
            index = replace(batch, numeric=read[0], codes=read[1]).strata(how)
        with np.errstate(all="ignore"):  # of this thread
            found += combine(map(function, batch.blocks(recipe, parts, index)))
    return (*found, batch.arm_counts(columns.arm_count))
