"""How many standard errors hold for one number or several at once, and the p-values of these."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray

_POINTS = 13
"""The largest of several normal numbers is looked up among 2^13 points that fill the space."""
_FARTHEST = 40.0
"""Standard errors beyond which a p-value is zero."""


def two_sided(z: float) -> float:
    """Probability that a normal number is more than z standard deviations away."""
    return math.erfc(z / math.sqrt(2.0))


def reach(limits: Callable[[Any], tuple[Any, Any]], null: float, count: int = 1) -> FloatArray:
    """How many standard errors intervals need to have ``null``; its p-values are `two_sided`.

    ``limits`` gives the ends of so many intervals, each by its number of standard errors, with
    which they grow: so a p-value is below alpha exactly where an interval at 1 - alpha lacks null.
    """
    near, far = np.zeros(count), np.full(count, _FARTHEST)
    for _ in range(60):  # to the last digit
        z = (near + far) / 2.0
        low, high = limits(z if count > 1 else float(z[0]))
        there = (np.asarray(low) <= null) & (null <= np.asarray(high))
        near, far = np.where(there, near, z), np.where(there, z, far)
    return far


@dataclass(frozen=True, eq=False)
class MaxNormalDistribution:
    """The distribution of the largest of |Z_i|, correlated normal numbers of variance 1.

    It lies between that of one number and Bonferroni's for all ``count``. It is computed at Sobol
    points, so that the same covariance gives the same numbers: ``values`` are there, in order.
    """

    values: FloatArray
    count: int

    @classmethod
    def of(cls, covariance: FloatArray) -> MaxNormalDistribution:
        """For numbers with this covariance; those without variance do not count."""
        from scipy.stats import norm, qmc

        variances = np.diag(covariance)
        kept = variances > 1e-12 * max(float(variances.max(initial=0.0)), 1e-300)
        if kept.sum() < 2:
            return cls(np.zeros(1), 1)
        sd = np.sqrt(variances[kept])
        correlation = np.clip(covariance[np.ix_(kept, kept)] / np.outer(sd, sd), -1.0, 1.0)
        values, vectors = np.linalg.eigh(np.nan_to_num(correlation))
        lead = np.flatnonzero(values > 1e-9)[::-1]
        factor = vectors[:, lead] * np.sqrt(values[lead])
        factor /= np.sqrt((factor**2).sum(axis=1, keepdims=True))
        points = qmc.Sobol(lead.size, scramble=False).random_base2(_POINTS)
        uniform = (points + 0.5 / 2.0**_POINTS) % 1.0
        return cls(np.sort(np.abs(norm.ppf(uniform) @ factor.T).max(axis=1)), int(kept.sum()))

    def critical_value(self, conf_level: float) -> float:
        """How many standard errors hold for all at once."""
        from scipy.stats import norm

        alone, most = (norm.isf((1.0 - conf_level) / (2.0 * k)) for k in (1, self.count))
        return min(max(float(np.quantile(self.values, conf_level)), float(alone)), float(most))

    def p_value(self, z: float) -> float:
        """Adjusted p-value of a number that is z standard errors away."""
        alone, share = two_sided(z), np.linspace(1.0, 0.0, self.values.size)
        found = float(np.interp(z, self.values, share))
        return min(max(found, alone), self.count * alone, 1.0)


def critical_value(covariance: FloatArray, conf_level: float) -> float:
    """How many standard errors hold for all numbers with this covariance at once."""
    return MaxNormalDistribution.of(covariance).critical_value(conf_level)
