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

from dpeffects.arrays import FloatArray
from dpeffects.inference.simultaneous import critical_value
from dpeffects.inference.tables import ArmTable, Functional, TableStatistics

LOG_RATIOS = np.linspace(-7.0, 7.0, 281)
"""Logarithms of the hazard ratios and ratios of risks that are tried."""
_SURE, _FEWEST = 3.0, 5.0
"""A bin counts if it has as many standard deviations of noise, and people, at risk."""
_EVENTS = 10.0
"""Events that an arm is given, if it has fewer, where a variance per event is computed."""
_SPREAD = 0.02
"""Such a part of its events is added evenly at least, so that no bin is without any."""
_CERTAIN = 20.0
"""An integrated hazard that nobody survives."""


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


def drift(cells: FloatArray, ratio: float, shares: FloatArray, bins: int) -> FloatArray:
    """Score of a hazard ratio that changes with time, at one that does not."""
    treated, control, events, others = (x[..., 0, :] for x in _counted(cells, shares, bins))
    at_risk = ratio * treated + control
    weights = (events + others) * treated * control / at_risk**2
    times = np.arange(treated.shape[-1], dtype=float)
    middle = (weights * times).sum(axis=-1, keepdims=True)
    middle = middle / np.maximum(weights.sum(axis=-1, keepdims=True), 1e-12)
    score = (events * control - ratio * others * treated) / at_risk
    return ((times - middle) * score).sum(axis=-1, keepdims=True)


def _flat(values: FloatArray) -> FloatArray:
    """The last two axes as one."""
    return values.reshape(*values.shape[:-2], -1)


