"""SurvivalEffects: life tables of two arms, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.errors import OptionError
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable
from dpeffects.inference.intervals import NO_TEST, Interval, check_conf_level
from dpeffects.inference.life_table import LifeTable, Shares
from dpeffects.inference.monotone import isotonic
from dpeffects.inference.noisy import COUNTED, noise_ratio
from dpeffects.inference.simultaneous import reach, two_sided
from dpeffects.results.export import frame_of
from dpeffects.results.tabled import TableEffects, Term

if TYPE_CHECKING:
    import pandas as pd

ARMS = ("treated", "control")
_NORMAL = NormalDist()

Limits = Callable[[float], tuple[float, float]]


@dataclass(frozen=True)
class Inverted(Term):
    """A number whose interval holds what a test does not reject.

    ``limits`` gives its ends for a number of standard errors; ``null`` is the value without effect,
    ``reached`` how many standard errors an interval needs to have it, where that is known, and
    ``noise`` its `noise_ratio`.
    """

    limits: Limits | None = None
    null: float = 0.0
    noise: float = 0.0
    reached: float | None = None

    @property
    def std_error(self) -> float | Unavailable:
        """Its standard error, by the delta method."""
        if self.limits is None:
            return Unavailable("a test statistic is in units of its standard error")
        found = super().std_error
        if isinstance(found, Unavailable) or math.isfinite(found):
            return found
        return Unavailable("an arm has no events beyond noise")

    def conf_int(self, conf_level: float = 0.95) -> Interval | Unavailable:
        """Its confidence interval: sampling error and noise."""
        if self.limits is None:
            return Unavailable("a test statistic has no interval")
        low, high = self.limits(_normal(conf_level))
        return Interval(low, high, conf_level)

    @cached_property
    def p_value(self) -> float | Unavailable:
        """Two-sided p-value of no effect: one less the level whose interval ends there."""
        if not self.tested:
            return Unavailable("this is no effect")
        if self.released.associated:
            return Unavailable(NO_TEST)
        if self.limits is None:
            return two_sided(abs(self.estimate))
        if self.reached is not None:
            return two_sided(self.reached)
        return two_sided(float(reach(self.limits, self.null)[0]))

    def row(self, conf_level: float = 0.95) -> dict[str, Any]:
        """The number as a row of `tidy`; its statistic is that of the test, if there is one."""
        row, p = super().row(conf_level), self.p_value
        z = math.nan if isinstance(p, Unavailable) else -_NORMAL.inv_cdf(max(p, 1e-300) / 2.0)
        signed = math.copysign(z, self.estimate - self.null)
        return row | {"statistic": signed, "noise_ratio": self.noise}


def _normal(conf_level: float) -> float:
    return _NORMAL.inv_cdf(0.5 + check_conf_level(conf_level) / 2.0)


@dataclass(frozen=True, repr=False, kw_only=True)
class SurvivalEffects(TableEffects, words="about_survival", pictures="plots.by_arm"):
    """Survival of two arms up to a horizon, from one noisy life table.

    Whatever is asked of it, at whatever times, follows from the table and costs nothing.

    Parameters
    ----------
    edges
        Ends of the intervals of the life table, the first of them 0.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> trial = dpe.simulate("survival", n=5000, seed=1, randomised=True)
    >>> fit = dpe.dp_survival(
    ...     "Surv(time, event) ~ treatment", trial, horizon=360, epsilon=1, design="randomised",
    ...     seed=1,
    ... )
    >>> fit.risk(at=180)["term"].tolist()
    ['risk_treated', 'risk_control', 'risk_difference', 'risk_ratio']
    """

    edges: tuple[float, ...]

    @cached_property
    def life(self) -> LifeTable:
        """The life table with the laws of what it gives."""
        return LifeTable(self.table, np.array(self.edges))

    @property
    def horizon(self) -> float:
        """Until when records were followed."""
        return self.edges[-1]

    @property
    def doubts(self) -> str:
        """What nobody should overlook about the estimates; empty when all is well."""
        until, few = self.life.known_until, ""
        if until < self.horizon:
            few = (
                f"TOO FEW AT RISK after {until:g}: intervals beyond allow for anything"
                if until > 0.0
                else "TOO FEW RECORDS for this epsilon: the table says nothing"
            )
        return "; ".join(filter(None, (super().doubts, few, self._no_events())))

    def _no_events(self) -> str:
        """Said where noise hides all events: a horizon in another unit than the times is common."""
        counts = self.table.counts[:, 1:-1:2]
        noise = math.sqrt(sum(self.table.noise_variance) * counts.shape[1])
        if counts.sum() > 2.0 * noise:
            return ""
        return "NO EVENTS BEYOND NOISE: is the horizon in the unit of the times?"

    def curves(self, conf_level: float = 0.95) -> pd.DataFrame:
        """Both survival curves at the ends of the intervals, with a joint band.

        The band holds for both curves as a whole. ``at_risk`` are the records at risk just after a
        time, noisy: a part of those in the arm, or sums of weights where ``weighted`` is True.
        Neither rises. What has a ``noise_ratio`` above 1 is mostly noise.
        """
        life = self.life
        check_conf_level(conf_level)
        risks, lower, upper = life.band(conf_level)
        at_risk, noise = life.at_risk(self.n)
        ratios = noise_ratio(noise, value=np.maximum(at_risk, COUNTED))
        of_curve = noise_ratio(np.sqrt(life.shares(life.edges[1:]).privacy), 1.0)
        rows = []
        for arm, name in enumerate(ARMS):
            curve = 1.0 - isotonic(risks[arm]).clip(0.0, 1.0)
            low = np.minimum.accumulate(1.0 - upper[arm])
            high = 1.0 - np.maximum.accumulate(lower[arm])
            columns = {"time": self.edges, "at_risk": at_risk[arm], "survival": [1.0, *curve]}
            columns |= {"noise_ratio": [0.0, *of_curve[arm]], "at_risk_noise_ratio": ratios[arm]}
            columns |= {"conf_low": [1.0, *low], "conf_high": [1.0, *high]}
            about = {"arm": name, "weighted": life.weighted}
            values = zip(*columns.values(), strict=True)
            rows += [about | dict(zip(columns, row, strict=True)) for row in values]
        return frame_of(rows)

    def rmst(self, horizon: float | None = None, conf_level: float = 0.95) -> pd.DataFrame:
        """Restricted mean survival times until a horizon, their difference and their ratio."""
        end = self._time(self.horizon if horizon is None else horizon)
        return self._rows(self._rmst(end), conf_level, [end])

    def risk(
        self, at: float | Iterable[float] | None = None, conf_level: float = 0.95
    ) -> pd.DataFrame:
        """Risks of the event by some times, their differences and their ratios."""
        given = [self.horizon] if at is None else at
        several = isinstance(given, Iterable) and not isinstance(given, str)
        times = [self._time(x) for x in (given if several else [given])]  # type: ignore[union-attr]
        if not times:
            raise OptionError("at needs a time")
        terms = [term for time in times for term in self._risk(time)]
        return self._rows(terms, conf_level, times)

    def hazard_ratio(self, conf_level: float = 0.95) -> pd.DataFrame:
        """Ratio of the hazards of treated and control, taken as the same all the time."""
        return self._rows([self._hazard_ratio()], conf_level)

    def logrank(self) -> pd.DataFrame:
        """Log-rank test: a statistic that is about standard normal without effect."""
        return self._rows([self._logrank()], 0.95)

    def median(self, conf_level: float = 0.95) -> pd.DataFrame:
        """When half of each arm has had the event; infinite where not reached by the horizon."""
        found = self.life.quantiles(0.5, _normal(conf_level))
        names = ("estimate", "conf_low", "conf_high")
        values = [dict(zip(names, arm, strict=True)) for arm in found.tolist()]
        pairs = zip(ARMS, values, strict=True)
        return self._frame([{"term": f"median_{arm}"} | row for arm, row in pairs])

    def terms(self) -> Sequence[Term]:
        """Restricted means and risks at the horizon, hazard ratio and log-rank test."""
        ends = (*self._rmst(self.horizon), *self._risk(self.horizon))
        return [*ends, self._hazard_ratio(), self._logrank()]

    def _time(self, value: Any) -> float:
        try:
            time = float(value)
        except (TypeError, ValueError):
            time = math.nan
        if not 0.0 < time <= self.horizon:
            raise OptionError(
                f"times are above 0 and at most the horizon, {self.horizon:g}, got {value!r}"
            )
        return time

    def _rows(
        self, terms: Sequence[Term], conf_level: float, times: Sequence[float] = ()
    ) -> pd.DataFrame:
        rows = [term.row(conf_level) for term in terms]
        if times:
            each = len(rows) // len(times)
            rows = [row | {"time": times[i // each]} for i, row in enumerate(rows)]
        return self._frame(rows)

    def _inverted(
        self, name: str, value: float, error: float, limits: Limits | None, null: float | None = 0.0
    ) -> Inverted:
        """A term with its own limits; without ``null`` there is nothing to test."""
        sampling = SamplingVariance(error**2, 0.0, max(error**2, 1e-300))
        released = self._based(Estimate(value, sampling))
        tested = null is not None
        return Inverted(name, released, tested=tested, limits=limits, null=null or 0.0)

    def _rmst(self, end: float) -> list[Inverted]:
        lost = self.life.shares(np.array([end]), lost=True)
        return self._compared("rmst", lost, end)

    def _risk(self, time: float) -> list[Inverted]:
        return self._compared("risk", self.life.shares(np.array([time])))

    def _compared(self, name: str, shares: Shares, end: float | None = None) -> list[Inverted]:
        """Shares of the arms, their difference and ratio; of ``end``, what is left of it."""
        rest = end is not None
        scale = -end if end is not None else 1.0
        values = shares.values[:, 0].clip(0.0, 1.0)
        errors = np.sqrt(shares.variances[:, 0])
        shown = end * (1.0 - values) if end is not None else values

        def ordered(low: FloatArray, high: FloatArray) -> tuple[float, float]:
            ends = sorted((scale * float(low), scale * float(high)))
            return ends[0], ends[1]

        def of_arm(arm: int) -> Limits:
            def limits(z: float) -> tuple[float, float]:
                low, high = (x[arm, 0] for x in shares.each(z))
                return ordered(low - 1.0, high - 1.0) if rest else ordered(low, high)

            return limits

        def difference(z: float) -> tuple[float, float]:
            low, high = shares.differences(z)
            return ordered(low[0], high[0])

        def ratio(z: float) -> tuple[float, float]:
            low, high = shares.ratios(z, rest)
            return float(low[0]), float(high[0])

        terms = [
            self._inverted(f"{name}_{arm}", shown[k], abs(scale) * errors[k], of_arm(k), None)
            for k, arm in enumerate(ARMS)
        ]
        raw = shares.values[:, 0]
        gap = max(min(float(raw[0] - raw[1]), 1.0), -1.0) * scale
        shared = float(shares.shared[0])
        error = abs(scale) * math.sqrt(max(float((errors**2).sum()) - 2.0 * shared, 0.0))
        terms.append(self._inverted(f"{name}_difference", gap, error, difference))
        times, error = _ratio(shown, abs(scale) * errors, scale**2 * shared)
        terms.append(self._inverted(f"{name}_ratio", times, error, ratio, 1.0))
        noise = np.sqrt(shares.privacy[:, 0])
        of_ratio = noise_ratio(abs(scale) * noise, value=shown).max()
        of_gap = noise_ratio(np.hypot(*noise), 2.0, gap / scale, signed=True)
        ratios = (*noise_ratio(noise, 1.0), of_gap, of_ratio)
        return [replace(term, noise=x) for term, x in zip(terms, ratios, strict=True)]

    def _hazard_ratio(self) -> Inverted:
        ratio, error = self.life.hazard_ratio()
        limits, counts = self.life.hazard_ratios, self.table.counts[:, 1:-1:2]
        noise = np.sqrt(np.multiply(self.table.noise_variance, counts.shape[1]))
        found = self._inverted("hazard_ratio", ratio, ratio * error, limits, 1.0)
        return replace(found, noise=noise_ratio(noise, value=counts.sum(axis=1)).max())

    def _logrank(self) -> Inverted:
        return self._inverted("logrank", self.life.logrank, 1.0, None)


def _ratio(values: FloatArray, errors: FloatArray, shared: float) -> tuple[float, float]:
    """Ratio of two numbers and its standard error; infinite where the second is not positive."""
    if values[1] <= 0.0:
        return (math.inf if values[0] > 0.0 else math.nan), math.inf
    ratio = float(values[0] / values[1])
    square = errors[0] ** 2 + (ratio * errors[1]) ** 2 - 2.0 * ratio * shared
    return ratio, math.sqrt(max(float(square), 0.0)) / float(values[1])
