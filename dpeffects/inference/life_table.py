"""What a life table by arm says: curves, restricted means, risks, hazard ratio and log-rank test.

A record is in one cell: ``2 b`` if it was censored in bin ``b`` of follow-up, ``2 b + 1`` if it had
the event there, and the last one if it was still there at the horizon. Within a bin the hazards of
event and of censoring are taken as constant, so that events over person-time give the hazard, and
hazards give the curve and everything else. Counts are noisy, and a bin can have fewer than no
events; nothing is cut off on the way, because that would make rare events look frequent.

Events are often few. A share of people who had the event, or of time that they lost, has an
interval by Wilson's method: its variance is that of the share which is tested, with the noise
added. Two such intervals give one for a difference or a ratio (Newcombe's method). A hazard ratio
is in its interval if the score test does not reject it; the log-rank test is that of 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from dpeffects.arrays import FloatArray
from dpeffects.inference.tables import ArmTable, Functional

_LOG_RATIOS = np.linspace(-7.0, 7.0, 281)
"""Logarithms of the hazard ratios and ratios of risks that are tried."""
_SURE = 3.0
_FEWEST = 5.0
"""A bin counts if it has this many people at risk, and this many standard deviations of noise."""
_EVENTS = 10.0
"""Events that an arm is given, if it has fewer, where a variance per event is computed."""
_CERTAIN = 20.0
_POINTS = 8192


def life(cells: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """People at the start of each bin, their person-time in bins, and events, of each arm.

    The last axis of ``cells`` are the cells. With constant hazards person-time is the logarithmic
    mean of those at the start and at the end, here by its series, which has a value for any counts.
    """
    events, leaving = cells[..., 1:-1:2], cells[..., 0:-1:2] + cells[..., 1:-1:2]
    entering = np.cumsum(cells[..., ::-1], axis=-1)[..., -1:0:-2]
    middle = entering - leaving / 2.0
    square = np.clip(leaving / np.maximum(2.0 * middle, 1e-12), -1.0, 1.0) ** 2
    return entering, middle * (1.0 - square / 3.0 - 4.0 * square**2 / 45.0), events


def hazards(cells: FloatArray, reach: Sequence[int], fill: float | None = None) -> FloatArray:
    """Integrated hazard of each bin, (2, bins); ``fill``, or the mean so far, beyond the reach."""
    _, time, events = life(cells)
    found = np.clip(events / np.maximum(time, 1e-9), -2.0, _CERTAIN)
    for arm, bins in enumerate(reach):
        mean = found[..., arm, :bins].mean(axis=-1)[..., None] if bins else 0.0
        found[..., arm, bins:] = mean if fill is None else fill
    return found


def _inside(edges: FloatArray, times: FloatArray) -> FloatArray:
    """Parts of the bins that are before some times, (times, bins)."""
    return np.clip((times[:, None] - edges[:-1]) / np.diff(edges), 0.0, 1.0)


def risks(hazard: FloatArray, edges: FloatArray, times: FloatArray) -> FloatArray:
    """Share of each arm that had the event by some times, (2, times)."""
    return -np.expm1(-hazard @ _inside(edges, times).T)


def losses(hazard: FloatArray, edges: FloatArray, horizons: FloatArray) -> FloatArray:
    """Share of the time until some horizons that each arm lost to the event, (2, horizons)."""
    found = []
    for end, inside in zip(horizons, _inside(edges, horizons), strict=True):
        part = hazard * inside
        start = np.exp(part - np.cumsum(part, axis=-1))
        flat = np.abs(part) < 1e-8
        stay = np.where(flat, 1.0, -np.expm1(-part) / np.where(flat, 1.0, part))
        found.append(1.0 - (start * stay) @ (inside * np.diff(edges)) / end)
    return np.stack(found, axis=-1)


def scores(cells: FloatArray, ratios: FloatArray, shares: FloatArray, bins: int) -> FloatArray:
    """Score of the partial likelihood at some hazard ratios, per person.

    It is zero in the mean at the true ratio, falls with the ratio, and is the numerator of the
    log-rank test at 1. ``shares`` are those of the arms in all people; later ``bins`` are left out.
    """
    treated, control, events, others = _counted(cells, shares, bins)
    r = ratios[:, None]
    found: FloatArray = (events * control - r * others * treated) / (r * treated + control)
    return found.sum(axis=-1)


def score_variances(
    cells: FloatArray, ratios: FloatArray, shares: FloatArray, bins: int
) -> FloatArray:
    """Variance of `scores` if the ratio is true, times the number of people.

    Both arms then have one hazard but for the ratio, so that all events tell of it.
    """
    treated, control, events, others = _counted(cells, shares, bins)
    r = ratios[:, None]
    found = (events + others) * r * treated * control / (r * treated + control) ** 2
    return np.maximum(found.sum(axis=-1), 0.0)


def _counted(cells: FloatArray, shares: FloatArray, bins: int) -> tuple[FloatArray, ...]:
    """Person-time of treated and control, and their events, per person in the first bins."""
    _, time, events = life(cells)
    time = np.maximum(time, 1e-9) * shares[:, None]
    events = events * shares[:, None]
    both = (time[..., 0, :], time[..., 1, :], events[..., 0, :], events[..., 1, :])
    return tuple(part[..., None, :bins] for part in both)


@dataclass(frozen=True, eq=False)
class Shares:
    """A share of each arm at some points: of people who had the event, or of time that they lost.

    All have the axes (treated and control, points). ``low`` and ``high`` are the share if nobody, or
    everybody, had the event where too few are at risk to tell. ``sizes`` are numbers of people whose
    share would have the same sampling variance, ``noise`` variances of the privacy noise, and
    ``correlations`` of the two arms' errors, of each point.
    """

    values: FloatArray
    low: FloatArray
    high: FloatArray
    sizes: FloatArray
    noise: FloatArray
    correlations: FloatArray

    def limits(self, z: float) -> tuple[FloatArray, FloatArray]:
        """Limits by Wilson's method; they can lie outside of [0, 1], as an estimate can."""
        lower = 1.0 - _upper_limit(1.0 - self.low, self.sizes, self.noise, z)
        return lower, _upper_limit(self.high, self.sizes, self.noise, z)

    def each(self, z: float) -> tuple[FloatArray, FloatArray]:
        """Limits for the shares themselves, around estimates that were moved into [0, 1]."""
        inside = replace(self, low=self.low.clip(0.0, 1.0), high=self.high.clip(0.0, 1.0))
        lower, upper = inside.limits(z)
        return lower.clip(0.0, 1.0), upper.clip(0.0, 1.0)

    def differences(self, z: float) -> tuple[FloatArray, FloatArray]:
        """Limits for treated minus control, by Newcombe's method."""
        lower, upper = self.limits(z)
        down, up = self.values - lower, upper - self.values
        middle = self.values[0] - self.values[1]
        low = middle - _together(down[0], up[1], self.correlations)
        high = middle + _together(up[0], down[1], self.correlations)
        return low.clip(-1.0, 1.0), high.clip(-1.0, 1.0)

    def ratios(self, z: float, of_rest: bool = False) -> tuple[FloatArray, FloatArray]:
        """Limits for treated over control, of the shares or of what is left of the whole.

        A ratio is in the set if the difference of one share and so many times the other can be
        zero. A limit is 0 or infinite where the set has no end.
        """
        lower, upper = self.limits(z)
        values = self.values
        if of_rest:
            values, lower, upper = 1.0 - values, 1.0 - upper, 1.0 - lower
        down, up, same = values - lower, upper - values, self.correlations
        grid = np.exp(_LOG_RATIOS)[:, None]
        gaps = values[0] - grid * values[1]
        above = gaps - _together(down[0], grid * up[1], same)  # above zero: a ratio is too small
        below = gaps + _together(up[0], grid * down[1], same)  # below zero: it is too large
        low = [_zero(column, 0.0) for column in above.T]
        return np.array(low), np.array([_zero(column, math.inf) for column in below.T])


