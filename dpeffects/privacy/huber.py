"""Ridge-penalised regression with Huber's loss, on rows of norm at most 1.

The objective is sum_i h(y_i - s_i x_i'w) + (strength/2) |w|^2 with h(r) = r^2 / 2 up to |r| = 1 and
|r| - 1/2 beyond, so that a record's gradient has norm at most |s_i| whatever its target y_i is. A
threshold other than 1 is a matter of units: divide targets by it, multiply the weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpeffects.errors import EstimationError
from dpeffects.privacy.release import FloatArray

_ROWS = 8_192
_TIGHT = 1e-12
_ACCOUNTED = 5e-12
_STEPS = 300
_DESCENT = 1e-4


@dataclass(frozen=True)
class Huber:
    """The problem: rows (norm at most 1), slopes within ``steepest``, targets, strength."""

    rows: FloatArray
    slopes: FloatArray
    targets: FloatArray
    strength: float
    steepest: float = 1.0

    @property
    def width(self) -> int:
        """Number of weights."""
        return self.rows.shape[1]

    @property
    def reach(self) -> tuple[float, float]:
        """Largest L1 and L2 norm of one record's gradient."""
        return self.steepest * math.sqrt(self.rows.shape[1]), self.steepest

    @property
    def bend(self) -> float:
        """Largest second derivative of one record's loss along its row."""
        return self.steepest**2

    @property
    def corners(self) -> int:
        """A gradient is its row times a number of either sign: four corners (claim 31)."""
        return 4

    @property
    def claim(self) -> int:
        """The claim that proves noise in the objective."""
        return 31

    def slack(self, noise: float = 0.0) -> float:
        """L2 distance of a returned vector from the exact minimiser, at most (claim 31).

        ``noise`` bounds the norm of noise in the objective, and with it that of the weights, which
        the rounding error of residuals is proportional to.
        """
        n, d = self.rows.shape
        largest = (n * self.steepest + noise) / self.strength
        rounded = n * (_ACCOUNTED + (d + 8) * 2.0**-52 * (2.0 + largest))
        return (rounded + 2e-15 * noise) / self.strength

    def gradient(self, weights: FloatArray) -> FloatArray:
        """Sum of the gradients of the losses: what one record moves by at most 2 steepest."""
        psi = np.clip(self.targets - self.slopes * (self.rows @ weights), -1.0, 1.0)
        return np.asarray(-(self.slopes * psi) @ self.rows)

    def squares(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Squared size of each record's gradient, and its second derivative, along its row."""
        residual = self.targets - self.slopes * (self.rows @ weights)
        inside = np.abs(residual) <= 1.0
        return self.slopes**2 * np.clip(residual, -1.0, 1.0) ** 2, self.slopes**2 * inside

    def solve(self, noise: FloatArray | None = None) -> FloatArray:
        """Minimise the objective plus noise'w by Newton steps with a line search.

        The objective is piecewise quadratic and strongly convex, so the steps end at the minimiser.
        """
        n, d = self.rows.shape
        tilt = np.zeros(d) if noise is None else noise
        weights = np.zeros(d)
        value, gradient, hessian = self._at(weights, tilt)
        for _ in range(_STEPS):
            size = float(np.linalg.norm(gradient))
            if size <= n * _TIGHT + 1e-15 * float(np.linalg.norm(tilt)):
                return weights
            step = np.linalg.solve(hessian, gradient)
            descent, shrink = float(gradient @ step), 1.0
            while shrink > 1e-10:
                candidate = weights - shrink * step
                found = self._at(candidate, tilt)
                flat = abs(found[0] - value) <= 1e-11 * max(abs(value), 1.0)
                smaller = float(np.linalg.norm(found[1])) < 0.9 * size
                if found[0] <= value - _DESCENT * shrink * descent or (flat and smaller):
                    break
                shrink /= 2.0
            weights, (value, gradient, hessian) = candidate, found
        raise EstimationError("the Huber regression did not converge; nothing of it was released")

    def _at(self, weights: FloatArray, tilt: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value, gradient and Hessian, over blocks of rows to keep temporaries small."""
        n, d = self.rows.shape
        value = 0.5 * self.strength * float(weights @ weights) + float(tilt @ weights)
        gradient, hessian = self.strength * weights + tilt, self.strength * np.eye(d)
        for start in range(0, n, _ROWS):
            part = slice(start, start + _ROWS)
            rows, slopes = self.rows[part], self.slopes[part]
            residual = self.targets[part] - slopes * (rows @ weights)
            size = np.abs(residual)
            inside = size <= 1.0
            value += float(np.sum(np.where(inside, 0.5 * residual**2, size - 0.5)))
            gradient = gradient - (slopes * np.clip(residual, -1.0, 1.0)) @ rows
            weighted = rows[inside] * slopes[inside][:, None]
            hessian += weighted.T @ weighted
        return value, gradient, hessian
