"""Strengths of ridge penalties that balance shrinkage against noise, from public numbers only."""

from __future__ import annotations

import math

from dpeffects.estimators import constants as hand
from dpeffects.privacy.losses import unit_l1
from dpeffects.privacy.noise import LEAST_DELTA, gaussian_scale


def least_strength(epsilon: float, hessian_bound: float = 0.25, part: float = hand.VOLUME) -> float:
    """Smallest strength whose change of volume costs at most a part of epsilon, by default 1/10."""
    return hessian_bound / math.expm1(min(part * epsilon, 5.0)) * (1.0 + 1e-9)


def gradient_noise(d: int, epsilon: float, delta: float) -> float:
    """Standard deviation of the noise in each entry of a propensity model's gradient."""
    spent = (1.0 - hand.VOLUME) * epsilon
    noise = math.sqrt(2.0) * 2.0 * unit_l1(d) / spent
    if delta > LEAST_DELTA:
        noise = min(noise, gaussian_scale(2.0, spent, delta / 3.0, d))
    return noise


def default_strength(n: int, d: int, epsilon: float, delta: float) -> float:
    """Return the strength of a propensity model with noise in its objective.

    With noise of variance s^2 in each gradient, information J about each weight and weights of
    variance theta^2, the mean squared error (s^2 + strength^2 theta^2) / (J + strength)^2 is least
    at strength = s^2 / (J theta^2). Logits of variance 1, spread evenly over d - 1 covariates, make
    J theta^2 = n e(1 - e) / (d - 1), with e(1 - e) about `hand.TREATED_VARIANCE`.
    """
    variance = gradient_noise(d, epsilon, delta) ** 2
    return max(least_strength(epsilon), variance * max(d - 1, 1) / (hand.TREATED_VARIANCE * n))


def default_penalty(n: int, d: int, epsilon: float) -> float:
    """Return the ridge penalty at which noise on the weights moves a row's logit by about one.

    The noise of scale 2d / (n penalty epsilon) on d weights has a standard deviation of at most
    2 sqrt(2) d^1.5 / (n penalty epsilon) in the logit of a row in [0, 1]^d.
    """
    return min(1.0, max(1.0 / n, 2.0 * math.sqrt(2.0) * d**1.5 / (n * epsilon)))
