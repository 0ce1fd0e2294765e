"""Rules that combine sites: arrays in, weights out.

A combination is sum(w_j estimate_j) with weights that sum to one. ``n`` are the sites' records,
``variance`` their total private variances (positive).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


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


@dataclass(frozen=True)
class Rule:
    """A rule by its name, in words, and whether it needs every site's variance."""

    name: str
    words: str
    weights: Callable[[Floats, Floats], Floats]
    needs_variance: bool = True


RULES = {
    rule.name: rule
    for rule in (
        Rule("mvagg", "by records, over the subset of sites with the least variance", mvagg),
        Rule("ivw", "by inverse variance", ivw),
        Rule("all", "by records, every site", all_sites, needs_variance=False),
        Rule("largest", "only the site with most records", largest, needs_variance=False),
        Rule("random", "random effects: by inverse variance, that between sites added", ivw),
    )
}


@dataclass(frozen=True)
class Heterogeneity:
    """Do the sites' effects differ by more than their errors?

    Parameters
    ----------
    q, df, p_value
        Cochran's Q, one less than the number of sites, and the p-value of no difference.
    tau2
        Variance between the sites' effects (DerSimonian and Laird), not below 0.
    i2
        Part of the variation of the estimates that is due to it, between 0 and 1.
    """

    q: float
    df: int
    p_value: float
    tau2: float
    i2: float


def heterogeneity(estimate: Floats, variance: Floats, excess: Floats) -> Heterogeneity:
    """Cochran's Q, its p-value, and DerSimonian and Laird's variance between sites.

    ``excess`` is the excess kurtosis of each site's error: 0 for a normal, 3 for a Laplace error.

    Notes
    -----
    With errors of unit variance z and P = I - uu', u_j^2 = w_j / sum(w), Q = z'Pz has mean J - 1
    and variance 2 (J - 1) + sum((1 - u_j^2)^2 excess_j). Its law is taken as that multiple of a
    chi-square which has this mean and variance; with normal errors it is the usual chi-square.
    """
    from scipy.special import gammaincc

    df = estimate.size - 1
    if df < 1:
        return Heterogeneity(0.0, 0, 1.0, 0.0, 0.0)
    unit = variance.min()
    w = unit / variance
    mean = float(w @ estimate / w.sum())
    q = float(w @ (estimate - mean) ** 2 / unit)
    spread = 2.0 * df + float(((1.0 - w / w.sum()) ** 2) @ excess)
    multiple = spread / (2.0 * df)  # Q ~ multiple * chi2(df / multiple)
    p = float(gammaincc(df / multiple / 2.0, q / multiple / 2.0))
    scale = float(w.sum() - w @ w / w.sum()) / unit
    tau2 = max(0.0, q - df) / scale if scale > 0.0 else 0.0
    return Heterogeneity(q, df, p, tau2, max(0.0, 1.0 - df / q) if q > 0.0 else 0.0)
