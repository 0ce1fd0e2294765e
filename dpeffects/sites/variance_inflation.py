"""What choosing weights by noisy variances hides of the variance, and how much to add for it.

The released variance r of a site is its sampling variance v plus Laplace noise of scale s. A rule
that gives more weight w(r) to a site the smaller r is, gives it when the noise happened to be
negative: sum(w^2 r) is too small on average. The estimates' own errors are (nearly) independent
of the noise in the variances, so for given weights the combination's error has the variance
sum(w^2 v), and only the optimism about v needs correcting. For Laplace noise, by parts,

    E[w(r)^2 (v - r)] = -E[s (|r - v| + s) dw(r)^2 / dr],

which is a derivative where w is smooth (`inflation_ivw`) and a sum over jumps where sites enter
and leave (`inflation_mvagg`). Both functions return a factor for each site's sampling variance.

Coverage without and with the factors is in benchmarks/results/sites_coverage.md.
"""

from __future__ import annotations

import numpy as np

from dpeffects.sites.error_distribution import ROWS, Errors
from dpeffects.sites.weights import Floats, mvagg

_FAR = 25.0  # noise scales from which a jump does not matter


def inflation_ivw(n: Floats, errors: Errors, weights: Floats) -> Floats:
    """Return the factors for weights by inverse variance.

    With V the total variance, d(w^2)/dr = -2 w^2 (1 - w) V'(r) / V, and |r - v| is s on average.
    """
    added = 4.0 * errors.scale**2 * (1.0 - weights) * errors.slope / errors.variance
    return 1.0 + _relative(added, errors)


def inflation_mvagg(n: Floats, errors: Errors, weights: Floats) -> Floats:
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


def _below(jump: Floats, errors: Errors, weights: Floats) -> Floats:
    """Optimism of the sites inside, given that each one's variance came out below its jump."""
    optimism = np.zeros_like(weights)
    near = jump - errors.variance < _FAR * errors.scale
    index = np.flatnonzero((weights > 0.0) & near)
    for i in range(0, index.size, ROWS):
        own = errors.part(index[i : i + ROWS])
        v, p = own.plausible()
        x = jump[index[i : i + ROWS]] - own.noise - own.bias
        hidden = _hidden((x[:, None] - v) / own.scale[:, None])
        optimism[index[i : i + ROWS]] = own.scale * (p * hidden).sum(axis=1)
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


def _relative(added: Floats, errors: Errors) -> Floats:
    """What is added to sampling variances, over them; no variance is above its bound."""
    added = np.clip(added, 0.0, np.maximum(errors.largest - errors.mean, 0.0))
    return np.divide(added, errors.mean, out=np.zeros_like(added), where=errors.mean > 0.0)
