"""What blocked estimators need: counts and sums by block of a released score, and moments by arm.

A score is 1 / (1 + exp(-(1, x)'w)) for released weights w, the constant first; a block is a range
of scores between released cuts. So a record's block depends on the record alone.
"""

from __future__ import annotations

import math

import numpy as np

from dpeffects.privacy.erm import sigmoid
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.release import FloatArray, Holder, IntArray
from dpeffects.privacy.sums import Grid


class BlockReleases(Holder):
    """Releases about arms within blocks of a score."""

    def block_counts(self, label: str, weights: FloatArray, cuts: FloatArray, share: str) -> Noisy:
        """Release the number of (treated, control) records in each block (claim 27)."""
        counts = self._by_block(np.ones(self.n, dtype=np.int64), weights, cuts)
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
        residual, half = self._residuals(models)
        grid = Grid.for_sum((-half, half), self.n, self.epsilon(share))
        sums = self._by_block(grid.encode(residual), weights, cuts)
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
        residual, half = self._residuals(models)
        grid = Grid.for_sum((0.0, 1.0), self.n, self.epsilon(share))
        cuts = np.zeros(0)
        sums = self._by_block(grid.encode((residual / half) ** 2), np.zeros(self.width + 1), cuts)
        return self._releaser.release(
            "residual squares by arm", sums[:, 0], grid.span, grid.unit, share=share, claim=28
        )

    def arm_moments(self, share: str) -> Noisy:
        """Release, by arm, the sums of z z' (upper triangle) and of z r (claim 29).

        z is the row of covariates centred to [-1, 1] and divided by sqrt(d), so that |z| <= 1; r is
        the outcome scaled to [-1, 1]. One row for each arm: d (d + 1) / 2 products, then d.
        """
        d, bits = self.width, 20
        lower, upper = self.outcome_range
        outcome = (2.0 * self._rows.outcome - lower - upper) / (upper - lower)
        outcome = np.clip(outcome, -1.0, 1.0)  # a range of a few ulps would round beyond
        matrix, treated = self._covariates(), self._rows.treated
        columns = [unit_column(matrix[:, j], j, d) for j in range(d)]
        pairs = [(columns[i], columns[j]) for i in range(d) for j in range(i, d)]
        pairs += [(column, outcome) for column in columns]
        sums = np.empty((2, len(pairs)), dtype=np.int64)
        for k, (one, other) in enumerate(pairs):
            steps = np.rint(one * other * 2.0**bits).astype(np.int64)
            sums[:, k] = steps[treated].sum(), steps[~treated].sum()
        size = len(pairs)
        l1 = math.ceil((d + 1 + 2.0 * math.sqrt(d)) * 2**bits * (1 + 1e-9)) + size
        l2 = 2.0 * math.sqrt(2.0) * 2**bits * (1 + 1e-9) + math.sqrt(size)
        return self._releaser.release(
            "outcome regression", sums, l1, 2.0**-bits, share=share, claim=29, l2=l2
        )

    def covariate_spread(self, share: str) -> tuple[Noisy, Noisy]:
        """Release sum |z|^2 and |sum z|, z the covariates centred to [-1/2, 1/2] (claim 30).

        The intercept is left out. Together they give the mean variance of a covariate.
        """
        bits, entries = 20, max(self.width - 1, 1)
        centred = np.clip(self._covariates()[:, 1:], 0.0, 1.0) - 0.5
        steps = np.rint(centred * 2.0**bits).astype(np.int64)
        squares = np.rint((centred**2).sum(axis=1) * 2.0**bits).astype(np.int64).sum()
        norm = math.isqrt(sum(int(total) ** 2 for total in steps.sum(axis=0)))
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

    def _residuals(self, models: FloatArray) -> tuple[FloatArray, float]:
        lower, upper = self.outcome_range
        centred = self._rows.outcome - (lower + (upper - lower) / 2.0)
        if models.any():
            fitted = models[:, 0] + self._covariates() @ models[:, 1:].T
            centred = centred - np.where(self._rows.treated, fitted[:, 0], fitted[:, 1])
        return centred, (upper - lower) / 2.0

    def _by_block(self, values: IntArray, weights: FloatArray, cuts: FloatArray) -> IntArray:
        """Sums of integers by (arm, block)."""
        size = len(cuts) + 1
        block = np.zeros(self.n, dtype=np.int64)
        if len(cuts):
            block = np.searchsorted(cuts, sigmoid(weights[0] + self._covariates() @ weights[1:]))
        cell = np.where(self._rows.treated, 0, size) + block
        order = np.argsort(cell, kind="stable")
        starts = np.searchsorted(cell[order], np.arange(2 * size))
        running = np.concatenate([[0], np.cumsum(values[order])])
        ends = np.append(starts[1:], self.n)
        return np.asarray(running[ends] - running[starts], dtype=np.int64).reshape(2, size)


def unit_column(column: FloatArray, index: int, d: int) -> FloatArray:
    """A column of the covariates in [0, 1], centred to [-1, 1] (the first as it is), over sqrt(d).

    The first column is the intercept when there is one; left as it is it stays constant, and any
    column within [-1, 1] keeps |z| <= 1.
    """
    column = np.clip(column, 0.0, 1.0)
    return (column if index == 0 else 2.0 * column - 1.0) / math.sqrt(d)
