"""The median of the sites, and an interval that holds whatever one of them says.

**The median of three or more numbers lies between two of the others, whatever any one of them is**:
so no site moves the estimate, or an end of the interval, further than to where others are.

The ends are the medians of the ends of the sites' own intervals. With J sites an end is wrong where
those of m = floor(J / 2) + 1 sites are. If one site lies, m - 1 of the others suffice on the side
that it helps, and m are needed on the other. So the sites' intervals have that tail a for which

    P(B >= m - 1) + P(B >= m) = 1 - level,    B binomial with J - 1 trials of probability a.

A site's error is between normal and Laplace; the wider of the two quantiles is taken.
Coverage and widths are in benchmarks/results/sites_liars.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from dpeffects.roots import root
from dpeffects.services.sites.error_distribution import Floats, SiteErrors

_LEAST, _MOST = math.log(1e-30), math.log(0.5 * (1.0 - 1e-12))
"""Logarithms of the tails that are told apart."""


@dataclass(frozen=True)
class MedianErrorDistribution:
    """How far the median of the sites may be off, to either side, if one of them lies.

    ``apart`` are the sites' estimates less their median, ``sd`` their standard errors without
    ``bias``, the standard deviation of what possible biases have in common.
    """

    apart: Floats
    sd: Floats
    bias: float

    def upper_point(self, tail: float) -> float:
        """Return the distance to the further end of the interval of level 1 - 2 ``tail``."""
        from scipy.special import ndtri

        if tail >= 0.5:
            return 0.0
        half, last = self._quantile(tail) * self.sd, self.sd.size // 2
        ends = [np.partition(sign * self.apart + half, last)[last] for sign in (1.0, -1.0)]
        return math.hypot(max(ends), ndtri(tail) * self.bias)

    def _quantile(self, tail: float) -> float:
        """How many standard errors the sites' own intervals have to either side."""
        from scipy.special import bdtrc, ndtri

        others, m = self.sd.size - 1, self.sd.size // 2 + 1

        def gap(x: float) -> float:
            return float(np.sum(bdtrc([m - 2, m - 1], others, math.exp(x)))) - 2.0 * tail

        x = root(gap, _LEAST - 9.0, _MOST) if gap(_MOST) > 0.0 else _MOST
        return max(-float(ndtri(math.exp(x))), -(math.log(2.0) + x) / math.sqrt(2.0))

    def tail(self, x: float) -> float:
        """Return the tail of the interval that ends at a distance of ``x``, for x >= 0."""

        def gap(t: float) -> float:
            return self.upper_point(math.exp(t)) - x

        if gap(_MOST) >= 0.0:
            return 0.5
        return math.exp(root(gap, _LEAST, _MOST) if gap(_LEAST) > 0.0 else _LEAST)

    @property
    def unit(self) -> float:
        """Half the width of the central 68.3 %."""
        return self.upper_point(NormalDist().cdf(-1.0))


def robust(estimate: Floats, errors: SiteErrors) -> tuple[float, MedianErrorDistribution]:
    """Return the median of three or more sites, and the distribution of its error."""
    point, own = float(np.median(estimate)), np.sqrt(errors.variance - errors.bias)
    return point, MedianErrorDistribution(
        estimate - point, own, float(np.median(np.sqrt(errors.bias)))
    )
