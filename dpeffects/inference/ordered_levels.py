"""What two distributions over ordered levels give: cumulative risks, comparisons, an odds ratio.

All are functions of the shares of (treated, control) records at each level, (2, levels), from the
lowest level to the highest, and have a value whatever noise makes of the shares.
"""

from __future__ import annotations

import numpy as np

from dpeffects.arrays import FloatArray

_STEPS = 100
"""Newton steps at most; each is halved until the likelihood rises."""
_FARTHEST = 20.0
"""Largest log odds ratio."""
_SMALLEST = 1e-10
"""Steps that are not worth taking."""


def at_least(shares: FloatArray) -> FloatArray:
    """Differences of the shares at each level or a higher one, from the second level on."""
    above = np.cumsum(shares[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray((above[..., 0, :] - above[..., 1, :])[..., 1:])


def probability_higher(shares: FloatArray) -> FloatArray:
    """Probability that a treated record has a higher level than a control, ties counting half.

    Examples
    --------
    >>> probability_higher(np.array([[0.0, 0.5, 0.5], [0.5, 0.5, 0.0]]))
    array([0.875])
    """
    one, other = shares
    below = np.cumsum(other) - other
    return np.atleast_1d(one @ (below + other / 2.0))


def log_odds_ratio(shares: FloatArray, sizes: FloatArray) -> FloatArray:
    """Log odds ratio of a higher level, the same at each level (proportional odds).

    It is the maximum likelihood estimate of logit P(level >= j) = a_j + b treated, from counts that
    are not negative; each arm has half a record more, spread as those of both arms are, so that it
    is finite. Where all records are at one level it is 0.
    """
    if sizes[0] > sizes[1]:  # thresholds are known best in the larger arm
        return -log_odds_ratio(shares[::-1], sizes[::-1])
    counts = np.maximum(shares, 0.0) * sizes[:, None]
    both = counts.sum(axis=0)
    counts, both = counts[:, both > 0.0], both[both > 0.0]
    if both.size < 2:
        return np.zeros(1)
    counts = counts + 0.5 * both / both.sum()
    above = np.cumsum(both[::-1])[::-1][1:] / both.sum()
    at = np.append(np.log(above) - np.log1p(-above), 0.0)
    value, slope, bend = _likelihood(at, counts)
    for _ in range(_STEPS):
        scale = 1.0 / np.sqrt(np.maximum(np.diag(bend), 1e-300))
        step = scale * np.linalg.lstsq(bend * np.outer(scale, scale), scale * slope, rcond=1e-15)[0]
        while np.abs(step).max() > _SMALLEST:
            trial = at + step
            trial[-1] = np.clip(trial[-1], -_FARTHEST, _FARTHEST)
            new = _likelihood(trial, counts)
            if new[0] >= value - 1e-13 * abs(value):
                break
            step = step / 2.0
        else:
            break
        at, (value, slope, bend) = trial, new
    return np.array([at[-1]])


def _likelihood(at: FloatArray, counts: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Log likelihood, its gradient, and minus its second derivatives."""
    from scipy.special import expit

    thresholds, effect = at[:-1], at[-1]
    k = thresholds.size
    if np.any(np.diff(thresholds) >= 0.0):
        return -np.inf, np.zeros(k + 1), np.eye(k + 1)
    value, slope, bend = 0.0, np.zeros(k + 1), np.zeros((k + 1, k + 1))
    for own, move in zip(counts, (effect, 0.0), strict=True):
        above = expit(thresholds + move)
        edges = np.concatenate([[1.0], above, [0.0]])
        shares = np.maximum(edges[:-1] - edges[1:], 1e-100)
        value += float(own @ np.log(shares))
        # derivatives of the shares by thresholds: a share has its lower end above, the upper below
        steep = above * (1.0 - above)
        ratio = own / shares
        by_threshold = steep * (ratio[1:] - ratio[:-1])
        curved = own / shares**2
        second = np.diag(
            steep**2 * (curved[1:] + curved[:-1])
            - steep * (1.0 - 2.0 * above) * (ratio[1:] - ratio[:-1])
        )
        beside = -steep[1:] * steep[:-1] * curved[1:-1]
        second += np.diag(beside, 1) + np.diag(beside, -1)
        slope[:k] += by_threshold
        bend[:k, :k] += second
        if move is effect:
            slope[k] += by_threshold.sum()
            bend[k, k] += second.sum()
            bend[:k, k] += second.sum(axis=1)
            bend[k, :k] += second.sum(axis=0)
    return value, slope, bend
