"""Sets that one record's contribution lies in, and how far one record can then move a sum.

A set is public. On a grid (`on`) it turns the numbers of a row function to whole numbers within
itself, whatever they are, and derives the sensitivity of their sums. Nobody types a sensitivity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from dpeffects.errors import DataError, OptionError, PrivacyError
from dpeffects.privacy.exact import (
    FloatArray,
    IntArray,
    exact_products,
    row_norms_squared,
    scratch_buffer,
)

_TOP = 56
"""Totals stay below 2^56 steps: nothing overflows, and the noise has room."""
WEIGHT_BITS = 16
"""Bits after the point of weights of single records."""
_FEW = 8
"""Up to this many cells, sums by cell are a product of matrices."""


class Norms(NamedTuple):
    """Largest L1 norm and squared L2 norm, in whole steps."""

    l1: int
    squared_l2: int


class Sensitivity(NamedTuple):
    """How far one record can move the totals, in steps."""

    l1: int
    l2: float


class Reach(NamedTuple):
    """Norms of one contribution, of the difference of two, and of two where either may be 0."""

    single: Norms
    same: Norms
    absent: Norms

    def sensitivity(self, cells: int | None, public_cells: bool, rows: int = 0) -> Sensitivity:
        """Sensitivity where neighbours replace a record, or a unit of at most ``rows`` rows.

        In one cell the totals move by v - v'. Across cells they move by v in one place and v' in
        another: norms add up in L1, their squares in L2; if there is one cell only, the other
        place is not counted. Public cells do not change. A unit's sums lie in ``rows`` times the
        set, or are 0; over several cells only their norms are known (claim 5).
        """
        if rows:
            l1, squared = self.absent if cells is None else _times(self.single, 2, 4)
            return Sensitivity(l1 * rows, math.sqrt(squared) * rows * _ROUND_UP)
        norms = self.same
        if cells is not None and not public_cells:
            factor = 1 if cells == 1 else 2
            norms = Norms(*map(max, norms, _times(self.single, factor, factor)))
        return Sensitivity(norms.l1, math.sqrt(norms.squared_l2) * _ROUND_UP)


_ROUND_UP = 1.0 + 2.0**-50


def _times(norms: Norms, l1: int, squared_l2: int) -> Norms:
    return Norms(l1 * norms.l1, squared_l2 * norms.squared_l2)


def _norms(entries: list[int]) -> Norms:
    return Norms(sum(entries), sum(x * x for x in entries))


class OnGrid(Protocol):
    """A set on a grid."""

    @property
    def unit(self) -> float:
        """Value of one step."""

    @property
    def reach(self) -> Reach:
        """Norms of what a record contributes."""

    def totals(self, values: FloatArray, cell: IntArray | None, size: int) -> IntArray:
        """Add up contributions of some rows by cell; cell ``size`` is dropped."""

    def offset(self, n: int) -> FloatArray | float:
        """What the centre adds to a sum over n records."""


class Within(Protocol):
    """A set of contributions; ``claim`` is the number of its claim in PROOFS.md."""

    claim: ClassVar[int]

    @property
    def columns(self) -> int:
        """Numbers that a row function returns for each record."""

    def on(self, n: int, rate: float, most: int = ...) -> OnGrid:
        """The finest grid for sums of n contributions, with noise of 1 / rate times their size."""


def entries(within: Within, cells: int | None = None) -> float:
    """In how many entries of equal size a record moves the sums: (L1 / L2)^2."""
    moves = within.on(1, 1.0).reach.sensitivity(cells, False)
    return (moves.l1 / moves.l2) ** 2


def bits_for(n: float, rate: float, largest: float = 1.0, most: int = 30) -> int:
    """Bits of the finest grid on which sums and noise fit, from public numbers."""
    room = _TOP - math.ceil(math.log2(max(n, 1.0)))
    noise = _TOP - 1 - math.ceil(math.log2(max(largest, 1.0)) + max(0.0, -math.log2(rate)))
    bits = min(most, room, noise)
    if bits < 6:
        raise DataError("too many records, or an epsilon too small, for exact sums")
    return bits


def unit_bits(rows: int, columns: int) -> int:
    """Bits of a grid on which squared norms of the sums of a unit's rows stay below 2^62."""
    return min(24, 30 - math.ceil(math.log2(rows * columns)))


