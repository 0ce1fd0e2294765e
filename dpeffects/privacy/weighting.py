"""Propensity models with noise, and sums of outcomes weighted by inverse propensities."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self, TypeVar

import numpy as np

from dpeffects.privacy.bounds import Interval
from dpeffects.privacy.budget import Budget, Share, round_down
from dpeffects.privacy.erm import Logistic, Weights, minimise, sigmoid, unit_norm, unit_rows
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.ledger import Ledger
from dpeffects.privacy.release import BoolArray, FloatArray, Holder, Releaser
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
        return np.clip(sigmoid(rows @ self.weights + self.offset), self.low, self.high)


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

    _unit: FloatArray | None = None

    def _unit_rows(self) -> FloatArray:
        if self._unit is None:
            self._unit = unit_rows(self._covariates())
        return self._unit

    def public_model(self, strength: float, offset: float) -> Weights:
        """Fit the model where covariates and treatment are declared public: no charge."""
        self._require_public("treatment")
        self._require_public("covariates")
        problem = Logistic(self._unit_rows(), self._rows.treated, strength, offset)
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
        problem = Logistic(self._unit_rows(), self._rows.treated, strength, offset)
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
        """Release the squared differences of covariates in [0, 1], summed over pairs (claim 24).

        Neighbouring records make a pair. Divided by n, the sums are the variances of the columns
        (the intercept left out); differences need no mean.
        """
        pairs = np.clip(self._covariates()[: self.n // 2 * 2, 1:], 0.0, 1.0)
        columns = (pairs[0::2] - pairs[1::2]).T ** 2
        width = len(columns)
        grid = Grid.for_sum((0.0, 1.0), self.n, self.epsilon(share), float(width))
        noisy = self._releaser.release(
            "spread of covariates",
            np.array([grid.encode(column).sum() for column in columns], dtype=np.int64),
            width * grid.span,
            grid.unit,
            l2=math.sqrt(width) * grid.span,
            share=share,
            claim=24,
            noise=noise,
        )
        return replace(noisy, value=noisy.value + columns.shape[1] * grid.middle)

    def score_sum(self, score: Score, share: str, noise: str = "auto") -> Noisy:
        """Release the sum of a score over the records (claim 23)."""
        grid = Grid.for_sum(score.interval(), self.n, self.epsilon(share))
        steps = grid.encode(self._values(score)).sum()
        sensitivity = grid.span
        if self.is_public("treatment"):  # nobody changes arm, so one arm's interval is enough
            longest = max(high - low for low, high in score.arms())
            sensitivity = min(grid.span, math.ceil(longest * _WIDER / grid.unit) + 1)
        noisy = self._releaser.release(
            "weighted sum",
            np.array([steps], dtype=np.int64),
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
        steps = grid.encode(self._values(score) ** 2).sum()
        noisy = self._releaser.release(
            "weighted squares",
            np.array([steps], dtype=np.int64),
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
        residual = self._rows.outcome - np.where(self._rows.treated, *centres)
        sums = (
            int(np.rint(residual * column * (factor / unit)).astype(np.int64).sum())
            for column, factor in zip(self._unit_rows().T, scale, strict=True)
        )
        norm = math.isqrt(sum(total**2 for total in sums))
        return self._releaser.release(
            "outcome and covariates",
            np.array([norm], dtype=np.int64),
            math.ceil(bound / unit + math.sqrt(scale.size)) + 1,
            unit,
            share=share,
            claim=25,
            price=_part(self._releaser.share(share), part),
        )

    def _values(self, score: Score) -> FloatArray:
        return score.values(self._rows.outcome, self._rows.treated, self._unit_rows())

    def halves(
        self, first: Mapping[str, float], second: Mapping[str, float], run: Callable[[Self], T]
    ) -> tuple[T, Self]:
        """Run releases on the even rows, and return the odd rows with the same budget (claim 26).

        ``first`` and ``second`` divide the budget of the call's shares named in ``second`` within
        each half. The even rows pay; what the odd rows release is covered by that.
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
        rows, matrix = self._rows, self._covariates()
        half = replace(
            rows,
            outcome=rows.outcome[start::2],
            treated=rows.treated[start::2],
            covariates=lambda: matrix[start::2],
            strata=None,
        )
        return type(self)(half, releaser, self._public)


def _part(share: Share, part: float) -> Share:
    return Share(*(round_down(Fraction(x) * Fraction(part)) for x in share))
