"""Releases of exact matching on strata (claims 13-19).

Where the noise follows a smooth sensitivity, that is private: it is released once by its logarithm,
and only what was released is ever shown.
"""

from __future__ import annotations

import math
from functools import cached_property, partial

import numpy as np

from dpeffects.errors import PrivacyError
from dpeffects.privacy.cells import Strata, capped_sensitivity
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.release import Holder
from dpeffects.privacy.rows import Block, Rows, Totals, sums_by_cell
from dpeffects.privacy.smooth import Lattice, Smoothing
from dpeffects.privacy.sums import Grid

_FINE = 2**20
"""Steps in which a sensitivity is resolved."""
_COARSE = 2**12
"""The same for the variance under private noise, whose values reach n^2."""


class StrataReleases(Holder):
    """Releases of exact matching on strata."""

    @cached_property
    def _strata(self) -> Strata:
        """Counts by stratum; in memory also the cell of each record."""
        rows = self._source
        if rows.declared is None:
            raise PrivacyError("this call has no strata")
        if isinstance(rows, Rows):
            assert rows.strata is not None
            return Strata.of(*rows.strata(), rows.treated)
        size = 2 * rows.declared
        return Strata.counted(rows.fold(partial(_cell_counts, size=size), "strata")[0])

    def _contrast(self, grid: Grid, weights: str) -> int:
        strata, rows = self._strata, self._source
        if weights == "round_robin":  # records are dealt in turn: the only thing that goes by order
            dealt = self._rows
            assert dealt.strata is not None
            strata = Strata.of(*dealt.strata(), dealt.treated)
            return strata.contrast(grid.encode(dealt.outcome), weights)
        if isinstance(rows, Rows):
            return strata.contrast(grid.encode(rows.outcome), weights)
        add = partial(_cell_sums, grid=grid, size=strata.sizes.size)
        return strata.contrast_of(rows.fold(add, "outcome", "strata")[0])

    @property
    def strata(self) -> int:
        """Number of strata that the formula declares, with records or without."""
        declared = self._source.declared
        if declared is None:
            raise PrivacyError("this call has no strata")
        return declared

    def matched_lattice(self, paper: bool = False) -> Lattice:
        """Grid of `matched_difference`; its smooth sensitivity never leaves these limits."""
        least, most = (8.0, 4.0 * (self.n + 1)) if paper else (1.0, self.n + 1.0)
        return Lattice(least, 2.0 * most)

    def log_smooth_sensitivity(
        self, share: str, beta: float, weights: str, paper: bool = False, parts: int = 1
    ) -> Noisy:
        """Release ln of the smooth sensitivity of n f / B (claim 17)."""
        value = self._strata.counts.estimate_sensitivity(beta, weights, paper)
        return self._log("smooth sensitivity", value, beta, share, parts)

    def log_smooth_variance(self, share: str, beta: float, weights: str, parts: int = 1) -> Noisy:
        """Release ln of the smooth sensitivity of n^2 V / B^2 (claims 17, 19)."""
        value = self._strata.counts.variance_sensitivity(beta, weights)
        return self._log("smooth sensitivity of the variance", value, beta, share, parts)

    def _log(self, label: str, value: float, beta: float, share: str, parts: int) -> Noisy:
        unit = beta / _FINE
        steps = np.array([round(math.log(value) / unit)], dtype=np.int64)
        return self._releaser.release(
            label, steps, _FINE + 2, unit, share=share, claim=17, parts=parts
        )

    def matched_difference(
        self, share: str, smoothing: Smoothing, weights: str, shown: float, paper: bool = False
    ) -> Noisy:
        """Release f with noise by its smooth sensitivity (claims 13-16).

        ``shown``, a released value, stands for the private sensitivity of f in the ledger.
        """
        grid = Grid.for_sum(self.outcome_range, 2.0 * self.n, self.epsilon(share))
        value = self._contrast(grid, weights)
        smooth = self._strata.counts.estimate_sensitivity(smoothing.beta, weights, paper)
        lattice = self.matched_lattice(paper)
        inside = Lattice(lattice.least * grid.span, lattice.most * grid.span)
        steps = smooth * grid.span + 4.0  # rounding in two strata, two arms each
        return self._releaser.smooth_laplace(
            "matched difference",
            (value, steps, grid.unit / self.n),
            inside,
            smoothing,
            shown,
            share=share,
            claim=15,
        )

    def matched_difference_global(self, share: str, weights: str) -> Noisy:
        """Release n f by its global sensitivity (n + 1) B (claim 13)."""
        grid = Grid.for_sum(self.outcome_range, 2.0 * self.n, self.epsilon(share))
        value = self._contrast(grid, weights)
        most = (self.n + 1) * grid.span + 4
        return self._releaser.release(
            "matched difference", np.array([value]), most, grid.unit, share=share, claim=13
        )

    def matched_variance(self, share: str, weights: str, cap: float) -> Noisy:
        """Release n^2 V, weights counted up to a public or released ``cap`` >= 2 (claim 18)."""
        cap = max(cap, 2.0)
        grid = self._square_grid()
        unit = float(capped_sensitivity(np.array([cap]))[0]) * grid.span**2 / _FINE
        steps = self._square_steps(grid, weights, cap, unit)
        return self._releaser.release(
            "matching variance",
            np.array([steps]),
            _FINE + 5,
            unit * grid.unit**2,
            share=share,
            claim=18,
        )

    def smooth_matched_variance(
        self, share: str, smoothing: Smoothing, weights: str, shown: float
    ) -> Noisy:
        """Release n^2 V with noise by its own smooth sensitivity (claims 15, 16, 19)."""
        grid = self._square_grid()
        unit = grid.span**2 / _COARSE
        value = self._square_steps(grid, weights, math.inf, unit)
        smooth = self._strata.counts.variance_sensitivity(smoothing.beta, weights)
        steps = smooth * _COARSE * (1.0 + 2.0**-20) + 5.0  # rounding of cells, and of their floats
        lattice = self.variance_lattice()
        return self._releaser.smooth_laplace(
            "matching variance",
            (value, steps, unit * grid.unit**2),
            Lattice(lattice.least * _COARSE, lattice.most * _COARSE),
            smoothing,
            shown,
            share=share,
            claim=19,
        )

    def variance_lattice(self) -> Lattice:
        """Grid of `smooth_matched_variance`; its smooth sensitivity never leaves these limits."""
        least, most = capped_sensitivity(np.array([2.0, max(2.0, self.n)]))
        return Lattice(float(least), 2.0 * float(most))

    def _square_grid(self) -> Grid:
        bits = min(14, (52 - math.ceil(math.log2(self.n))) // 2)
        return Grid(*self.outcome_range, max(2, bits))

    def _square_steps(self, grid: Grid, weights: str, cap: float, unit: float) -> int:
        strata, rows, half = self._strata, self._source, 2**grid.bits
        if isinstance(rows, Rows):
            cells = strata.squares(grid.encode(rows.outcome), half, weights, cap)
        else:
            add = partial(_cell_sums, grid=grid, size=strata.sizes.size)
            sums, squares = rows.fold(add, "outcome", "strata")
            cells = strata.squares_of(sums, squares, half, weights, cap)
        return int(np.rint(cells / unit).astype(np.int64).sum())


def _cell_counts(block: Block, size: int) -> Totals:
    """Records by cell."""
    return (np.bincount(2 * block.strata + block.treated, minlength=size),)


def _cell_sums(block: Block, grid: Grid, size: int) -> Totals:
    """Sums of encoded outcomes by cell, and of their squares where those stay below 2^31."""
    cell, values = 2 * block.strata + block.treated, grid.encode(block.outcome)
    sums = sums_by_cell(values, cell, size)
    return (sums, sums_by_cell(values * values, cell, size)) if grid.bits <= 15 else (sums,)
