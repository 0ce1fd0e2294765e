"""Noisy moments of covariates, outcome and treatment, and the linear models that they give.

1. Means and variances of the covariates are released, and columns standardised by them.
2. One matrix of products of z = (x, outcome, treatment, constant) is released, x standardised,
   outcome and treatment scaled. Rows that are too long are shortened as a whole, which is weighted
   least squares. (Their weights depend a little on the outcome too, so that slopes come out a
   little flat; the sum at the end corrects for wrong slopes.)
3. The rest is post-processing: the covariance of x pulled to a multiple of the identity by as much
   as noise explains, slopes of the outcome within arms, and the differences between arms, which
   are slopes of the log odds of treatment where covariates are normal in each arm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.estimators._centres import Centres, Residual
from dpeffects.estimators._posterior import NoisyMoments, Slopes, fit_slopes
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Asked, Curator
from dpeffects.privacy.moments import Gram
from dpeffects.privacy.rows import Block
from dpeffects.privacy.sets import Box, Cube

OUTCOME, TREATMENT, CONSTANT = 0.7, 0.7, 0.25
"""Sizes of outcome, treatment and constant in z, against that of the covariates."""
LONG = 0.8
"""What the covariates add to the largest squared length of z, each: the size of all the rest."""
WEIGHT, WEIGHT_SD = 0.92, 0.08
"""Mean and standard deviation over studies of the mean weight of rows after shortening."""
SPREAD = 0.2, 0.2
"""The same of the variance of outcomes within arms, in units of the clip."""
_SCALE = 0.8, 1.0
"""The same of the mean variance of standardised covariates after shortening."""
LEAST = 0.02
"""Least variance of a direction, against the mean of all."""


def squared_radius(columns: int, randomised: bool) -> float:
    """Squared length of z, at most."""
    treatment = 0.0 if randomised else TREATMENT**2
    return LONG * columns * (1.0 + OUTCOME**2 + treatment + CONSTANT**2)


def treatment_columns(arms: int) -> int:
    """Columns of z that tell the arm: one for two arms, otherwise one for each."""
    return 1 if arms == 2 else arms


@dataclass(frozen=True, eq=False)
class Standard:
    """Covariates in [0, 1] to mean 0 and variance 1, by released means and variances.

    ``variance_sd`` is the standard deviation of the noise in the released variances; ``variances``
    are these as they came out, where columns are standardised by no less than a twentieth of their
    range.
    """

    columns: IntArray
    means: FloatArray
    sds: FloatArray
    variance_sd: float = 0.0
    variances: FloatArray = field(default_factory=lambda: np.zeros(0))
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


def varying_columns(curator: Curator) -> IntArray:
    """Columns that are not constant by declaration."""
    return np.flatnonzero(np.array(curator.values[:-1]) != 1)


def ask_means(curator: Curator, share: str) -> Asked:
    """Ask for the means of the covariates; indicators need no variances beside them."""
    columns = varying_columns(curator)
    cube = Cube(np.zeros(columns.size), np.ones(columns.size))
    part = 0.5 if (np.array(curator.values)[columns] != 2).any() else 1.0
    return Asked("means of covariates", _Columns(columns), cube, None, share, part)


def release_standard(curator: Curator, noisy: Noisy, share: str) -> Standard:
    """Release the variances of columns that are not indicators; ``noisy`` are sums of all."""
    n, columns = curator.n, varying_columns(curator)
    prior, noise = 0.05, (noisy.sd / n) ** 2
    means = np.clip(0.5 + (noisy.value / n - 0.5) * prior / (prior + noise), 0.0, 1.0)
    seen = variances = np.maximum(means * (1.0 - means), 0.01)
    other, variance_sd = np.flatnonzero(np.array(curator.values)[columns] != 2), 0.0
    if other.size:
        squares = curator.sums(
            "variances of covariates",
            _SquaredDistances(columns[other], means[other]),
            Cube(np.zeros(other.size), np.full(other.size, 0.25)),
            share=share,
            part=0.5,
        )
        variance_sd = squares.sd / n
        variances[other] = _pulled(squares.value / n, variance_sd**2, variances[other])
        seen = variances.copy()
        seen[other] = np.minimum(squares.value / n, variances[other])
    return Standard(columns, means, np.sqrt(variances), variance_sd, seen)


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

    Outcomes are in units of the clip. ``centres`` are means of x for (treated, control) records,
    ``covariance`` is that of x within arms; ``offsets`` are what the means of the outcome missed,
    and ``unknown`` what is still not known of them.
    """

    n: int
    standard: Standard
    clip: float
    centres: FloatArray
    covariance: FloatArray
    outcome_variance: float
    outcome_slopes: FloatArray
    treatment_slopes: FloatArray
    slopes: Slopes
    offsets: FloatArray
    unknown: FloatArray

    @property
    def columns(self) -> int:
        """Number of covariates."""
        return self.standard.columns.size