def _together(one: FloatArray, other: FloatArray, correlation: FloatArray) -> FloatArray:
    """Distance of a limit for a difference, from those of its two terms."""
    return np.sqrt(np.maximum(one**2 + other**2 - 2.0 * correlation * one * other, 0.0))


def _upper_limit(values: FloatArray, sizes: FloatArray, noise: FloatArray, z: float) -> FloatArray:
    """The largest p with (p - value)^2 <= z^2 (noise + p (1 - p) / size), the last 0 outside [0, 1]."""
    plain = values + z * np.sqrt(noise)
    k = z**2 / sizes
    half = values + k / 2.0
    under = np.maximum(half**2 - (1.0 + k) * (values**2 - z**2 * noise), 0.0)
    inside = (half + np.sqrt(under)) / (1.0 + k)
    return np.where((plain <= 0.0) | (plain >= 1.0), plain, inside)


def _zero(values: FloatArray, open_end: float) -> float:
    """The ratio where a function of it, on the grid of ratios, falls to zero.

    ``open_end`` is 0 for a lower limit and infinite for an upper one: the limit of a function that
    is not above zero at the first ratio, or not below at the last.
    """
    if values[0] <= 0.0:
        return 0.0
    under = np.flatnonzero(values <= 0.0)
    if not under.size or (values[-1] > 0.0 and open_end > 0.0):
        return open_end
    k = int(under[0])
    part = values[k - 1] / (values[k - 1] - values[k])
    return float(math.exp(_LOG_RATIOS[k - 1] + part * (_LOG_RATIOS[k] - _LOG_RATIOS[k - 1])))


