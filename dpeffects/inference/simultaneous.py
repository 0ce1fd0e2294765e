"""How many standard errors hold for several numbers at once."""

from __future__ import annotations

import math

import numpy as np

from dpeffects.arrays import FloatArray

_POINTS = 13
"""The largest of several normal numbers is looked up among 2^13 points that fill the space."""


def critical_value(covariance: FloatArray, conf_level: float) -> float:
    """Quantile of the largest of |Z_i|, normal numbers of variance 1 with these correlations.

    It lies between the value for one number and that of Bonferroni. It is computed at Sobol points,
    so that the same covariance gives the same number.
    """
    from scipy.stats import norm, qmc

    variances = np.diag(covariance)
    kept = variances > 1e-12 * max(float(variances.max(initial=0.0)), 1e-300)
    alone = float(norm.ppf(0.5 + conf_level / 2.0))
    if kept.sum() < 2:
        return alone
    sd = np.sqrt(variances[kept])
    correlation = np.clip(covariance[np.ix_(kept, kept)] / np.outer(sd, sd), -1.0, 1.0)
    values, vectors = np.linalg.eigh(np.nan_to_num(correlation))
    lead = np.flatnonzero(values > 1e-9)[::-1]
    factor = vectors[:, lead] * np.sqrt(values[lead])
    factor /= np.sqrt((factor**2).sum(axis=1, keepdims=True))
    points = qmc.Sobol(lead.size, scramble=False).random_base2(_POINTS)
    uniform = (points + 0.5 / 2.0**_POINTS) % 1.0
    largest = np.abs(norm.ppf(uniform) @ factor.T).max(axis=1)
    most = float(norm.ppf(1.0 - (1.0 - conf_level) / (2.0 * kept.sum())))
    return min(max(float(np.quantile(largest, conf_level)), alone), most) if most else math.inf