@dataclass(frozen=True)
class _Moments:
    """The released matrix over the weight of all rows, by what its entries are products of.

    ``sd`` is the standard deviation of the noise in a product of two covariates; products with the
    outcome, the treatment and the constant have it divided by their size.
    """

    covariates: FloatArray
    with_outcome: FloatArray
    with_treatment: FloatArray
    with_constant: FloatArray
    outcome: FloatArray
    sd: float
    sizes: tuple[float, float, float]


def release_models(
    curator: Curator,
    standard: Standard,
    centres: Centres,
    clip: float,
    share: str,
    randomised: bool,
) -> Models:
    """Release the matrix, and read models from it."""
    n, pi, p = curator.n, centres.share, standard.columns.size
    seen = _release(curator, standard, centres, clip, share, randomised)
    in_outcome, in_treatment, in_constant = (seen.sd / size for size in seen.sizes)
    to_arms = 0.0 if randomised else max(pi, 1.0 - pi) / (pi * (1.0 - pi))
    between, between_sd = seen.with_treatment * to_arms, in_treatment * to_arms
    mean = seen.with_constant * reliable(seen.with_constant, in_constant)
    covariance, scale, kept = shrunk(seen.covariates - np.outer(mean, mean), seen.sd)
    real = between * reliable(between, between_sd)
    covariance = covariance - pi * (1.0 - pi) * np.outer(real, real)
    values, vectors = np.linalg.eigh(covariance)
    values = np.clip(values, LEAST * scale, p * scale)
    covariance = (vectors * values) @ vectors.T
    own_sd = math.sqrt(2.0) * in_outcome / seen.sizes[0]
    spread = min(max(combined(float(seen.outcome[0]), own_sd, *SPREAD), 0.01), 0.6)
    slopes = fit_slopes(
        NoisyMoments(
            variances=values,
            outcome=vectors.T @ seen.with_outcome,
            treatment=vectors.T @ between,
            outcome_noise=in_outcome**2,
            treatment_noise=between_sd**2,
            outcome_sampling=values * spread / n,
            treatment_sampling=values / (n * pi * (1.0 - pi)),
            entry_noise=kept * seen.sd**2,
            outcome_variance=spread,
            scale=scale,
        )
    )
    treatment = np.zeros(p) if randomised else vectors @ slopes.treatment
    shift = covariance @ treatment
    offsets, unknown = _offsets(seen, to_arms, pi, centres.unknown / clip)
    return Models(
        n=n,
        standard=standard,
        clip=clip,
        centres=mean + np.stack([(1.0 - pi) * shift, -pi * shift]),
        covariance=covariance,
        outcome_variance=spread,
        outcome_slopes=vectors @ slopes.outcome,
        treatment_slopes=treatment,
        slopes=slopes,
        offsets=offsets,
        unknown=clip * unknown,
    )


