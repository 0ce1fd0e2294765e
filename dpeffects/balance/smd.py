"""Standardised mean differences from released sums, and how far noise can have moved them.

Covariates are on the scale u in [-1, 1] (`privacy.balance`); a standardised difference is the same
on every scale. It is (mean_1 - mean_0) / sqrt((s_1^2 + s_0^2) / 2), s the standard deviations of
the arms before weighting, so that both columns of a table have one denominator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from dpeffects.privacy.guarantee import Noisy

FloatArray = npt.NDArray[np.float64]

_SURE = 2.0
"""A spread below this many standard deviations of its noise is no denominator."""


@dataclass(frozen=True)
class Differences:
    """Differences of the columns and the standard deviations of their noise; NaN is not usable.

    ``treated`` is the number of treated records and the noise in it, ``spread`` the mean variance
    of a column in [0, 1].
    """

    raw: FloatArray
    raw_sd: FloatArray
    adjusted: FloatArray
    adjusted_sd: FloatArray
    treated: tuple[float, float]
    spread: float


def differences(covariates: Noisy, weighted: Noisy | None, n: int) -> Differences:
    """Return what the releases say about balance; ``weighted`` may not have been asked for."""
    releases = [covariates] + ([weighted] if weighted else [])

    def spread(values: Sequence[FloatArray]) -> FloatArray:
        return _moments(values[0], n, covariates.variance)[1]

    def standardised(means: FloatArray, values: Sequence[FloatArray]) -> FloatArray:
        return (means[0] - means[1]) / np.sqrt(np.maximum(spread(values), 1e-12))

    def raw(values: Sequence[FloatArray]) -> FloatArray:
        return standardised(_moments(values[0], n, covariates.variance)[0], values)

    def adjusted(values: Sequence[FloatArray]) -> FloatArray:
        sums = values[1]
        return standardised(sums[:, 1:] / np.maximum(sums[:, :1], 1.0), values)

    values = [release.value for release in releases]
    variance = spread(values)
    usable = variance > _SURE * _noise_sd(spread, releases[:1])
    missing = np.full(variance.size, math.nan)
    balance = Differences(
        np.where(usable, raw(values), missing),
        np.where(usable, _noise_sd(raw, releases[:1]), missing),
        missing,
        missing,
        (float(_sizes(covariates.value, n)[0, 0]), math.sqrt(covariates.variance / 2.0)),
        float(np.clip(variance, 0.0, 1.0).mean()) / 4.0,
    )
    if weighted is None:
        return balance
    return replace(
        balance,
        adjusted=np.where(usable, adjusted(values), missing),
        adjusted_sd=np.where(usable, _noise_sd(adjusted, releases), missing),
    )


def _noise_sd(
    of: Callable[[Sequence[FloatArray]], FloatArray], releases: Sequence[Noisy]
) -> FloatArray:
    """Standard deviation of a result's noise: each released number moved by its own, both ways.

    Numbers of one kind are moved together, because a covariate's result depends on one of each.
    """
    values = [release.value for release in releases]
    width = of(values).size
    total = np.zeros(width)
    for k, release in enumerate(releases):
        sd = math.sqrt(release.variance)
        starts = range(1, release.value.shape[1], width)
        places = [slice(0, 1), *(slice(start, start + width) for start in starts)]
        for entries in product((0, 1), places):
            ends = []
            for side in (sd, -sd):
                moved = [value.copy() for value in values]
                moved[k][entries] += side
                ends.append(of(moved))
            total += ((ends[0] - ends[1]) / 2.0) ** 2
    return np.sqrt(total)


def _sizes(values: FloatArray, n: int) -> FloatArray:
    """Records by arm from both noisy counts, which have a known sum."""
    treated = min(max((values[0, 0] + n - values[1, 0]) / 2.0, 1.0), n - 1.0)
    return np.array([[treated], [n - treated]])


def _moments(values: FloatArray, n: int, correction: float) -> tuple[FloatArray, FloatArray]:
    """Means by arm and the average variance; a squared noisy mean is too large by its noise."""
    m = (values.shape[1] - 1) // 2
    size = _sizes(values, n)
    means = np.clip(values[:, 1 : m + 1] / size, -1.0, 1.0)
    squares = 2.0 * values[:, m + 1 :] / size + 0.5
    return means, np.mean(squares - means**2 + correction / size**2, axis=0)
