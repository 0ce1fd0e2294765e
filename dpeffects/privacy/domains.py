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

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.errors import DataError, OptionError
from dpeffects.privacy.exact import exact_products, row_norms_squared, scratch_buffer
from dpeffects.privacy.rows import MOST_ROWS, WEIGHT_BITS

_TOP = 56
"""Totals stay below 2^56 steps: nothing overflows, and the noise has room."""
_FEW = 8
"""Up to this many cells, sums by cell are a product of matrices."""
_WEIGHTED = 38
"""Bits of a row's contribution with its weight: a block of them adds up exactly in floats."""


class Norms(NamedTuple):
    """Largest L1 norm and squared L2 norm, in whole steps."""

    l1: int
    squared_l2: int


class Sensitivity(NamedTuple):
    """How far one record can move the totals, in steps."""

    l1: int
    l2: float

    @classmethod
    def of_number(cls, most: int) -> Sensitivity:
        """Where the total is one number, both norms are the same."""
        return cls(most, float(most))


class Matrices(NamedTuple):
    """Totals are upper triangles of sums of zz' over rows z of so many columns (claims 6, 26).

    There are at most ``records`` rows, and |z|^2 is at most ``squared_radius``.
    """

    columns: int
    squared_radius: int
    records: int

    @property
    def variance(self) -> float:
        """Variance of pure noise of scale 1 off the diagonal."""
        return 2.0 * (self.columns + 1)

    @property
    def entries(self) -> float:
        """What `entries` returns: Gaussian noise has the variance (squared_radius / mu)^2."""
        return self.variance / 2.0


class Cubes(NamedTuple):
    """Largest moves in the cells' totals of so many columns add up to at most ``width``."""

    columns: int
    width: int

    @property
    def variance(self) -> float:
        """Variance of pure noise of scale 1 (claim 28)."""
        return (self.columns + 1) * (self.columns + 2) / 3.0

    @property
    def entries(self) -> float:
        """What `entries` returns: Gaussian noise has the variance columns (width / mu)^2."""
        return self.variance / (2.0 * self.columns)


class IntTotals(NamedTuple):
    """Whole numbers, how far one record moves them, and the value of one step.

    ``shape`` says more about the move, where a noise has that shape.
    """

    values: IntArray
    moves: Sensitivity
    unit: float
    shape: Matrices | Cubes | None = None


class Reach(NamedTuple):
    """Norms of one contribution, and of the difference of two."""

    single: Norms
    same: Norms

    def weighted(self) -> Reach:
        """The same where contributions are weighted means of such and of 0 (claim 29)."""
        same = Norms(*map(max, self.same, self.single))  # either of two contributions may be 0
        return Reach(*(times(x, MOST_ROWS, MOST_ROWS**2) for x in (self.single, same)))

    def sensitivity(self, cells: int | None, public_cells: bool) -> Sensitivity:
        """Sensitivity where neighbours replace a record (claim 5).

        In one cell the totals move by v - v'. Across cells they move by v in one place and v' in
        another: norms add up in L1, their squares in L2; if there is one cell only, the other
        place is not counted. Public cells do not change.
        """
        norms = self.same
        if cells is not None and not public_cells:
            factor = 1 if cells == 1 else 2
            norms = Norms(*map(max, norms, times(self.single, factor, factor)))
        return Sensitivity(norms.l1, math.sqrt(norms.squared_l2) * ROUND_UP)


ROUND_UP = 1.0 + 2.0**-50


def times(norms: Norms, l1: int, squared_l2: int) -> Norms:
    """Both norms by their own factors."""
    return Norms(l1 * norms.l1, squared_l2 * norms.squared_l2)


def norms_of(entries: list[int]) -> Norms:
    """Norms of whole numbers."""
    return Norms(sum(entries), sum(x * x for x in entries))


Weight = FloatArray | None
"""Weights of rows, where they have any."""


