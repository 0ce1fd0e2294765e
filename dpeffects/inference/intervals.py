"""Intervals, p-values and standard errors for the effect, from released values only.

The error of an estimate is a normal sampling error plus independent Laplace terms and, where a
delta was spent, Gaussian noise, plus further normal parts; the distribution used here is that of
the sum.
The sampling variance is itself known only through a noisy release, so the distribution is averaged
over the variances that the release leaves plausible (`_plausible_variances`).

An interval lies in the range that an effect can have. It is taken around the estimate after that
was moved into the range, which brings it closer to the truth, never further away, and is then cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from numbers import Real
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dpeffects.errors import OptionError, quoted, refusal
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable
from dpeffects.roots import root

Floats = npt.NDArray[np.float64]

_STEP, _ANGLE, _HEIGHT = 0.06, math.pi / 8, 2.5
_PATH = np.arange(0.0, 15.0, _STEP) + 1j * _ANGLE
NO_TEST = refusal("association_no_test")
_ALPHA = 0.1
"""A level up to it is what other packages call alpha: an interval that hardly ever holds."""
_CELLS = 2**20  # complex numbers held at once when many points are asked for


@dataclass(frozen=True)
class Interval:
    """A confidence interval, which is a pair of numbers wherever one is wanted.

    Examples
    --------
    >>> interval = Interval(1.0, 3.0, 0.95)
    >>> low, high = interval
    >>> low, interval[1], np.array(interval)
    (1.0, 3.0, array([1., 3.]))
    """

    lower: float
    upper: float
    conf_level: float

    def __iter__(self) -> Iterator[float]:
        return iter((self.lower, self.upper))

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> float:
        return (self.lower, self.upper)[index]

    def __str__(self) -> str:
        return f"[{self.lower:.6g}, {self.upper:.6g}] ({100 * self.conf_level:.6g} %)"


class ErrorDistribution(Protocol):
    """The distribution of an error of either sign, by the chance of more than ``x``, for x >= 0."""

    @property
    def unit(self) -> float:
        """Its size; 0 where there is no error."""

    def tail(self, x: float, /) -> Any:
        """Chance of an error above x."""

    def upper_point(self, tail: float, /) -> float:
        """The x that is exceeded with this chance."""


class SymmetricDistribution:
    """A symmetric distribution around zero, by its characteristic function above the real line.

    The upper tail is the Gil-Pelaez integral (i / 2 pi) int exp(itx) phi(t) / t dt, moved off the
    real line onto the hyperbola t = R sinh(u + i pi/8). There exp(itx) decays for every x >= 0,
    the normal factor never grows, and all poles i / b_j of Laplace terms stay above the path
    because R <= 1 / max(b). In u the integrand is smooth on the scale 1 whatever the ratio of the
    scales is, so the trapezoidal rule with 250 points is accurate to about 1e-12 for any scales.

    ``nodes`` are points t in units of 1 / ``unit``, and ``kernel`` the integrand there but for the
    factor exp(itx), times its quadrature weight.
    """

    unit: float
    nodes: npt.NDArray[np.complex128]
    kernel: npt.NDArray[np.complex128]

    def tail(self, x: npt.ArrayLike) -> Floats:
        """Return the probability of an error above ``x``, for x >= 0."""
        points = np.asarray(x, dtype=float)
        if self.unit == 0.0:
            return np.zeros_like(points)
        flat = np.minimum(points.ravel() / self.unit, 1e9)  # the tail is 0 well before
        rows = max(1, _CELLS // self.nodes.size)
        parts = [
            (np.exp(1j * np.multiply.outer(flat[i : i + rows], self.nodes)) @ self.kernel).real
            for i in range(0, flat.size, rows)
        ]
        found: Floats = np.concatenate([*parts, np.empty(0)])
        return found.clip(0.0, 0.5).reshape(points.shape)

    def cdf(self, x: npt.ArrayLike) -> Floats:
        """Return the distribution function; a distribution without spread jumps at zero."""
        points = np.asarray(x, dtype=float)
        upper = self.tail(np.abs(points))
        if self.unit == 0.0:
            return np.where(points >= 0.0, 1.0, 0.0)
        return np.where(points >= 0.0, 1.0 - upper, upper)

    def upper_point(self, tail: float) -> float:
        """Return the x >= 0 exceeded with probability ``tail`` (0 <= tail <= 1/2)."""
        if float(self.tail(0.0)) <= tail:
            return 0.0
        if tail == 0.0:
            return math.inf
        high = self.unit
        while float(self.tail(high)) > tail:
            high *= 2.0

        def gap(x: float) -> float:
            return float(self.tail(x)) - tail

        return root(gap, 0.0, high, xtol=1e-13 * self.unit)


@dataclass(frozen=True)
class EstimateWithDistribution(Estimate):
    """An estimate whose error has a ``dist`` that its parts do not say, or none, and why."""

    dist: ErrorDistribution | Unavailable = field(default=Unavailable(""), compare=False)


class _Mixture(SymmetricDistribution):
    """The distribution of N(0, v) + sum of Laplace(b_j), averaged over weighted variances v."""

    def __init__(self, variances: Floats, weights: Floats, laplace: Sequence[float]) -> None:
        scales, counts = np.unique(np.asarray(laplace, dtype=float), return_counts=True)
        largest = float(scales[-1]) if scales.size else 0.0
        self.unit = max(math.sqrt(float(variances.max())), largest)
        self.nodes = self.kernel = np.empty(0, dtype=complex)
        if self.unit == 0.0:
            return
        scales, normal = scales / self.unit, (np.sqrt(variances) / self.unit) ** 2
        spread = np.sqrt(normal + 2.0 * float(counts @ scales**2))
        live = spread > 0.0
        normal, spread = normal[live][:, None], spread[live][:, None]
        nodes = path(spread, largest / self.unit)
        log_phi = -0.5 * normal * nodes**2
        for scale, count in zip(scales, counts, strict=True):
            log_phi -= count * np.log1p((scale * nodes) ** 2)
        kernel = tail_weights() * np.exp(log_phi) * weights[live][:, None]
        matters = np.abs(kernel) > 1e-18
        self.nodes, self.kernel = nodes[matters], kernel[matters]


def path(spread: npt.ArrayLike, largest: float) -> npt.NDArray[np.complex128]:
    """Return the path for a distribution of this spread with a largest Laplace scale."""
    radius = _HEIGHT / (math.sin(_ANGLE) * np.asarray(spread, dtype=float))
    if largest > 0.0:
        radius = np.minimum(radius, 1.0 / largest)
    return radius * np.sinh(_PATH)


def tail_weights() -> npt.NDArray[np.complex128]:
    """Return the weights of the tail integral, i dt / (2 pi t) on both halves of a `path`."""
    weights = 1j * _STEP / math.pi / np.tanh(_PATH)
    weights[0] *= 0.5
    return weights


def cdf(x: npt.ArrayLike, variance: float, laplace: Sequence[float] = ()) -> Floats:
    """Distribution function of N(0, variance) plus independent Laplace terms.

    The result has the shape of ``x``; variance and scales may be zero.

    Examples
    --------
    >>> round(float(cdf(1.959964, 1.0)), 6)
    0.975
    >>> round(float(cdf(2.0, 0.0, [1.0])), 6)  # 1 - exp(-2) / 2
    0.932332
    """
    return _plain(variance, laplace).cdf(x)


def interval(estimate: Estimate, conf_level: float = 0.95) -> Interval | Unavailable:
    """Confidence interval for the effect: sampling error, noise, and the variance's own noise.

    Returns `Unavailable`, with its reason, when no sampling variance was released.

    Notes
    -----
    The unknown variance v is averaged out with the prior (v/s)^(-1/2) + v/(2s) on [0, largest],
    where s is the Laplace scale of the released variance. Expanding the coverage for s << v, the
    prior proportional to v is the one whose intervals keep their level to second order; the first
    term, flat on the standard deviation, takes over where v is small against s. Coverage of nominal
    95 % intervals, in per cent, and their mean width against intervals that know v (computed by
    quadrature; "Laplace" has one Laplace term in the estimate with scale sqrt(v)):

    ================== ===== ===== ===== ===== ===== =====
    s / v                0.1  0.25   0.5     1     2     3
    ================== ===== ===== ===== ===== ===== =====
    coverage           94.99 94.85 95.72 98.23 99.78 99.97
    width               1.01  1.04  1.13  1.35  1.76  2.10
    coverage, Laplace  95.04 95.20 95.57 96.46 97.81 98.60
    width, Laplace      1.00  1.02  1.04  1.12  1.28  1.42
    flat prior         94.77 94.17 95.40 98.38 99.85 99.99
    ================== ===== ===== ===== ===== ===== =====

    The last line is the coverage under a flat prior, at about the same width. Where the noise in
    the variance exceeds the variance, a release cannot tell small variances apart, and intervals
    that keep their level for all of them must be too wide for the smallest: the shortest rule that
    covers at least 95 % at every s / v still covers 99.4 % at s / v = 3.

    Examples
    --------
    >>> released = Estimate(2.0, SamplingVariance(1.0, 0.0, 9.0))
    >>> low, high = interval(released)
    >>> round(low, 3), round(high, 3)
    (0.04, 3.96)
    """
    tail = (1.0 - check_conf_level(conf_level)) / 2.0
    dist = distribution_of(estimate)
    if isinstance(dist, Unavailable):
        return dist
    return around(estimate, dist.upper_point(tail), conf_level)


def noise_interval(estimate: Estimate, conf_level: float = 0.95) -> Interval | Unavailable:
    """Interval for what the estimate would be without privacy noise; no sampling error in it.

    It says how far the noise can have moved the number; it is not an interval for the effect.
    """
    tail = (1.0 - check_conf_level(conf_level)) / 2.0
    parts = [part.variance for part in estimate.parts if part.noise]
    if not _finite(estimate.value, estimate.gaussian, *estimate.laplace, *parts):
        return Unavailable("the estimate or its noise scale is not a finite number")
    dist = _plain(estimate.gaussian + sum(parts), estimate.laplace)
    return around(estimate, dist.upper_point(tail), conf_level)


def around(estimate: Estimate, half: float, conf_level: float) -> Interval:
    """An interval of this half-width around the estimate, cut to what is possible."""
    low, high = estimate.possible or (-math.inf, math.inf)
    lower, upper = estimate.point - half, estimate.point + half
    return Interval(max(lower, low), min(upper, high), conf_level)


def p_value(estimate: Estimate, null: float = 0.0) -> float | Unavailable:
    """Two-sided p-value that the effect is ``null``; same distribution as `interval`.

    An association has none: it differs from zero without any effect where there is confounding.
    """
    if not _finite(null):
        raise OptionError(f"null is a finite number, got {null!r}")
    if estimate.associated:
        return Unavailable(NO_TEST)
    dist = distribution_of(estimate)
    if isinstance(dist, Unavailable):
        return dist
    distance = abs(estimate.point - null)
    return min(1.0, 2.0 * float(dist.tail(distance))) if distance > 0.0 else 1.0


def sampling_variance(estimate: Estimate) -> float | Unavailable:
    """Sampling variance: the mean of the variances that the noisy release leaves plausible.

    Close to the released value where its noise is small; never negative, even where the released
    value is, because then it is about as large as its noise.
    """
    sampling = estimate.sampling
    if isinstance(sampling, Unavailable):
        return sampling
    if not _finite(sampling.value, sampling.noise_scale) or math.isnan(sampling.largest):
        return Unavailable("the released variance is not a finite number")
    variances, weights = _plausible_variances(sampling)
    return float(variances @ weights)


def total_variance(estimate: Estimate) -> float | Unavailable:
    """Variance of all parts of the error together; never below the noise variance."""
    if isinstance(estimate, EstimateWithDistribution):
        return estimate.dist if isinstance(estimate.dist, Unavailable) else estimate.dist.unit**2
    sampling = sampling_variance(estimate)
    if isinstance(sampling, Unavailable):
        return sampling
    return sampling + estimate.noise_variance + estimate.bias_variance


def std_error(estimate: Estimate) -> float | Unavailable:
    """Square root of `total_variance`."""
    total = total_variance(estimate)
    return total if isinstance(total, Unavailable) else math.sqrt(total)


def _plain(variance: float, laplace: Sequence[float]) -> SymmetricDistribution:
    """The distribution at a known variance."""
    if not _finite(variance, *laplace) or variance < 0.0 or min(laplace, default=0.0) < 0.0:
        raise OptionError("variance and Laplace scales are finite and not negative")
    return _Mixture(np.array([float(variance)]), np.ones(1), laplace)


def distribution_of(estimate: Estimate) -> ErrorDistribution | Unavailable:
    """The distribution of the estimate's error, or why there is none."""
    if isinstance(estimate, EstimateWithDistribution):
        return estimate.dist
    sampling = estimate.sampling
    if isinstance(sampling, Unavailable):
        return sampling
    parts = [part.variance for part in estimate.parts]
    released = (sampling.value, sampling.noise_scale, estimate.gaussian, *estimate.laplace)
    if not _finite(estimate.value, *released, *parts) or math.isnan(sampling.largest):
        return Unavailable("the estimate or its released variance is not a finite number")
    return _averaged(sampling, estimate.gaussian + sum(parts), tuple(estimate.laplace))


