"""Private rows, row functions that nobody trusts, and the one way to add them up.

Rows in memory are cut into blocks here, for several threads; rows on an engine come as batches, or
the function goes to where they are (`dpeffects.design.engines`). What a row adds is a function of
that row and of known numbers, and whole numbers add up the same in every order, so totals do not
depend on who held what.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import BoolArray, FloatArray, IntArray, Interval
from dpeffects.privacy.exact import scratch_buffer

T = TypeVar("T")

ROWS = 2**15
"""Rows in a block, at most: the room that exact sums within a block are made for."""
WEIGHT_BITS = 16
"""Weights of rows are multiples of 2^-16, from 0 to 1."""
MOST_ROWS = 2**WEIGHT_BITS
"""Rows of one unit that can have a weight other than 0."""
_THREADS = os.cpu_count() or 1


@dataclass(frozen=True)
class Block:
    """Some rows, clipped and encoded; parts that nobody asked for are empty.

    ``arm`` is there where the treatment has more than two levels: who is not in the first one,
    number 0, counts as treated.
    ``answers`` are those of a learner, where a row is a block of records (`Curator.by_block`).
    ``weight`` is there where rows do not count alike: how much each counts (`privacy.units`).
    ``unit`` and ``cluster`` say whose row it is, and in which cluster, where that matters;
    ``observed`` whether its outcome is known, where that is modelled.
    """

    treated: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))
    outcome: FloatArray = field(default_factory=lambda: np.zeros(0))
    covariates: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    strata: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    answers: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    unit: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    arm: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    weight: FloatArray = field(default_factory=lambda: np.zeros(0))
    cluster: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    observed: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))

    @property
    def size(self) -> int:
        """Number of rows."""
        return max(map(len, vars(self).values()))

    def _each(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Block:
        parts = vars(self).items()  # one without rows keeps its columns
        return Block(**{name: change(part) if len(part) else part for name, part in parts})

    def some(self, which: slice | BoolArray | IntArray) -> Block:
        """Some of these rows."""
        return self._each(lambda part: part[which])

    def only(self, names: Iterable[str]) -> Block:
        """The parts of these names, to read only: a row function gets what it declares."""
        parts = {name: getattr(self, name).view() for name in names}
        for part in parts.values():
            part.setflags(write=False)
        return Block(**parts)

    def with_zeros(self, bad: BoolArray) -> Block:
        """The same rows with zeros in the place of bad ones."""

        def change(part: npt.NDArray[Any]) -> npt.NDArray[Any]:
            part = part.copy(order="K")
            part[bad] = np.zeros((), part.dtype)
            return part

        return self._each(change)


class RowFunction(Protocol):
    """Rows -> an array (rows,) or (rows, k), or a tuple of such; row by row, bit by bit.

    ``reads`` names the parts of a row that it gets. It may travel to other processes. But for
    being row by row, it is not trusted: whatever it returns or raises for a row, a record moves a
    sum by no more than its set allows (claim 5).
    """

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the parts of a row."""

    def __call__(self, rows: Block, /) -> Any:
        """Numbers of each row."""


Phi = RowFunction | None
"""What is added up; None counts records."""


def reads(*names: str) -> Callable[[Any], Any]:
    """Declare the parts of a row that a row function reads."""

    def mark(function: Any) -> Any:
        function.reads = names
        return function

    return mark


