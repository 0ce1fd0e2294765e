"""Private rows, and the one way to add them up: a function of a block, summed exactly.

A primitive gives `fold` a function from a block of rows to a few integer arrays. Rows in memory are
cut into blocks here, for several threads; rows on an engine come as batches, or the function goes
to where they are (`dpeffects.engines`). What a row adds is a function of that row and of known
numbers, and integers add up the same in every order, so the totals do not depend on who held what.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from dpeffects.privacy.bounds import Interval
from dpeffects.privacy.sums import Grid

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

T = TypeVar("T")

ROWS = 2**15
"""Rows in a block, at most: the room that exact sums within a block are made for."""
_THREADS = os.cpu_count() or 1


@dataclass(frozen=True)
class Block:
    """Some rows, clipped and encoded; parts that nobody asked for are empty."""

    treated: BoolArray
    outcome: FloatArray = field(default_factory=lambda: np.zeros(0))
    covariates: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    strata: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def some(self, which: slice | BoolArray) -> Block:
        """Some of these rows."""
        return Block(
            self.treated[which],
            self.outcome[which] if len(self.outcome) else self.outcome,
            self.covariates[which] if len(self.covariates) else self.covariates,
            self.strata[which] if len(self.strata) else self.strata,
        )


Totals = tuple[IntArray, ...]
Summand = Callable[[Block], Totals]
"""What a block adds. It may travel to other processes, so it must not hold the curator."""
Records = tuple[npt.NDArray[Any], ...]
ByRecord = Callable[[Block], Records]
"""A few values for each record of a block. It may travel too."""


class Source(Protocol):
    """Rows, wherever they are. Only the curator looks inside."""

    @property
    def n(self) -> int:
        """Number of records."""

    @property
    def width(self) -> int:
        """Number of encoded covariates."""

    @property
    def outcome_range(self) -> Interval:
        """Range that outcomes are clipped to."""

    @property
    def declared(self) -> int | None:
        """Number of strata, with records or without; None where there are no strata."""

    def fold(self, function: Summand, *parts: str) -> Totals:
        """Add up a function of blocks with these parts: "outcome", "covariates", "strata"."""

    def gather(self, function: ByRecord, *parts: str) -> Records:
        """Bring a few values of each record into memory, in one look at the rows.

        The values of a record are at the same place; what place that is may change from one look
        to the next.
        """

    def by_arm(self, what: str, grid: Grid | None = None) -> IntArray:
        """Sums over (treated, control): "count", or "sum" or "square" of outcomes on a grid."""

    def held(self, why: str) -> Rows:
        """Return the rows in memory; raises where they are not, and says why they must be."""


@dataclass(frozen=True)
class Rows:
    """Private rows in memory, clipped to their bounds. Only the curator looks inside.

    ``covariates`` makes the encoded matrix in [0, 1]^d when it is first needed; ``strata`` the
    stratum of each record and the number of strata, where covariates are discrete. ``values`` has
    the number of values that each encoded column, and last the outcome, could take by its type and
    bounds: 1 for a constant, 2 for an indicator, 0 for a continuum.
    """

    outcome: FloatArray
    outcome_range: Interval
    treated: BoolArray
    covariates: Callable[[], FloatArray]
    width: int
    strata: Callable[[], tuple[IntArray, int]] | None = None
    values: tuple[int, ...] = ()

    @property
    def n(self) -> int:
        """Number of records."""
        return int(self.treated.size)

    @property
    def declared(self) -> int | None:
        """Number of strata."""
        return None if self.strata is None else self.strata()[1]

    def fold(self, function: Summand, *parts: str) -> Totals:
        """Add up a function of blocks."""
        return added(self._map(function, parts))

    def gather(self, function: ByRecord, *parts: str) -> Records:
        """A few values for each record, in the order of the rows."""
        return joined(self._map(function, parts))

    def reordered(self, order: IntArray) -> Rows:
        """The same records in another order; covariates and strata when first asked for."""
        strata = self.strata

        def covariates() -> FloatArray:
            matrix = self.covariates()
            out = np.empty_like(matrix)
            for column, put in zip(matrix.T, out.T, strict=True):
                np.take(column, order, out=put)
            return out

        def index() -> tuple[IntArray, int]:
            assert strata is not None
            found, count = strata()
            return found[order], count

        return replace(
            self,
            outcome=self.outcome[order],
            treated=self.treated[order],
            covariates=cache(covariates),
            strata=None if strata is None else cache(index),
        )

    def _map(self, function: Callable[[Block], T], parts: tuple[str, ...]) -> Iterator[T]:
        blocks = self._blocks(parts)
        if self.n < 4 * ROWS:
            yield from map(function, blocks)
            return

        def work(block: Block) -> T:
            with np.errstate(all="ignore"):  # of this thread
                return function(block)

        with ThreadPoolExecutor(_THREADS) as pool:
            yield from pool.map(work, blocks)

    def _blocks(self, parts: tuple[str, ...]) -> Iterator[Block]:
        whole: dict[str, npt.NDArray[Any]] = {"treated": self.treated}
        for part in parts:
            if part == "outcome":
                whole[part] = self.outcome
            elif part == "covariates":
                whole[part] = self.covariates()
            else:
                assert self.strata is not None
                whole[part] = self.strata()[0]
        for start in range(0, self.n, ROWS):
            yield Block(**{name: x[start : start + ROWS] for name, x in whole.items()})

    def by_arm(self, what: str, grid: Grid | None = None) -> IntArray:
        """Sums over (treated, control)."""
        function = ArmTotals(what, grid, self.outcome_range)
        return self.fold(function, *(() if grid is None else ("outcome",)))[0]

    def held(self, why: str) -> Rows:
        """These rows."""
        return self


_ROOM = threading.local()


def room(what: str, rows: int, columns: int, dtype: Any = np.float64) -> npt.NDArray[Any]:
    """Memory for work on a block, column by column, used again by this thread's next block.

    (Pages that are given back and asked for again cost as much as the arithmetic on them.) Its
    values are anything; nothing that outlives the block may be in it.
    """
    kept: npt.NDArray[Any] | None = getattr(_ROOM, what, None)
    if kept is None or kept.size < rows * columns:
        kept = np.empty(rows * columns, dtype)
        setattr(_ROOM, what, kept)
    return kept[: rows * columns].reshape((rows, columns), order="F")


_PRODUCT = 2**18
"""Multiplications that BLAS does in one thread; blocks have threads already."""


def exact_products(left: FloatArray, right: FloatArray, bits: int) -> IntArray:
    """left'right for floats that are whole numbers: exact, as no product has more than these bits.

    It is made of as many rows at a time as floats add up exactly.
    """
    rows = min(2 ** (53 - bits), max(64, _PRODUCT // (left.shape[1] * right.shape[1])))
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.int64)
    for start in range(0, len(left), rows):
        part = slice(start, start + rows)
        total += (left[part].T @ right[part]).astype(np.int64)
    return total


def exact_dots(
    rows: FloatArray, weights: FloatArray, bits: int, tail: FloatArray | float = 0.0
) -> FloatArray:
    """rows'weights for rows of this many bits, such that a row's value is its own.

    (A product of matrices may add up a row in another order when its neighbours change.) Weights
    are cut into two parts of `weight_bits`, which leave room for exact sums. ``tail`` is what
    floats leave out of the weights.
    """
    size, own = weights.size, weight_bits(weights.size, bits)
    top = max(float(np.abs(weights).max(initial=0.0)), 1e-200)
    scale = 2.0 ** (own - math.frexp(top)[1])
    high = np.rint(weights * scale)
    low = np.rint((weights * scale - high + tail * scale) * 2.0**own) * 2.0**-own
    both, out = np.stack([high, low], axis=1), np.empty(len(rows))
    for start in range(0, len(rows), step := max(64, _PRODUCT // (2 * max(size, 1)))):
        parts = rows[start : start + step] @ both
        np.add(parts[:, 0], parts[:, 1], out=out[start : start + step])
    out /= scale
    return out


def weight_bits(size: int, bits: int) -> int:
    """Bits of a weight that leave room for exact sums over this many entries of a row."""
    return 53 - bits - math.ceil(math.log2(max(size, 2)))


def joined(results: Iterable[Records]) -> Records:
    """Arrays one after the other."""
    return tuple(np.concatenate(parts) for parts in zip(*results, strict=True))


def added(results: Iterable[Totals]) -> Totals:
    """Sums of integer arrays, entry by entry."""
    found = iter(results)
    total = tuple(np.array(part) for part in next(found))
    for result in found:
        for part, more in zip(total, result, strict=True):
            part += more
    return total


@dataclass(frozen=True)
class ArmTotals:
    """What a block adds to counts, sums or squares by arm (claims 6, 7).

    Squares are those of z, the outcome scaled to [-1, 1].
    """

    what: str
    grid: Grid | None
    interval: Interval

    def __call__(self, block: Block) -> Totals:
        """Sums over (treated, control)."""
        treated = block.treated
        if self.grid is None:
            count = int(np.count_nonzero(treated))
            return (np.array([count, treated.size - count], dtype=np.int64),)
        values, (lower, upper) = block.outcome, self.interval
        if self.what == "square":
            values = (2.0 * values - lower - upper) / (upper - lower)
            values = values * values
        steps = self.grid.encode(values)
        one = int((steps * treated).sum())
        return (np.array([one, int(steps.sum()) - one], dtype=np.int64),)


def sums_by_cell(values: IntArray, cell: IntArray, size: int) -> IntArray:
    """Exact sums by cell of integers below 2^31 in size: floats add up their halves exactly."""
    high, low = values >> 15, values & (2**15 - 1)
    parts = [np.bincount(cell, part, size) for part in (high, low)]
    return np.asarray((parts[0].astype(np.int64) << 15) + parts[1].astype(np.int64))