class GridDomain(Protocol):
    """A set on a grid."""

    @property
    def unit(self) -> float:
        """Value of one step."""

    @property
    def reach(self) -> Reach:
        """Norms of what a record contributes."""

    def project(self, values: FloatArray) -> FloatArray:
        """What rows contribute, in steps: whole numbers within the set, whatever the values."""
        raise TypeError("this set has no whole numbers of single rows")

    def totals(
        self, values: FloatArray, cell: IntArray | None, size: int, weight: Weight = None
    ) -> IntArray:
        """Add up contributions of some rows by cell; cell ``size`` is dropped.

        Weights are multiples of 2^-16, and given where the grid was made for them. Whole numbers
        below 2^53 add up exactly in floats.
        """
        return add_up(weigh(self.project(values), weight), cell, size)

    def shape(self, n: int) -> Matrices | Cubes | None:
        """What else is known of how one of n records moves the sums."""
        return None

    def offset(self, n: float) -> FloatArray | float:
        """What the centre adds to a sum over n records."""
        return 0.0


class Domain(Protocol):
    """A set of contributions; ``claim`` is the number of its claim in PROOFS.md."""

    claim: ClassVar[int]

    @property
    def columns(self) -> int:
        """Numbers that a row function returns for each record."""

    def on(self, n: int, rate: float, most: int = ..., weighted: bool = False) -> GridDomain:
        """The finest grid for sums of n contributions, with noise of 1 / rate times their size."""


def entries(within: Domain, cells: int | None = None) -> float:
    """In how many entries of equal size a record moves the sums: (L1 / L2)^2.

    So pure noise has this many times twice the variance of Gaussian noise with mu = epsilon; where
    the pure noise has another shape, that is what is returned.
    """
    grid = within.on(1, 1.0)
    moves, shape = grid.reach.sensitivity(cells, False), grid.shape(1)
    return (moves.l1 / moves.l2) ** 2 if shape is None else shape.entries


def bits_for(
    n: float, rate: float, largest: float = 1.0, most: int = 30, weighted: bool = False
) -> int:
    """Bits of the finest grid on which sums and noise fit, from public numbers.

    Weights take `WEIGHT_BITS` of those that there are.
    """
    room = _TOP - math.ceil(math.log2(max(n, 1.0)))
    noise = _TOP - 1 - math.ceil(math.log2(max(largest, 1.0)) + max(0.0, -math.log2(rate)))
    bits = min(most, room, noise)
    if weighted:
        bits = min(most, _WEIGHTED - WEIGHT_BITS, min(room, noise) - WEIGHT_BITS)
    if bits < 6:
        raise DataError("too many records, or an epsilon too small, for exact sums")
    return bits


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
        if not (self.radius is None or (1e-100 <= self.radius <= 1e100 and len(low) <= 2**13)):
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

    def on(self, n: int, rate: float, most: int = 30, weighted: bool = False) -> BoxGrid:
        """The box on its finest grid."""
        largest = float(self.half.max())
        if self.whole:  # is there room?
            if weighted and largest > 2.0 ** (_WEIGHTED - WEIGHT_BITS):
                raise OptionError("whole numbers of a set are too large for weights")
            bits_for(n * largest, rate, float(self.half.sum()), weighted=weighted)
            return BoxGrid(self, 1.0, 1.0, weighted)
        if self.radius is not None:
            largest, most = min(largest, self.radius), min(most, 20)
        bits = bits_for(n, rate, float(self.half.sum()) / largest, most, weighted)
        return self.with_bits(bits, largest, weighted)

    def with_bits(self, bits: int, widest: float | None = None, weighted: bool = False) -> BoxGrid:
        """The box on a grid of 2^bits steps from the centre to the end of its widest column."""
        widest = widest or float(self.half.max())
        return BoxGrid(self, 2.0**bits / widest, widest / 2.0**bits, weighted)


@dataclass(frozen=True, eq=False)
class Cube(Box):
    """Columns of the same width about their middles: pure noise of the shape of a cube (claim 28).

    It is less than Laplace noise from two columns on, and two fifths of it for many.
    """

    claim: ClassVar[int] = 28

    def __post_init__(self) -> None:
        super().__post_init__()
        middle, half = self.low + (self.high - self.low) / 2.0, self.half
        if self.radius or not ((self.centre == middle).all() and half.min() > 0.999 * half.max()):
            raise OptionError("a cube has columns of the same width about their middles, no ball")


