"""Outcome regression by arm from noisy moments, with a ridge as large as their noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpeffects.estimators._blocks import CONTROL, TREATED
from dpeffects.privacy.curator import Curator

FloatArray = npt.NDArray[np.float64]


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
        noisy = curator.arm_moments("regression")
        sd = math.sqrt(noisy.variance)
        upper = np.triu_indices(d)
        coefficients, gram = np.zeros((2, d)), np.zeros((2, d, d))
        for arm in (TREATED, CONTROL):
            gram[arm][upper] = noisy.value[arm, : len(upper[0])]
            gram[arm] += np.triu(gram[arm], 1).T
            values, vectors = np.linalg.eigh(gram[arm])
            ridge = 2.0 * sd * math.sqrt(2.0 * d)  # about the largest eigenvalue of the noise
            inverse = vectors / (np.maximum(values, 0.0) + ridge)
            coefficients[arm] = inverse @ (vectors.T @ noisy.value[arm, len(upper[0]) :])
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
