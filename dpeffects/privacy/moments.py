"""Sets that are tighter than a box: products, columns beside their squares, several histograms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.errors import OptionError
from dpeffects.privacy.exact import exact_products, scratch_buffer
from dpeffects.privacy.sets import (
    Box,
    BoxGrid,
    Norms,
    OnGrid,
    Reach,
    add_up,
    bits_for,
    norms_of,
    times,
)


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
class GramGrid(OnGrid):
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
        single = norms_of([t[j] * t[k] for j, k in pairs])
        same = norms_of([t[j] * t[k] * (1 if j == k else 2) for j, k in pairs])
        if (r2 := self.rows.squared_radius) is not None:
            l1 = (len(t) + 1) * r2 // 2 + 1  # (|z|_1^2 + |z|_2^2) / 2 over pairs j <= k
            single = Norms(*map(min, single, (l1, r2 * r2)))
            same = Norms(*map(min, same, (2 * l1, 2 * r2 * r2)))
        return Reach(single, same, times(single, 2, 4))

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
            np.multiply(z, np.asarray(cell == c, np.float64)[:, None], out=part)
            by_cell.append(exact_products(part, z, bits)[self.pairs])
        last = exact_products(z, z, bits)[self.pairs] - sum(by_cell)
        return np.stack([*by_cell, last])


@dataclass(frozen=True, eq=False)
class WithSquares:
    """Columns z in [-1/2, 1/2], and z^2 - 1/8 beside each; first a constant ``count`` if not 0.

    Whoever moves z far moves z^2 little: together they move by 1 in L1 and in L2 (claim 7).
    """

    columns: int
    count: float = 0.0
    claim: ClassVar[int] = 7

    def __post_init__(self) -> None:
        if not 0.0 <= self.count <= 2.0:
            raise OptionError("the constant beside columns must be from 0 to 2")

    def on(self, n: int, rate: float, most: int = 30) -> SquaresGrid:
        """The set on its finest grid: z in steps of 2^-(bits + 1)."""
        bits = bits_for(n, rate, self.columns + 2.0 * self.count, most)
        half = np.full(self.columns, 0.5)
        return SquaresGrid(
            BoxGrid(Box(-half, half), 2.0 ** (bits + 1), 2.0 ** -(bits + 1)), bits, self.count
        )


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
        return Reach(single, Norms(k * move, k * move**2), times(single, 2, 4))

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
class Bins(OnGrid):
    """One of ``bins`` bins for each column: several histograms at once (claim 8)."""

    columns: int
    bins: int
    claim: ClassVar[int] = 8
    unit: ClassVar[float] = 1.0

    def on(self, n: int, rate: float, most: int = 30) -> Bins:
        """Counts are whole numbers: there is one grid."""
        return self

    @property
    def reach(self) -> Reach:
        """1 in each histogram; two records differ in at most two bins of each."""
        single, two = (Norms(size, size) for size in (self.columns, 2 * self.columns))
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