@dataclass(frozen=True, eq=False)
class Box:
    """Columns within [low, high], measured from ``centre`` (by default the middle), on one grid.

    ``radius`` also scales a row into a ball about the centre. ``whole`` keeps whole numbers as
    they are.
    """

    low: Any
    high: Any
    centre: Any = None
    radius: float | None = None
    whole: bool = False
    claim: ClassVar[int] = 5

    def __post_init__(self) -> None:
        low, high = (np.atleast_1d(np.asarray(x, np.float64)) for x in (self.low, self.high))
        middle = low + (high - low) / 2.0 if self.centre is None else self.centre
        for name, x in (("low", low), ("high", high), ("centre", middle)):
            object.__setattr__(self, name, np.broadcast_to(np.asarray(x, np.float64), low.shape))
        finite = np.isfinite(low) & np.isfinite(high) & np.isfinite(self.centre)
        if not ((finite & (low <= high)).all() and 1e-100 <= self.half.max() <= 1e100):
            raise OptionError("a set needs finite ends, in order, neither too close nor too far")
        if self.radius is not None and not 1e-100 <= self.radius <= 1e100:
            raise OptionError("the radius of a ball must be positive, neither tiny nor huge")
        if self.whole and not self.half.max() <= 2.0**30:
            raise OptionError("whole numbers of a set must be within 2^30 of its centre")
        if self.radius is not None and not ((low <= self.centre) & (self.centre <= high)).all():
            raise OptionError("a ball needs its centre, where failing rows go, inside the box")

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.low)

    @property
    def half(self) -> FloatArray:
        """Largest distance from the centre, by column."""
        return np.maximum(np.abs(self.low - self.centre), np.abs(self.high - self.centre))

    def on(self, n: int, rate: float, most: int = 30) -> BoxGrid:
        """The box on its finest grid."""
        if self.whole:
            bits_for(n * float(self.half.max()), rate, float(self.half.sum()))  # is there room?
            return BoxGrid(self, 1.0, 1.0)
        widest = float(self.half.max())
        if self.radius is not None:
            widest, most = min(widest, self.radius), min(most, 20)
        return self.with_bits(bits_for(n, rate, float(self.half.sum()) / widest, most), widest)

    def with_bits(self, bits: int, widest: float | None = None) -> BoxGrid:
        """The box on a grid of 2^bits steps from the centre to the end of its widest column."""
        widest = widest or float(self.half.max())
        return BoxGrid(self, 2.0**bits / widest, widest / 2.0**bits)


