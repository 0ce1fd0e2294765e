"""Propensity models for average effects, balance and learners: penalty, release, inverse weights.

Strengths of ridge penalties balance shrinkage against noise, from public numbers only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, Interval
from dpeffects.design.features import logits
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators import constants as hand
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.losses import Logistic, sigmoid, unit_l1, unit_norm
from dpeffects.privacy.noise import LEAST_DELTA, gaussian_scale
from dpeffects.privacy.private_minimisation import (
    Coefs,
    minimise,
    noisy_weights,
    public_propensity_model,
)


def least_strength(epsilon: float, hessian_bound: float = 0.25, part: float = hand.VOLUME) -> float:
    """Smallest strength whose change of volume costs at most a part of epsilon, by default 1/10."""
    return hessian_bound / math.expm1(min(part * epsilon, 5.0)) * (1.0 + 1e-9)


def gradient_noise(d: int, epsilon: float, delta: float) -> float:
    """Standard deviation of the noise in each entry of a propensity model's gradient."""
    return covering_noise((unit_l1(d), 1.0), epsilon, delta, d, 3.0)


def covering_noise(
    norms: tuple[float, float], epsilon: float, delta: float, size: int, shifts: float = 4.0
) -> float:
    """Standard deviation of noise that covers gradients of this L1 and L2 norm; about."""
    l1, l2 = norms
    spent = (1.0 - hand.VOLUME) * epsilon
    noise = math.sqrt(2.0) * 2.0 * l1 / spent
    if delta <= LEAST_DELTA:
        return noise
    return min(noise, gaussian_scale(2.0 * l2, spent, delta / shifts, size))


def default_strength(n: int, d: int, epsilon: float, delta: float) -> float:
    """Return the strength of a propensity model with noise in its objective.

    With noise of variance s^2 in each gradient, information J about each weight and weights of
    variance theta^2, the mean squared error (s^2 + strength^2 theta^2) / (J + strength)^2 is least
    at strength = s^2 / (J theta^2). Logits of variance 1, spread evenly over d - 1 covariates, make
    J theta^2 = n e(1 - e) / (d - 1), with e(1 - e) about `hand.TREATED_VARIANCE`.
    """
    variance = gradient_noise(d, epsilon, delta) ** 2
    return max(least_strength(epsilon), variance * max(d - 1, 1) / (hand.TREATED_VARIANCE * n))


def propensity_model(
    curator: Curator,
    strength: float | None,
    offset: float,
    share: str,
    perturbation: str = "objective",
    noise: str = "auto",
    arm: int | None = None,
) -> Coefs:
    """Release the weights of a penalised logistic regression on rows of norm at most 1.

    ``strength`` is that of the penalty, None for the one that suits any data by public numbers.
    ``perturbation`` is "objective" (noise in the objective) or "output" (noise on the weights).
    ``arm`` is one of more than two, against all others: its model has its part of the share. Where
    covariates and treatment are public, nothing is charged.
    """
    if curator.is_public("covariates"):
        return public_propensity_model(curator, strength or hand.SAFEGUARD, offset, arm=arm)
    if strength is None:
        price = curator.epsilon(share), curator.delta(share)
        strength = default_strength(curator.n, curator.width, *price)
    release = minimise if perturbation == "objective" else noisy_weights
    problem = Logistic(curator.width, strength, offset, arm=arm)
    label = "propensity model" if arm is None else f"propensity model of arm {arm}"
    part = Fraction(1) if arm is None else Fraction(1, curator.arms)
    return release(curator, label, problem, share, noise, part)


@dataclass(frozen=True)
class PropensityFunction:
    """A known propensity model: sigmoid(offset + row'weights), kept within [low, high]."""

    weights: FloatArray
    offset: float
    low: float
    high: float

    @classmethod
    def within(cls, weights: FloatArray, offset: float, limits: Interval) -> PropensityFunction:
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


def relative_weights(
    model: PropensityFunction, estimand: str, treated: BoolArray, rows: FloatArray
) -> FloatArray:
    """Weights over the largest that any record of the arm could have: within [0, 1]."""
    tops = [float(w.max()) for w in ESTIMANDS[estimand].weights(np.array([model.low, model.high]))]
    a, b = ESTIMANDS[estimand].weights(model.scores(rows))
    scaled = np.where(treated, a / max(tops[0], 1e-300), b / max(tops[1], 1e-300))
    return np.clip(scaled, 0.0, 1.0)
