"""Weights by the inverse of a released propensity, for average effects, balance and learners."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, Interval
from dpeffects.design.features import logits
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators import constants as hand
from dpeffects.estimators.weighting.penalties import default_strength
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.losses import Logistic, sigmoid, unit_norm
from dpeffects.privacy.minimise import (
    Weights,
    minimise,
    noisy_weights,
    public_propensity_model,
)


def propensity_model(
    curator: Curator,
    strength: float | None,
    offset: float,
    share: str,
    perturbation: str = "objective",
    noise: str = "auto",
    arm: int | None = None,
) -> Weights:
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


def relative_weights(
    model: Propensity, estimand: str, treated: BoolArray, rows: FloatArray
) -> FloatArray:
    """Weights over the largest that any record of the arm could have: within [0, 1]."""
    tops = [float(w.max()) for w in ESTIMANDS[estimand].weights(np.array([model.low, model.high]))]
    a, b = ESTIMANDS[estimand].weights(model.scores(rows))
    scaled = np.where(treated, a / max(tops[0], 1e-300), b / max(tops[1], 1e-300))
    return np.clip(scaled, 0.0, 1.0)
