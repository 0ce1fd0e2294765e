"""Sets that are tighter than a box: products, columns beside squares or sizes, histograms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.errors import OptionError
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.domains import (
    Box,
    BoxGrid,
    Cubes,
    GridDomain,
    IntTotals,
    Matrices,
    Norms,
    Reach,
    Sensitivity,
    Weight,
    bits_for,
    norms_of,
    times,
)
from dpeffects.privacy.exact import exact_products, row_norms_squared, scratch_buffer
from dpeffects.privacy.rows import MOST_ROWS, RowFunction


@dataclass(frozen=True, eq=False)
class Gram:
    """Products z_j z_k, j <= k, of a row z in a ball about 0: the upper triangle of zz' (claim 6).

    Pure noise is the difference of two Wisharts, for the matrix as a whole (claim 26).
    """

    box: Box
    claim: ClassVar[int] = 6

    def __post_init__(self) -> None:
        if self.box.radius is None or self.box.centre.any():
            raise OptionError("products need a box with a radius and centre 0")

    @property
    def columns(self) -> int:
        """Entries of z."""
        return self.box.columns

    def on(self, n: int, rate: float, most: int = 18, weighted: bool = False) -> GramGrid:
        """The products on the finest grid of z: sums are within 2^56 steps, a scale 2^41.

        Weights are in z, as their roots, and need no bits.
        """
        assert self.box.radius is not None
        bits = min(most, 18, bits_for(n, rate, 2.0**15, 36) // 2)
        unit = self.box.radius / 2.0**bits
        return GramGrid(BoxGrid(self.box, 1.0 / unit, unit))


def matrix_noise_sd(columns: int, squared_radius: float, epsilon: float) -> float:
    """Standard deviation of the pure noise of a `Gram` in an entry off the diagonal (claim 26)."""
    return math.sqrt(Matrices(columns, 0, 0).variance) * squared_radius / epsilon


def cube_noise_sd(columns: int, width: float, epsilon: float) -> float:
    """Standard deviation of the pure noise of a `Cube` in each entry (claim 28)."""
    return math.sqrt(Cubes(columns, 0).variance) * width / epsilon


@dataclass(frozen=True, eq=False)
class GramGrid(GridDomain):
    """Products of whole numbers are whole: their sums are exact products of matrices."""

    rows: BoxGrid

    @property
    def unit(self) -> float:
        """Value of one step."""
        return self.rows.unit**2

    @cached_property
    def _squared_radius(self) -> int:
        assert self.rows.squared_radius is not None
        return self.rows.squared_radius

    @cached_property
    def reach(self) -> Reach:
        """|zz'|_F = |z|^2 <= r2, |zz' - ww'|_F^2 <= 2 r2^2; L1 is (|z|_1^2 + |z|^2) / 2."""
        r2, d = self._squared_radius, self.rows.box.columns
        single = Norms((d + 1) * r2 // 2 + 1, r2 * r2)
        return Reach(single, times(single, 2, 2))

    def shape(self, n: int) -> Matrices:
        """Sums of n products zz', |z|^2 <= r2."""
        return Matrices(self.rows.box.columns, self._squared_radius, n)

    def totals(
        self, values: FloatArray, cell: IntArray | None, size: int, weight: Weight = None
    ) -> IntArray:
        """Exact products, by cell."""
        z, by_cell = self._weighted(values, weight), []
        bits, upper = self._squared_radius.bit_length(), np.triu_indices(values.shape[1])
        if cell is not None and cell.max(initial=0) == size:
            z[cell == size] = 0.0
        part = scratch_buffer("sets.part", *z.shape)
        for c in range(size - 1):
            np.multiply(z, np.asarray(cell == c, np.float64)[:, None], out=part)
            by_cell.append(exact_products(part, z, bits)[upper])
        last = exact_products(z, z, bits)[upper] - sum(by_cell)
        return np.stack([*by_cell, last])

    def _weighted(self, values: FloatArray, weight: Weight) -> FloatArray:
        """Rows in steps; with weights w, of norm at most sqrt(w) times the radius (claim 29)."""
        if weight is None:
            return self.rows.project(values)
        radius = self.rows.box.radius
        assert radius is not None
        with np.errstate(all="ignore"):
            root = np.sqrt(weight)
            values *= root[:, None]
            norm = np.sqrt(row_norms_squared(values))
            short = root * radius - 0.51 * math.sqrt(values.shape[1]) * self.rows.step
            far = norm > short
            values[far] *= (np.maximum(short[far], 0.0) / norm[far])[:, None]
        z = self.rows.project(values)
        z[row_norms_squared(z) * MOST_ROWS > weight * MOST_ROWS * self._squared_radius] = 0.0
        return z


@dataclass(frozen=True, eq=False)
class BoxWithSquares:
    """Columns z in [-1/2, 1/2], and z^2 - 1/8 beside each; first a constant ``count`` if not 0.

    Whoever moves z far moves z^2 little: together they move by 1 in L1 and in L2 (claim 7).
    """

    columns: int
    count: float = 0.0
    claim: ClassVar[int] = 7

    def __post_init__(self) -> None:
        if not 0.0 <= self.count <= 2.0:
            raise OptionError("the constant beside columns must be from 0 to 2")

    def on(self, n: int, rate: float, most: int = 30, weighted: bool = False) -> AugmentedBoxGrid:
        """The set on its finest grid: z in steps of 2^-(bits + 1)."""
        if weighted:
            most = min(most, 20)  # the constant is up to four times a column (claim 29)
        bits = bits_for(n, rate, self.columns + 2.0 * self.count, most, weighted)
        half, steps = np.full(self.columns, 0.5), 2.0 ** (bits + 1)
        rows = BoxGrid(Box(-half, half), steps, 1.0 / steps, weighted)
        ones = math.ceil(self.count * steps)
        centres = np.repeat([0.0, 1.0 / 8.0], self.columns)  # squares are measured from 1/8
        if self.count:
            centres = np.concatenate([[self.count - ones / steps], centres])
        beside = partial(_with_squares, bits=bits, ones=ones)
        return AugmentedBoxGrid(rows, self._reach(2**bits, ones), beside, centres)

    def _reach(self, top: int, ones: int) -> Reach:
        """z is at most ``top`` steps, its centred square a quarter of that and one for rounding."""
        k, move, square = self.columns, 2 * top + 1, top // 4 + 1
        single = Norms(k * (top + square) + ones, k * (top**2 + square**2) + ones**2)
        return Reach(single, Norms(k * move, k * move**2))


def _with_squares(z: FloatArray, bits: int, ones: int) -> FloatArray:
    """The constant, if there is one, the columns, the squares."""
    squares = np.floor(z * z * 2.0 ** -(bits + 1) + (0.5 - 2.0 ** (bits - 2)))
    constant = np.full((len(z), 1 if ones else 0), float(ones))
    return np.concatenate([constant, z, squares], axis=1)


@dataclass(frozen=True, eq=False)
class AugmentedBoxGrid(GridDomain):
    """Columns of a box in steps of its grid, and whole numbers that are functions of these.

    ``once`` has the norms of what rows without weights contribute, ``centres`` what is measured
    from other numbers than 0.
    """

    rows: BoxGrid
    once: Reach
    beside: Callable[[FloatArray], FloatArray]
    centres: FloatArray | float = 0.0

    @property
    def unit(self) -> float:
        """Value of one step."""
        return self.rows.unit

    @property
    def reach(self) -> Reach:
        """Norms of what a record contributes."""
        return self.once.weighted() if self.rows.weighted else self.once

    def project(self, values: FloatArray) -> FloatArray:
        """Columns within their set, and what stands beside them."""
        return self.beside(self.rows.project(values))

    def offset(self, n: float) -> FloatArray | float:
        """What n centres add to the sums."""
        return n * self.centres


@dataclass(frozen=True, eq=False)
class BoxWithAbsoluteValues:
    """Columns z of a box about 0, and |z| beside each.

    Whoever crosses 0 moves |z| less: together they move by no more in L1 than z alone (claim 32).
    So where z is what a record adds, with a minus for controls, the sums of both arms come out of
    two numbers, with half the variance that sums by arm would have.
    """

    box: Box
    claim: ClassVar[int] = 32

    def __post_init__(self) -> None:
        if self.box.radius is not None or self.box.whole or self.box.centre.any():
            raise OptionError("sizes need a box with centre 0, no ball and no whole numbers")

    @property
    def columns(self) -> int:
        """Columns z."""
        return self.box.columns

    def on(self, n: int, rate: float, most: int = 30, weighted: bool = False) -> AugmentedBoxGrid:
        """The set on the grid of its box: both have the same L1 norms."""
        rows = self.box.on(n, rate, most, weighted)
        tops = [int(max(abs(a), abs(b))) for a, b in zip(*rows.ends, strict=True)]
        return AugmentedBoxGrid(rows, self._reach(tops), _with_sizes)

    def _reach(self, tops: list[int]) -> Reach:
        """z and |z| are at most h steps; two of them move by 2 h in L1, 4 h^2 in L2 squared."""
        once = norms_of(tops)
        return Reach(times(once, 2, 2), times(once, 2, 4))


def _with_sizes(z: FloatArray) -> FloatArray:
    return np.concatenate([z, np.abs(z)], axis=1)


@dataclass(frozen=True, eq=False)
class Histogram(GridDomain):
    """One of ``bins`` bins for each column: several histograms at once (claim 8)."""

    columns: int
    bins: int
    weighted: bool = False
    claim: ClassVar[int] = 8

    def on(self, n: int, rate: float, most: int = 30, weighted: bool = False) -> Histogram:
        """Counts are whole numbers, or whole numbers of weights: there is one grid."""
        return replace(self, weighted=weighted)

    @property
    def unit(self) -> float:
        """A record, or the least weight."""
        return 1.0 / MOST_ROWS if self.weighted else 1.0

    @property
    def reach(self) -> Reach:
        """1 in each histogram; two records differ in at most two bins of each."""
        reach = Reach(*(Norms(size, size) for size in (self.columns, 2 * self.columns)))
        return reach.weighted() if self.weighted else reach

    def totals(
        self, values: FloatArray, cell: IntArray | None, size: int, weight: Weight = None
    ) -> IntArray:
        """Counts of all histograms by cell, one after the other; what is no bin is in the first."""
        counted = None if weight is None else weight * MOST_ROWS
        by_cell = []
        for column in values.T:
            inside = (column >= 0) & (column < self.bins)
            index = np.where(inside, column, 0.0).astype(np.int64)
            place = index if cell is None else np.int64(self.bins) * cell + index
            counts = np.bincount(place, counted, (size + 1) * self.bins)
            by_cell.append(counts[: size * self.bins].reshape(size, self.bins))
        return np.concatenate(by_cell, axis=1).astype(np.int64)


def norm_of_sum(
    curator: Curator, label: str, phi: RowFunction, within: Box, *, share: str, part: float = 1.0
) -> NoisyValue:
    """Release the L2 norm of a sum: however many columns, it moves by at most their L2."""
    rate = curator._releaser.rate(share, part)
    grid, totals, moves = curator.exact_sums(phi, within, None, rate=rate, most=20)
    norm = np.array([math.isqrt(sum(int(x) ** 2 for x in totals))], np.int64)
    steps = IntTotals(norm, Sensitivity(math.ceil(moves.l2) + 1, moves.l2 + 1.0), grid.unit)
    return curator._releaser.release(label, steps, share=share, claim=9, part=part)
