"""Sums where a record is a unit of several rows: each unit's sums are brought into a set first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.errors import OptionError
from dpeffects.privacy.curator import Curator, Exact, Sum, all_reads, values_of
from dpeffects.privacy.release import Releaser
from dpeffects.privacy.rows import Block, Cells, Phi, Source, Totals, rehearse
from dpeffects.privacy.sets import ROUND_UP, BoxGrid, OnGrid, Reach, Sensitivity, Within, times


class UnitCurator(Curator):
    """A curator of n units, whose sums count up to ``max_rows`` rows each.

    Neighbours differ in the rows of a unit, however many, so nothing is public.
    """

    by_unit: ClassVar[bool] = True

    def __init__(
        self, rows: Source, releaser: Releaser, public: frozenset[str], max_rows: int
    ) -> None:
        super().__init__(rows, releaser, public)
        self._max_rows = max_rows

    def _exact(self, asked: Sequence[Sum], most: int = 30) -> list[Exact]:
        """Totals of several sums without noise, and how far one unit moves them."""
        return [self._exact_sum(*each, most) for each in asked]

    def _exact_sum(
        self, phi: Phi, within: Within, cells: Cells | None, rate: float, most: int
    ) -> Exact:
        rehearse(phi, within.columns, cells, self.width)
        most = min(most, unit_bits(self._max_rows, within.columns))
        grid = within.on(self.n * self._max_rows, rate, most)
        if not isinstance(grid, BoxGrid) or grid.shape(self.n):
            raise OptionError("sums by unit need a box")
        add = partial(_unit_totals, phi=phi, cells=cells, grid=grid, most=self._max_rows)
        totals = self._source.fold(add, *all_reads(phi, cells))[0]
        moves = sensitivity(grid.reach, cells is not None, self._max_rows)
        return grid, totals if cells else totals[0], moves

    def _is_public(self, *functions: Phi | Cells) -> bool:
        return False

    def _offset(self, grid: OnGrid) -> float:
        """The number of rows is private: sums are those of distances from the centre."""
        return 0.0


def sensitivity(reach: Reach, by_cell: bool, rows: int) -> Sensitivity:
    """Sensitivity where neighbours replace a unit of at most ``rows`` rows (claim 5).

    A unit's sums lie in ``rows`` times the set, or are 0; over several cells only their norms are
    known.
    """
    l1, squared = times(reach.single, 2, 4) if by_cell else reach.absent
    return Sensitivity(l1 * rows, math.sqrt(squared) * rows * ROUND_UP)


def unit_bits(rows: int, columns: int) -> int:
    """Bits of a grid on which squared norms of the sums of a unit's rows stay below 2^62."""
    return min(24, 30 - math.ceil(math.log2(rows * columns)))


def _unit_totals(block: Block, phi: Phi, cells: Cells | None, grid: BoxGrid, most: int) -> Totals:
    """Sums by unit first, each brought into ``most`` times the set, then over units."""
    size, columns = cells.size if cells else 1, grid.box.columns
    cell = cells.of(block) if cells else np.zeros(block.size, np.int64)
    whole, unit = grid.project(values_of(phi, block, columns)), block.unit - block.unit[0]
    units = int(unit[-1]) + 1
    place = unit * (size + 1) + cell
    sums = np.stack([np.bincount(place, v, units * (size + 1)) for v in whole.T], axis=1)
    own = sums.reshape(units, size + 1, columns)[:, :size].reshape(units, -1).astype(np.float64)
    steps = project_units(grid, own, size, most)
    return (steps.sum(axis=0).reshape(size, columns),)


def project_units(grid: BoxGrid, sums: FloatArray, cells: int, most: int) -> IntArray:
    """Sums of units over cells, scaled into ``most`` times the set; what stays outside is 0."""
    l1, squared = most * grid.reach.single.l1, most**2 * grid.reach.single.squared_l2
    shrink = np.minimum(
        l1 / np.maximum(np.abs(sums).sum(axis=1), 1.0),
        math.sqrt(squared) / np.maximum(np.sqrt((sums**2).sum(axis=1)), 1.0),
    )
    low, high = (np.tile(most * end, cells) for end in grid.ends)
    inside = np.trunc(sums * np.minimum(shrink, 1.0)[:, None])
    inside = np.clip(inside, np.minimum(low, 0.0), np.maximum(high, 0.0))
    steps = inside.astype(np.int64)  # squares have room for their sum (`unit_bits`)
    steps[(np.abs(steps).sum(axis=1) > l1) | ((steps * steps).sum(axis=1) > squared)] = 0
    return steps