@dataclass(frozen=True, eq=False)
class BoxGrid:
    """A box in steps of a grid: ``steps`` in one unit of the values, each of size ``unit``."""

    box: Box
    steps: float
    unit: float

    @cached_property
    def ends(self) -> tuple[FloatArray, FloatArray]:
        """Lowest and highest whole numbers by column; the ends are rounded like all values."""
        low, high = np.array(self.box.low), np.array(self.box.high)
        for j in range(len(low)):
            self._to_steps(low[j : j + 1], j)
            self._to_steps(high[j : j + 1], j)
        return low, high

    @cached_property
    def squared_radius(self) -> int | None:
        """Largest squared norm of a row in steps, where there is a ball."""
        return None if self.box.radius is None else math.floor(self.box.radius * self.steps) ** 2

    def _to_steps(self, column: FloatArray, j: int) -> None:
        """Halves are rounded up, as every engine can (`expression`)."""
        if self.box.centre[j]:
            column -= self.box.centre[j]
        column *= self.steps
        column += 0.5
        np.floor(column, out=column)

    def _round(self, column: FloatArray, j: int) -> None:
        """Go to the grid, then within the ends: the last operation, so none before it matters."""
        self._to_steps(column, j)
        np.clip(column, self.ends[0][j], self.ends[1][j], out=column)

    def project(self, values: FloatArray) -> FloatArray:
        """Whole numbers within the set, in place; what is not finite becomes the centre."""
        ball = self.squared_radius is not None
        with np.errstate(all="ignore"):
            for j, column in enumerate(values.T):  # one column at a time stays in the cache
                if not math.isfinite(column.sum()):  # if the sum is finite, all values are
                    column[~np.isfinite(column)] = self.box.centre[j]
                if ball:
                    np.clip(column, self.box.low[j], self.box.high[j], out=column)
                else:
                    self._round(column, j)
            if ball:
                self._into_ball(values)
        return values

    def _into_ball(self, values: FloatArray) -> None:
        """Scale rows into the ball, short of it by what rounding can add; outside, go to 0."""
        assert self.box.radius is not None
        assert self.squared_radius is not None
        values -= self.box.centre
        norm = np.sqrt(row_norms_squared(values))
        short = self.box.radius - 0.51 * math.sqrt(self.box.columns) * self.unit
        values *= np.minimum(1.0, short / np.maximum(norm, 1e-300))[:, None]
        values += self.box.centre
        for j, column in enumerate(values.T):
            self._round(column, j)
        values[row_norms_squared(values) > self.squared_radius] = 0.0

    def project_units(self, sums: FloatArray, cells: int, most: int) -> IntArray:
        """Sums of units over cells, scaled into ``most`` times the set; what stays outside is 0."""
        l1, squared = most * self.reach.single.l1, most**2 * self.reach.single.squared_l2
        shrink = np.minimum(
            l1 / np.maximum(np.abs(sums).sum(axis=1), 1.0),
            math.sqrt(squared) / np.maximum(np.sqrt((sums**2).sum(axis=1)), 1.0),
        )
        low, high = (np.tile(most * end, cells) for end in self.ends)
        inside = np.trunc(sums * np.minimum(shrink, 1.0)[:, None])
        inside = np.clip(inside, np.minimum(low, 0.0), np.maximum(high, 0.0))
        steps = inside.astype(np.int64)  # squares have room for their sum (`unit_bits`)
        steps[(np.abs(steps).sum(axis=1) > l1) | ((steps * steps).sum(axis=1) > squared)] = 0
        return steps

    @cached_property
    def reach(self) -> Reach:
        """A contribution lies between the ends, by the last clip, and in the ball."""
        low, high = ([int(x) for x in ends] for ends in self.ends)
        pairs = list(zip(low, high, strict=True))
        single = _norms([max(abs(a), abs(b)) for a, b in pairs])
        same = _norms([b - a for a, b in pairs])
        absent = _norms([max(b, 0) - min(a, 0) for a, b in pairs])
        if self.squared_radius is not None:
            r2, k = self.squared_radius, self.box.columns
            single = Norms(*map(min, single, (math.isqrt(k * r2), r2)))
            two = (math.isqrt(4 * k * r2), 4 * r2)
            same, absent = (Norms(*map(min, norms, two)) for norms in (same, absent))
        return Reach(single, same, absent)

    def totals(self, values: FloatArray, cell: IntArray | None, size: int) -> IntArray:
        """Sums by cell; whole numbers below 2^53 add up exactly in floats."""
        return add_up(self.project(values), cell, size)

    def offset(self, n: int) -> FloatArray:
        """What n centres add to the sums."""
        return n * np.asarray(self.box.centre)

    def expression(self, values: Any, j: int = 0) -> Any:
        """`project` of one column in the words of an engine, by narwhals: the same operations."""
        import narwhals.stable.v2 as nw

        if self.squared_radius is not None:
            raise OptionError("an engine has no words for a ball")
        (low, high), centre = (float(end[j]) for end in self.ends), float(self.box.centre[j])
        middle = min(max(0.0, low), high)
        steps = ((values - centre if centre else values) * self.steps + 0.5).floor()
        above = nw.when(steps > high).then(nw.lit(high)).otherwise(steps)
        inside = nw.when(steps < low).then(nw.lit(low)).otherwise(above)
        usable = nw.when(values.is_finite()).then(inside).otherwise(nw.lit(middle))
        return usable.cast(nw.Int64)


COUNT = Box(1.0, 1.0, centre=0.0, whole=True)
"""One for each record: counts by cell."""


