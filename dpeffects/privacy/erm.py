"""Ridge-penalised logistic regression and the sensitivity of its weights.

The objective is (1/n) sum log(1 + exp(-s_i x_i'w)) + (penalty/2) |w|^2 with s_i = +1 for treated
and -1 for control, rows in [0, 1]^d; the intercept is a column like any other and is penalised.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpeffects.errors import EstimationError, OptionError

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

GRADIENT = 1e-9
"""The solver stops at a gradient of this norm or smaller; the sensitivity accounts for it."""
_ROWS = 32_768
_STEPS = 200


def fit_logistic(rows: FloatArray, treated: BoolArray, penalty: float) -> FloatArray:
    """Minimise the objective by Newton steps, to a gradient norm of at most ``GRADIENT``."""
    if not 1e-12 <= penalty < math.inf:
        raise OptionError(f"penalty must be at least 1e-12, got {penalty!r}")
    n, d = rows.shape
    weights = np.zeros(d)
    if n > 8 * _ROWS:  # a start from the first rows saves passes over all of them
        weights = fit_logistic(rows[: 2 * _ROWS], treated[: 2 * _ROWS], penalty)
    gradient, hessian = _derivatives(rows, treated, weights, penalty)
    for _ in range(_STEPS):
        size = np.linalg.norm(gradient)
        if size <= GRADIENT / 2:  # half, so that rounding in the gradient itself is covered
            return weights
        step = np.linalg.solve(hessian, gradient)
        shrink = 1.0
        while True:  # the Newton direction lowers the gradient norm for a small enough step
            candidate = weights - shrink * step
            new_gradient, new_hessian = _derivatives(rows, treated, candidate, penalty)
            if np.linalg.norm(new_gradient) < size or shrink < 1e-8:
                break
            shrink /= 2.0
        weights, gradient, hessian = candidate, new_gradient, new_hessian
    raise EstimationError("the logistic regression did not converge; this step released nothing")


def _derivatives(
    rows: FloatArray, treated: BoolArray, weights: FloatArray, penalty: float
) -> tuple[FloatArray, FloatArray]:
    """Gradient and Hessian, summed over blocks of rows to keep temporaries small."""
    n, d = rows.shape
    gradient, hessian = np.zeros(d), np.zeros((d, d))
    for start in range(0, n, _ROWS):
        block = np.ascontiguousarray(rows[start : start + _ROWS])
        score = sigmoid(block @ weights)
        gradient += (score - treated[start : start + _ROWS]) @ block
        hessian += (block * (score * (1.0 - score))[:, None]).T @ block
    return gradient / n + penalty * weights, hessian / n + penalty * np.eye(d)


def sigmoid(x: FloatArray) -> FloatArray:
    """1 / (1 + exp(-x)) without overflow."""
    positive = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, positive) / (1.0 + positive)


def logistic_sensitivity(n: int, d: int, penalty: float) -> float:
    """L1 sensitivity of the weights (claim 9).

    2d / (n penalty) between the exact minimisers, plus 2 sqrt(d) GRADIENT / penalty because each
    of the two returned vectors is within GRADIENT / penalty of its minimiser.
    """
    return 2.0 * d / (n * penalty) + 2.0 * math.sqrt(d) * GRADIENT / penalty


def default_penalty(n: int, d: int, epsilon: float) -> float:
    """Return the ridge penalty at which the noise moves a row's logit by about one.

    The noise of scale 2d / (n penalty epsilon) on d weights has a standard deviation of at most
    2 sqrt(2) d^1.5 / (n penalty epsilon) in the logit of a row in [0, 1]^d. Public numbers only.
    """
    return min(1.0, max(1.0 / n, 2.0 * math.sqrt(2.0) * d**1.5 / (n * epsilon)))
