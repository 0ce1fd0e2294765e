"""Weights of sites in a combination: arrays in, weights out.

A combination is sum(w_j estimate_j) with weights that sum to one. ``n`` are the sites' records,
``variance`` their total private variances (positive).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_ALIKE = 4.0
"""A site whose outcomes vary half as much as those of others is still taken at its word."""


def mvagg(n: Floats, variance: Floats) -> Floats:
    """Weights of the records in the subset of sites with the least variance (MVAgg).

    Minimises f(I) = sum(n_j^2 v_j) / (sum n_j)^2 over all subsets I, in O(J log J).

    Notes
    -----
    f depends on I through S = sum(n_j) and A = sum(n_j^2 v_j) only. The set A >= c S^2 is convex,
    so A / S^2 is quasi-concave, and over the polygon of all sum x_j (n_j, n_j^2 v_j) with x_j in
    [0, 1] it is least at a corner, and at a lower one, because it rises with A (at the origin it is
    infinite). At a lower corner alpha A - beta S is least for some alpha, beta >= 0, so it holds
    the sites with n_j v_j < beta / alpha. The best subset is therefore a prefix of the sites in
    order of n_j v_j, and cumulative sums try all of them.

    Examples
    --------
    >>> mvagg(np.array([100.0, 100.0, 100.0]), np.array([1.0, 1.5, 9.0])).tolist()
    [0.5, 0.5, 0.0]
    """
    order = np.argsort(n * (variance / variance.min()), kind="stable")
    size, v = n[order] / n.max(), variance[order] / variance.min()
    best = int(np.argmin(np.cumsum(size**2 * v) / np.cumsum(size) ** 2))
    weights = np.zeros_like(n)
    chosen = order[: best + 1]
    weights[chosen] = n[chosen] / n[chosen].sum()
    return weights


def ivw(n: Floats, variance: Floats) -> Floats:
    """Weights by inverse variance.

    Examples
    --------
    >>> ivw(np.array([1.0, 1.0]), np.array([1.0, 3.0])).tolist()
    [0.75, 0.25]
    """
    precision = variance.min() / variance
    return precision / precision.sum()


def all_sites(n: Floats, variance: Floats) -> Floats:
    """Every site, by its records."""
    return n / n.sum()


def largest(n: Floats, variance: Floats) -> Floats:
    """The site with most records; the first of them if several have as many."""
    weights = np.zeros_like(n)
    weights[int(np.argmax(n))] = 1.0
    return weights


def supported(n: Floats, variance: Floats, most: Floats) -> Floats:
    """The least sampling variances that sites bear out, at most ``most``: a quarter of what their
    records would have with outcomes as variable as those of the others (their lower median).

    Examples
    --------
    >>> supported(np.full(3, 100.0), np.array([0.0, 0.04, 0.02]), np.ones(3)).tolist()
    [0.005, 0.0, 0.0]
    """
    own = n * variance
    order = np.sort(own)
    if own.size < 2:
        return np.zeros_like(n)
    middle = (own.size - 2) // 2
    others = np.where(own <= order[middle], order[middle + 1], order[middle])
    return np.asarray(np.minimum(others / _ALIKE / n, most))
