"""Rules that combine sites, their weights, and the test whether the sites' effects differ.

A combination is sum(w_j estimate_j) with weights that sum to one. ``n`` are the sites' records,
``variance`` their total private variances (positive).

What choosing weights by noisy variances hides of the variance
--------------------------------------------------------------
The released variance r of a site is its sampling variance v plus Laplace noise of scale s. A rule
that gives more weight w(r) to a site the smaller r is, gives it when the noise happened to be
negative: sum(w^2 r) is too small on average. The estimates' own errors are (nearly) independent
of the noise in the variances, so for given weights the combination's error has the variance
sum(w^2 v), and only the optimism about v needs correcting. For Laplace noise, by parts,

    E[w(r)^2 (v - r)] = -E[s (|r - v| + s) dw(r)^2 / dr],

which is a derivative where w is smooth (`inflation_ivw`) and a sum over jumps where sites enter
and leave (`inflation_mvagg`). Both functions return a factor for each site's sampling variance.

How often intervals with the factors cover is in benchmarks/results/sites_coverage.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpeffects.services.sites.error_distribution import Floats, SiteErrors, parts

_ALIKE = 4.0
"""A site whose outcomes vary half as much as those of others is still taken at its word."""
_FAR = 25.0
"""Noise scales from which a jump does not matter."""


# --- weights ----------------------------------------------------------------------------------


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


# --- what the choice of weights hides ---------------------------------------------------------


def inflation_ivw(n: Floats, errors: SiteErrors, weights: Floats) -> Floats:
    """Return the factors for weights by inverse variance.

    With V the total variance, d(w^2)/dr = -2 w^2 (1 - w) V'(r) / V, and |r - v| is s on average.
    """
    added = 4.0 * errors.scale**2 * (1.0 - weights) * errors.slope / errors.variance
    return 1.0 + _relative(added, errors)


def inflation_mvagg(n: Floats, errors: SiteErrors, weights: Floats) -> Floats:
    """Return the factors for the subset of least variance.

    As the variance of a site in the subset rises, its weight falls in jumps. Two are looked at: a
    site from outside joins, or this one leaves. Given that r is below a jump at x, the optimism is
    s k((x - v) / s) with k(u) = (u + 1) e^-u / (2 - e^-u) for u >= 0 and 1 - u below; it is
    averaged over the plausible v and over the jumps by their heights.
    """
    joins, height = _joining(n, errors.variance, weights)
    leaves = _leaving(n, errors.variance, weights)
    added = height * _below(joins, errors, weights)
    added += (1.0 - height) * _below(leaves, errors, weights)
    return 1.0 + _relative(added, errors)


def _below(jump: Floats, errors: SiteErrors, weights: Floats) -> Floats:
    """Optimism of the sites inside, given that each one's variance came out below its jump."""
    optimism = np.zeros_like(weights)
    near = jump - errors.variance < _FAR * errors.scale
    index = np.flatnonzero((weights > 0.0) & near)
    for some in (index[i] for i in parts(index)):
        own = errors.part(some)
        v, p = own.plausible()
        x = jump[some] - own.noise - own.bias
        hidden = _hidden((x[:, None] - v) / own.scale[:, None])
        optimism[some] = own.scale * (p * hidden).sum(axis=1)
    return optimism


def _hidden(u: Floats) -> Floats:
    """E[v - r | r < x] in units of s, at u = (x - v) / s."""
    inside = np.clip(u, 0.0, 700.0)
    decay = np.exp(-inside)
    return np.where(u >= 0.0, (inside + 1.0) * decay / (2.0 - decay), 1.0 - np.minimum(u, 0.0))