def add_up(values: FloatArray, cell: IntArray | None, size: int) -> IntArray:
    """Exact sums by cell of a block of whole numbers; cell ``size`` is dropped."""
    if cell is None:
        return values.sum(axis=0).astype(np.int64)[None]
    if size <= _FEW:
        own = scratch_buffer("sets.own", len(cell), size)
        for c in range(size):
            own[:, c] = cell == c
        return exact_products(own, values, 38)
    sums = [np.bincount(cell, column, size + 1)[:size] for column in values.T]
    return np.stack(sums, axis=1).astype(np.int64)


def whole_weights(weights: FloatArray, bits: int = WEIGHT_BITS) -> IntArray:
    """Round known weights to multiples of 2^-bits, so that products are whole numbers."""
    if not (np.abs(weights) < 2.0**30).all():
        raise PrivacyError("weights must be finite and below 2^30; nothing drawn")
    return np.rint(weights * 2.0**bits).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Gram:
    """Products z_j z_k of a row z in a box about 0, for ``pairs`` of columns (all with j <= k)."""

    box: Box
    pairs: tuple[IntArray, IntArray] | None = None
    claim: ClassVar[int] = 6

    @property
    def columns(self) -> int:
        """Entries of z."""
        return self.box.columns

    def on(self, n: int, rate: float, most: int = 18) -> GramGrid:
        """The products on the finest grid of z."""
        if self.box.centre.any():
            raise OptionError("products need a box with centre 0")
        first, second = np.triu_indices(self.columns) if self.pairs is None else self.pairs
        pairs = set(zip(first.tolist(), second.tolist(), strict=True))
        if len(pairs) < len(first) or not (first <= second).all():
            raise OptionError("products need different pairs of columns j <= k")
        half = self.box.half / self.box.half.max()
        bits = bits_for(n, rate, float((half[first] * half[second]).sum()), 54) // 2
        return GramGrid(self.box.on(n, 1.0, min(most, bits)), (first, second))


@dataclass(frozen=True, eq=False)
class GramGrid:
    """Products of whole numbers are whole: their sums are exact products of matrices."""

    rows: BoxGrid
    pairs: tuple[IntArray, IntArray]

    @property
    def unit(self) -> float:
        """Value of one step."""
        return self.rows.unit**2

    @cached_property
    def reach(self) -> Reach:
        """By entry |z_j z_k| <= t_j t_k, and a square has one sign.

        In a ball |zz'| = |z|^2 <= r^2 and |zz' - ww'|^2 = |z|^4 + |w|^4 - 2 (z'w)^2 <= 2 r^4.
        """
        t = [int(max(abs(a), abs(b))) for a, b in zip(*self.rows.ends, strict=True)]
        pairs = [(int(j), int(k)) for j, k in zip(*self.pairs, strict=True)]
        single = _norms([t[j] * t[k] for j, k in pairs])
        same = _norms([t[j] * t[k] * (1 if j == k else 2) for j, k in pairs])
        if (r2 := self.rows.squared_radius) is not None:
            l1 = (len(t) + 1) * r2 // 2 + 1  # (|z|_1^2 + |z|_2^2) / 2 over pairs j <= k
            single = Norms(*map(min, single, (l1, r2 * r2)))
            same = Norms(*map(min, same, (2 * l1, 2 * r2 * r2)))
        return Reach(single, same, _times(single, 2, 4))

    def totals(self, values: FloatArray, cell: IntArray | None, size: int) -> IntArray:
        """Exact products, by cell."""
        z, by_cell = self.rows.project(values), []
        top = max(int(np.abs(x).max()) for x in self.rows.ends)
        if (r2 := self.rows.squared_radius) is not None:
            top = min(top, math.isqrt(r2))
        bits = 2 * (top - 1).bit_length()
        if cell is not None and cell.max(initial=0) == size:
            z[cell == size] = 0.0
        part = scratch_buffer("sets.part", *z.shape)
        for c in range(size - 1):
            np.multiply(z, (cell == c).astype(np.float64)[:, None], out=part)
            by_cell.append(exact_products(part, z, bits)[self.pairs])
        last = exact_products(z, z, bits)[self.pairs] - sum(by_cell)
        return np.stack([*by_cell, last])

    def offset(self, n: int) -> float:
        """The centre is 0."""
        return 0.0