@dataclass(frozen=True)
class GroupIndex:
    """A row function to 0..size-1; any other value is dropped."""

    function: RowFunction
    size: int

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts of a row that it gets."""
        return self.function.reads

    def of(self, block: Block) -> IntArray:
        """Cells of some rows; ``size`` for everything that is no cell."""
        value: Any = None
        with contextlib.suppress(Exception, SystemExit), np.errstate(all="ignore"):
            value = self.function(block.only(self.reads))
        whole = isinstance(value, np.ndarray) and value.dtype.kind in "bi"
        if not whole or value.shape != (block.size,):
            value = evaluate(self.function, block, 1, "rows.cells")[:, 0]
        if value.dtype == np.bool_:
            return value.view(np.int8)  # 0 is a cell; so is 1, unless there is one cell only
        inside = (value >= 0) & (value < self.size)  # NaN is not inside either
        return (value if inside.all() else np.where(inside, value, self.size)).astype(np.int64)


def evaluate(
    function: RowFunction, block: Block, columns: int, name: str = "rows.values"
) -> FloatArray:
    """Numbers of a row function, whatever it does; NaN in the rows where it fails.

    Rows on which it raises are found by halving, and rows of zeros take their place. So the other
    rows are computed in the same shape, and to the same bits, as if no row had failed.
    """
    block, out = block.only(function.reads), scratch_buffer(name, block.size, columns)
    with np.errstate(all="ignore"):
        if _fills(out, function, block):
            return out
        bad, pieces = np.zeros(block.size, np.bool_), [slice(0, block.size)]
        while pieces:
            piece = pieces.pop()
            size = piece.stop - piece.start
            if not _fills(out[piece], function, block.some(piece)):
                bad[piece] = size == 1
                if size > 1:
                    middle = piece.start + size // 2
                    pieces += [slice(middle, piece.stop), slice(piece.start, middle)]
        by_pieces = out.copy()
        if not _fills(out, function, block.with_zeros(bad)):
            out[:] = by_pieces
    out[bad] = np.nan
    return out


def _fills(out: FloatArray, function: RowFunction, block: Block) -> bool:
    try:
        fill(out, function(block))
    except (Exception, SystemExit):  # nothing may fail because of what is in a row
        return False
    return True


def fill(out: FloatArray, values: Any) -> None:
    """Write what a row function returned; raises where it has another shape or kind."""
    start = 0
    for part in values if isinstance(values, tuple) else (values,):
        array = np.asarray(part)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2 or len(array) != len(out) or array.dtype.kind not in "fiubO":
            raise ValueError("numbers for each row are needed")
        stop = start + array.shape[1]
        out[:, start:stop] = array
        start = stop
    if start != out.shape[1]:
        raise ValueError(f"{out.shape[1]} numbers for each row are needed")


def rehearse(phi: Phi, columns: int, cells: GroupIndex | None, width: int) -> None:
    """Try row functions on rows of zeros, so that mistakes are found before a row is read."""
    rows, none = 3, np.zeros(3)
    matrix, answers = np.zeros((rows, width)), np.zeros((rows, columns))
    codes = none.astype(np.int64)
    zeros = Block(none > 0, none, matrix, codes, answers, arm=codes, weight=none, observed=none > 0)
    with np.errstate(all="ignore"):
        for function, size in ((phi, columns), (cells.function if cells else None, 1)):
            if function is not None:
                fill(np.empty((rows, size)), function(zeros.only(function.reads)))


Totals = tuple[IntArray, ...]
Summand = Callable[[Block], Totals]
"""What a block adds. It may travel to other processes, so it must not hold the curator."""
Records = tuple[npt.NDArray[Any], ...]
ByRecord = Callable[[Block], Records]
"""A few values for each record of a block. It may travel too."""


class RowMetadata(NamedTuple):
    """What is public of rows.

    ``n`` is the number of records, or of units that have several rows, of which ``most_rows`` can
    have a weight; ``values`` has the number of values of each encoded column, and last of the
    outcome, by type and bounds. Where rows are ``weighted``, blocks come with their weights.
    """

    n: int
    width: int
    outcome_range: Interval
    values: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    arms: int = 2
    weighted: bool = False
    most_rows: int = 1


class Source(Protocol):
    """Rows, wherever they are. Only the curator looks inside."""

    @property
    def about(self) -> RowMetadata:
        """What is public of them."""

    @property
    def n_strata(self) -> int | None:
        """Number of strata, with records or without; None where there are no strata."""

    def fold(self, function: Summand, *parts: str) -> Totals:
        """Add up a function of blocks with these parts, and "treated"."""

    def gather(self, function: ByRecord, *parts: str) -> Records:
        """Bring a few values of each record into memory, in one look at the rows.

        The values of a record are at the same place; what place that is may change from one look
        to the next.
        """

    def in_memory(self, why: str) -> Rows:
        """Return the rows in memory; raises where they are not, and says why they must be."""


@dataclass(frozen=True)
class Rows:
    """Private rows in memory, clipped to their bounds. Only the curator looks inside.

    ``covariates`` makes the encoded matrix in [0, 1]^d when it is first needed; ``strata`` the
    stratum of each record and the number of strata, where covariates are discrete. ``values`` has
    the number of values that each encoded column, and last the outcome, could take by its type and
    bounds: 1 for a constant, 2 for an indicator, 0 for a continuum. ``arm`` is given where the
    treatment has more than two levels, ``arms`` of them. ``weight`` is given where rows do not
    count alike, ``unit`` where several rows are one unit's, ``units`` of them, and ``cluster``
    where records belong together.
    """

    outcome: FloatArray
    outcome_range: Interval
    treated: BoolArray
    covariates: Callable[[], FloatArray]
    width: int
    strata: Callable[[], tuple[IntArray, int]] | None = None
    values: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    answers: FloatArray | None = None
    arm: IntArray | None = None
    arms: int = 2
    weight: FloatArray | None = None
    unit: IntArray | None = None
    units: int = 0
    cluster: IntArray | None = None
    observed: BoolArray | None = None

    @property
    def about(self) -> RowMetadata:
        """What is public of them."""
        n, most = (self.treated.size, 1) if self.unit is None else (self.units, MOST_ROWS)
        known = self.width, self.outcome_range, self.values, self.names, self.arms
        return RowMetadata(int(n), *known, self.weight is not None, most)

    @property
    def n_strata(self) -> int | None:
        """Number of strata."""
        return None if self.strata is None else self.strata()[1]

    def fold(self, function: Summand, *parts: str) -> Totals:
        """Add up a function of blocks."""
        return added(self._map(function, parts))

    def gather(self, function: ByRecord, *parts: str) -> Records:
        """A few values for each record, in the order of the rows."""
        return joined(self._map(function, parts))

    def in_memory(self, why: str) -> Rows:
        """These rows."""
        return self

    def reordered(self, order: IntArray) -> Rows:
        """The same records in another order; covariates and strata when first asked for."""
        strata = self.strata
        index = cache(lambda: (strata()[0][order], strata()[1])) if strata else None
        return replace(
            self,
            outcome=self.outcome[order],
            treated=self.treated[order],
            arm=None if self.arm is None else self.arm[order],
            covariates=cache(lambda: np.take(self.covariates().T, order, axis=1).T),
            strata=index,
        )

    def _map(self, function: Callable[[Block], T], parts: tuple[str, ...]) -> Iterator[T]:
        blocks = self._blocks(parts)
        if self.treated.size < 4 * ROWS:
            yield from map(function, blocks)
            return

        def work(block: Block) -> T:
            with np.errstate(all="ignore"):  # of this thread
                return function(block)

        with ThreadPoolExecutor(_THREADS) as pool:
            yield from pool.map(work, blocks)

    def _blocks(self, parts: tuple[str, ...]) -> Iterator[Block]:
        whole: dict[str, npt.NDArray[Any]] = {"treated": self.treated}
        if self.weight is not None:
            whole["weight"] = self.weight
        for part in parts:
            value = getattr(self, part)
            whole[part] = value() if callable(value) else value
        if "strata" in parts:
            whole["strata"] = whole["strata"][0]
        for start in range(0, self.treated.size, ROWS):
            yield Block(**{name: x[start : start + ROWS] for name, x in whole.items()})


def joined(results: Iterable[Records]) -> Records:
    """Arrays one after the other."""
    return tuple(np.concatenate(parts) for parts in zip(*results, strict=True))


def added(results: Iterable[Totals]) -> Totals:
    """Sums of integer arrays, entry by entry."""
    each = iter(results)
    total = tuple(np.array(part) for part in next(each))
    for result in each:
        for part, more in zip(total, result, strict=True):
            part += more
    return total