def _joining(n: Floats, variance: Floats, weights: Floats) -> tuple[Floats, float]:
    """Variance of each site at which the next one joins, and what part of w^2 is lost then.

    A site k outside joins when the variance f of the combination exceeds n_k v_k / (2 S + n_k),
    where S are the records inside; f rises with v_j by n_j^2 / S^2.
    """
    outside = weights == 0.0
    if not outside.any():
        return np.full_like(n, np.inf), 0.0
    records = float(n[~outside].sum())
    needed = n[outside] * variance[outside] / (2.0 * records + n[outside])
    first = int(np.argmin(needed))
    gap = float(needed[first]) - float(weights**2 @ variance)
    height = 1.0 - (records / (records + float(n[outside][first]))) ** 2
    return variance + gap * (records / n) ** 2, height


def _leaving(n: Floats, variance: Floats, weights: Floats) -> Floats:
    """Variance of each site inside at which the others do better without it."""
    inside = weights > 0.0
    if inside.sum() == 1:
        rest = mvagg(n[~inside], variance[~inside]) if n.size > 1 else np.empty(0)
        without = float(rest**2 @ variance[~inside]) if n.size > 1 else np.inf
        return np.full_like(n, without)
    records = float(n[inside].sum())
    others = np.maximum(records - n, 1.0)
    part = np.where(inside, float(weights**2 @ variance) * records**2 - n**2 * variance, 0.0)
    return np.maximum(part, 0.0) / others**2 * (2.0 * records - n) / n


def _relative(added: Floats, errors: SiteErrors) -> Floats:
    """What is added to sampling variances, over them; no variance is above its bound."""
    added = np.clip(added, 0.0, np.maximum(errors.largest - errors.mean, 0.0))
    return np.divide(added, errors.mean, out=np.zeros_like(added), where=errors.mean > 0.0)


# --- rules ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """How sites are combined.

    Parameters
    ----------
    name, words
        The rule as typed, and what it does.
    weights
        Weights from the sites' records and variances.
    inflation
        Where weights are chosen by noisy variances: a factor for each sampling variance.
    needs_variance, by_records, random_effects, median
        Whether every site needs a variance, weights follow the numbers of records, effects are
        taken to differ between sites, and weights are votes for a median.
    leaves_out
        Where sites can get no weight: why.
    """

    name: str
    words: str
    weights: Callable[[Floats, Floats], Floats]
    inflation: Callable[[Floats, SiteErrors, Floats], Floats] | None = None
    needs_variance: bool = True
    by_records: bool = False
    random_effects: bool = False
    median: bool = False
    leaves_out: str = ""


def _one_vote(n: Floats, variance: Floats) -> Floats:
    return ivw(n, n / n)


RULES = {
    rule.name: rule
    for rule in (
        Rule("ivw", "fixed effect, inverse-variance weights", ivw, inflation_ivw),
        Rule(
            "mvagg",
            "fixed effect, weights by numbers of records in the subset of sites that minimises the "
            "variance (MVAgg)",
            mvagg,
            inflation_mvagg,
            by_records=True,
            leaves_out="using it would raise the variance of the combination",
        ),
        Rule(
            "all",
            "fixed effect, weights by numbers of records, all sites",
            all_sites,
            needs_variance=False,
            by_records=True,
        ),
        Rule(
            "largest",
            "only the site with the most records",
            largest,
            needs_variance=False,
            leaves_out="it is not the site with the most records",
        ),
        Rule(
            "random",
            "random effects, inverse-variance weights that include the variance between sites "
            "(tau squared, with a prior)",
            ivw,
            random_effects=True,
        ),
        Rule(
            "robust",
            "median of the sites, valid if one site reports a false result",
            _one_vote,
            median=True,
        ),
    )
}


@dataclass(frozen=True)
class Heterogeneity:
    """Heterogeneity of the sites' effects: Cochran's Q, tau squared and I squared.

    Parameters
    ----------
    q, df, p_value
        Cochran's Q, one less than the number of sites, and the p-value of no difference.
    tau2
        Variance between the sites' effects (DerSimonian and Laird), not below 0.
    i2
        Part of the variation of the estimates that is due to heterogeneity, between 0 and 1.
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
    and variance 2 (J - 1) + sum((1 - u_j^2)^2 excess_j). Its distribution is taken as that multiple
    of a chi-square which has this mean and variance; with normal errors it is the usual chi-square.
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
