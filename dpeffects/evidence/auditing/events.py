"""From runs on two datasets to a lower bound on epsilon that holds with confidence.

An event of chance p on one dataset and q on its neighbour shows epsilon >= log((p - delta) / q).
Some runs choose the event (a statistic, a threshold, a direction), others count how often it
happens, and Clopper and Pearson's limits (1934) make the bound hold with the confidence asked for,
whatever the statistic is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpeffects.arrays import FloatArray, IntArray

Two = tuple[FloatArray, FloatArray]

LOSS = "privacy loss of all releases"
LINEAR = "weighted sum of everything shown"
_CUTS = 200
_FAR = 30.0
"""Standardised values are kept within this many units, so that no outlier makes a weight."""
_RIDGE = 1e-9
_LEAST = 4
"""An event is promising when it happened this often."""


@dataclass(frozen=True)
class Runs:
    """Runs on both datasets: their privacy losses (NaN where not watched) and what was shown.

    ``loss`` is the log-likelihood of the first dataset less that of the second.
    """

    names: tuple[str, ...]
    loss: Two
    shown: Two

    def part(self, start: float, stop: float) -> Runs:
        """Return the runs between two fractions of the whole."""

        def cut(values: FloatArray) -> FloatArray:
            return values[round(start * len(values)) : round(stop * len(values))]

        one, other = self.loss
        first, second = self.shown
        return Runs(self.names, (cut(one), cut(other)), (cut(first), cut(second)))

    @property
    def sizes(self) -> tuple[int, int]:
        """Runs on the first and on the second dataset."""
        return len(self.loss[0]), len(self.loss[1])

    @property
    def watched(self) -> bool:
        """True where losses are known."""
        return not any(np.isnan(loss).any() for loss in self.loss)


@dataclass(frozen=True)
class Statistic:
    """A number computed from each run, on both datasets."""

    name: str
    of: Callable[[Runs], Two]


@dataclass(frozen=True)
class Event:
    """A statistic beyond a threshold; it is to be likelier on dataset ``first`` (0 or 1)."""

    statistic: Statistic
    threshold: float
    above: bool
    first: int

    def hits(self, runs: Runs) -> tuple[int, int]:
        """How often it happened: on its own dataset, on the other."""
        beyond = np.greater_equal if self.above else np.less_equal
        counts = [int(beyond(values, self.threshold).sum()) for values in self.statistic.of(runs)]
        return counts[self.first], counts[1 - self.first]

    def __str__(self) -> str:
        return f"{self.statistic.name} {'>=' if self.above else '<='} {self.threshold:.6g}"


def _statistic(name: str, function: Callable[[FloatArray], FloatArray]) -> Statistic:
    """A function of everything that was shown."""
    return Statistic(name, lambda runs: (function(runs.shown[0]), function(runs.shown[1])))


# Equal losses differ in their last digits.
LOSS_STATISTIC = Statistic(
    LOSS, lambda runs: (np.round(runs.loss[0], 9), np.round(runs.loss[1], 9))
)
NO_EVENT = Event(LOSS_STATISTIC, math.inf, True, 0)


def lower_bound(
    hits: tuple[int, int] | Two, sizes: tuple[int, int], delta: float, conf_level: float
) -> FloatArray:
    """Lower bound on epsilon from counts of an event on its own dataset and on the other.

    Examples
    --------
    >>> round(float(lower_bound((5000, 1839), (10_000, 10_000), 0.0, 0.95)), 2)  # of log(e) = 1
    0.94
    """
    from scipy.special import betaincinv

    one, other = (np.asarray(h, dtype=np.float64) for h in hits)
    tail = (1.0 - conf_level) / 2.0
    low = np.where(one > 0, betaincinv(np.maximum(one, 1e-9), sizes[0] - one + 1.0, tail), 0.0)
    left = np.maximum(sizes[1] - other, 1e-9)
    high = np.where(other < sizes[1], betaincinv(other + 1.0, left, 1.0 - tail), 1.0)
    return np.log(np.maximum((low - delta) / high, 1.0))


def foresee(runs: Runs, size: int, delta: float, conf_level: float) -> tuple[float, Event]:
    """Return the bound to expect of ``size`` more runs on each dataset, and its event, by losses.

    The chance of an event on the neighbour is the mean of exp(-loss) where it happens, if the noise
    is what was declared: a few runs tell what counting on the neighbour would take many for.
    """
    best, event = 0.0, NO_EVENT
    for first, loss in enumerate((runs.loss[0], -runs.loss[1])):
        loss = np.sort(np.round(loss, 9))[::-1]
        one = np.arange(1, loss.size + 1) / loss.size
        other = np.minimum(np.cumsum(np.exp(-loss)) / loss.size, 1.0)
        bounds = lower_bound((one * size, other * size), (size, size), delta, conf_level)
        bounds[: _LEAST - 1] = 0.0
        k = int(np.argmax(bounds))
        if bounds[k] > best:
            threshold = float(loss[k] if first == 0 else -loss[k])
            best, event = float(bounds[k]), Event(LOSS_STATISTIC, threshold, first == 0, first)
    return best, event


def choose(runs: Runs, size: int, delta: float, conf_level: float) -> Event:
    """Return the event that promises the largest bound in ``size`` further runs on each dataset.

    The privacy loss is the best statistic where the noise is what it should be. Another event must
    have a larger bound already in half of these runs, at a confidence for all statistics together;
    the other half makes the weighted sum.
    """
    second, candidates = runs.part(0.5, 1.0), list(_statistics(runs.part(0.0, 0.5)))
    promised, best = -1.0, NO_EVENT
    if runs.watched:
        promised, best = foresee(runs, size, delta, conf_level)
    sure = 1.0 - (1.0 - conf_level) / (10.0 * max(len(candidates), 1))
    for statistic in candidates:
        values = statistic.of(second)
        cuts = np.unique(np.concatenate(values))
        if cuts.size > _CUTS:
            cuts = cuts[np.linspace(0, cuts.size - 1, _CUTS).round().astype(int)]
        for above, first in itertools.product((True, False), (0, 1)):
            own, other = values[first], values[1 - first]
            hits = (_counts(own, cuts, above), _counts(other, cuts, above))
            bounds = lower_bound(hits, (own.size, other.size), delta, sure)
            k = int(np.argmax(bounds))
            if bounds[k] > promised:
                promised, best = float(bounds[k]), Event(statistic, float(cuts[k]), above, first)
    return best


def _statistics(runs: Runs) -> Iterator[Statistic]:
    """Every statistic there is: the loss, a weighted sum, each shown value."""
    if runs.watched:
        yield LOSS_STATISTIC
    both = np.concatenate(runs.shown)
    known = ~np.isnan(both).all(axis=0)
    varying = np.flatnonzero(known & (np.ptp(np.nan_to_num(both), axis=0) > 0.0))
    if varying.size:
        yield _linear(runs, varying)
    for j in varying:
        yield _statistic(runs.names[j], partial(_column, j=int(j)))


def _column(shown: FloatArray, j: int) -> FloatArray:
    return np.nan_to_num(shown[:, j], nan=-np.inf)


def _counts(values: FloatArray, cuts: FloatArray, above: bool) -> FloatArray:
    """How many values are at or beyond each cut."""
    ordered = np.sort(values)
    below = np.searchsorted(ordered, cuts, side="left" if above else "right")
    return np.asarray(ordered.size - below if above else below, dtype=np.float64)


def _linear(runs: Runs, columns: IntArray) -> Statistic:
    """Fisher's discriminant (1936) of everything shown, by its spread within datasets."""
    both = np.concatenate(runs.shown)[:, columns]
    centre = np.nanmedian(both, axis=0)
    near, far = np.nanmedian(np.abs(both - centre), axis=0), np.nanstd(both, axis=0)
    factor = 1.0 / np.where(near > 0.0, near, np.where(far > 0.0, far, 1.0))

    def standardised(shown: FloatArray) -> FloatArray:
        scaled = (shown[:, columns] - centre) * factor
        return np.clip(np.nan_to_num(scaled, nan=-_FAR), -_FAR, _FAR)

    one, other = (standardised(shown) for shown in runs.shown)
    within = np.concatenate([one - one.mean(axis=0), other - other.mean(axis=0)])
    covariance = within.T @ within / max(len(within) - 2, 1)
    covariance += np.diag(_RIDGE * (np.diag(covariance) + 1.0))
    weights = np.linalg.solve(covariance, one.mean(axis=0) - other.mean(axis=0))
    return _statistic(LINEAR, lambda shown: np.asarray(standardised(shown) @ weights))
