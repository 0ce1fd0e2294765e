"""Released models of treatment and outcome, and how a record enters a learner of effects.

Outcome functions and effect functions are Huber regressions on features of norm at most 1. Their
targets and slopes are computed record by record from released models, so that one record touches
one term of the objective.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray, Interval
from dpeffects.design.features import Features, unit_rows
from dpeffects.estimators.weighting import Propensity
from dpeffects.privacy.exact import scratch_buffer
from dpeffects.privacy.huber import along
from dpeffects.privacy.rows import Block, reads
from dpeffects.results.shape import BINS


@dataclass(frozen=True)
class Nuisance:
    """Released models of treatment and outcome, evaluated record by record.

    ``means`` are those of the (treated, control) arms. ``outcome`` is empty, or the weights of a
    function added to the mean outcome (``by_arm`` false), or of one for each arm, in units of
    ``threshold``. ``ends`` is the mean square of outcomes scaled to [-1, 1]: 1 if all are at an end
    of their range. ``difference_sd`` is the standard deviation of the noise in the difference of
    the means, ``confounding`` that of what may be left of confounding in it, and ``left`` the part
    of this that shrinkage of both models lets through. ``noise_sd`` is what noise in the outcome
    functions adds to effects.
    """

    propensity: Propensity
    means: tuple[float, float]
    outcome_range: Interval
    features: Features
    outcome: FloatArray
    by_arm: bool
    threshold: float
    ends: float = 0.0
    difference_sd: float = 0.0
    confounding: float = 0.0
    left: float = 0.0
    noise_sd: float = 0.0

    @property
    def difference(self) -> float:
        """Difference of the means of the arms, which is not adjusted for anything."""
        return self.means[0] - self.means[1]

    def scores(self, covariates: FloatArray) -> FloatArray:
        """Propensities of encoded rows."""
        return self.propensity.scores(unit_rows(covariates))

    def outcomes(
        self, covariates: FloatArray, features: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Mean outcomes if treated and if not, within the range of the outcome.

        ``features`` are those of the records, which are computed once for several uses.
        """
        one, zero = (np.full(len(covariates), mean) for mean in self.means)
        if self.outcome.size and self.by_arm:
            half = self.outcome.size // 2
            one = one + self.threshold * along(features, self.outcome[:half])
            zero = zero + self.threshold * along(features, self.outcome[half:])
        elif self.outcome.size:
            common = self.threshold * along(features, self.outcome)
            one, zero = one + common, zero + common
        low, high = self.outcome_range
        return np.clip(one, low, high), np.clip(zero, low, high)


