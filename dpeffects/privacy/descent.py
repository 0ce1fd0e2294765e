"""Newton's method that ends at a small gradient whatever the rows are (claim 20).

`erm` and `huber` have fast solvers of their own, which take steps by a coarse Hessian. What they do
not solve in a few steps is solved here, by exact sums too, so that the result still does not depend
on the order of the rows. Every step either halves the smallest gradient so far, or lowers the
objective by an amount that is certain in spite of rounding; so there are finitely many of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

ABOVE = 1.1
"""A gradient is followed while it is this many times what rounding could have made of nothing."""
_SURE = 0.004
_TRIES = 40


def descend(
    at: Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]],
    width: int,
    stop: float,
    noise: Callable[[float], float],
    curve: float,
) -> FloatArray:
    """Minimise a convex function to a gradient norm of ``stop``, or of `ABOVE` times ``noise``.

    ``at`` returns the gradient at some weights, and a direction to subtract there; it is given the
    weights in two parts, as large weights need more bits than a float has. ``noise`` says how far a
    computed gradient can be off at weights of a norm; no second derivative exceeds ``curve``.
    """
    weights, tail = np.zeros(width), np.zeros(width)
    gradient, step = at(weights, tail)
    least = size = float(np.linalg.norm(gradient))
    while size > stop and size > ABOVE * (off := noise(float(np.linalg.norm(weights)))):
        shrink, length, falls = 1.0, float(np.linalg.norm(step)), float(gradient @ step)
        for _ in range(_TRIES):
            candidate = _minus(weights, tail, shrink * step)
            new, following = at(*candidate)
            slope, after = float(new @ step), float(np.linalg.norm(new))
            doubt = noise(float(np.linalg.norm(candidate[0]))) + width * 2.0**-52 * after
            sure = shrink * (slope - doubt * length)  # the objective has fallen by more
            if after <= least / 2.0 or sure >= _SURE * size**2 / curve:
                break
            shrink *= min(max(falls / max(falls + max(-slope, 0.0), 1e-300), 0.1), 0.5)
        else:
            candidate = _minus(weights, tail, (1.0 - off / size) / curve * gradient)
            new, following = at(*candidate)
        (weights, tail), gradient, step = candidate, new, following
        size = float(np.linalg.norm(gradient))
        least = min(least, size)
    return weights


def _minus(
    weights: FloatArray, tail: FloatArray, step: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """weights + tail - step in two parts again: a float, and what it leaves out."""
    first = weights - step
    back = first - weights
    rest = (weights - (first - back)) - (step + back) + tail
    total = first + rest
    return total, rest - (total - first)


def direction(hessian: FloatArray, gradient: FloatArray) -> FloatArray:
    """Newton's step, or the gradient where rounding leaves no step along which it falls.

    ``hessian`` is one matrix, or several for pieces of the gradient of the same size.
    """
    pieces = gradient.reshape(*hessian.shape[:-2], hessian.shape[-1], 1)
    try:
        step = np.asarray(np.linalg.solve(hessian, pieces), np.float64).reshape(-1)
    except np.linalg.LinAlgError:
        return gradient
    return step if np.isfinite(step).all() and float(gradient @ step) > 0.0 else gradient
