"""Noisy moments of covariates, outcome and treatment, and the linear models that they give.

1. Means and variances of the covariates are released, and columns standardised by them.
2. One matrix of products of z = (x, outcome, treatment, constant) is released, x standardised,
   outcome and treatment scaled. Rows that are too long are shortened as a whole, which is weighted
   least squares and no distortion.
3. The rest is post-processing: the covariance of x pulled to a multiple of the identity by as much
   as noise explains, slopes of the outcome within arms, and the differences between arms, which
   are slopes of the log odds of treatment where covariates are normal in each arm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.estimators._centres import Centres, Residual
from dpeffects.estimators._posterior import Noisy2, Slopes, fit_slopes
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.moments import Gram
from dpeffects.privacy.rows import Block
from dpeffects.privacy.sets import Box, Cube

OUTCOME, TREATMENT, CONSTANT = 0.7, 0.7, 0.25
"""Sizes of outcome, treatment and constant in z, against that of the covariates."""
LONG = 0.8
"""Squared length of x, for each covariate, at which rows begin to be shortened."""
_WEIGHT, _WEIGHT_SD = 0.92, 0.08
"""Mean and standard deviation over studies of the mean weight of rows after shortening."""
_LEAST = 0.02
"""Least variance of a direction, against the mean of all."""


def squared_radius(columns: int, randomised: bool) -> float:
    """Squared length of z, at most."""
    treatment = 0.0 if randomised else TREATMENT**2
    return LONG * columns * (1.0 + OUTCOME**2 + treatment + CONSTANT**2)


@dataclass(frozen=True, eq=False)
class Standard:
    """Covariates in [0, 1] to mean 0 and variance 1, by released means and variances."""

    columns: IntArray
    means: FloatArray
    sds: FloatArray
    reads: ClassVar[tuple[str, ...]] = ("covariates",)

    def __call__(self, rows: Block) -> FloatArray:
        """Standardised columns of some rows."""
        out = np.empty((rows.size, self.columns.size), order="F")
        for j, k in enumerate(self.columns):
            np.subtract(rows.covariates[:, k], self.means[j], out=out[:, j])
            out[:, j] *= 1.0 / self.sds[j]
        return out

    def index(self, rows: Block, slopes: FloatArray) -> FloatArray:
        """x'slopes, column by column: a row's value is its own."""
        total = np.zeros(rows.size)
        for k, mean, weight in zip(self.columns, self.means, slopes / self.sds, strict=True):
            total += (rows.covariates[:, k] - mean) * weight
        return total


@dataclass(frozen=True, eq=False)
class _Columns:
    """Some covariates."""

    columns: IntArray
    reads: ClassVar[tuple[str, ...]] = ("covariates",)

    def __call__(self, rows: Block) -> FloatArray:
        """Columns of some rows."""
        return rows.covariates[:, self.columns]


@dataclass(frozen=True, eq=False)
class _SquaredDistances:
    """Squares of the distances of covariates from known means."""

    columns: IntArray
    means: FloatArray
    reads: ClassVar[tuple[str, ...]] = ("covariates",)

    def __call__(self, rows: Block) -> FloatArray:
        """Squares of some rows."""
        off: FloatArray = rows.covariates[:, self.columns] - self.means
        return off * off


def release_standard(curator: Curator, share: str) -> Standard:
    """Release means, and the variances of columns that are not indicators."""
    n, values = curator.n, np.array(curator.values[:-1])
    columns = np.flatnonzero(values != 1)
    noisy = curator.sums(
        "means of covariates",
        _Columns(columns),
        Cube(np.zeros(columns.size), np.ones(columns.size)),
        share=share,
        part=0.5,
    )
    prior, noise = 0.05, (noisy.sd / n) ** 2
    means = np.clip(0.5 + (noisy.value / n - 0.5) * prior / (prior + noise), 0.0, 1.0)
    variances = np.maximum(means * (1.0 - means), 0.01)
    other = np.flatnonzero(values[columns] != 2)
    if other.size:
        distances = _SquaredDistances(columns[other], means[other])
        squares = curator.sums(
            "variances of covariates",
            distances,
            Cube(np.zeros(other.size), np.full(other.size, 0.25)),
            share=share,
            part=0.5,
        )
        variances[other] = _pulled(squares.value / n, (squares.sd / n) ** 2, variances[other])
    return Standard(columns, means, np.sqrt(variances))


def _pulled(seen: FloatArray, noise: float, most: FloatArray) -> FloatArray:
    """Variances of columns, pulled to the mean of all by as much as noise explains."""
    k = seen.size
    mean = (seen.mean() * 0.0025 + 0.0625 * noise / k) / (0.0025 + noise / k)
    mean = float(np.clip(mean, 0.0075, 0.25))
    spread = max(float(seen.var()) * k / max(k - 1, 1) - noise, (0.1 * mean) ** 2)
    spread = (spread * k + 0.00125 * 4) / (k + 4)
    pulled = mean + (seen - mean) * spread / (spread + noise)
    return np.clip(pulled, max(0.0025, min(0.5 * math.sqrt(noise), 0.5 * mean)), most + 0.005)


@dataclass(frozen=True, eq=False)
class _Row:
    """z = (x, outcome, treatment, constant) of a record."""

    standard: Standard
    residual: Residual
    clip: float
    share: float | None
    sizes: tuple[float, float, float]
    reads: ClassVar[tuple[str, ...]] = ("treated", "outcome", "covariates")

    def __call__(self, rows: Block) -> tuple[FloatArray, ...]:
        """Rows of z; treatment is left out where it was assigned by chance."""
        outcome, treatment, constant = self.sizes
        y = outcome * np.clip(self.residual(rows) / self.clip, -1.0, 1.0)
        ones = np.full(rows.size, constant)
        if self.share is None:
            return self.standard(rows), y, ones
        t = (rows.treated - self.share).astype(np.float64)
        t *= treatment / max(self.share, 1.0 - self.share)
        return self.standard(rows), y, t, ones


@dataclass(frozen=True)
class Models:
    """Linear models of outcome and treatment in standardised covariates, from noisy moments.

    Outcomes are in units of the clip. ``centres`` are means of x by arm, ``offsets`` what the means
    of the outcome missed, ``covariance`` is that of x within arms. ``centres_known`` has the means
    of the outcome with what the matrix told about them.
    """

    standard: Standard
    clip: float
    centres: FloatArray
    offsets: FloatArray
    covariance: FloatArray
    outcome_variance: float
    outcome_slopes: FloatArray
    treatment_slopes: FloatArray
    slopes: Slopes
    unknown: FloatArray

    @property
    def columns(self) -> int:
        """Number of covariates."""
        return self.standard.columns.size


def release_models(
    curator: Curator,
    standard: Standard,
    centres: Centres,
    clip: float,
    share: str,
    randomised: bool,
) -> Models:
    """Release the matrix, and read models from it."""
    p, n, pi = standard.columns.size, curator.n, centres.share
    length = math.sqrt(LONG * p)
    sizes = (OUTCOME * length, TREATMENT * length, CONSTANT * length)
    row = _Row(standard, Residual(centres.means), clip, None if randomised else pi, sizes)
    radius = math.sqrt(squared_radius(p, randomised))
    half = np.full(p + (2 if randomised else 3), radius)
    released = curator.sums(
        "moments", row, Gram(Box(-half, half, centre=0.0, radius=radius)), share=share
    )
    matrix = np.zeros((half.size, half.size))
    matrix[np.triu_indices(half.size)] = released.value
    matrix = matrix + np.triu(matrix, 1).T
    sd, y, last = released.sd, p, half.size - 1
    wy, wt, w1 = sizes
    most = max(pi, 1.0 - pi)
    if randomised:
        weight, weight_sd = matrix[last, last] / w1**2, math.sqrt(2.0) * sd / w1**2
    else:
        k = most**2 / (pi * (1.0 - pi)) / wt**2
        weight, weight_sd = matrix[p + 1, p + 1] * k, math.sqrt(2.0) * sd * k
    total = _combined(min(max(weight, 0.5 * n), n), weight_sd, _WEIGHT * n, _WEIGHT_SD * n)
    spread = float(np.clip(matrix[y, y] / wy**2 / total, 0.01, 0.6))
    mean = matrix[:p, last] / w1 / total
    mean = mean * _reliable(mean, sd / w1 / total)
    within, scale, kept = _shrunk(matrix[:p, :p] / total - np.outer(mean, mean), sd / total, p)
    along = matrix[:p, y] / wy / total
    noise = sd / wy / total
    if randomised:
        between, between_sd = np.zeros(p), 0.0
    else:
        to_arms = most / (pi * (1.0 - pi)) / wt / total
        between, between_sd = matrix[:p, p + 1] * to_arms, sd * to_arms
        real = between * _reliable(between, between_sd)
        within = within - pi * (1.0 - pi) * np.outer(real, real)
    values, vectors = np.linalg.eigh(within)
    values = np.maximum(values, _LEAST * scale)
    within = (vectors * values) @ vectors.T
    slopes = fit_slopes(
        Noisy2(
            variances=values,
            outcome=vectors.T @ along,
            treatment=vectors.T @ between,
            outcome_noise=noise**2,
            treatment_noise=between_sd**2,
            outcome_sampling=values * spread / n,
            treatment_sampling=values / (n * pi * (1.0 - pi)),
            entry_noise=kept * (sd / total) ** 2,
            outcome_variance=spread,
            scale=scale,
        )
    )
    b, a = vectors @ slopes.outcome, vectors @ slopes.treatment
    shift = within @ a
    prior = np.minimum(centres.unknown / clip, 0.5)
    if randomised:
        seen, design = np.array([matrix[y, last] / w1]), np.array([[pi, 1.0 - pi]])
        seen_sd = np.array([sd / w1])
    else:
        step = most / (pi * (1.0 - pi)) / wt
        seen = np.array([matrix[y, p + 1] * step, matrix[y, last] / w1])
        seen_sd = np.array([sd * step, sd / w1])
        design = np.array([[1.0, -1.0], [pi, 1.0 - pi]])
    seen, seen_sd = seen / wy / total, seen_sd / wy / total
    precision = design.T @ (design / seen_sd[:, None] ** 2) + np.diag(
        1.0 / np.maximum(prior, 1e-9) ** 2
    )
    cov = np.linalg.inv(precision)
    offsets = cov @ (design.T @ (seen / seen_sd**2))
    return Models(
        standard=standard,
        clip=clip,
        centres=mean + np.stack([(1.0 - pi) * shift, -pi * shift]),
        offsets=offsets,
        covariance=within,
        outcome_variance=spread,
        outcome_slopes=b,
        treatment_slopes=np.zeros(p) if randomised else a,
        slopes=slopes,
        unknown=clip * np.sqrt(np.diag(cov)),
    )


def _combined(one: float, sd: float, other: float, other_sd: float) -> float:
    """Mean of two numbers by their precisions."""
    return (one / sd**2 + other / other_sd**2) / (1.0 / sd**2 + 1.0 / other_sd**2)


def _reliable(vector: FloatArray, sd: float) -> float:
    """Part of a vector's squared length that noise does not explain."""
    return max(0.0, 1.0 - vector.size * sd**2 / max(float(vector @ vector), 1e-300))


def _shrunk(matrix: FloatArray, sd: float, p: int) -> tuple[FloatArray, float, float]:
    """A covariance matrix pulled to a multiple of the identity by as much as noise explains.

    Also that multiple, and the part of the rest that was kept.
    """
    scale = float(np.clip(np.trace(matrix) / p, _LEAST * LONG, LONG))
    off = matrix - scale * np.eye(p)
    kept = max(0.0, 1.0 - p * (p + 1) * sd**2 / max(float((off**2).sum()), 1e-300))
    return scale * np.eye(p) + kept * off, scale, kept