@lru_cache(
    maxsize=16
)  # an interval, a p-value and a test of one estimate have the same distribution
def _averaged(
    sampling: SamplingVariance, normal: float, laplace: tuple[float, ...]
) -> SymmetricDistribution:
    """The distribution with the unknown variance averaged out."""
    variances, weights = _plausible_variances(sampling)
    return _Mixture(variances + normal, weights, laplace)


def _plausible_variances(sampling: SamplingVariance) -> tuple[Floats, Floats]:
    """Variances that fit one release, and their weights; those that do not matter are left out."""
    if sampling.noise_scale == 0.0:
        return np.array([min(max(sampling.value, 0.0), max(sampling.largest, 0.0))]), np.ones(1)
    released, scale, largest = np.array(
        [[sampling.value], [sampling.noise_scale], [sampling.largest]], dtype=float
    )
    variances, weights = (row[0] for row in plausible_variances(released, scale, largest))
    keep = weights > 1e-13 * weights.max()
    return variances[keep], weights[keep] / weights[keep].sum()


def plausible_variances(
    released: Floats, scale: Floats, largest: Floats, points: int = 32
) -> tuple[Floats, Floats]:
    """Variances that fit a release and their weights: quadrature over the standard deviation.

    One row for each release, with ``points`` variances to each side of it; 20 of them give the mean
    to nine digits. The density is prior(v) exp(-|released - v| / scale) on [0, largest];
    `interval` gives the prior.
    """
    s, top = scale[:, None], np.maximum(largest, 0.0)[:, None]
    peak = released[:, None].clip(0.0, top)
    low, high = np.maximum(peak - 32.0 * s, 0.0), np.minimum(peak + 32.0 * s, top)
    known = low >= high  # one variance only: all points lie on it
    low, high, s = np.where(known, peak, low), np.where(known, peak, high), np.where(known, 1.0, s)
    at, worth = _gauss(points)
    corner, half = np.sqrt(peak), points
    root = np.empty((released.size, 2 * half))
    weight = np.empty_like(root)
    for part, left, right in (
        (slice(None, half), np.sqrt(low), corner),
        (slice(half, None), corner, np.sqrt(high)),
    ):
        root[:, part] = left + (right - left) * at
        weight[:, part] = np.where(known, 1.0, right - left) * worth
    variances = root * root
    root /= np.sqrt(s)  # from here on in place: a hundred thousand releases are combined like this
    prior = root * root
    prior *= root
    weight *= 1.0 + 0.5 * prior  # prior(v) dv, up to a factor
    distance = np.abs(variances - peak)
    distance /= -s
    weight *= np.exp(distance, out=distance)
    weight /= weight.sum(axis=1, keepdims=True)
    return variances, weight


@lru_cache
def _gauss(points: int) -> tuple[Floats, Floats]:
    """Gauss-Legendre quadrature on [0, 1], up to a factor in the weights."""
    at, worth = np.polynomial.legendre.leggauss(points)
    return (at + 1.0) / 2.0, worth


def check_conf_level(conf_level: float) -> float:
    """Return a confidence level between 0 and 1."""
    number = isinstance(conf_level, Real) and not isinstance(conf_level, bool)
    if not number or not 0.0 < conf_level < 1.0:
        raise OptionError(refusal("conf_level", got=quoted(conf_level)))
    if conf_level <= _ALPHA:
        raise OptionError(refusal("alpha", level=1.0 - conf_level, alpha=conf_level))
    return float(conf_level)


def _finite(*numbers: float) -> bool:
    return all(isinstance(x, Real) and math.isfinite(x) for x in numbers)
