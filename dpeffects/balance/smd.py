"""Standardised mean differences from released sums, and how far noise can have moved them.

Covariates are on the scale u in [-1, 1] (`privacy.balance`); a standardised difference is the same
on every scale. It is (mean_1 - mean_0) / sqrt((s_1^2 + s_0^2) / 2), s the standard deviations of
the arms before weighting, so that both columns of a table have one denominator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
    parts = [_Part(covariates, 3)] + ([_Part(weighted, 2)] if weighted else [])
    correction = covariates.variance

    def spread(values: Sequence[FloatArray]) -> FloatArray:
        return _moments(values[0], n, correction)[1]

    def raw(values: Sequence[FloatArray]) -> FloatArray:
        means, variance = _moments(values[0], n, correction)
        return (means[0] - means[1]) / np.sqrt(np.maximum(variance, 1e-12))

    def adjusted(values: Sequence[FloatArray]) -> FloatArray:
        sums = values[1]
        means = sums[:, 1:] / np.maximum(sums[:, :1], 1.0)
        variance = _moments(values[0], n, correction)[1]
        return (means[0] - means[1]) / np.sqrt(np.maximum(variance, 1e-12))

    found = [part.noisy.value for part in parts]
    variance = spread(found)
    usable = variance > _SURE * _noise_sd(spread, parts[:1])
    missing = np.full(variance.size, math.nan)
    count = float(_sizes(covariates.value, n)[0, 0]), math.sqrt(covariates.variance / 2.0)
    made = Differences(
        np.where(usable, raw(found), missing),
        np.where(usable, _noise_sd(raw, parts[:1]), missing),
        missing,
        missing,
        count,
        float(np.clip(variance, 0.0, 1.0).mean()) / 4.0,
    )
    if weighted is None:
        return made
    return replace(
        made,
        adjusted=np.where(usable, adjusted(found), missing),
        adjusted_sd=np.where(usable, _noise_sd(adjusted, parts), missing),
    )


@dataclass(frozen=True)
class _Part:
    """A release with a row for each arm, and how many kinds of numbers a row holds.

    The first column is a kind of its own; the rest divides evenly among the others, one number for
    each covariate.
    """

    noisy: Noisy
    kinds: int

    def moved(self) -> list[tuple[int, slice]]:
        """Entries that belong together: a covariate's result depends on one number of each."""
        width = (self.noisy.value.shape[1] - 1) // (self.kinds - 1)
        starts = [1 + k * width for k in range(self.kinds - 1)]
        places = [slice(0, 1), *(slice(start, start + width) for start in starts)]
        return [(arm, place) for arm in (0, 1) for place in places]


def _noise_sd(of: Callable[[Sequence[FloatArray]], FloatArray], parts: list[_Part]) -> FloatArray:
    """Standard deviation of a result's noise: each released number moved by its own, both ways."""
    found = [part.noisy.value for part in parts]
    total = np.zeros(of(found).size)
    for k, part in enumerate(parts):
        sd = math.sqrt(part.noisy.variance)
        for place in part.moved():
            ends = []
            for side in (sd, -sd):
                values = [value.copy() for value in found]
                values[k][place] += side
                ends.append(of(values))
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