@dataclass(frozen=True, eq=False)
class BoxGrid(GridDomain):
    """A box in steps of a grid: ``steps`` in one unit of the values, each of size ``step``.

    With ``weighted`` rows a step of the sums is 2^-16 of that.
    """

    box: Box
    steps: float
    step: float
    weighted: bool = False

    def __eq__(self, other: object) -> bool:
        """Whether both make the same whole numbers of all values."""
        return isinstance(other, BoxGrid) and self._known == other._known

    @property
    def _known(self) -> list[Any]:
        own = [np.asarray(x).tolist() for x in vars(self.box).values()]
        return [type(self.box), *own, self.steps, self.weighted]

    @property
    def unit(self) -> float:
        """Value of one step of the sums."""
        return self.step / MOST_ROWS if self.weighted else self.step

    @cached_property
    def ends(self) -> tuple[FloatArray, FloatArray]:
        """Lowest and highest whole numbers by column; the ends are rounded like all values."""
        ends = np.stack([self.box.low, self.box.high])
        self._to_steps(ends)
        return ends[0], ends[1]

    @cached_property
    def squared_radius(self) -> int | None:
        """Largest squared norm of a row in steps, where there is a ball."""
        return None if self.box.radius is None else math.floor(self.box.radius * self.steps) ** 2

    def _to_steps(self, values: FloatArray) -> None:
        """Halves are rounded up."""
        if self.box.centre.any():
            values -= self.box.centre
        values *= self.steps
        values += 0.5
        np.floor(values, out=values)

    def _round(self, values: FloatArray) -> None:
        """Go to the grid, then within the ends: the last operation, so none before it matters."""
        self._to_steps(values)
        values.clip(*self.ends, out=values)

    def project(self, values: FloatArray) -> FloatArray:
        """Whole numbers within the set, in place; what is not finite becomes the centre."""
        with np.errstate(all="ignore"):
            if not math.isfinite(values.sum()):  # if the sum is finite, all values are
                np.copyto(values, self.box.centre, where=~np.isfinite(values))
            if self.box.radius is None:
                self._round(values)
            else:
                values.clip(self.box.low, self.box.high, out=values)
                self._into_ball(values, self.box.radius)
        return values

    def _into_ball(self, values: FloatArray, radius: float) -> None:
        """Scale rows into the ball, short of it by what rounding can add; outside, go to 0."""
        assert self.squared_radius is not None
        values -= self.box.centre
        norm = np.sqrt(row_norms_squared(values))
        short = radius - 0.51 * math.sqrt(self.box.columns) * self.step
        values *= np.minimum(1.0, short / np.maximum(norm, 1e-300))[:, None]
        values += self.box.centre
        self._round(values)
        values[row_norms_squared(values) > self.squared_radius] = 0.0

    @cached_property
    def reach(self) -> Reach:
        """A contribution lies between the ends, by the last clip, and in the ball."""
        low, high = ([int(x) for x in ends] for ends in self.ends)
        pairs = list(zip(low, high, strict=True))
        single = norms_of([max(abs(a), abs(b)) for a, b in pairs])
        same = norms_of([b - a for a, b in pairs])
        if self.squared_radius is not None:
            r2, k = self.squared_radius, self.box.columns
            single = Norms(*map(min, single, (math.isqrt(k * r2), r2)))
            same = Norms(*map(min, same, (math.isqrt(4 * k * r2), 4 * r2)))
        reach = Reach(single, same)
        return reach.weighted() if self.weighted else reach

    def shape(self, n: int) -> Matrices | Cubes | None:
        """In a cube no contribution exceeds half the width, wherever it is (claim 28)."""
        if not isinstance(self.box, Cube):
            return None
        half = max(int(np.abs(x).max()) for x in self.ends)
        return Cubes(self.box.columns, 2 * half * (MOST_ROWS if self.weighted else 1))

    def whole(self, values: FloatArray) -> IntArray:
        """Whole numbers within a set of one column."""
        return self.project(values[:, None].copy())[:, 0].astype(np.int64)

    def offset(self, n: float) -> FloatArray:
        """What n centres add to the sums."""
        return n * np.asarray(self.box.centre)


COUNT = Box(1.0, 1.0, centre=0.0, whole=True)
"""One for each record: counts by cell."""


def weigh(whole: FloatArray, weight: Weight) -> FloatArray:
    """Whole numbers times weights in steps of 2^-16, in place: whole numbers again."""
    if weight is not None:
        whole *= (weight * MOST_ROWS)[:, None]
    return whole


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