@dataclass(frozen=True)
class Learner:
    """How a record enters the second stage: an R-learner (``weighted_residuals``) or a DR-learner.

    With propensity p, mean outcome m and arm means m_1, m_0, an R-learner fits (a - p) g(x) to
    y - m(x), a DR-learner g(x) to m_1 - m_0 + (a - p) (y - m_a) / (p (1 - p)); both less the
    difference of the means, in units of ``threshold``.
    """

    nuisance: Nuisance
    threshold: float
    weighted_residuals: bool

    @property
    def steepest(self) -> float:
        """Largest slope that a record can have."""
        model = self.nuisance.propensity
        return max(model.high, 1.0 - model.low) if self.weighted_residuals else 1.0

    def slopes_and_targets(
        self, covariates: FloatArray, treated: BoolArray, outcome: FloatArray, rows: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Slopes and targets of the records; ``rows`` are the features of the nuisances."""
        score = self.nuisance.scores(covariates)
        one, zero = self.nuisance.outcomes(covariates, rows)
        gap = treated - score
        if self.weighted_residuals:
            mean = score * one + (1.0 - score) * zero
            target = outcome - mean - gap * self.nuisance.difference
            return gap, target / self.threshold
        residual = outcome - np.where(treated, one, zero)
        pseudo = one - zero + gap / (score * (1.0 - score)) * residual
        return np.ones_like(gap), (pseudo - self.nuisance.difference) / self.threshold


_READS = ("covariates", "treated", "outcome")


@dataclass(frozen=True)
class OutcomeTerms:
    """How a record enters the outcome function: its outcome less the mean by the first models."""

    base: Nuisance
    reads: ClassVar[tuple[str, ...]] = _READS

    def __call__(self, block: Block) -> tuple[FloatArray, ...]:
        """Features, a slope of 1, and a target."""
        base = self.base
        rows = _features(base.features, block)
        one, zero = base.outcomes(block.covariates, rows)
        if base.by_arm:
            mean = np.where(block.treated, one, zero)
        else:
            score = base.scores(block.covariates)
            mean = score * one + (1.0 - score) * zero
        return rows, np.ones(block.size), (block.outcome - mean) / base.threshold


@dataclass(frozen=True)
class EffectTerms:
    """How a record enters the second stage."""

    learner: Learner
    features: Features
    reads: ClassVar[tuple[str, ...]] = _READS

    def __call__(self, block: Block) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Features, a slope and a target."""
        learner = self.learner
        rows = _features(learner.nuisance.features, block)
        slopes, targets = learner.slopes_and_targets(
            block.covariates, block.treated, block.outcome, rows
        )
        if self.features is not learner.nuisance.features:
            rows = _features(self.features, block)
        return rows, slopes, targets


@dataclass(frozen=True)
class EffectSquares:
    """Squared size of a record's gradient, and its second derivative, along its row."""

    terms: EffectTerms
    weights: FloatArray
    reads: ClassVar[tuple[str, ...]] = _READS

    def __call__(self, block: Block) -> tuple[FloatArray, FloatArray]:
        """Both for some rows."""
        rows, slopes, targets = self.terms(block)
        residual = targets - slopes * along(rows, self.weights)
        inside = np.abs(residual) <= 1.0
        return slopes**2 * np.clip(residual, -1.0, 1.0) ** 2, slopes**2 * inside


@dataclass(frozen=True)
class GroupTerms:
    """Slope times target and squared slope of a record, over their largest sizes.

    The ratio of their sums is the least-squares effect in a group, less the difference of the means
    and in units of the threshold. Targets are clipped to [-1, 1].
    """

    learner: Learner
    reads: ClassVar[tuple[str, ...]] = _READS

    def clipped(self, block: Block) -> tuple[FloatArray, FloatArray]:
        """Slopes, and targets within [-1, 1]."""
        rows = _features(self.learner.nuisance.features, block)
        slopes, targets = self.learner.slopes_and_targets(
            block.covariates, block.treated, block.outcome, rows
        )
        return slopes, np.clip(targets, -1.0, 1.0)

    def __call__(self, block: Block) -> tuple[FloatArray, FloatArray]:
        """Both for some rows."""
        (slopes, targets), top = self.clipped(block), self.learner.steepest
        return slopes * targets / top, slopes**2 / top**2


@dataclass(frozen=True)
class GroupSquares:
    """Squared slope times residual about the released effect of the record's group."""

    terms: GroupTerms
    effects: FloatArray
    reads: ClassVar[tuple[str, ...]] = (*_READS, "strata")

    def __call__(self, block: Block) -> FloatArray:
        """Squares for some rows."""
        slopes, targets = self.terms.clipped(block)
        residual = np.clip(targets - slopes * self.effects[block.strata], -1.0, 1.0)
        return (slopes * residual) ** 2


@reads("strata")
def group(block: Block) -> IntArray:
    """The group of each record."""
    return block.strata


@reads("covariates")
def covariate_bins(block: Block) -> FloatArray:
    """The bin of each covariate in equal parts of its declared range."""
    return np.minimum(np.floor(block.covariates[:, 1:] * BINS), BINS - 1.0)


def _features(features: Features, block: Block) -> FloatArray:
    """Features of a few records, until the next ones are asked for."""
    return features(block.covariates, scratch_buffer("features", block.size, features.size))
