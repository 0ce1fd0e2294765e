"""The mean effect of sites like these, when effects may differ between sites.

The estimate of site j is normal with variance v_j around an effect of its own, and these effects
are normal around the mean effect with standard deviation tau. A few sites hardly show tau: methods
that learn it from the sites alone (Hartung and Knapp's, for one) need Student's t with J - 1
degrees of freedom, which makes the interval of two sites with the same effect six times as wide as
it had to be, and no method with the same coverage for all tau is much shorter. So tau has a prior,

    density of tau proportional to (s + tau)^(-3/2), s^2 the harmonic mean of the v_j,

which is DuMouchel's with a heavier tail: half of it is below 3 s, a quarter above 15 s. Given tau,
the sites are weighed by 1 / (v_j + tau^2); weights and distribution are averages over tau given the
estimates.

Coverage of the 95 % interval by tau / s for sites with equal variances, and its median width at
tau = 0 over that of a normal interval for equal effects (benchmarks/sites.py has sites of
unequal size):

===== ===== ===== ===== ===== ===== ===== =====
sites     0     1     3     5    10   100 width
===== ===== ===== ===== ===== ===== ===== =====
    2 100.0 100.0  97.4  93.4  89.8  87.8  2.84
    3  99.8  98.5  93.0  92.1  92.2  91.6  1.63
    5  98.9  96.0  93.3  93.7  93.7  93.4  1.29
   10  97.7  94.5  94.4  94.5  94.5  94.3  1.14
===== ===== ===== ===== ===== ===== ===== =====

Where one site is much more precise than the others, these say little of tau: the interval of two
sites with variances 1 and 10 is 3.8 times that of equal effects, with 1 and 100 seven times.

References
----------
DuMouchel (1994), Hierarchical Bayes linear models for meta-analysis. Röver (2020), Bayesian
random-effects meta-analysis using the bayesmeta R package, Journal of Statistical Software 93.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpeffects.roots import root
from dpeffects.services.sites.error_distribution import Floats, SiteErrors, parts
from dpeffects.services.sites.rules import ivw

_POINTS, _ROUNDS = 200, 3
_NOTHING = 30.0
"""Log densities so far below the largest do not matter."""
_FAR = 1e5
"""Times the largest distance between sites: more of tau is not looked at."""
_ONE_SD = 0.15865525393145707


@dataclass(frozen=True)
class NormalMixtureDistribution:
    """A mixture of normal distributions, of either sign: ``tail`` is the mean of both tails.

    Its variance need not exist; ``unit`` is half the width of the central 68.3 %, which is the
    standard deviation of a normal distribution.
    """

    share: Floats
    centre: Floats
    sd: Floats

    def tail(self, x: float) -> float:
        """Return half the probability of an error larger than ``x``, for x >= 0."""
        from scipy.special import ndtr

        both = ndtr((self.centre - x) / self.sd) + ndtr((-self.centre - x) / self.sd)
        return float(self.share @ both) / 2.0

    def upper_point(self, tail: float) -> float:
        """Return the x >= 0 exceeded with probability ``tail``."""
        if tail >= 0.5:
            return 0.0
        scale = float(np.max(np.abs(self.centre) + self.sd))
        return scale * root(lambda x: self.tail(scale * x) - tail, 0.0, 40.0, xtol=1e-14)

    @property
    def unit(self) -> float:
        """Half the width of the central 68.3 %."""
        return self.upper_point(_ONE_SD)


def random_effects(
    estimate: Floats, errors: SiteErrors
) -> tuple[Floats, NormalMixtureDistribution]:
    """Return the weights of the sites and the distribution of the error of their weighted mean.

    A bias that is common to the sites does not show in how far their estimates are apart.
    """
    own = errors.variance - errors.bias
    unit = math.sqrt(own.size / float(np.sum(own.min() / own)) * own.min())
    y, v = (estimate - float(ivw(own, own) @ estimate)) / unit, own / unit**2
    low, high = 0.0, math.log1p(_FAR * (1.0 + float(np.ptp(y))))
    for _ in range(_ROUNDS):  # narrower each time: with many sites, tau is all but known
        grid = np.linspace(low, high, _POINTS)
        tau2 = np.expm1(grid) ** 2
        logs, total, first, second = _sums(tau2, y, v)
        # the density of log(1 + tau), the mean effect being integrated out
        fit = logs + np.log(total) + second - first**2 / total
        density = -0.5 * (fit + grid)
        matters = np.flatnonzero(density > density.max() - _NOTHING)
        low, high = grid[max(matters[0] - 1, 0)], grid[min(matters[-1] + 1, _POINTS - 1)]
    share = np.exp(density - density.max())
    share[[0, -1]] /= 2.0
    share /= share.sum()
    weights = np.concatenate([(share / total) @ (1.0 / (tau2[:, None] + v[i])) for i in parts(v)])
    centre = first / total - float(weights @ y)
    sd = np.sqrt(unit**2 / total + errors.common_bias(weights))
    return weights / weights.sum(), NormalMixtureDistribution(share, centre * unit, sd)


def _sums(tau2: Floats, y: Floats, v: Floats) -> Floats:
    """Sums over sites for each tau: log variances, weights, weights times y and times y^2."""
    found = np.zeros((4, tau2.size))
    for i in parts(v):
        variance = tau2[:, None] + v[i]
        w = 1.0 / variance
        found += [np.log(variance).sum(axis=1), w.sum(axis=1), w @ y[i], w @ y[i] ** 2]
    return found
