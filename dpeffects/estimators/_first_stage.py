"""The first stage of a kernel learner: private models of treatment and outcome.

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
knows: `_CONFOUNDED` is a guess from how strong confounding is in studies.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.design.features import Features
from dpeffects.estimators._nuisance import Nuisance, outcome_terms
from dpeffects.estimators.arm_sums import arm_counts, arm_squares, arm_sums
from dpeffects.estimators.strengths import SPREAD, VOLUME, least_strength
from dpeffects.estimators.weighting import Propensity, propensity_model
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.huber import Huber
from dpeffects.privacy.logistic import unit_norm
from dpeffects.privacy.minimise import minimise
from dpeffects.privacy.noise import LEAST_DELTA, gaussian_scale
from dpeffects.results.shape import spectrum

SHARES = {"counts": 0.03, "arms": 0.09, "ends": 0.02, "propensity": 0.13, "outcome": 0.13}
_THRESHOLD = 0.2
"""Least threshold of Huber's loss for outcomes, as a share of their range."""
_SPREAD = 0.2
"""Standard deviation of mean outcomes that the penalty is planned for, as a share of the range."""
_THROUGH = 0.2
"""Part of the noise in an outcome function that gets into effects (measured 0.12 to 0.29, for 1,000
to 5,000 records): where propensities are right it would average out."""
_CONFOUNDED = 0.3
"""Standard deviation over studies of what a difference of means is off by, in those of
the outcome."""
_VARIANCE = 0.03
"""Variance of a covariate in units of its declared range, to be on the safe side of shrinkage."""


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
    means = lower + half + np.clip(sums.value / (n * np.array([share, 1.0 - share])), -half, half)
    squares = arm_squares(curator, "ends")
    ends = min(max(float(np.sum(squares.value)) / n + 0.5, 0.0), 1.0)
    unadjusted = _CONFOUNDED * _outcome_sd(ends, share, means, curator)
    threshold = max(threshold_for(ends), _THRESHOLD)
    offset = math.log(share / (1.0 - share))
    slopes, penalty = np.zeros(d), 0.0
    if not randomised:
        model = propensity_model(curator, None, offset, "propensity")
        slopes, penalty = model.value, model.strength
    base = Nuisance(
        propensity=Propensity.within(slopes, offset, (clip, 1.0 - clip)),
        means=(float(means[0]), float(means[1])),
        outcome_range=curator.outcome_range,
        features=features,
        outcome=np.zeros(0),
        by_arm=by_arm,
        threshold=threshold * (upper - lower),
        ends=ends,
        difference_sd=_difference_sd(n, share, means - lower - half, sums, counts.release),
        confounding=0.0 if randomised else unadjusted,
    )
    epsilon, delta = curator.epsilon("outcome"), curator.delta("outcome")
    size = features.size * (2 if by_arm else 1)
    norms = (math.sqrt(features.size), 1.0)  # a record has features of its own arm only
    strength, _ = planned_penalty(
        features,
        information=n / (2.0 if by_arm else 1.0),
        noise=gradient_noise(norms, epsilon, delta, size),
        spread=_SPREAD / threshold,
        least=least_strength(epsilon, 1.0),
    )
    problem = Huber(outcome_terms(base), features.size, strength, by_arm=by_arm)
    outcome = minimise(curator, "outcome function", problem, "outcome")
    selection = n * share * (1.0 - share) * _VARIANCE / unit_norm(d) ** 2
    values, records = spectrum(features), n * (min(share, 1.0 - share) if by_arm else 1.0)
    along = records * _along_a_line(values, d)
    left = penalty / (penalty + selection) * strength / (strength + along)
    spread = np.sum(values / (records * values + strength) ** 2) * (2.0 if by_arm else 1.0)
    noise_sd = _THROUGH * base.threshold * outcome.noise_sd * math.sqrt(float(spread))
    return replace(base, outcome=outcome.value, left=left, noise_sd=noise_sd)


def _difference_sd(n: int, share: float, means: FloatArray, sums: Noisy, count: Noisy) -> float:
    """Noise of the difference of the means, which are taken from the middle of the range."""
    sizes = n * np.array([share, 1.0 - share])
    by_count = float((means / sizes).sum()) ** 2 * count.variance
    return math.sqrt(sums.variance * float((sizes**-2.0).sum()) + by_count)


def _outcome_sd(ends: float, share: float, means: FloatArray, curator: Curator) -> float:
    """Standard deviation of the outcome, from its mean square and mean."""
    lower, upper = curator.outcome_range
    mean = share * means[0] + (1.0 - share) * means[1] - (lower + upper) / 2.0
    variance = ends * ((upper - lower) / 2.0) ** 2 - mean**2
    return math.sqrt(max(variance, 0.0)) + 0.02 * (upper - lower)


def _along_a_line(values: FloatArray, columns: int) -> float:
    """Information of a record about a slope: the eigenvalue of G for lines, for `_VARIANCE`.

    Of the eigenvalues the largest belongs to the constant, the next to one line for each covariate.
    """
    lines = np.sort(values)[::-1][1:columns]
    return float(lines.mean()) * _VARIANCE / SPREAD


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


def gradient_noise(norms: tuple[float, float], epsilon: float, delta: float, size: int) -> float:
    """Standard deviation of noise that covers gradients of this L1 and L2 norm; about."""
    l1, l2 = norms
    spent = (1.0 - VOLUME) * epsilon
    noise = math.sqrt(2.0) * 2.0 * l1 / spent
    if delta <= LEAST_DELTA:
        return noise
    return min(noise, gaussian_scale(2.0 * l2, spent, delta / 4.0, size))
