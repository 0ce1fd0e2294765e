"""What blocked estimators need: counts and sums by block of a released score, and moments by arm.

A score is 1 / (1 + exp(-(1, x)'w)) for released weights w, the constant first; a block is a range
of scores between released cuts. So a record's block depends on the record alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpeffects.privacy.bounds import Interval
from dpeffects.privacy.erm import logits, sigmoid
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.release import FloatArray, Holder, IntArray
from dpeffects.privacy.rows import Block, Totals, exact_products, room, sums_by_cell
from dpeffects.privacy.sums import Grid


@dataclass(frozen=True)
class Cells:
    """Arms and blocks of a released score: the cell of a record depends on that record alone."""

    weights: FloatArray
    cuts: FloatArray

    @property
    def size(self) -> int:
        """Number of blocks."""
        return len(self.cuts) + 1

    def counts(self, block: Block) -> Totals:
        """Records by (arm, block)."""
        return (np.bincount(self._cell(block), minlength=2 * self.size).reshape(2, -1),)

    def sums(self, block: Block, values: Callable[[Block], FloatArray], grid: Grid) -> Totals:
        """Encoded values by (arm, block)."""
        steps = grid.encode(values(block))
        return (sums_by_cell(steps, self._cell(block), 2 * self.size).reshape(2, -1),)

    def _cell(self, block: Block) -> IntArray:
        cell = np.where(block.treated, 0, self.size)
        if len(self.cuts):
            score = sigmoid(logits(block.covariates, self.weights[1:], self.weights[0]))
            cell += np.searchsorted(self.cuts, score)
        return cell


@dataclass(frozen=True)
class Residuals:
    """Outcomes less the middle of their range and a released model of the record's own arm.

    ``models`` has a row for each arm (treated, control), the constant first. ``squared`` gives the
    squares of residuals scaled to [-1, 1].
    """

    models: FloatArray
    outcome_range: Interval
    squared: bool = False

    @property
    def half(self) -> float:
        """Half the range of the outcome."""
        return (self.outcome_range[1] - self.outcome_range[0]) / 2.0

    def __call__(self, block: Block) -> FloatArray:
        """Residuals of a block."""
        residual = block.outcome - (self.outcome_range[0] + self.half)
        if self.models.any():
            one, zero = (logits(block.covariates, m[1:], m[0]) for m in self.models)
            residual = residual - np.where(block.treated, one, zero)
        return (residual / self.half) ** 2 if self.squared else residual


class BlockReleases(Holder):
    """Releases about arms within blocks of a score."""

    def block_counts(self, label: str, weights: FloatArray, cuts: FloatArray, share: str) -> Noisy:
        """Release the number of (treated, control) records in each block (claim 27)."""
        (counts,) = self._source.fold(Cells(weights, cuts).counts, *_covariates_if(len(cuts)))
        if self.is_public("covariates") and self.is_public("treatment"):
            return Noisy(counts.astype(np.float64), 0.0)
        return self._releaser.release(
            label, counts, 2, 1.0, share=share, claim=27, l2=math.sqrt(2.0)
        )

    def block_sums(
        self, weights: FloatArray, cuts: FloatArray, models: FloatArray, share: str
    ) -> Noisy:
        """Release the sums of residuals by arm and block (claim 28).

        ``models`` has a row of released coefficients for each arm (treated, control), the constant
        first; a residual is y - middle - (1, x)'model of the record's own arm, clipped to half the
        range of the outcome.
        """
        residuals = Residuals(models, self.outcome_range)
        grid = Grid.for_sum((-residuals.half, residuals.half), self.n, self.epsilon(share))
        add = partial(Cells(weights, cuts).sums, values=residuals, grid=grid)
        (sums,) = self._source.fold(add, "outcome", *_covariates_if(len(cuts) or models.any()))
        return self._releaser.release(
            "residual sums by block",
            sums,
            grid.span,
            grid.unit,
            share=share,
            claim=28,
            l2=float(grid.span),
        )

    def residual_squares(self, models: FloatArray, share: str) -> Noisy:
        """Release the sums of z^2 - 1/2 by arm, z the residual scaled to [-1, 1] (claim 28)."""
        squares = Residuals(models, self.outcome_range, squared=True)
        grid = Grid.for_sum((0.0, 1.0), self.n, self.epsilon(share))
        add = partial(Cells(np.zeros(0), np.zeros(0)).sums, values=squares, grid=grid)
        (sums,) = self._source.fold(add, "outcome", *_covariates_if(models.any()))
        return self._releaser.release(
            "residual squares by arm", sums[:, 0], grid.span, grid.unit, share=share, claim=28
        )

    def arm_moments(self, share: str) -> Noisy:
        """Release, by arm, the sums of z z' (upper triangle) and of z r (claim 29).

        z is the row of covariates centred to [-1, 1] and divided by sqrt(d), so that |z| <= 1; r is
        the outcome scaled to [-1, 1]. One row for each arm: d (d + 1) / 2 products, then d.
        """
        d = self.width
        bits = min(18, (54 - math.ceil(math.log2(self.n * (d + 1.0)))) // 2)
        add = partial(_moments, bits=bits, interval=self.outcome_range)
        (sums,) = self._source.fold(add, "outcome", "covariates")
        upper = np.triu_indices(d)
        sums = np.concatenate([sums[:, *upper], sums[:, :, d]], axis=1)
        wider = (1.0 + math.sqrt(d) * 2.0 ** -(bits + 1)) ** 2 * (1 + 1e-9)
        unit = 2.0 ** (-2 * bits)
        return self._releaser.release(
            "outcome regression",
            sums,
            math.ceil((d + 1 + 2.0 * math.sqrt(d)) * wider / unit),
            unit,
            share=share,
            claim=29,
            l2=2.0 * math.sqrt(2.0) * wider / unit,
        )

    def covariate_spread(self, share: str) -> tuple[Noisy, Noisy]:
        """Release sum |z|^2 and |sum z|, z the covariates centred to [-1/2, 1/2] (claim 30).

        The intercept is left out. Together they give the mean variance of a covariate.
        """
        bits, entries = 20, max(self.width - 1, 1)
        squares, sums = self._source.fold(partial(_spread, bits=bits), "covariates")
        norm = math.isqrt(sum(int(total) ** 2 for total in sums))
        largest = math.ceil(entries / 4.0 * 2**bits) + 1
        diameter = math.ceil(math.sqrt(entries) * (2**bits + 1)) + 1
        one, other = (
            self._releaser.release(
                label,
                np.array([value], dtype=np.int64),
                sensitivity,
                2.0**-bits,
                share=share,
                claim=30,
                parts=2,
            )
            for label, value, sensitivity in (
                ("spread of covariates: squares", squares, largest),
                ("spread of covariates: mean", norm, diameter),
            )
        )
        return one, other


def _covariates_if(wanted: object) -> tuple[str, ...]:
    return ("covariates",) if wanted else ()


def _moments(block: Block, bits: int, interval: Interval) -> Totals:
    """Products of z and of (z, r), by arm: z and r are rounded first, so floats add up exactly."""
    lower, upper = interval
    rows, d = block.covariates, block.covariates.shape[1]
    z = room("moments", len(rows), d + 1)
    for j in range(d):
        z[:, j] = unit_column(rows[:, j], j, d)
    # a range of a few ulps would round beyond
    z[:, d] = np.clip((2.0 * block.outcome - lower - upper) / (upper - lower), -1.0, 1.0)
    z *= 2.0**bits
    np.rint(z, out=z)
    one = exact_products(z[:, :d] * block.treated[:, None], z, 2 * bits)
    sums = np.stack([one, exact_products(z[:, :d], z, 2 * bits) - one])
    return (sums,)


def _spread(block: Block, bits: int) -> Totals:
    """Sum of |z|^2, and of each entry of z."""
    squares = np.zeros(len(block.covariates))
    sums = []
    for column in block.covariates.T[1:]:
        centred = np.clip(column, 0.0, 1.0) - 0.5
        sums.append(np.rint(centred * 2.0**bits).astype(np.int64).sum())
        squares += centred**2
    total = np.rint(squares * 2.0**bits).astype(np.int64).sum()
    return np.asarray(total), np.array(sums, dtype=np.int64)


def unit_column(column: FloatArray, index: int, d: int) -> FloatArray:
    """A column of the covariates in [0, 1], centred to [-1, 1] (the first as it is), over sqrt(d).

    The first column is the intercept when there is one; left as it is it stays constant, and any
    column within [-1, 1] keeps |z| <= 1.
    """
    column = np.clip(column, 0.0, 1.0)
    return (column if index == 0 else 2.0 * column - 1.0) / math.sqrt(d)
