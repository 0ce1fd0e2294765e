"""Released models of treatment and outcome, and how a record enters a learner of effects.

Outcome functions and effect functions are Huber regressions on features of norm at most 1. Their
targets and slopes are computed record by record from released models, so that one record touches
one term of the objective.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpeffects.arrays import FloatArray, IntArray, Interval
from dpeffects.design.features import Features, unit_rows
from dpeffects.estimators.row import row
from dpeffects.estimators.weighting import Propensity
from dpeffects.privacy.exact import scratch_buffer
from dpeffects.privacy.huber import along
from dpeffects.privacy.rows import Block, RowFunction, reads
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

    def slopes_and_targets(self, block: Block) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Features of the nuisances, slopes and targets of the records."""
        nuisance = self.nuisance
        rows = _features(nuisance.features, block)
        score = nuisance.scores(block.covariates)
        one, zero = nuisance.outcomes(block.covariates, rows)
        gap = block.treated - score
        if self.weighted_residuals:
            mean = score * one + (1.0 - score) * zero
            target = block.outcome - mean - gap * nuisance.difference
            return rows, gap, target / self.threshold
        residual = block.outcome - np.where(block.treated, one, zero)
        pseudo = one - zero + gap / (score * (1.0 - score)) * residual
        return rows, np.ones_like(gap), (pseudo - nuisance.difference) / self.threshold


_READS = ("covariates", "treated", "outcome")


@row(*_READS)
def outcome_terms(block: Block, base: Nuisance) -> tuple[FloatArray, ...]:
    """How a record enters the outcome function: features, a slope of 1, and a target.

    The target is the outcome less the mean by the first models.
    """
    rows = _features(base.features, block)
    one, zero = base.outcomes(block.covariates, rows)
    if base.by_arm:
        mean = np.where(block.treated, one, zero)
    else:
        score = base.scores(block.covariates)
        mean = score * one + (1.0 - score) * zero
    return rows, np.ones(block.size), (block.outcome - mean) / base.threshold


@row(*_READS)
def effect_terms(
    block: Block, learner: Learner, features: Features
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """How a record enters the second stage: features, a slope and a target."""
    rows, slopes, targets = learner.slopes_and_targets(block)
    if features is not learner.nuisance.features:
        rows = _features(features, block)
    return rows, slopes, targets


@row()
def effect_squares(
    block: Block, terms: RowFunction, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Squared size of a record's gradient, and its second derivative, along its row."""
    rows, slopes, targets = terms(block)
    residual = targets - slopes * along(rows, weights)
    inside = np.abs(residual) <= 1.0
    return slopes**2 * np.clip(residual, -1.0, 1.0) ** 2, slopes**2 * inside


@row(*_READS)
def group_terms(block: Block, learner: Learner) -> tuple[FloatArray, FloatArray]:
    """Slope times target and squared slope of a record, over their largest sizes.

    The ratio of their sums is the least-squares effect in a group, less the difference of the means
    and in units of the threshold. Targets are clipped to [-1, 1].
    """
    _, slopes, targets = learner.slopes_and_targets(block)
    top = learner.steepest
    return slopes * np.clip(targets, -1.0, 1.0) / top, slopes**2 / top**2


@row(*_READS, "strata")
def group_squares(block: Block, learner: Learner, effects: FloatArray) -> FloatArray:
    """Squared slope times residual about the released effect of the record's group."""
    _, slopes, targets = learner.slopes_and_targets(block)
    residual = np.clip(targets, -1.0, 1.0) - slopes * effects[block.strata]
    return (slopes * np.clip(residual, -1.0, 1.0)) ** 2


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
