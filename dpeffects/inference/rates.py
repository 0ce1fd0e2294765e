"""Events and person-time by arm, released with noise, and the distribution of the rates that they
give.

A rate is a ratio of two sums, events over time. Its sampling variance is that of what events exceed
the rate by, record by record, whatever distribution the counts have: overdispersion is in it.
Noise in both
sums is added, by the delta method; the ratio of two rates is left to `inference.scales`, where a
test is inverted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.inference.estimate import ArmMeans, MeansPart, MeansVariance, Pair, SamplingVariance
from dpeffects.inference.tables import Confounding

_ALIKE = 0.5
"""How much squares by events differ between arms, as a part of them."""


@dataclass(frozen=True)
class ArmSums:
    """Released events and time of the treated and of the control arm; they can come out negative.

    ``scales`` are those of the noise in half the sum and half the difference of both arms, for
    events and for time: Laplace, or standard deviations where ``gaussian``.
    """

    events: Pair
    time: Pair
    scales: Pair
    gaussian: bool = False

    def per(self, unit: float) -> ArmSums:
        """The same in another unit of time."""
        one, zero = (x / unit for x in self.time)
        return replace(self, time=(one, zero), scales=(self.scales[0], self.scales[1] / unit))

    @property
    def divided_by(self) -> FloatArray:
        """Times, at least as long as their noise."""
        least = self.scales[1] * (1.0 if self.gaussian else math.sqrt(2.0))
        return np.maximum(self.time, max(least, 1e-300))

    @property
    def rates(self) -> FloatArray:
        """Events by time."""
        return np.asarray(self.events) / self.divided_by

    @property
    def noise(self) -> tuple[Pair, ...]:
        """Scales of the noise in both rates: each is in the sum of the arms or the difference."""
        by_events = self.scales[0] / self.divided_by
        by_time = self.scales[1] * np.maximum(self.rates, 0.0) / self.divided_by
        pairs = (by_events.tolist(), by_time.tolist())
        return tuple((a, sign * b) for a, b in pairs for sign in (1.0, -1.0))

    @property
    def noise_of_difference(self) -> float:
        """Variance of the noise in the difference of both rates."""
        return sum((a - b) ** 2 for a, b in self.noise) * (1.0 if self.gaussian else 2.0)


@dataclass(frozen=True)
class RateTable:
    """What rates of two arms are made of.

    Parameters
    ----------
    sums
        Events and time. Where covariates are adjusted for, records count by their weights, over the
        largest of the arm.
    squares
        Squared differences between the events of a record and those that the rate of its arm gives
        in its time, added up by arm, with weights squared; they can come out negative.
    squares_scale
        Laplace scales of about the noise in ``squares``.
    tops
        The largest that events and time of a record can be, by declaration.
    effective
        As many records of equal weight in each arm.
    confounding
        What weights leave of it, None where there are none.
    unadjusted
        Events and time without weights, where these are released too.
    """

    sums: ArmSums
    squares: Pair
    squares_scale: Pair
    tops: Pair
    effective: Pair = (1.0, 1.0)
    confounding: Confounding | None = None
    unadjusted: ArmSums | None = None

    def with_weights(self, unequal: float) -> RateTable:
        """The same where records have weights, whose mean square is so many times their mean."""
        one, zero = (unequal * own for own in self.squares)
        first, second = (unequal * own for own in self.squares_scale)
        return replace(self, squares=(one, zero), squares_scale=(first, second))

    def means(self, per: float = 1.0) -> ArmMeans:
        """The two rates per so much time, with their joint distribution."""
        sums = self.sums.per(per)
        treated, control = sums.rates.tolist()
        return ArmMeans(
            treated,
            control,
            sampling=tuple(
                MeansVariance(self._sampling(sums, arm, per), 1.0 - arm, float(arm))
                for arm in (0, 1)
            ),
            laplace=() if sums.gaussian else sums.noise,
            gaussian=sums.noise if sums.gaussian else (),
            parts=() if self.confounding is None else self._left(self.confounding, sums, per),
            possible=(0.0, math.inf),
        )

    def _sampling(self, sums: ArmSums, arm: int, per: float) -> SamplingVariance:
        """Sampling variance of a rate: squares are at most what single large records would give."""
        time, rate = float(sums.divided_by[arm]), max(float(sums.rates[arm]), 0.0)
        largest = (
            self.tops[0] * (rate * time + sums.scales[0]) + rate**2 * self.tops[1] / per * time
        )
        return SamplingVariance(*(x / time**2 for x in (*self._squares(arm), largest)))

    def _squares(self, arm: int) -> tuple[float, float]:
        """Squares of an arm and their noise, with what the other arm says of them.

        That is its squares by its events, give or take a half: little where both are known well.
        """
        own, scale, other = self.squares[arm], self.squares_scale[arm], 1 - arm
        events, noise = self.sums.events, 2.0 * self.sums.scales[0]
        if not (events[other] > noise and scale > 0.0):
            return own, scale
        most = max(events[arm], noise)
        like, unsure = (x[other] / events[other] for x in (self.squares, self.squares_scale))
        like = max(like, unsure)
        errors = (unsure * most, _ALIKE * like * most, like * noise / math.sqrt(2.0))
        told = math.hypot(*errors)
        weight = told**2 / (told**2 + scale**2)
        squares = weight * own + (1.0 - weight) * like * max(events[arm], 0.0)
        return squares, math.sqrt(weight) * scale

    def _left(self, about: Confounding, sums: ArmSums, per: float) -> tuple[MeansPart, ...]:
        """What weights leave of confounding: it moves the rates of the arms apart.

        It is as large as covariates move events, so it goes by their mean deviation: of rare ones
        twice their mean. What the weights removed says how strong it is.
        """
        squares = np.maximum(self.squares, 0.0)
        spread = np.sqrt(squares * np.array(self.effective)) / sums.divided_by
        apart = np.array(about.far) * np.minimum(spread, 2.0 * np.maximum(sums.rates, 0.0))
        unit, removed, error = np.square(apart.sum()), None, None
        if self.unadjusted is not None:
            plain = self.unadjusted.per(per)
            removed = np.subtract(*plain.rates) - np.subtract(*sums.rates)
            sampling = float((squares / sums.divided_by**2).sum())
            noise = plain.noise_of_difference + sums.noise_of_difference
            error = np.array(noise + sampling / 2.0)
        left = about.left(unit, removed, error)
        one, zero = (apart * np.sqrt(left / np.maximum(unit, 1e-300))).tolist()
        return (MeansPart("residual confounding from the shrunken model", one, -zero),)