@dataclass(frozen=True, eq=False)
class CumulativeProportions:
    """A share of each arm at some points: of people who had the event, or of time that they lost.

    All have the axes (treated and control, points). ``low`` and ``high`` are the share if nobody,
    or everybody, had the event where too few are at risk to tell. ``sizes`` are numbers of people
    whose share would have the same sampling variance, and ``noise`` the variances of privacy noise
    and of confounding that is left, ``shared`` the covariances of these between the arms,
    ``privacy`` the variances of noise alone, infinite where too few are at risk.
    """

    values: FloatArray
    low: FloatArray
    high: FloatArray
    sizes: FloatArray
    noise: FloatArray
    shared: FloatArray
    privacy: FloatArray

    @property
    def variances(self) -> FloatArray:
        """Variances of the estimates."""
        inside = self.values.clip(0.0, 1.0)
        return inside * (1.0 - inside) / self.sizes + self.noise

    def limits(self, z: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        """Limits by Wilson's method; they can lie outside of [0, 1], as an estimate can."""
        lower = 1.0 - _upper_limit(1.0 - self.low, self.sizes, self.noise, z)
        return lower, _upper_limit(self.high, self.sizes, self.noise, z)

    def each(self, z: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        """Limits for the shares themselves, around estimates that were moved into [0, 1]."""
        inside = replace(self, low=self.low.clip(0.0, 1.0), high=self.high.clip(0.0, 1.0))
        lower, upper = inside.limits(z)
        return lower.clip(0.0, 1.0), upper.clip(0.0, 1.0)

    def differences(self, z: float) -> tuple[FloatArray, FloatArray]:
        """Limits for treated minus control, by Newcombe's method."""
        lower, upper = self.limits(z)
        down, up = self.values - lower, upper - self.values
        middle = self.values[0] - self.values[1]
        more = -2.0 * self.shared * z**2
        low = middle - _together(down[0], up[1], more)
        high = middle + _together(up[0], down[1], more)
        return low.clip(-1.0, 1.0), high.clip(-1.0, 1.0)

    def ratios(self, z: float, of_rest: bool = False) -> tuple[FloatArray, FloatArray]:
        """Limits for treated over control, of the shares or of what is left of the whole.

        A ratio is in the set if the difference of one share and so many times the other can be
        zero. A limit is 0 or infinite where the set has no end.
        """
        values, (lower, upper) = self.values, self.limits(z)
        if of_rest:
            values, lower, upper = 1.0 - values, 1.0 - upper, 1.0 - lower
        down, up = values - lower, upper - values
        grid = np.exp(LOG_RATIOS)[:, None]
        gaps = values[0] - grid * values[1]
        more = -2.0 * grid * self.shared * z**2
        above = gaps - _together(down[0], grid * up[1], more)  # above zero: a ratio is too small
        below = gaps + _together(up[0], grid * down[1], more)  # below zero: it is too large
        low = [_zero(column, 0.0) for column in above.T]
        return np.array(low), np.array([_zero(column, math.inf) for column in below.T])


def _together(one: FloatArray, other: FloatArray, more: FloatArray) -> FloatArray:
    """Distance of a limit for a difference from those of its terms, and what they share."""
    return np.sqrt(np.maximum(one**2 + other**2 + more, 0.0))


def _upper_limit(
    values: FloatArray, sizes: FloatArray, noise: FloatArray, z: float | FloatArray
) -> FloatArray:
    """The largest p with (p - value)^2 <= z^2 (noise + p (1 - p) / size).

    Outside of [0, 1] the last term is zero.
    """
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
    return math.exp(LOG_RATIOS[k - 1] + part * (LOG_RATIOS[k] - LOG_RATIOS[k - 1]))


@dataclass(frozen=True, eq=False)
class LifeTable:
    """A released table by arm whose cells are those of a life table between ``edges``."""

    table: ArmTable
    edges: FloatArray

    @property
    def weighted(self) -> bool:
        """Whether records count by weights, and how many there are in each arm is not released."""
        return self.table.unequal != (1.0, 1.0) and self.table.unadjusted is None

    def at_risk(self, n: int) -> tuple[FloatArray, FloatArray]:
        """Numbers at risk at each edge, which never rise, by arm, and their noise.

        They start with all ``n`` records; with sums of weights where these are ``weighted``.
        """
        from scipy.optimize import isotonic_regression

        table, plain = self.table, self.table.unadjusted or self.table
        starts = table.sizes if self.weighted else n * plain.sizes / plain.sizes.sum()
        counts = np.hstack([life(table.counts)[0], table.counts[:, -1:]])
        falling = np.stack([isotonic_regression(row, increasing=False).x for row in counts])
        unit, later = (starts / table.sizes)[:, None], np.arange(table.counts.shape[1], 0, -2)
        noise = unit * np.sqrt(np.outer(table.noise_variance, later))
        return np.clip(unit * falling, 0.0, starts[:, None]), noise

    @cached_property
    def reach(self) -> tuple[int, int]:
        """Bins of each arm, from the first, in which enough people are at risk to tell a hazard."""
        dist = self.table.statistics(lambda cells: _flat(life(cells)[1]), stacked=True)
        noise = np.sqrt(np.diag(dist.noise)).reshape(2, -1)
        fewest = _FEWEST * np.array(self.table.unequal) / self.table.sizes
        enough = dist.values.reshape(2, -1) >= np.maximum(_SURE * noise, fewest[:, None])
        treated, control = (int(np.cumprod(arm).sum()) for arm in enough)
        return treated, control

    @property
    def known_until(self) -> float:
        """Until when both arms have enough people at risk."""
        return float(self.edges[min(self.reach)])

    @cached_property
    def steady(self) -> ArmTable:
        """The table with counts that are not negative, and with some events in each bin.

        It says how many people, or events, an estimate rests on, and never what happened to them.
        """
        counts = self.table.plausible.copy()
        for arm in counts:
            size, time = arm.sum(), np.maximum(life(arm)[1], 0.0)
            if time.sum() > 0.0:
                total = arm[1:-1:2].sum()
                more = max(_EVENTS - total, _SPREAD * total)
                arm[1:-1:2] += more * time / time.sum()
                arm *= size / arm.sum()
        return ArmTable(counts, (0.0, 0.0), self.table.unequal)

    def _dists(self, functional: Functional) -> tuple[TableStatistics, TableStatistics]:
        """Laws of a functional of the table, for its noise, and of the steady one, for sampling."""
        return self.table.statistics(functional, stacked=True), self.steady.statistics(
            functional, stacked=True
        )

    def shares(self, times: FloatArray, lost: bool = False) -> CumulativeProportions:
        """Share of each arm that had the event by some times, or of the time until then lost."""
        make = losses if lost else risks

        def of(cells: FloatArray, fill: float | None = None) -> FloatArray:
            return _flat(make(hazards(cells, self.reach, fill), self.edges, times))

        dist, steady = self._dists(of)
        own = steady.values.clip(1e-9, 1.0 - 1e-9)
        variance = np.maximum(np.diag(steady.sampling), 1e-15)
        low, high = (of(self.table.shares, fill) for fill in (0.0, _CERTAIN))
        sizes, more = np.maximum(own * (1.0 - own) / variance, 1.0), dist.noise + dist.left
        found = (dist.values, low, high, sizes, np.diag(more))
        values, low, high, sizes, noise = (part.reshape(2, -1) for part in found)
        until = self.edges[list(self.reach)][:, None]
        privacy = np.where(times > until, np.inf, np.diag(dist.noise).reshape(2, -1))
        return CumulativeProportions(
            values, low, high, sizes, noise, np.diagonal(more, len(times)), privacy
        )

    def band(self, conf_level: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Risks at the ends of the bins, and limits that hold for both arms at all ends at once.

        They are far out, where a normal distribution is unlike that of few events and of Laplace
        noise: the
        skewness of counts and the kurtosis of noise are allowed for, as Cornish and Fisher do.
        """

        def functional(cells: FloatArray) -> FloatArray:
            return _flat(risks(hazards(cells, self.reach), self.edges, self.edges[1:]))

        dist, steady = self._dists(functional)
        known = np.concatenate([np.arange(len(self.edges) - 1) < bins for bins in self.reach])
        covariance = dist.noise + dist.left + steady.sampling
        z = critical_value(covariance * np.outer(known, known), conf_level)
        fourth = 0.0 if dist.gaussian else 3.0 * (dist.moves**4).sum(axis=1)
        kurtosis = fourth / np.maximum(np.diag(covariance), 1e-100) ** 2
        far = z * (1.0 + max(z**2 - 3.0, 0.0) * np.minimum(kurtosis, 3.0) / 24.0)
        found = self.shares(self.edges[1:])
        skewed = found.low - max(z**2 - 1.0, 0.0) / 6.0 / found.sizes
        return found.values, *replace(found, low=skewed).each(far.reshape(2, -1))

    @cached_property
    def _arms(self) -> FloatArray:
        """Parts of the two arms in all people."""
        sizes = self.table.sizes / np.array(self.table.unequal)
        found: FloatArray = sizes / sizes.sum()
        return found

    @cached_property
    def _tried(self) -> tuple[FloatArray, FloatArray]:
        """Score at each hazard ratio that is tried, and its variance if that ratio is true."""
        given = (np.exp(LOG_RATIOS), self._arms, min(self.reach))

        def functional(cells: FloatArray) -> FloatArray:
            return scores(cells, *given)

        dist, sizes = self.table.statistics(functional, stacked=True), self.table.sizes
        people = float((sizes / np.array(self.table.unequal)).sum())
        sampling = score_variances(self.table.shares, *given) / people
        return dist.values, sampling + np.diag(dist.noise) + np.diag(dist.left)

    def hazard_ratio(self) -> tuple[float, float]:
        """The hazard ratio, 0 or infinite where one arm has no events; error of its logarithm."""
        score, variance = self._tried
        ratio = _zero(score, math.inf)
        if not 0.0 < ratio < math.inf:
            return ratio, math.inf
        slope = -np.gradient(score, LOG_RATIOS)
        near = [np.interp(math.log(ratio), LOG_RATIOS, values) for values in (variance, slope)]
        return ratio, float(math.sqrt(max(near[0], 0.0)) / max(near[1], 1e-300))

    def hazard_ratios(self, z: float) -> tuple[float, float]:
        """Limits of the hazard ratios that a score test does not reject."""
        score, variance = self._tried
        ends = z * np.sqrt(variance)
        return _zero(score - ends, 0.0), _zero(score + ends, math.inf)

    @property
    def logrank(self) -> float:
        """Log-rank statistic: about standard normal without effect, positive for more events."""
        score, variance = self._tried
        middle = len(score) // 2
        return float(score[middle] / math.sqrt(max(variance[middle], 1e-300)))

    @property
    def drift(self) -> float:
        """About standard normal if hazards are proportional; positive if their ratio rises."""
        ratio, _ = self.hazard_ratio()
        bins = min(self.reach)
        if not 0.0 < ratio < math.inf or bins < 2:
            return 0.0

        def functional(cells: FloatArray) -> FloatArray:
            return drift(cells, ratio, self._arms, bins)

        dist, steady = self._dists(functional)
        variance = float(dist.noise[0, 0] + dist.left[0, 0] + steady.sampling[0, 0])
        return float(dist.values[0] / math.sqrt(max(variance, 1e-300)))

    def quantiles(self, share: float, z: float) -> FloatArray:
        """When a share of each arm has had the event, and its limits: (2, 3).

        Infinite where that is not reached by the horizon, or not surely.
        """
        steps = np.linspace(0.0, 1.0, 20, endpoint=False)
        inner = self.edges[:-1, None] + np.diff(self.edges)[:, None] * steps
        times = np.append(inner.ravel(), self.edges[-1])
        found = self.shares(times[1:])
        lower, upper = found.each(z)
        curves = np.stack([found.values, upper, lower], axis=1)  # sooner with the upper limit
        return np.array([[_first(share, curve, times) for curve in arm] for arm in curves])


def _first(share: float, curve: FloatArray, times: FloatArray) -> float:
    """When a curve that starts at zero first has a value."""
    curve = np.append(0.0, curve)
    there = np.flatnonzero(curve >= share)
    if not there.size:
        return math.inf
    k = max(int(there[0]), 1)
    part = (share - curve[k - 1]) / max(curve[k] - curve[k - 1], 1e-300)
    return float(times[k - 1] + min(max(part, 0.0), 1.0) * (times[k] - times[k - 1]))