@dataclass(frozen=True, eq=False)
class WithSquares:
    """Columns z in [-1/2, 1/2], and z^2 - 1/8 beside each; first a constant ``count`` if not 0.

    Whoever moves z far moves z^2 little: together they move by 1 in L1 and in L2 (claim 7).
    """

    k: int
    count: float = 0.0
    claim: ClassVar[int] = 7

    def __post_init__(self) -> None:
        if not 0.0 <= self.count <= 2.0:
            raise OptionError("the constant beside columns must be from 0 to 2")

    @property
    def columns(self) -> int:
        """Number of columns z."""
        return self.k

    def on(self, n: int, rate: float, most: int = 30) -> SquaresGrid:
        """The set on its finest grid: z in steps of 2^-(bits + 1)."""
        bits = bits_for(n, rate, self.k + 2.0 * self.count, most)
        box = Box(np.full(self.k, -0.5), np.full(self.k, 0.5))
        return SquaresGrid(BoxGrid(box, 2.0 ** (bits + 1), 2.0 ** -(bits + 1)), bits, self.count)


@dataclass(frozen=True, eq=False)
class SquaresGrid:
    """Columns and centred squares in steps of the same grid."""

    rows: BoxGrid
    bits: int
    count: float

    @property
    def unit(self) -> float:
        """Value of one step."""
        return self.rows.unit

    @property
    def _ones(self) -> int:
        return math.ceil(self.count * 2.0 ** (self.bits + 1))

    @cached_property
    def reach(self) -> Reach:
        """z is at most 2^bits steps, its centred square a quarter of that, and one for rounding."""
        k, top = self.rows.box.columns, 2**self.bits
        move, square, ones = 2 * top + 1, top // 4 + 1, self._ones
        single = Norms(k * (top + square) + ones, k * (top**2 + square**2) + ones**2)
        return Reach(single, Norms(k * move, k * move**2), _times(single, 2, 4))

    def totals(self, values: FloatArray, cell: IntArray | None, size: int) -> IntArray:
        """Sums by cell: the constant, the columns, the squares."""
        z = self.rows.project(values)
        squares = np.floor(z * z * 2.0 ** -(self.bits + 1) + (0.5 - 2.0 ** (self.bits - 2)))
        parts = [z, squares]
        if self.count:
            parts.insert(0, np.full((len(z), 1), float(self._ones)))
        return add_up(np.concatenate(parts, axis=1), cell, size)

    def offset(self, n: int) -> FloatArray:
        """The squares are measured from 1/8."""
        k = self.rows.box.columns
        ones = [n * (self.count - self._ones * self.unit)] if self.count else []
        return np.array([*ones, *[0.0] * k, *[n / 8.0] * k])


@dataclass(frozen=True, eq=False)
class Bins:
    """One of ``bins`` bins for each of k columns: k histograms at once (claim 8)."""

    k: int
    bins: int
    claim: ClassVar[int] = 8

    @property
    def columns(self) -> int:
        """Number of histograms."""
        return self.k

    def on(self, n: int, rate: float, most: int = 30) -> BinsGrid:
        """Counts are whole numbers."""
        return BinsGrid(self.k, self.bins)


@dataclass(frozen=True, eq=False)
class BinsGrid:
    """A record adds 1 to one bin of each histogram."""

    k: int
    bins: int
    unit: ClassVar[float] = 1.0

    @property
    def reach(self) -> Reach:
        """1 in k places; two records differ in at most 2 k."""
        single, two = Norms(self.k, self.k), Norms(2 * self.k, 2 * self.k)
        return Reach(single, two, two)

    def totals(self, values: FloatArray, cell: IntArray | None, size: int) -> IntArray:
        """Counts of all histograms by cell, one after the other; what is no bin is in the first."""
        by_cell = []
        for column in values.T:
            inside = (column >= 0) & (column < self.bins)
            index = np.where(inside, column, 0.0).astype(np.int64)
            place = index if cell is None else np.int64(self.bins) * cell + index
            counts = np.bincount(place, minlength=(size + 1) * self.bins)
            by_cell.append(counts[: size * self.bins].reshape(size, self.bins))
        return np.concatenate(by_cell, axis=1)

    def offset(self, n: int) -> float:
        """Counts have no centre."""
        return 0.0
