"""Ratios and odds of two released means, by inversion of tests.

A ratio r is in the interval where the hypothesis m1 - r m0 = 0 is not rejected by the distribution
of that
combination, noise included: Fieller's theorem with the distribution of `inference.intervals`. It
needs no
logarithm of a noisy mean, and an interval may end in infinity, where the data do not bound the
control mean away from zero.

Where the outcome is 0 or 1, variances are m (1 - m), times the factors of the design, at the means
that fit best under the hypothesis: the score test of Koopman (1984), and for odds that of Miettinen
and Nurminen (1985). A normal distribution around the estimate is too short to one side for rare
outcomes.
With noise the means that fit best may be 0; then they are taken as large as noise leaves likely.

All numbers here are released, and no function fails on any of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from statistics import NormalDist

from dpeffects.inference.estimate import ArmMeans, Estimate, Pair, Unavailable
from dpeffects.inference.intervals import Interval, check_conf_level, interval, p_value
from dpeffects.inference.noisy import ratio_of
from dpeffects.roots import root

_EVEN = 0.5
"""Where both means are the same, of r / (1 + r)."""
_NORMAL = NormalDist()


@dataclass(frozen=True)
class ScaleComparison:
    """Two means compared on a scale: a number, its interval, and the p-value of no effect."""

    value: float
    interval: Interval | Unavailable
    p_value: float | Unavailable


def is_risk(means: ArmMeans) -> bool:
    """Whether the means are those of an outcome of 0 and 1, by its declared type."""
    return means.design is not None and has_odds(means)


def has_odds(means: ArmMeans) -> bool:
    """Whether the means lie between 0 and 1, as those of 0 and 1 in a column of any type do."""
    return means.possible == (0.0, 1.0)


def ratio(means: ArmMeans, conf_level: float = 0.95) -> ScaleComparison:
    """The treated mean over the control mean, for an outcome that is not negative.

    Examples
    --------
    >>> from dpeffects.inference.estimate import MeansVariance, SamplingVariance
    >>> own = MeansVariance(SamplingVariance(0.5, 0.0, 1.0), 1.0, 1.0)
    >>> found = ratio(ArmMeans(30.0, 20.0, (own,)))
    >>> found.value, [round(end, 3) for end in found.interval]
    (1.5, [1.382, 1.633])
    """
    return _compared(means, False, conf_level)


def no_effect(means: ArmMeans) -> float | Unavailable:
    """The p-value of a ratio of 1 that goes with the interval of `ratio`."""
    missing = means.sampling
    return missing if isinstance(missing, Unavailable) else _tested(means, False)[1].p_value


def odds(means: ArmMeans, conf_level: float = 0.95) -> ScaleComparison:
    """The odds of the treated mean over those of the control mean, for an outcome of 0 and 1."""
    return _compared(means, True, conf_level)


def mean_interval(
    means: ArmMeans, treated: bool, conf_level: float = 0.95
) -> Interval | Unavailable:
    """Interval of one of the two means; of a risk by inversion of its score test (Wilson)."""
    alone = of_mean(means, treated)
    plain = interval(alone, conf_level)
    if not is_risk(means) or isinstance(plain, Unavailable):
        return plain
    tested = _Inverted.of(lambda m: mean_p_value(means, treated, m), alone.point)
    return Interval(*tested.ends(1.0 - conf_level), conf_level)


def mean_p_value(means: ArmMeans, treated: bool, null: float) -> float:
    """The p-value of the hypothesis that one of the two means is ``null``."""
    alone, pair = of_mean(means, treated), (1.0, 0.0) if treated else (0.0, 1.0)
    variance = variance_at(means, *pair, null, null) if is_risk(means) else None
    return _p(means.combined(*pair, variance), alone.value - alone.point + null)


def of_mean(means: ArmMeans, treated: bool) -> Estimate:
    """One of the two means as an estimate, within the range of the outcome."""
    alone = means.combined(*((1.0, 0.0) if treated else (0.0, 1.0)))
    return replace(alone, possible=means.possible)


def mean_noise(means: ArmMeans, treated: bool) -> float:
    """The noise of one of the two means over the most that a printed one has."""
    return ratio_of(of_mean(means, treated), share=is_risk(means))


def _compared(means: ArmMeans, by_odds: bool, conf_level: float) -> ScaleComparison:
    """Invert a test of r = q / (1 - q), q from 0 to 1."""
    check_conf_level(conf_level)
    value, tested = _tested(means, by_odds)
    plain = interval(means.combined(1.0, -1.0), conf_level)
    if isinstance(plain, Unavailable):
        return ScaleComparison(value, plain, plain)
    low, high = tested.ends(1.0 - conf_level)
    return ScaleComparison(value, Interval(_over(low), _over(high), conf_level), tested.p_value)


@lru_cache(maxsize=16)  # intervals at several levels and a p-value try the same hypotheses
def _tested(means: ArmMeans, by_odds: bool) -> tuple[float, _Inverted]:
    """A ratio, of the means or of their odds, and the test of it."""
    curve = _Odds() if by_odds else _Ratio.of(means)
    one, zero = (max(x, 0.0) for x in (means.treated, means.control))
    if by_odds:
        one, zero = min(one, 1.0), min(zero, 1.0)
        one, zero = one * (1.0 - zero), zero * (1.0 - one)
    value = one / zero if zero > 0.0 else math.inf if one > 0.0 else math.nan
    start = one / (one + zero) if one + zero > 0.0 else _EVEN
    return value, _Inverted.of(lambda q: _fits(means, curve, q), start)


def _over(q: float) -> float:
    return q / (1.0 - q) if q < 1.0 else math.inf


@dataclass(frozen=True)
class _Inverted:
    """A test of numbers from 0 to 1, turned into intervals and the p-value that goes with them.

    ``fits`` are p-values, ``best`` fits best. P-values are over that of the best, so that no level
    rejects all numbers. An interval goes from the lowest number that is not rejected to the
    highest; where both ends of the scale fit and the null hypothesis does not, it has that in it,
    and so the p-value is the larger of those of the null hypothesis and of the end beyond it.
    """

    fits: Callable[[float], float]
    best: float

    @classmethod
    def of(cls, fits: Callable[[float], float], start: float) -> _Inverted:
        """Begin with a number that fits, as a rule; others are tried where it does not."""
        fits = cache(fits)
        surely = fits(start) > 1.0 - 1e-9
        return cls(fits, start if surely else max((start, 0.0, _EVEN, 1.0), key=fits))

    def ends(self, level: float) -> Pair:
        """Ends of what is not rejected at this level."""
        level *= self.fits(self.best)
        return self._end(0.0, level), self._end(1.0, level)

    def _end(self, outside: float, level: float) -> float:
        """Where the test begins to reject, between an end of the scale and what fits best."""
        between = (_EVEN,) if min(outside, self.best) < _EVEN < max(outside, self.best) else ()
        tried = [outside, *between, self.best]
        if self.fits(outside) >= level:
            return outside
        rejected = max(k for k, q in enumerate(tried[:-1]) if self.fits(q) < level)
        pair = tried[rejected], tried[rejected + 1]
        return _root(lambda q: self.fits(q) - level, *pair)

    @property
    def p_value(self) -> float:
        """Of no effect: it is below a level exactly where the interval lacks the middle."""
        if self.best == _EVEN or not (top := self.fits(self.best)):
            return 1.0
        beyond = 0.0 if self.best > _EVEN else 1.0
        return min(1.0, max(self.fits(_EVEN), self.fits(beyond)) / top)


def _root(function: Callable[[float], float], start: float, end: float) -> float:
    """Where a function becomes positive between two numbers, or the end that it is closer to."""
    first, last = function(start), function(end)
    if first > 0.0 or last <= 0.0 or start == end:
        return start if first > 0.0 else end
    return root(function, start, end, xtol=1e-13, rtol=1e-10)


@dataclass(frozen=True)
class _Ratio:
    """Pairs of means up to ``high`` whose ratio is q / (1 - q), by their sum."""

    high: float

    @classmethod
    def of(cls, means: ArmMeans) -> _Ratio:
        return cls(means.possible[1] if means.possible else math.inf)

    def most(self, q: float) -> float:
        """The largest sum."""
        return self.high / max(q, 1.0 - q)

    def at(self, q: float, total: float) -> Pair:
        """The pair with this sum."""
        return q * total, (1.0 - q) * total

    def slope(self, q: float, pair: Pair) -> Pair:
        """How both grow with their sum."""
        return q, 1.0 - q


@dataclass(frozen=True)
class _Odds:
    """Pairs of means in [0, 1] whose odds have the ratio q / (1 - q), by their sum."""

    def most(self, q: float) -> float:
        """The largest sum."""
        return 2.0

    def at(self, q: float, total: float) -> Pair:
        """The pair with this sum: the root of a quadratic equation."""
        a, b, c = 1.0 - 2.0 * q, (1.0 - q) * (1.0 - total) + q * (1.0 + total), q * total
        below = b + math.sqrt(max(b * b + 4.0 * a * c, 0.0))
        one = min(max(2.0 * c / below if below > 0.0 else total / 2.0, 0.0), 1.0)
        return one, min(max(total - one, 0.0), 1.0)

    def slope(self, q: float, pair: Pair) -> Pair:
        """How both grow with their sum."""
        one, zero = (m * (1.0 - m) for m in pair)
        whole = one + zero
        return (one / whole, zero / whole) if whole > 0.0 else (q, 1.0 - q)


def _fits(means: ArmMeans, curve: _Ratio | _Odds, q: float) -> float:
    """The p-value of the hypothesis that a pair of the curve for q are the true means."""
    if isinstance(curve, _Ratio) and not is_risk(means):
        return _p(means.combined(1.0 - q, -q))
    pair, grows = _fitted(means, curve, q)
    normal = grows[1], -grows[0]
    null = normal[0] * pair[0] + normal[1] * pair[1]
    variance = variance_at(means, *normal, *pair) if is_risk(means) else None
    return _p(means.combined(*normal, variance), null)


def _p(combined: Estimate, null: float = 0.0) -> float:
    found = p_value(combined, null)
    return 1.0 if isinstance(found, Unavailable) else found


def _fitted(means: ArmMeans, curve: _Ratio | _Odds, q: float) -> tuple[Pair, Pair]:
    """The pair of a curve that fits the released means best, and how both grow along the curve.

    Best is where the score along the curve is 0. What noise in it leaves likely, within
    the range, is taken in its place.
    """
    noise, top = noise_covariance(means), curve.most(q)

    def along(total: float) -> tuple[Pair, Pair, Pair]:
        pair = curve.at(q, total)
        grows = curve.slope(q, pair)
        v1, v0, v10 = (x + y for x, y in zip(covariance_at(means, *pair), noise, strict=True))
        # the inverse times what grows, but for a factor
        return pair, grows, (v0 * grows[0] - v10 * grows[1], v1 * grows[1] - v10 * grows[0])

    def score(total: float) -> float:
        pair, _, weights = along(total)
        return weights[0] * (means.treated - pair[0]) + weights[1] * (means.control - pair[1])

    best = _root(score, top * (1.0 - 1e-12), top * 1e-12)
    _, grows, weights = along(best)
    whole = weights[0] * grows[0] + weights[1] * grows[1]
    n1, n0, n10 = noise
    square = weights[0] ** 2 * n1 + weights[1] ** 2 * n0 + 2.0 * weights[0] * weights[1] * n10
    sd = math.sqrt(max(square, 0.0)) / whole if whole > 0.0 else 0.0
    likely_pair = curve.at(q, within(best, min(sd, top), (0.0, top)))
    return likely_pair, curve.slope(q, likely_pair)


def noise_covariance(means: ArmMeans) -> tuple[float, float, float]:
    """Variances of the treated and control mean, and their covariance, by all but sampling."""
    pairs = [(math.sqrt(2.0) * a, math.sqrt(2.0) * b) for a, b in means.laplace]
    pairs += [*means.gaussian, *((part.treated, part.control) for part in means.parts)]
    return sum(a * a for a, _ in pairs), sum(b * b for _, b in pairs), sum(a * b for a, b in pairs)


def covariance_at(means: ArmMeans, treated: float, control: float) -> tuple[float, float, float]:
    """Sampling variances of two risks that are these, and their covariance.

    Where no design says them, those that were released.
    """
    if means.design is None:
        return _released_covariance(means)
    low, high = means.possible or (0.0, 1.0)
    one, zero = (max((m - low) * (high - m), 0.0) for m in (treated, control))
    design = means.design
    return design[0] * one, design[1] * zero, design[2] * math.sqrt(one * zero)


def _released_covariance(means: ArmMeans) -> tuple[float, float, float]:
    parts = () if isinstance(means.sampling, Unavailable) else means.sampling
    sizes = [max(part.variance.value, part.variance.noise_scale, 0.0) for part in parts]
    forms = [(part.treated, part.control, part.both) for part in parts]
    one, zero, both = (
        sum(size * form[k] for size, form in zip(sizes, forms, strict=True)) for k in range(3)
    )
    return one, zero, both


def variance_at(means: ArmMeans, a: float, b: float, treated: float, control: float) -> float:
    """Sampling variance of a times the treated plus b times the control mean, at these means."""
    one, zero, both = covariance_at(means, treated, control)
    return max(a * a * one + b * b * zero + 2.0 * a * b * both, 0.0)


def likely(means: ArmMeans) -> Pair:
    """Both means, where noise leaves them likely within their range."""
    one, zero, _ = noise_covariance(means)
    possible = means.possible or (-math.inf, math.inf)
    return (
        within(means.treated, math.sqrt(one), possible),
        within(means.control, math.sqrt(zero), possible),
    )


def within(mean: float, sd: float, possible: Pair) -> float:
    """Where a mean is to be expected that lies within a range, and is seen with a normal error.

    Examples
    --------
    >>> within(0.3, 0.0, (0.0, 1.0)), round(within(-1.0, 0.1, (0.0, 1.0)), 3)
    (0.3, 0.08)
    """
    low, high = possible
    start = min(max(mean, low), high)
    if not (sd > 1e-9 * (high - low) and math.isfinite(sd)):
        return start
    a, b = (low - start) / sd, (high - start) / sd
    mass = max(_NORMAL.cdf(b) - _NORMAL.cdf(a), 1e-12)
    return min(max(start + sd * (_NORMAL.pdf(a) - _NORMAL.pdf(b)) / mass, low), high)
