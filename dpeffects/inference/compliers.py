"""The effect among compliers, from effects of an instrument: Wald's ratio, with Fieller's interval.

Let z be the instrument, d the treatment and y the outcome. The effect among compliers is the tau at
which z has no effect on y - tau d. Two effects of z are released: on y - start d, at a tau that is
about right, and on d. Those on y - tau d follow for every tau, with their joint distribution, and
the interval has all tau for which the hypothesis of no effect is not rejected. It needs no normal
distribution
of a ratio, so that it holds where the instrument is weak; then it may have two pieces, or be
everything that an effect can be.

All numbers here are released, and no function fails on any of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpeffects.inference.estimate import ErrorPart, Estimate, Pair, SamplingVariance, Unavailable
from dpeffects.inference.intervals import Interval, check_conf_level, interval, p_value, std_error
from dpeffects.roots import root

STRONG = 3.2
"""An instrument is weak where its effect on treatment is less than so many standard errors: this
is an F of about 10."""
_TRIED = 17
"""Values over the possible range that are tried; ends of pieces are found between them."""


@dataclass(frozen=True)
class Wald:
    """Released effects of an instrument on the outcome less ``start`` times treatment, and on that.

    ``covariance`` is the sampling covariance of the two, as released, and ``covariance_scale`` that
    of the noise in it. ``possible`` are the ends of what an effect on the outcome can be.

    Examples
    --------
    >>> of_outcome = Estimate(0.02, SamplingVariance(1e-4, 0.0, 1.0))
    >>> of_treatment = Estimate(0.4, SamplingVariance(1e-4, 0.0, 1.0))
    >>> found = Wald(of_outcome, of_treatment, 0.0, 0.0, 0.1, (-1.0, 1.0))
    >>> round(found.value, 3), [round(end, 3) for end in found.region()[0]]
    (0.15, [0.101, 0.199])
    """

    residual: Estimate
    first: Estimate
    covariance: float
    covariance_scale: float
    start: float
    possible: Pair

    def at(self, late: float) -> Estimate:
        """The effect of the instrument on the outcome less ``late`` times treatment."""
        far, one, other = late - self.start, self.residual, self.first
        sampling: SamplingVariance | Unavailable
        if isinstance(one.sampling, Unavailable) or isinstance(other.sampling, Unavailable):
            sampling = Unavailable("no sampling variance was released")
        else:
            a, b = one.sampling, other.sampling
            scales = (a.noise_scale, 2.0 * far * self.covariance_scale, far**2 * b.noise_scale)
            largest = math.sqrt(max(a.largest, 0.0)) + abs(far) * math.sqrt(max(b.largest, 0.0))
            value = a.value - 2.0 * far * self.covariance + far**2 * b.value
            sampling = SamplingVariance(value, math.hypot(*scales), largest**2)
        more = (ErrorPart(x.name, far**2 * x.variance, x.noise) for x in other.parts)
        return Estimate(
            value=one.value - far * other.value,
            sampling=sampling,
            laplace=(*one.laplace, *(abs(far) * b for b in other.laplace if far)),
            gaussian=one.gaussian + far**2 * other.gaussian,
            parts=(*one.parts, *(part for part in more if part.variance > 0.0)),
            identification=one.identification,
        )

    @property
    def value(self) -> float:
        """The effect among compliers, within what it can be."""
        low, high = self.possible
        a, b = self.residual.value, self.first.value
        found = self.start + a / b if b else math.copysign(math.inf, a) if a else self.start
        return min(max(found, low), high)

    @property
    def std_error(self) -> float | Unavailable:
        """Its standard error, by the delta method: to be used where the instrument is strong."""
        found, by = std_error(self.at(self.value)), abs(self.first.value)
        if isinstance(found, Unavailable):
            return found
        if not found < math.inf or not by > 0.0:
            return Unavailable("the instrument has no effect on treatment")
        return found / by

    @property
    def strength(self) -> float | Unavailable:
        """The effect on treatment in its standard errors; its square is like an F statistic."""
        found = std_error(self.first)
        if isinstance(found, Unavailable):
            return found
        return self.first.value / found if found > 0.0 else math.inf

    @property
    def weak(self) -> bool:
        """Whether the instrument may have little or no effect on treatment."""
        strength = self.strength
        return isinstance(strength, Unavailable) or not abs(strength) >= STRONG

    def p_value(self, late: float = 0.0) -> float | Unavailable:
        """Two-sided p-value of the hypothesis that the effect among compliers is ``late``."""
        return p_value(self.at(late))

    def _fits(self, late: float) -> float:
        found = p_value(replace(self.at(late), identification=""))
        return 1.0 if isinstance(found, Unavailable) else found

    def region(self, conf_level: float = 0.95) -> tuple[Interval, ...]:
        """All effects that are not rejected, in up to a few pieces."""
        level = check_conf_level(conf_level)
        if level not in self._regions:
            self._regions[level] = self._not_rejected(level)
        return self._regions[level]

    @cached_property
    def _regions(self) -> dict[float, tuple[Interval, ...]]:
        """What was computed so far."""
        return {}

    @cached_property
    def _tried(self) -> dict[float, float]:
        """Effects that are tried in their order, no effect among them, and their p-values."""
        tried = {*np.linspace(*self.possible, _TRIED).tolist(), self.value, 0.0}
        return {x: self._fits(x) for x in sorted(tried)}

    @property
    def no_effect(self) -> float | Unavailable:
        """P-value of no effect among compliers, by the interval from lowest to highest.

        It is below alpha exactly where that interval, at 1 - alpha, lacks 0. Where a weak
        instrument leaves two pieces with 0 between them, `p_value` is less: that of no effect on
        the outcome.
        """
        if isinstance(found := self.p_value(), Unavailable):
            return found
        fits, top = self._tried.items(), max(self._tried.values())
        sides = [max(p for x, p in fits if sign * x >= 0.0) for sign in (-1.0, 1.0)]
        return min(sides) / top if top else 1.0

    def _not_rejected(self, conf_level: float) -> tuple[Interval, ...]:
        if isinstance(interval(replace(self.residual, identification="")), Unavailable):
            return (Interval(*self.possible, conf_level),)
        # where the best of all possible effects is rejected, others are compared with it
        tried, level = [*self._tried], (1.0 - conf_level) * max(self._tried.values())
        fits = [p - level for p in self._tried.values()]
        ends = [tried[0]] if fits[0] > 0.0 else []
        for k in range(len(tried) - 1):
            if (fits[k] > 0.0) != (fits[k + 1] > 0.0):
                a, b = tried[k : k + 2]
                close = 1e-9 * (self.possible[1] - self.possible[0])
                ends.append(root(lambda x: self._fits(x) - level, a, b, xtol=close))
        ends += [tried[-1]] if fits[-1] > 0.0 else []
        pieces = zip(ends[::2], ends[1::2], strict=True)
        found = tuple(Interval(a, b, conf_level) for a, b in pieces)
        return found or (Interval(*self.possible, conf_level),)

    def with_weights(self, unequal: float) -> Wald:
        """The same where records have weights, whose mean square is so many times their mean."""
        return replace(
            self,
            residual=_times(self.residual, unequal),
            first=_times(self.first, unequal),
            covariance=unequal * self.covariance,
            covariance_scale=unequal * self.covariance_scale,
        )


def _times(estimate: Estimate, factor: float) -> Estimate:
    """An estimate with another sampling variance."""
    own, means = estimate.sampling, estimate.means
    if isinstance(own, Unavailable):
        return estimate
    return replace(estimate, sampling=own.times(factor), means=means and means.scaled(factor))
