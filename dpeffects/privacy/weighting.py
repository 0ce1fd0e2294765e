"""Propensity models with noise, and sums of outcomes weighted by inverse propensities."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Self, TypeVar

import numpy as np

from dpeffects.privacy.bounds import Interval
from dpeffects.privacy.budget import Budget, Share, round_down
from dpeffects.privacy.erm import (
    Logistic,
    Weights,
    logits,
    minimise,
    sigmoid,
    unit_norm,
    unit_rows,
)
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.ledger import Ledger
from dpeffects.privacy.release import BoolArray, FloatArray, Holder, IntArray, Releaser
from dpeffects.privacy.rows import Block, Totals
from dpeffects.privacy.sums import Grid

_WIDER = 1.0 + 1e-9

T = TypeVar("T")


@dataclass(frozen=True)
class Propensity:
    """A known propensity model: sigmoid(offset + row'weights), kept within [low, high]."""

    weights: FloatArray
    offset: float
    low: float
    high: float

    @classmethod
    def within(cls, weights: FloatArray, offset: float, limits: Interval) -> Propensity:
        """Clip to the limits, or closer where no row in the declared ranges gets so far."""
        norm = unit_norm(weights.size)
        middle = offset + float(weights[0]) / norm
        reach = float(np.abs(weights[1:]).sum()) / (2.0 * norm)
        ends = sigmoid(np.array([middle - reach, middle + reach]))
        low, high = np.clip(ends, *limits)
        return cls(weights, offset, float(low), float(high))

    def scores(self, rows: FloatArray) -> FloatArray:
        """Propensities of `unit_rows`."""
        return np.clip(sigmoid(logits(rows, self.weights, self.offset)), self.low, self.high)


def limits(estimand: str, clip: float) -> Interval:
    """Where propensities are clipped: only on the side on which they divide.

    Examples
    --------
    >>> limits("ATE", 0.1), limits("ATT", 0.1), limits("ATC", 0.1)
    ((0.1, 0.9), (0.0, 0.9), (0.1, 1.0))
    """
    return (0.0 if estimand == "ATT" else clip, 1.0 if estimand == "ATC" else 1.0 - clip)


def ratios(estimand: str, e: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights of treated and of control records with propensities e."""
    if estimand == "ATT":
        return np.ones_like(e), e / (1.0 - e)
    if estimand == "ATC":
        return (1.0 - e) / e, np.ones_like(e)
    return 1.0 / e, 1.0 / (1.0 - e)


@dataclass(frozen=True)
class Score:
    """What one record adds to an inverse-probability-weighted sum, given released values.

    A treated record adds a (y - c_1), a control record -b (y - c_0), with a and b from `ratios` and
    centres (c_1, c_0); ``minus`` = (treated, control) is taken off for the squares of residuals.
    """

    estimand: str
    model: Propensity
    centres: tuple[float, float]
    outcome_range: Interval
    minus: tuple[float, float] = (0.0, 0.0)

    def arms(self) -> tuple[Interval, Interval]:
        """Intervals of what a treated and a control record can add."""
        a, b = ratios(self.estimand, np.array([self.model.low, self.model.high]))
        outcomes, (m1, m0) = np.array(self.outcome_range), self.minus
        treated = np.multiply.outer(a, outcomes - self.centres[0]) - m1  # extremes are at corners
        control = np.multiply.outer(b, self.centres[1] - outcomes) - m0
        return (
            (float(treated.min()), float(treated.max())),
            (float(control.min()), float(control.max())),
        )

    def interval(self) -> Interval:
        """Interval of what any record can add (claim 23)."""
        (low1, high1), (low0, high0) = self.arms()
        return min(low1, low0), max(high1, high0)

    def values(self, outcome: FloatArray, treated: BoolArray, rows: FloatArray) -> FloatArray:
        """Return what each record adds: a function of that record and of released values."""
        a, b = ratios(self.estimand, self.model.scores(rows))
        return np.where(
            treated,
            a * (outcome - self.centres[0]) - self.minus[0],
            -b * (outcome - self.centres[1]) - self.minus[1],
        )


class WeightingReleases(Holder):
    """Releases of propensity models and of sums weighted by them."""

    def public_model(self, strength: float, offset: float) -> Weights:
        """Fit the model where covariates and treatment are declared public: no charge."""
        self._require_public("treatment")
        self._require_public("covariates")
        problem = Logistic(self._source, strength, offset)
        return Weights(problem.solve(), strength)

    def propensity_model(
        self,
        strength: float,
        offset: float,
        share: str,
        way: str = "objective",
        noise: str = "auto",
    ) -> Weights:
        """Release the weights of a penalised logistic regression on rows of norm at most 1.

        ``way`` is "output" (noise on the weights, claim 20) or "objective" (noise in the objective,
        claims 21 and 22).
        """
        problem = Logistic(self._source, strength, offset)
        if way == "objective":
            return minimise(self._releaser, "propensity model", problem, share, noise)
        d = self.width
        bound = (2.0 / strength + 2.0 * problem.slack()) * _WIDER
        unit = 2.0 ** (math.floor(math.log2(bound)) - 20)
        noisy = self._releaser.release(
            "propensity model",
            np.rint(problem.solve() / unit).astype(np.int64),
            math.ceil(math.sqrt(d) * bound / unit) + d,
            unit,
            l2=bound / unit + math.sqrt(d),
            share=share,
            claim=20,
            noise=noise,
        )
        return Weights(noisy.value, strength, math.sqrt(noisy.variance))

    def column_squares(self, share: str, noise: str = "auto") -> Noisy:
        """Release n times the variances of the covariates in [0, 1], intercept left out (claim 24).

        What is released are the sums of z and of z^2 for each column, z = x - 1/2. Together they
        cost no more than the squares alone: whoever moves z far moves z^2 little.
        """
        width = self.width - 1
        grid = Grid.for_sum((0.0, 1.0), self.n, self.epsilon(share), float(width))
        (sums,) = self._source.fold(partial(_column_sums, grid=grid), "covariates")
        noisy = self._releaser.release(
            "spread of covariates",
            sums,
            width * (grid.span + 1),
            grid.unit,
            l2=math.sqrt(width) * (grid.span + 1),
            share=share,
            claim=24,
            noise=noise,
        )
        first, second = noisy.value
        # the square of a noisy mean is too large by the variance of its noise
        value = second - (first**2 - noisy.variance) / self.n
        means = np.clip(first / self.n, -0.5, 0.5)
        scale = noisy.scale * math.sqrt(1.0 + 4.0 * float(np.mean(means**2)))
        return replace(noisy, value=value, scale=scale)

    def score_sum(self, score: Score, share: str, noise: str = "auto") -> Noisy:
        """Release the sum of a score over the records (claim 23)."""
        grid = Grid.for_sum(score.interval(), self.n, self.epsilon(share))
        steps = self._sum(score, grid, 1)
        sensitivity = grid.span
        if self.is_public("treatment"):  # nobody changes arm, so one arm's interval is enough
            longest = max(high - low for low, high in score.arms())
            sensitivity = min(grid.span, math.ceil(longest * _WIDER / grid.unit) + 1)
        noisy = self._releaser.release(
            "weighted sum",
            steps,
            sensitivity,
            grid.unit,
            l2=float(sensitivity),
            share=share,
            claim=23,
            noise=noise,
        )
        return replace(noisy, value=noisy.value + self.n * grid.middle)

    def score_squares(self, score: Score, share: str, part: float, noise: str = "auto") -> Noisy:
        """Release the sum of a score's squares out of ``part`` of a share (claim 24)."""
        low, high = score.interval()
        grid = Grid.for_sum((0.0, max(low**2, high**2)), self.n, part * self.epsilon(share))
        steps = self._sum(score, grid, 2)
        noisy = self._releaser.release(
            "weighted squares",
            steps,
            grid.span,
            grid.unit,
            l2=float(grid.span),
            share=share,
            claim=24,
            price=_part(self._releaser.share(share), part),
            noise=noise,
        )
        return replace(noisy, value=noisy.value + self.n * grid.middle)

    def moment_norm(
        self, centres: tuple[float, float], scale: FloatArray, share: str, part: float
    ) -> Noisy:
        """Release |sum_i (y_i - centre of the arm of i) scale * row_i| in L2 (claim 25).

        How strongly outcomes go with covariates, and so what noise in a propensity model does to
        an estimate. A norm has one sensitivity however many entries the vector has.
        """
        lower, upper = self.outcome_range
        largest = max(abs(end - c) for end in (lower, upper) for c in centres)
        corner = np.concatenate([[1.0], np.full(scale.size - 1, 0.5)]) / unit_norm(scale.size)
        bound = 2.0 * largest * float(np.linalg.norm(scale * corner)) * _WIDER
        unit = 2.0 ** (math.floor(math.log2(bound)) - 20)
        add = partial(_moment_sums, centres=centres, factors=scale / unit)
        (sums,) = self._source.fold(add, "outcome", "covariates")
        norm = math.isqrt(sum(int(total) ** 2 for total in sums))
        return self._releaser.release(
            "outcome and covariates",
            np.array([norm], dtype=np.int64),
            math.ceil(bound / unit + math.sqrt(scale.size)) + 1,
            unit,
            share=share,
            claim=25,
            price=_part(self._releaser.share(share), part),
        )

    def _sum(self, score: Score, grid: Grid, power: int) -> IntArray:
        add = partial(_score_sum, score=score, grid=grid, power=power)
        return self._source.fold(add, "outcome", "covariates")[0]

    def halves(
        self, first: Mapping[str, float], second: Mapping[str, float], run: Callable[[Self], T]
    ) -> tuple[T, Self]:
        """Run releases on even places of the secret order, and return the odd ones (claim 26).

        ``first`` and ``second`` divide the budget of the call's shares named in ``second`` within
        each half. The even rows pay; what the odd rows release is covered by that, with the same
        budget.
        """
        whole = [self._releaser.share(name) for name in second]
        epsilon = round_down(sum((Fraction(x.epsilon) for x in whole), Fraction()))
        delta = round_down(sum((Fraction(x.delta) for x in whole), Fraction()))
        before = self._releaser.paid()
        even = self._half(0, self._releaser.elsewhere(Budget(epsilon, delta).shares(first)))
        result = run(even)
        paid = [b - a for a, b in zip(before, self._releaser.paid(), strict=True)]
        covered = Budget(*(round_down(x) * (1.0 - 2.0**-40) for x in paid))
        ledger = Ledger(covered.epsilon, covered.delta)
        return result, self._half(1, self._releaser.elsewhere(covered.shares(second), ledger))

    def _half(self, start: int, releaser: Releaser) -> Self:
        rows = self._rows
        matrix = rows.covariates()
        half = replace(
            rows,
            outcome=rows.outcome[start::2],
            treated=rows.treated[start::2],
            covariates=lambda: matrix[start::2],
            strata=None,
        )
        return type(self)(half, releaser, self._public)


def _column_sums(block: Block, grid: Grid) -> Totals:
    """Sums of z and of z^2 by column, both in steps of the grid; squares are whole numbers too."""
    sums = np.zeros((2, block.covariates.shape[1] - 1), dtype=np.int64)
    for j, column in enumerate(block.covariates.T[1:]):
        z = grid.encode(column)
        sums[:, j] = z.sum(), ((z * z + 2**grid.bits) >> (grid.bits + 1)).sum()
    return (sums,)


def _score_sum(block: Block, score: Score, grid: Grid, power: int) -> Totals:
    """Sum of encoded scores, or of their squares."""
    values = score.values(block.outcome, block.treated, unit_rows(block.covariates))
    return (np.array([grid.encode(values**power).sum()], dtype=np.int64),)


def _moment_sums(block: Block, centres: tuple[float, float], factors: FloatArray) -> Totals:
    """Sums of centred outcomes times each entry of the rows, rounded record by record."""
    residual = block.outcome - np.where(block.treated, *centres)
    rows = unit_rows(block.covariates)
    sums = [
        np.rint(residual * column * factor).astype(np.int64).sum()
        for column, factor in zip(rows.T, factors, strict=True)
    ]
    return (np.array(sums, dtype=np.int64),)


def _part(share: Share, part: float) -> Share:
    return Share(*(round_down(Fraction(x) * Fraction(part)) for x in share))
