"""Outcome regression by arm from noisy moments, with a ridge as large as their noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.design.arms import ARMS
from dpeffects.estimators._blocks import CONTROL, TREATED
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.moments import Gram
from dpeffects.privacy.rows import Block
from dpeffects.privacy.sets import Box


@dataclass(frozen=True)
class MomentRow:
    """(z, r): covariates centred to [-1, 1] over sqrt(d), and the outcome scaled to [-1, 1].

    The first column, the intercept, stays as it is.
    """

    low: float
    high: float
    reads: ClassVar[tuple[str, ...]] = ("covariates", "outcome")

    def __call__(self, rows: Block) -> tuple[FloatArray, ...]:
        """Columns of some rows."""
        first, *others = rows.covariates.T
        root = math.sqrt(len(others) + 1)
        scaled = (2.0 * rows.outcome - self.low - self.high) / (self.high - self.low)
        return (first / root, *((2.0 * x - 1.0) / root for x in others), scaled)


def arm_moments(curator: Curator, share: str) -> Noisy:
    """Release, by arm, the sums of products of (z, r), the upper triangle."""
    row, within = MomentRow(*curator.outcome_range), moment_set(curator.width)
    return curator.sums("outcome regression", row, within, ARMS, share=share)


def moment_set(d: int) -> Gram:
    """Products of a row of d entries z, |z| <= 1, and r in [-1, 1]."""
    half = np.append(np.full(d, 1.0 / math.sqrt(d)), 1.0)
    return Gram(Box(-half, half, centre=0.0, radius=math.sqrt(2.0)))


@dataclass(frozen=True)
class OutcomeRegression:
    """Linear outcome models by arm, from noisy moments of z (|z| <= 1) and r in [-1, 1]."""

    coefficients: FloatArray
    centre: FloatArray
    spread: FloatArray
    models: FloatArray
    half: float

    @classmethod
    def fitted(cls, curator: Curator, half: float) -> OutcomeRegression:
        d = curator.width
        noisy = arm_moments(curator, "regression")
        coefficients, gram, whole = np.zeros((2, d)), np.zeros((2, d, d)), np.zeros((d + 1, d + 1))
        for arm in (TREATED, CONTROL):
            whole[np.triu_indices(d + 1)] = noisy.value[arm]
            gram[arm] = (whole + np.triu(whole, 1).T)[:d, :d]
            values, vectors = np.linalg.eigh(gram[arm])
            ridge = 2.0 * noisy.sd * math.sqrt(2.0 * d)  # about the largest eigenvalue of the noise
            inverse = vectors / (np.maximum(values, 0.0) + ridge)
            coefficients[arm] = inverse @ (vectors.T @ whole[:d, d])
        centre = np.stack([g[:, 0] / max(g[0, 0], 1.0 / d) / math.sqrt(d) for g in gram])
        rows = np.maximum(gram[:, 0, 0] * d, 1.0)
        spread = gram.sum(axis=0) / rows.sum() - np.outer(*[_pooled(centre, rows)] * 2)
        models = np.zeros((2, d + 1))
        models[:, 0] = -half * coefficients[:, 1:].sum(axis=1) / math.sqrt(d)
        models[:, 1] = half * coefficients[:, 0] / math.sqrt(d)
        models[:, 2:] = 2.0 * half * coefficients[:, 1:] / math.sqrt(d)
        return cls(coefficients, np.vstack([centre, _pooled(centre, rows)]), spread, models, half)

    def effect(self, estimand: str) -> float:
        """Average of m_1 - m_0 over the records of the estimand."""
        row = {"ATT": 0, "ATC": 1, "ATE": 2}[estimand]
        gap = self.coefficients[TREATED] - self.coefficients[CONTROL]
        return self.half * float(self.centre[row] @ gap)

    def effect_variance(self) -> float:
        """Variance of m_1 - m_0 over records."""
        gap = self.coefficients[TREATED] - self.coefficients[CONTROL]
        return self.half**2 * max(float(gap @ self.spread @ gap), 0.0)


def _pooled(centre: FloatArray, rows: FloatArray) -> FloatArray:
    return np.asarray(rows @ centre / rows.sum())
