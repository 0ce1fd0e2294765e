"""`dp_survival`: survival of two arms, from one noisy life table.

A record is in one cell: its arm, the interval in which its time ended, and whether by the event.
All of it costs what one count does. Survival curves, restricted means, risks, the log-rank test and
a grouped hazard ratio are functionals of the table (`inference.life_table`). Where treatment was
not randomised and the formula has covariates, records count by weights of a released propensity
model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Unpack

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.calls import OfTables, public_call, released
from dpeffects.errors import OptionError, refusal
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_tables import TableOptions, fit_table, table_spec
from dpeffects.estimators.option_checks import check_bins, check_positive, checked
from dpeffects.formula.expression import Expression, Survival
from dpeffects.inference import COUNTED, Estimate, SamplingVariance, check_conf_level, noise_ratio
from dpeffects.inference.life_table import LifeTable
from dpeffects.lazy import pd
from dpeffects.privacy.curator import Curator
from dpeffects.results.export import frame_of
from dpeffects.results.number_format import number, numbers, to_error
from dpeffects.results.result_base import NamedTable
from dpeffects.results.table_results import (
    ARMS,
    Limits,
    TableEffects,
    TableRelease,
    Term,
    TestInversionTerm,
    normal,
)
from dpeffects.results.wording import p_words, percent, said, with_limits
from dpeffects.summary import Table, printed

_SAID = said("survival")


@dataclass(frozen=True)
class SurvivalOptions(TableOptions):
    """``horizon``: end of follow-up; ``bins``: number of intervals of the life table, equally long,
    or their ends.

    {tables}
    """

    horizon: float = checked(1.0, check_positive)
    bins: int | tuple[float, ...] = checked(12, check_bins, 2, 200)

    def __post_init__(self) -> None:
        super().__post_init__()
        if list(self.edges) != sorted(self.edges) or self.edges[-1] != self.horizon:
            raise OptionError("the ends of the bins must increase from 0 to the horizon")

    @property
    def edges(self) -> tuple[float, ...]:
        """Ends of the intervals, the first of them 0."""
        if isinstance(self.bins, int):
            return tuple(self.horizon * k / self.bins for k in range(self.bins + 1))
        return tuple(dict.fromkeys((0.0, *map(float, self.bins), float(self.horizon))))

    def of_outcome(self, written: Expression) -> Expression:
        """The cell of the life table."""
        if not isinstance(written, Survival):
            raise OptionError(refusal("dp_survival_needs"))
        return Survival(written.time, written.event, self.edges)


def fit(curator: Curator, options: SurvivalOptions, estimand: str) -> TableRelease:
    """Release the model of treatment, where there is one, and the life table."""
    edges = options.edges
    cells = 2 * (len(edges) - 1) + 1
    about = (curator, options, estimand, cells)
    return fit_table(SurvivalEffects, *about, events=range(1, cells - 1, 2), edges=edges)


TABLE = table_spec(name="life_table", options=SurvivalOptions, fit=fit, **_SAID["spec"])


@dataclass(frozen=True, repr=False, kw_only=True)
class SurvivalEffects(TableEffects, picture="report.plots.by_arm.survival"):
    """Survival of two arms up to a horizon, from one life table with privacy noise.

    Results at other times follow from the same table and cost no privacy budget.

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

    _titled = "Survival by arm, {0._private}"
    edges: tuple[float, ...]

    @cached_property
    def life(self) -> LifeTable:
        """The life table with the distributions of what it gives."""
        return LifeTable(self.arm_table, np.array(self.edges))

    @property
    def horizon(self) -> float:
        """The end of follow-up."""
        return self.edges[-1]

    @property
    def estimate_warnings(self) -> str:
        """Warnings about the estimates; empty where there are none."""
        until, few = self.life.known_until, ""
        if until < self.horizon:
            few = _SAID["few_at_risk"].format(until) if until > 0.0 else _SAID["few_records"]
        return "; ".join(filter(None, (super().estimate_warnings, few, self._no_events())))

    def _no_events(self) -> str:
        """A warning where noise hides all events: often the horizon is in another unit."""
        counts = self.arm_table.counts[:, 1:-1:2]
        noise = math.sqrt(sum(self.arm_table.noise_variance) * counts.shape[1])
        if counts.sum() > 2.0 * noise:
            return ""
        return str(_SAID["no_events"])

    def curves(self, conf_level: float = 0.95) -> pd.DataFrame:
        """Both survival curves at the ends of the intervals, with a simultaneous confidence band.

        The band covers both curves at all times simultaneously. ``at_risk`` is the number at risk
        just after a time, with privacy noise, as a number of records or, where ``weighted`` is
        True, a sum of weights. Curves and numbers at risk never increase. A number whose
        ``noise_ratio`` is above 1 is mostly noise.
        """
        from scipy.optimize import isotonic_regression

        life = self.life
        check_conf_level(conf_level)
        risks, lower, upper = life.band(conf_level)
        at_risk, noise = life.at_risk(self.n)
        ratios = noise_ratio(noise, value=np.maximum(at_risk, COUNTED))
        of_curve = noise_ratio(np.sqrt(life.shares(life.edges[1:]).privacy), 1.0)
        rows = []
        for arm, name in enumerate(ARMS):
            curve = 1.0 - isotonic_regression(risks[arm]).x.clip(0.0, 1.0)
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
        return self._framed(self._compared("rmst", end), conf_level, [end])

    def risk(
        self, at: float | Iterable[float] | None = None, conf_level: float = 0.95
    ) -> pd.DataFrame:
        """Risks of the event by given times (1 - survival), their differences and ratios."""
        given = [self.horizon] if at is None else at
        several = isinstance(given, Iterable) and not isinstance(given, str)
        times = [self._time(x) for x in (given if several else [given])]  # type: ignore[union-attr]
        if not times:
            raise OptionError("at needs a time, such as at(2)")
        terms = [term for time in times for term in self._compared("risk", time)]
        return self._framed(terms, conf_level, times)

    def hazard_ratio(self, conf_level: float = 0.95) -> pd.DataFrame:
        """Hazard ratio, treated over control, under proportional hazards (grouped times)."""
        return self._framed([self._hazard_ratio()], conf_level)

    def logrank(self) -> pd.DataFrame:
        """Log-rank test: its statistic is approximately standard normal without an effect."""
        return self._framed([self._logrank()], 0.95)

    def median(self, conf_level: float = 0.95) -> pd.DataFrame:
        """Median survival time by arm; infinite where it is not reached by the horizon."""
        found = self.life.quantiles(0.5, normal(conf_level))
        names = ("estimate", "conf_low", "conf_high")
        values = [dict(zip(names, arm, strict=True)) for arm in found.tolist()]
        pairs = zip(ARMS, values, strict=True)
        return self._frame([{"term": f"median_{arm}"} | row for arm, row in pairs])

    def terms(self) -> Sequence[Term]:
        """Restricted mean survival times and risks at the horizon, hazard ratio, log-rank test."""
        ends = [x for name in ("rmst", "risk") for x in self._compared(name, self.horizon)]
        return [*ends, self._hazard_ratio(), self._logrank()]

    def _time(self, value: Any) -> float:
        try:
            time = float(value)
        except (TypeError, ValueError):
            time = math.nan
        if not 0.0 < time <= self.horizon:
            raise OptionError(refusal("time_above_at", horizon=self.horizon, value=value))
        return time

    def _framed(
        self, terms: Sequence[Term], conf_level: float, times: Sequence[float] = ()
    ) -> pd.DataFrame:
        rows = [term.row(conf_level) for term in terms]
        if times:
            each = len(rows) // len(times)
            rows = [row | {"time": times[i // each]} for i, row in enumerate(rows)]
        return self._frame(rows)

    def _inverted(
        self, name: str, value: float, error: float, limits: Limits | None, null: float | None = 0.0
    ) -> TestInversionTerm:
        """A term with its own limits; without ``null`` there is nothing to test."""
        sampling = SamplingVariance(error**2, 0.0, max(error**2, 1e-300))
        released = self._based(Estimate(value, sampling))
        tested = null is not None
        return TestInversionTerm(name, released, tested=tested, limits=limits, null=null or 0.0)

    def _compared(self, name: str, time: float) -> list[TestInversionTerm]:
        """Shares of the arms, their difference and ratio; of "rmst" what is left of the time."""
        rest = name == "rmst"
        shares, scale = self.life.shares(np.array([time]), lost=rest), -time if rest else 1.0
        values = shares.values[:, 0].clip(0.0, 1.0)
        errors = np.sqrt(shares.variances[:, 0])
        shown = time * (1.0 - values) if rest else values

        def ordered(low: FloatArray, high: FloatArray) -> tuple[float, float]:
            one, other = sorted((scale * float(low), scale * float(high)))
            return one, other

        def of_arm(arm: int, z: float) -> tuple[float, float]:
            low, high = (x[arm, 0] for x in shares.each(z))
            return ordered(low - 1.0, high - 1.0) if rest else ordered(low, high)

        def difference(z: float) -> tuple[float, float]:
            low, high = shares.differences(z)
            return ordered(low[0], high[0])

        def ratio(z: float) -> tuple[float, float]:
            low, high = shares.ratios(z, rest)
            return float(low[0]), float(high[0])

        sds, named = abs(scale) * errors, [f"{name}_{arm}" for arm in ARMS]
        terms = [
            self._inverted(named[k], shown[k], sds[k], partial(of_arm, k), None) for k in (0, 1)
        ]
        raw = shares.values[:, 0]
        gap = max(min(float(raw[0] - raw[1]), 1.0), -1.0) * scale
        shared = float(shares.shared[0])
        error = abs(scale) * math.sqrt(max(float((errors**2).sum()) - 2.0 * shared, 0.0))
        terms.append(self._inverted(f"{name}_difference", gap, error, difference))
        times, error = _ratio(shown, sds, scale**2 * shared)
        terms.append(self._inverted(f"{name}_ratio", times, error, ratio, 1.0))
        noise = np.sqrt(shares.privacy[:, 0])
        of_ratio = noise_ratio(abs(scale) * noise, value=shown).max()
        of_gap = noise_ratio(np.hypot(*noise), 2.0, gap / scale, signed=True)
        ratios = (*noise_ratio(noise, 1.0), of_gap, of_ratio)
        return [replace(term, noise=x) for term, x in zip(terms, ratios, strict=True)]

    def _hazard_ratio(self) -> TestInversionTerm:
        ratio, error = self.life.hazard_ratio()
        limits, counts = self.life.hazard_ratios, self.arm_table.counts[:, 1:-1:2]
        noise = np.sqrt(np.multiply(self.arm_table.noise_variance, counts.shape[1]))
        found = self._inverted("hazard_ratio", ratio, ratio * error, limits, 1.0)
        return replace(found, noise=noise_ratio(noise, value=counts.sum(axis=1)).max())

    def _logrank(self) -> TestInversionTerm:
        return self._inverted("logrank", self.life.logrank, 1.0, None)

    def _row_labels(self, rows: Sequence[Mapping[Any, Any]]) -> list[str]:
        return [_SAID["printed"].get(str(row["term"]), "") for row in rows]

    def _apart(self, conf_level: float, **asked: Any) -> Iterator[NamedTable]:
        for name, made, notes in super()._apart(conf_level, **asked):
            yield name, made, (*notes, self._findings(conf_level)[0])

    def _in_words(self, term: str) -> str:
        if term == "logrank":
            return "log-rank statistic"
        return super()._in_words(term.replace("rmst", "RMST"))

    def _after(self, place: str) -> str:
        return "" if place == "paragraph" else f" until {number(self.horizon)}"

    def _tables(self, conf_level: float) -> list[Table]:
        """Both curves at some of the times, with the confidence band and the numbers at risk."""
        curves = self.curves(conf_level)
        arms = [curves[curves["arm"] == arm].to_dict("records") for arm in ARMS]
        last = len(self.edges) - 1
        picked = sorted({round(last * k / min(6, last)) for k in range(min(6, last) + 1)})
        rows = []
        for k, time in zip(picked, numbers([self.edges[k] for k in picked], 4), strict=True):
            cells = [time]
            for row in (arm[k] for arm in arms):
                band = f"{row['conf_low']:.3f}-{row['conf_high']:.3f}"
                curve = printed(f"{row['survival']:.3f}", row["noise_ratio"])
                cells += [curve, band, printed(f"{row['at_risk']:.0f}", row["at_risk_noise_ratio"])]
            rows.append(tuple(cells))
        columns = ["time"]
        for arm in ARMS:
            columns += [arm, f"{percent(conf_level, 'g')} band", "at risk"]
        what = "weighted numbers at risk" if self.life.weighted else "numbers at risk"
        title = f"Survival with a simultaneous confidence band, and {what} (with privacy noise)"
        return [Table(title, tuple(columns), tuple(rows), "r" * len(columns))]

    def _reading(self, conf_level: float) -> list[str]:
        """Notes on how to read the numbers; the last is on the curves."""
        notes = []
        if abs(change := self.life.drift) > hand.CUT:
            notes.append(_SAID["drift"].format("rises" if change > 0.0 else "falls"))
        halves = zip(ARMS, self.median(conf_level)["estimate"].tolist(), strict=True)
        parts = [
            f"{arm} {number(half, 3) if math.isfinite(half) else 'not reached'}"
            for arm, half in halves
        ]
        notes.append(f"Median survival time: {', '.join(parts)}.")
        weighted = "" if self.arm_table.unequal == (1.0, 1.0) else _SAID["scaled"]
        weighted = _SAID["weighted"] if self.life.weighted else weighted
        notes.append(f"{weighted}{_SAID['curves']}")
        return notes

    def _noted(self, conf_level: float) -> list[str]:
        return [*self._reading(conf_level), *self.notes]

    def _findings(self, conf_level: float) -> list[str]:
        rows = {row["term"]: row for row in self.tidy(conf_level).to_dict("records")}
        means, gap = [rows[f"rmst_{arm}"]["estimate"] for arm in ARMS], rows["rmst_difference"]
        risks, ratio = [rows[f"risk_{arm}"]["estimate"] for arm in ARMS], rows["hazard_ratio"]
        treated, control = to_error(means, gap["std_error"])
        tested = "" if math.isnan(p := ratio["p_value"]) else f"; log-rank p {p_words(p)}"
        shares = [percent(risk, ".1f") for risk in risks]
        rmst = _SAID["rmst"].format(number(self.horizon), treated, control, with_limits(gap))
        level = percent(conf_level)
        ratios = _SAID["risks"].format(level, *shares, with_limits(ratio), tested)
        return [rmst, ratios, *self._reading(conf_level)[:-1]]


def _ratio(values: FloatArray, errors: FloatArray, shared: float) -> tuple[float, float]:
    """Ratio of two numbers and its standard error; infinite where the second is not positive."""
    if values[1] <= 0.0:
        return (math.inf if values[0] > 0.0 else math.nan), math.inf
    ratio = float(values[0] / values[1])
    square = errors[0] ** 2 + (ratio * errors[1]) ** 2 - 2.0 * ratio * shared
    return ratio, math.sqrt(max(float(square), 0.0)) / float(values[1])


@public_call(
    OfTables,
    method="life_table",
    plot="draw both survival curves",
    bins={"type": int, "nargs": None, "help": "intervals of the life table"},
)
def dp_survival(
    formula: str,
    data: Any,
    *,
    horizon: float,
    bins: int | Sequence[float] = 12,
    epsilon: float,
    **more: Unpack[OfTables],
) -> SurvivalEffects:
    r"""Compare the survival of two arms: curves, RMST, risks, hazard ratio and log-rank test.

    Parameters
    ----------
    formula
        ``"Surv(time, event) ~ treatment"``, or ``"Surv(time, status == 2) ~ treatment | x1 + x2"``.
        Effects are adjusted for covariates by inverse probability weights of a released propensity
        model, unless treatment was randomised.
    horizon
        End of follow-up, in the unit of the times: a number from the protocol. Longer times are
        censored there.
    bins
        Number of intervals of the life table up to the horizon, equally long; or their ends.
    bounds
        As in :func:`dp_ate`. Times and events need none.
    {shared}

    Returns
    -------
    SurvivalEffects
        Survival curves, restricted mean survival times (RMST), risks, hazard ratio and log-rank
        test. All follow from one life table with privacy noise; other times up to the horizon cost
        no privacy budget.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> import pandas as pd
    >>> data = pd.DataFrame({"t": [0, 1] * 200, "time": range(400), "died": [1, 1, 0, 1] * 100})
    >>> fit = dpe.dp_survival(
    ...     "Surv(time, died) ~ t", data, horizon=365, epsilon=1, design="randomised", seed=1
    ... )
    >>> fit.n, fit.guarantee.status
    (400, 'void: seeded')

    In a shell::

        dpeffects survival "Surv(days, died) ~ treated" trial.csv --horizon 365 \
            --epsilon 1 --design randomised --plot curves.png
        dpeffects survival "Surv(days, status == 2) ~ treated | age" patients.csv \
            --horizon 365 --bins 10 --epsilon 1 --bounds bounds.toml --out north.json
    """
    return released(TABLE, locals())
