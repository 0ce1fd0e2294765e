"""How strongly to penalise, from public numbers: the least expected error of a released function.

With features f, G the mean of f f' for covariates that spread evenly over their declared ranges,
information I (second derivatives summed over records) and weights of variance v^2 each, a penalty
of strength L shrinks the weights to I G / (I G + L) of themselves and lets noise of variance s^2 in
the gradients through as (I G + L)^-1. The squared error of the function is then
(s^2 + L^2 v^2) trace(G (I G + L)^-2), and for noise s / L on the weights
s^2 / L^2 + L^2 v^2 trace(G (I G + L)^-2).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpeffects.privacy.erm import VOLUME
from dpeffects.privacy.features import Features, spread_points
from dpeffects.privacy.noise import LEAST_DELTA, gaussian_scale

FloatArray = npt.NDArray[np.float64]

_POINTS = 2048


def strength(
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


def gradient_noise(reach: tuple[float, float], epsilon: float, delta: float, size: int) -> float:
    """Standard deviation of noise that covers gradients of this L1 and L2 norm; about."""
    l1, l2 = reach
    spent = (1.0 - VOLUME) * epsilon
    noise = math.sqrt(2.0) * 2.0 * l1 / spent
    return (
        min(noise, gaussian_scale(2.0 * l2, spent, delta / 4.0, size))
        if delta > LEAST_DELTA
        else noise
    )
