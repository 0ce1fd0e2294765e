"""Released models of treatment and outcome, and how a record enters a learner of effects.

Outcome functions and effect functions are Huber regressions on features of norm at most 1. Their
targets and slopes are computed record by record from released models, so that one record touches
one term of the objective. The first stage of a learner releases the models:

1. Noisy counts and sums by arm give the share of treated and the arm means; noisy squares tell how
   much of the outcome lies at the ends of its range, which sets the thresholds of Huber's loss.
2. A logistic propensity model with noise in its objective.
3. A function of the mean outcome (one for each arm for a DR-learner) on the kernel's features, by
   Huber's loss with noise in its objective.

The penalties of both stages are planned from public numbers, for the least expected error. With
features f, G the mean of f f' for covariates that spread evenly over their declared ranges,
information I (second derivatives summed over records) and weights of variance v^2 each, a penalty
of strength L shrinks the weights to I G / (I G + L) of themselves and lets noise of variance s^2 in
the gradients through as (I G + L)^-1. The squared error of the function is then
(s^2 + L^2 v^2) trace(G (I G + L)^-2), and for noise s / L on the weights
s^2 / L^2 + L^2 v^2 trace(G (I G + L)^-2).

Confounding is left where both models are shrunk: it is the mean of the product of their errors.
Along a covariate of variance v (in units of its range) each model keeps I v / (I v + L) of its
slope, and so the part (1 - kept) (1 - kept) of confounding gets through. How much there was nobody
knows: `CONFOUNDED` is a guess from how strong confounding is in studies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpeffects.arrays import FloatArray, IntArray, Interval
from dpeffects.design.features import Features, unit_rows
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import arm_counts, arm_squares, arm_sums, at_end
from dpeffects.estimators.row_functions import row
from dpeffects.estimators.weighting import inverse_weights
from dpeffects.privacy import Block, Curator, RowFunction, reads
from dpeffects.privacy.exact import scratch_buffer
from dpeffects.privacy.losses import Huber, along, sigmoid, unit_norm
from dpeffects.privacy.private_minimisation import minimise
from dpeffects.results.feature_moments import BINS, spectrum


@dataclass(frozen=True)
class Nuisance:
    """Released models of treatment and outcome, evaluated record by record.

    ``means`` are those of the (treated, control) arms. ``outcome`` is empty, or the weights of a
    function added to the mean outcome (``by_arm`` false), or of one for each arm, in units of
    ``threshold``. ``ends`` is the mean square of outcomes scaled to [-1, 1]: 1 if all are at an end
    of their range. ``difference_sd`` is the standard deviation of the noise in the difference of
    the means, ``confounding`` that of what may be left of confounding in it, and ``left`` the part
    of this that shrinkage of both models lets through. ``noise_sd`` is what noise in the outcome
    functions adds to effects, ``end`` a warning of means at an end of their range.
    """

    propensity: inverse_weights.PropensityFunction
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
    end: str = ""

    @property
    def difference(self) -> float:
        """Difference of the means of the arms, which is not adjusted for anything."""
        return self.means[0] - self.means[1]

    @property
    def smallest_divisor(self) -> float:
        """The smallest number that residuals are divided by, which they are ``by_arm``.

        It is the smallest chance of an arm, for all but 1 % of covariates spread evenly. Targets
        beyond are clipped; the corners of the declared ranges would ask for far more noise.
        """
        if not self.by_arm:
            return 1.0
        model, norm = self.propensity, unit_norm(self.propensity.weights.size)
        middle = model.offset + float(model.weights[0]) / norm
        slopes = float(np.linalg.norm(model.weights[1:])) / norm
        reach = hand.CUT * math.sqrt(hand.EVENLY) * slopes
        low, high = sigmoid(np.array([middle - reach, middle + reach]))
        return min(max(float(low), model.low), 1.0 - min(float(high), model.high))

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
    """How a record enters the second stage: an R-learner, or (``nuisance.by_arm``) a DR-learner.

    With propensity p, mean outcome m and arm means m_1, m_0, an R-learner fits (a - p) g(x) to
    y - m(x), a DR-learner g(x) to m_1 - m_0 + (a - p) (y - m_a) / (p (1 - p)); both less the
    difference of the means, in units of ``threshold``.
    """

    nuisance: Nuisance
    threshold: float

    @property
    def steepest(self) -> float:
        """Largest slope that a record can have."""
        model = self.nuisance.propensity
        return 1.0 if self.nuisance.by_arm else max(model.high, 1.0 - model.low)

    @property
    def squared_slope(self) -> float:
        """Mean square of slopes to plan for: p (1 - p) midway between the propensity's limits."""
        middle = 0.5 * (self.nuisance.propensity.low + self.nuisance.propensity.high)
        return 1.0 if self.nuisance.by_arm else middle * (1.0 - middle)

    def slopes_and_targets(self, block: Block) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Features of the nuisances, slopes and targets of the records."""
        nuisance = self.nuisance
        rows = _features(nuisance.features, block)
        score = nuisance.scores(block.covariates)
        one, zero = nuisance.outcomes(block.covariates, rows)
        gap = block.treated - score
        if not nuisance.by_arm:
            mean = score * one + (1.0 - score) * zero
            target = block.outcome - mean - gap * nuisance.difference
            return rows, gap, target / self.threshold
        residual = block.outcome - np.where(block.treated, one, zero)
        pseudo = one - zero + gap / (score * (1.0 - score)) * residual
        return rows, np.ones_like(gap), (pseudo - nuisance.difference) / self.threshold


_READS = "covariates", "treated", "outcome"


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


SHARES = {"counts": 0.03, "arms": 0.09, "ends": 0.02, "propensity": 0.13, "outcome": 0.13}


def first_stage(
    curator: Curator, features: Features, clip: float, *, by_arm: bool, randomised: bool = False
) -> Nuisance:
    """Release counts, arm means, a propensity model and an outcome function.

    Where treatment was ``randomised`` the propensity is the share of treated records.
    """
    n, d = curator.n, curator.width
    lower, upper = curator.outcome_range
    counts = arm_counts(curator, "counts")
    share = float(counts.shares()[0][0])
    sums = arm_sums(curator, "arms")
    half = (upper - lower) / 2.0
    sizes = n * np.array([share, 1.0 - share])
    means = lower + half + np.clip(sums.value / sizes, -half, half)
    squares = arm_squares(curator, "ends")
    ends = min(max(float(np.sum(squares.value)) / n + 0.5, 0.0), 1.0)
    mean = share * means[0] + (1.0 - share) * means[1] - (lower + upper) / 2.0
    outcome_sd = math.sqrt(max(ends * half**2 - mean**2, 0.0)) + 0.02 * (upper - lower)
    threshold = max(threshold_for(ends), hand.THRESHOLD)
    offset = math.log(share / (1.0 - share))
    slopes, penalty = np.zeros(d), 0.0
    if not randomised:
        model = inverse_weights.propensity_model(curator, None, offset, "propensity")
        slopes, penalty = model.value, model.strength
    by_count = float(((means - lower - half) / sizes).sum()) ** 2 * counts.release.variance
    base = Nuisance(
        propensity=inverse_weights.PropensityFunction.within(slopes, offset, (clip, 1.0 - clip)),
        means=(float(means[0]), float(means[1])),
        outcome_range=curator.outcome_range,
        features=features,
        outcome=np.zeros(0),
        by_arm=by_arm,
        threshold=threshold * (upper - lower),
        ends=ends,
        difference_sd=math.sqrt(sums.variance * float((sizes**-2.0).sum()) + by_count),
        confounding=0.0 if randomised else hand.CONFOUNDED * outcome_sd,
        end=at_end(curator, sums),
    )
    epsilon, delta = curator.epsilon("outcome"), curator.delta("outcome")
    size = features.size * (2 if by_arm else 1)
    norms = (math.sqrt(features.size), 1.0)  # a record has features of its own arm only
    strength, _ = planned_penalty(
        features,
        information=n / (2.0 if by_arm else 1.0),
        noise=inverse_weights.covering_noise(norms, epsilon, delta, size),
        spread=hand.EFFECT_SD / threshold,
        least=inverse_weights.least_strength(epsilon, 1.0),
    )
    problem = Huber(outcome_terms(base), features.size, strength, by_arm=by_arm)
    outcome = minimise(curator, "outcome function", problem, "outcome")
    selection = n * share * (1.0 - share) * hand.LEAST_COLUMN_VARIANCE / unit_norm(d) ** 2
    values, records = spectrum(features), n * (min(share, 1.0 - share) if by_arm else 1.0)
    # the largest eigenvalue of G belongs to the constant, the next to one line for each covariate
    lines = np.sort(values)[::-1][1:d]
    along = records * (float(lines.mean()) * hand.LEAST_COLUMN_VARIANCE / hand.EVENLY)
    left = penalty / (penalty + selection) * strength / (strength + along)
    spread = np.sum(values / (records * values + strength) ** 2) * (2.0 if by_arm else 1.0)
    noise_sd = hand.THROUGH * base.threshold * outcome.noise_sd * math.sqrt(float(spread))
    return replace(base, outcome=outcome.value, left=left, noise_sd=noise_sd)


def threshold_for(ends: float) -> float:
    """Threshold of Huber's loss, as a share of the outcome's range, for a mean square ``ends``.

    Outcomes scaled to [-1, 1] have a mean square of 1 if they are binary, which needs the whole
    range, near 1 if they crowd at one end, 1/3 if they spread evenly, and less for a bell.
    """
    return min(1.1 * ends**2, 1.0)


def planned_penalty(
    features: Features,
    information: float,
    noise: float,
    spread: float,
    least: float = 0.0,
    strength: float | None = None,
) -> tuple[float, float]:
    """Return the strength with the least expected squared error, and that error.

    ``noise`` is the standard deviation of noise in a gradient, and ``spread`` that of the function
    around its average, both in units of the threshold; ``least`` is the smallest strength that
    noise in the objective allows, or 0 for noise on the weights. A ``strength`` that is given
    leaves nothing to choose.
    """
    values = spectrum(features)[:, None]
    tried = max(least, 1e-3) * np.geomspace(1.0, 1e3 if least else 1e7, 200)
    tried = tried if strength is None else np.array([strength])
    trace = np.sum(values / (information * values + tried) ** 2, axis=0)
    shrunk = (tried * spread) ** 2 * trace
    error = shrunk + (noise**2 * trace if least else (noise / tried) ** 2)
    best = int(np.argmin(error))
    return float(tried[best]), float(error[best])
