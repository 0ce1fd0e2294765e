"""The first stage of a kernel learner: private models of treatment and outcome.

1. Noisy counts and sums by arm give the share of treated, the arm means and the average effect that
   everything else is shrunk towards; noisy squares tell how much of the outcome lies at the ends of
   its range, which sets the thresholds of Huber's loss.
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
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.design.features import Features, Fourier, spread_points
from dpeffects.estimators._nuisance import Nuisance, OutcomeTerms
from dpeffects.estimators._propensity import share_treated
from dpeffects.estimators.arms import arm_squares, arm_sums, treated_count
from dpeffects.estimators.strengths import VOLUME, default_strength, least_strength
from dpeffects.estimators.weighting import Propensity, propensity_model
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.huber import Huber
from dpeffects.privacy.minimise import minimise
from dpeffects.privacy.noise import LEAST_DELTA, gaussian_scale

SHARES = {"counts": 0.03, "arms": 0.09, "ends": 0.02, "propensity": 0.13, "outcome": 0.13}
_THRESHOLD = 0.2
"""Least threshold of Huber's loss for outcomes, as a share of their range."""
_SPREAD = 0.2
"""Standard deviation of mean outcomes that the penalty is planned for, as a share of the range."""
_POINTS = 2048


def first_stage(curator: Curator, features: Fourier, clip: float, *, by_arm: bool) -> Nuisance:
    """Release counts, arm means, a propensity model and an outcome function."""
    n, d = curator.n, curator.width
    lower, upper = curator.outcome_range
    count = treated_count(curator, "counts")
    share = share_treated(curator, count)
    sums = arm_sums(curator, "arms")
    half = (upper - lower) / 2.0
    means = lower + half + np.clip(sums.value / (n * np.array([share, 1.0 - share])), -half, half)
    squares = arm_squares(curator, "ends")
    ends = min(max(float(np.sum(squares.value)) / n + 0.5, 0.0), 1.0)
    threshold = max(threshold_for(ends), _THRESHOLD)
    epsilon, delta = curator.epsilon("propensity"), curator.delta("propensity")
    offset = math.log(share / (1.0 - share))
    weights = propensity_model(
        curator, default_strength(n, d, epsilon, delta), offset, "propensity"
    )
    base = Nuisance(
        propensity=Propensity.within(weights.value, offset, (clip, 1.0 - clip)),
        means=(float(means[0]), float(means[1])),
        outcome_range=curator.outcome_range,
        features=features,
        outcome=np.zeros(0),
        by_arm=by_arm,
        threshold=threshold * (upper - lower),
        ends=ends,
    )
    epsilon, delta = curator.epsilon("outcome"), curator.delta("outcome")
    size = features.size * (2 if by_arm else 1)
    norms = (math.sqrt(features.size), 1.0)  # a record has features of its own arm only
    strength, _ = planned_penalty(
        features,
        d,
        information=n / (2.0 if by_arm else 1.0),
        noise=gradient_noise(norms, epsilon, delta, size),
        spread=_SPREAD / threshold,
        least=least_strength(epsilon, 1.0),
    )
    problem = Huber(OutcomeTerms(base), features.size, strength, by_arm=by_arm)
    outcome = minimise(curator, "outcome function", problem, "outcome")
    return replace(base, outcome=outcome.value)


def threshold_for(ends: float) -> float:
    """Threshold of Huber's loss, as a share of the outcome's range, for a mean square ``ends``.

    Outcomes scaled to [-1, 1] have a mean square of 1 if they are binary, which needs the whole
    range, near 1 if they crowd at one end, 1/3 if they spread evenly, and less for a bell.
    """
    return min(1.1 * ends**2, 1.0)


def planned_penalty(
    features: Features,
    columns: int,
    information: float,
    noise: float,
    spread: float,
    least: float = 0.0,
) -> tuple[float, float]:
    """Return the strength with the least expected squared error, and that error.

    ``noise`` is the standard deviation of noise in a gradient, and ``spread`` that of the function
    around its average, both in units of the threshold; ``least`` is the smallest strength that
    noise in the objective allows, or 0 for noise on the weights.
    """
    values = spectrum(features, columns)[:, None]
    tried = max(least, 1e-3) * np.geomspace(1.0, 1e3 if least else 1e7, 200)
    trace = np.sum(values / (information * values + tried) ** 2, axis=0)
    shrunk = (tried * spread) ** 2 * trace
    error = shrunk + (noise**2 * trace if least else (noise / tried) ** 2)
    best = int(np.argmin(error))
    return float(tried[best]), float(error[best])


def spectrum(features: Features, columns: int) -> FloatArray:
    """Eigenvalues of the mean of f f' for covariates that spread evenly over their ranges."""
    points = spread_points(_POINTS, columns - 1)
    at = features(np.column_stack([np.ones(_POINTS), points]))
    return np.maximum(np.linalg.eigvalsh(at.T @ at / _POINTS), 0.0)


def gradient_noise(norms: tuple[float, float], epsilon: float, delta: float, size: int) -> float:
    """Standard deviation of noise that covers gradients of this L1 and L2 norm; about."""
    l1, l2 = norms
    spent = (1.0 - VOLUME) * epsilon
    noise = math.sqrt(2.0) * 2.0 * l1 / spent
    if delta <= LEAST_DELTA:
        return noise
    return min(noise, gaussian_scale(2.0 * l2, spent, delta / 4.0, size))