def at_once(covariance: FloatArray, conf_level: float) -> float:
    """How many standard errors hold for all of some normal errors at once.

    The probability is a mean over points that fill the space evenly (multiples of square roots of
    primes, modulo 1), always the same ones. It is never below that of one error alone, nor above
    that of Bonferroni's inequality.
    """
    spread = np.sqrt(np.diag(covariance))
    live = spread > 0.0
    count = int(live.sum())
    alone, most = (float(ndtri(1.0 - (1.0 - conf_level) / (2 * k))) for k in (1, max(count, 1)))
    if count < 2:
        return alone
    correlation = covariance[np.ix_(live, live)] / np.outer(spread[live], spread[live])
    values, vectors = np.linalg.eigh(correlation)
    keep = values > 1e-9 * values[-1]
    roots = np.sqrt([p for p in range(2, 2000) if all(p % q for q in range(2, math.isqrt(p) + 1))])
    even = np.outer(np.arange(1, _POINTS + 1), roots[: keep.sum()]) % 1.0
    errors = ndtri(even.clip(1e-12, 1 - 1e-12)) @ (vectors[:, keep] * np.sqrt(values[keep])).T
    found = float(np.quantile(np.abs(errors).max(axis=1), conf_level))
    return min(max(found, alone), most)


def flat(values: FloatArray) -> FloatArray:
    """The last two axes as one."""
    return values.reshape(*values.shape[:-2], -1)