def _release(
    curator: Curator,
    standard: Standard,
    centres: Centres,
    clip: float,
    share: str,
    randomised: bool,
) -> _Moments:
    """Release the matrix and divide it by the weight of all rows, which it tells too."""
    p, n, pi = standard.columns.size, curator.n, centres.share
    length, radius = math.sqrt(LONG * p), math.sqrt(squared_radius(p, randomised))
    sizes = (OUTCOME * length, TREATMENT * length, CONSTANT * length)
    row = _Row(standard, Residual(centres.means), clip, None if randomised else pi, sizes)
    half = np.full(p + (2 if randomised else 3), radius)
    box = Box(-half, half, centre=0.0, radius=radius)
    released = curator.sums("moments", row, Gram(box), share=share)
    matrix = np.zeros((half.size, half.size))
    matrix[np.triu_indices(half.size)] = released.value
    matrix = matrix + np.triu(matrix, 1).T
    y, t, one = p, p + 1, half.size - 1
    if randomised:
        known, unit = matrix[one, one], sizes[2] ** 2
    else:
        known, unit = matrix[t, t], sizes[1] ** 2 * pi * (1.0 - pi) / max(pi, 1.0 - pi) ** 2
    own_sd, weight = math.sqrt(2.0) * released.sd / unit, min(max(known / unit, 0.5 * n), n)
    total = combined(weight, own_sd, WEIGHT * n, WEIGHT_SD * n)
    matrix /= total
    outcome = [matrix[y, y], 0.0 if randomised else matrix[y, t], matrix[y, one]]
    return _Moments(
        covariates=matrix[:p, :p],
        with_outcome=matrix[:p, y] / sizes[0],
        with_treatment=np.zeros(p) if randomised else matrix[:p, t] / sizes[1],
        with_constant=matrix[:p, one] / sizes[2],
        outcome=np.array(outcome) / sizes[0] / np.array(sizes),
        sd=released.sd / total,
        sizes=sizes,
    )


def _offsets(
    seen: _Moments, to_arms: float, pi: float, prior_sd: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """What the means of the arms missed, as the matrix tells it, and what is not known of it."""
    own, in_treatment, in_constant = seen.sizes
    design = np.array([[1.0, -1.0], [pi, 1.0 - pi]])
    told = np.array([seen.outcome[1] * to_arms, seen.outcome[2]])
    precision = np.array(
        [
            (own * in_treatment / (seen.sd * to_arms)) ** 2 if to_arms else 0.0,
            (own * in_constant / seen.sd) ** 2,
        ]
    )
    prior = np.diag(1.0 / np.clip(prior_sd, 1e-9, 0.5) ** 2)
    covariance = np.linalg.inv(design.T @ (design * precision[:, None]) + prior)
    return covariance @ (design.T @ (told * precision)), np.sqrt(np.diag(covariance))


def combined(one: float, sd: float, other: float, other_sd: float) -> float:
    """Mean of two numbers by their precisions."""
    return (one / sd**2 + other / other_sd**2) / (1.0 / sd**2 + 1.0 / other_sd**2)


def reliable(vector: FloatArray, sd: float) -> float:
    """Part of a vector's squared length that noise does not explain, of entries of about 1."""
    explained = vector.size * sd**2 / max(float(vector @ vector), 1e-300)
    return max(0.0, 1.0 - explained) / max(1.0, sd**2)


def shrunk(matrix: FloatArray, sd: float) -> tuple[FloatArray, float, float]:
    """A covariance matrix pulled to a multiple of the identity by as much as noise explains.

    Also that multiple, and the part of the rest that was kept.
    """
    p = len(matrix)
    mean = combined(float(np.trace(matrix)) / p, sd * math.sqrt(2.0 / p), *_SCALE)
    scale = min(max(mean, LEAST), 1.1)
    off = matrix - scale * np.eye(p)
    kept = max(0.0, 1.0 - p * (p + 1) * sd**2 / max(float((off**2).sum()), 1e-300))
    return scale * np.eye(p) + kept * off, scale, kept
