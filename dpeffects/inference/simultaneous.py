"""How many standard errors hold for several numbers at once."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from dpeffects.arrays import FloatArray

_POINTS = 8192


def at_once(covariance: FloatArray, conf_level: float) -> float:
    """How many standard errors hold for all of some normal errors at once.

    The probability is a mean over points that fill the space evenly (multiples of square roots of
    primes, modulo 1), always the same ones. It is never below that of one error alone, nor above
    that of Bonferroni's inequality.

    Examples
    --------
    >>> round(at_once(np.eye(1), 0.95), 2), round(at_once(np.ones((9, 9)), 0.95), 2)
    (1.96, 1.96)
    >>> round(at_once(np.eye(5), 0.95), 1)  # Sidak's 2.57
    2.6
    """
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    live = spread > 0.0
    count = max(int(live.sum()), 1)
    alone, most = (float(ndtri(1.0 - (1.0 - conf_level) / (2 * k))) for k in (1, count))
    if count == 1:
        return alone
    values, vectors = np.linalg.eigh(
        covariance[np.ix_(live, live)] / np.outer(spread[live], spread[live])
    )
    keep = values > 1e-6 * values[-1]
    roots = np.sqrt([p for p in range(2, 3000) if all(p % q for q in range(2, math.isqrt(p) + 1))])
    even = np.outer(np.arange(1, _POINTS + 1), roots[: keep.sum()]) % 1.0
    errors = ndtri(even.clip(1e-12, 1.0 - 1e-12)) @ (vectors[:, keep] * np.sqrt(values[keep])).T
    found = float(np.quantile(np.abs(errors).max(axis=1), conf_level))
    return min(max(found, alone), most)