@dataclass(frozen=True, eq=False)
class LifeTable:
    """A released table by arm whose cells are those of a life table between ``edges``."""

    table: ArmTable
    edges: FloatArray

    @property
    def bins(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1

    @cached_property
    def at_risk(self) -> FloatArray:
        """People of each arm at the start of each bin, as released; noisy."""
        sizes = self.table.sizes.sum(axis=1, keepdims=True)
        return np.maximum(life(self.table.standardised)[0] * sizes, 0.0)

    @cached_property
    def reach(self) -> tuple[int, int]:
        """Bins of each arm, from the first, in which enough people are at risk to tell a hazard."""
        sizes = self.table.sizes.sum(axis=1, keepdims=True)
        law = self.table.law(lambda cells: flat(life(cells)[1]))
        noise = np.sqrt(np.diag(law.noise)).reshape(2, -1)
        enough = law.values.reshape(2, -1) >= np.maximum(_SURE * noise, _FEWEST / sizes)
        treated, control = (int(np.cumprod(arm).sum()) for arm in enough)
        return treated, control

    @cached_property
    def steady(self) -> ArmTable:
        """The table with counts that are not negative, and with some events in each arm.

        It says how many people, or events, an estimate rests on, and never what happened to them.
        """
        counts = self.table.plausible.copy()
        for arm in counts:
            own = np.maximum(life(arm)[1], 0.0)
            lacking = max(_EVENTS - float(arm[:, 1:-1:2].sum()), 0.0)
            if own.sum() > 0.0 and lacking > 0.0:
                sizes = arm.sum(axis=1, keepdims=True)
                arm[:, 1:-1:2] += lacking * own / own.sum()
                arm *= sizes / np.maximum(arm.sum(axis=1, keepdims=True), 1e-9)
        return replace(self.table, counts=counts, noise_variance=0.0)

    def shares(self, times: FloatArray, lost: bool = False) -> Shares:
        """Share of each arm that had the event by some times, or of the time until then lost."""
        times = np.asarray(times, dtype=float)
        make = losses if lost else risks
        width = len(times)

        def of(fill: float | None) -> Functional:
            def functional(cells: FloatArray) -> FloatArray:
                return flat(make(hazards(cells, self.reach, fill), self.edges, times))

            return functional

        law, steady = self.table.law(of(None)), self.steady.law(of(None))
        own = np.clip(steady.values, 1e-9, 1.0 - 1e-9)
        spread = np.maximum(np.diag(steady.sampling) * (1.0 + law.left * law.n), 1e-12)
        sizes = np.maximum(own * (1.0 - own) / spread, 1.0)
        noise = np.diag(law.noise)
        both = steady.sampling * (1.0 + law.left * law.n) + law.noise
        sd = np.sqrt(np.maximum(np.diag(both), 1e-300))
        across = both[np.arange(width), np.arange(width, 2 * width)] / (sd[:width] * sd[width:])
        ends = [of(fill)(self.table.standardised) for fill in (0.0, _CERTAIN)]
        shape = (2, width)
        return Shares(
            law.values.reshape(shape),
            *(np.reshape(end, shape) for end in ends),
            sizes.reshape(shape),
            noise.reshape(shape),
            across,
        )

    def band(self, arm: int, conf_level: float) -> float:
        """Standard errors for the whole curve of an arm at once."""
        raise NotImplementedError

    @cached_property
    def _tried(self) -> tuple[FloatArray, FloatArray]:
        """Score at each hazard ratio that is tried, and its variance if that ratio is true."""
        ratios, bins = np.exp(_LOG_RATIOS), min(self.reach)
        sizes = self.table.sizes.sum(axis=1)
        shares = sizes / sizes.sum()

        def functional(cells: FloatArray) -> FloatArray:
            return scores(cells, ratios, shares, bins)

        law, steady = self.table.law(functional), self.steady.law(functional)
        plain = score_variances(self.steady.standardised, ratios, shares, bins)
        own = score_variances(self.table.standardised, ratios, shares, bins)
        # classes and weights make a variance larger than that of as many people of equal weight
        sampling = np.diag(steady.sampling) * own / np.maximum(plain, 1e-300)
        return law.values, sampling * (1.0 + law.left * law.n) + np.diag(law.noise)

    def hazard_ratio(self, z: float) -> tuple[float, float, float]:
        """Hazard ratio and the limits of those that a score test does not reject."""
        score, variance = self._tried
        ends = z * np.sqrt(variance)
        point = _zero(score, math.inf)
        return point, _zero(score - ends, 0.0), _zero(score + ends, math.inf)

    @property
    def logrank(self) -> float:
        """Log-rank statistic, standard normal where treatment does nothing; above 0: more events."""
        score, variance = self._tried
        middle = len(score) // 2
        return float(score[middle] / math.sqrt(max(variance[middle], 1e-300)))
