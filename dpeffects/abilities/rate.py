"""`dp_rate`: rates of events per person-time of two arms.

1. Sums of events and of time by arm, each over the largest that a record can have. A record is in
   one arm, so it is asked for what it adds with a minus for controls, and for the size of that
   beside it: both arms then have half the noise variance of sums by arm (claim 32).
2. At the rates that these give, squared differences between the events of a record and those that
   the rate gives in its time: the sampling variance, however overdispersed the counts are. A
   square of a number within [0, 1] is no more than the number. What it lacks of that is asked for:
   it lies in a quarter of the range.

Where treatment was not randomised and the formula has covariates, records count by weights of a
released propensity model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.calls import OfTables, public_call, released
from dpeffects.errors import OptionError, refusal
from dpeffects.estimators import arm_tables, spec
from dpeffects.estimators import constants as hand
from dpeffects.estimators.option_checks import check_column, check_positive, checked
from dpeffects.estimators.row_functions import row
from dpeffects.formula.expression import Column, Expression, Pair, columns
from dpeffects.inference import COUNTED, ArmMeans, Unavailable, intervals, noise_ratio, scales
from dpeffects.inference.intervals import NO_TEST, Interval
from dpeffects.inference.rates import ArmSums, RateTable
from dpeffects.privacy import Block, Box, Curator, NoisyValue, SumQuery, entries
from dpeffects.privacy.tight_domains import BoxWithAbsoluteValues
from dpeffects.results.number_format import number, numbers
from dpeffects.results.table_results import ARMS, TableEffects, TableRelease, Term
from dpeffects.results.wording import effect_cells, percent, said
from dpeffects.summary import Table, printed

_SUMS = BoxWithAbsoluteValues(Box([-1.0, -hand.TIME], [1.0, hand.TIME], centre=0.0))
_ONE = BoxWithAbsoluteValues(Box(-1.0, 1.0, centre=0.0))
_SAID = said("rate")


# --- options ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RateOptions(arm_tables.TableOptions):
    """``offset``: the column of person-time; ``per``: the person-time that rates are given for,
    such as 1000 (events per 1,000 person-years).

    {tables}
    """

    offset: str = checked("", check_column)
    per: float = checked(1.0, check_positive, 1e-100, 1e100)

    def of_outcome(self, written: Expression) -> Expression:
        """Events and time as one number."""
        if not self.offset:
            raise OptionError(refusal("rate_needs_person"))
        written = super().of_outcome(written)
        if self.offset in columns(written):
            raise OptionError(refusal("offset_outcome_name", offset=self.offset))
        return Pair(written, Column(self.offset))


def budget_split(level: str, options: RateOptions) -> dict[str, float]:
    """Split of the budget: a fifth of what is not the model's for the sampling variance."""
    found = arm_tables.table_budget(level, options)
    whole = found["table"]
    return found | {"table": (1.0 - hand.SQUARES) * whole, "squares": hand.SQUARES * whole}


def uses_delta(options: Any, facts: spec.PublicInfo) -> dict[str, float | None]:
    """Shares that can use a delta."""
    sums = dict.fromkeys(("unadjusted", "table"), entries(_SUMS))
    return {"model": None, **sums, "squares": entries(_ONE)}


# --- what a record adds -------------------------------------------------------------------------


@row("treated", "outcome")
def events_and_time(
    rows: Block, weight: arm_tables.TableWeight | None
) -> tuple[FloatArray, FloatArray]:
    """Events and time of a record over the largest, by weight; a minus for control records."""
    events, time = _both(rows, weight)
    sign = np.where(rows.treated, 1.0, -1.0)
    return sign * events, sign * hand.TIME * time


@row("treated", "outcome")
def lacking(
    rows: Block, weight: arm_tables.TableWeight | None, rates: FloatArray, most: FloatArray
) -> FloatArray:
    """What the square of events beyond a rate lacks of the most that it can be; signed by arm.

    For events x, time u and a rate r the square is at most x + r^2 u, as x and u are within [0, 1].
    """
    events, time = _both(rows, weight)
    arm = np.where(rows.treated, 0, 1)
    rate = rates[arm]
    short = events - (events - rate * time) ** 2 + rate**2 * time
    return np.where(rows.treated, 1.0, -1.0) * short / most[arm]


def most_lacking(rates: FloatArray) -> FloatArray:
    """The most that a square can lack, in either arm."""
    return (0.5 + rates) ** 2 + rates**2 / 4.0


def _both(rows: Block, weight: arm_tables.TableWeight | None) -> tuple[FloatArray, FloatArray]:
    """Events and time of some rows, within [0, 1]; a record without time is left out."""
    events, time = Pair.apart(rows.outcome)
    share = np.where(time > 0.0, 1.0, 0.0)
    if weight is not None:
        share = share * weight(rows)
    return share * events, share * time


# --- the release --------------------------------------------------------------------------------


def fit(curator: Curator, options: RateOptions, estimand: str) -> TableRelease:
    """Release the model of treatment, where there is one, then sums, then squares."""
    adjustment = arm_tables.adjusted(curator, options, estimand)
    weight = adjustment.weight if adjustment else None
    asked = [SumQuery("events and time by arm", events_and_time(weight), _SUMS, None, "table")]
    if curator.has("unadjusted"):
        plain = events_and_time(None)
        asked.append(SumQuery("the same without weights", plain, _SUMS, None, "unadjusted"))
    first, *others = curator.several(*asked)
    events, time = _of_arms(first) / np.array([[1.0], [hand.TIME]])
    noise = first.variance / 2.0
    rates = np.clip(events / np.maximum(time, math.sqrt(noise) / hand.TIME), 0.0, hand.STEEPEST)
    most = most_lacking(rates)
    second = curator.sums("squares by arm", lacking(weight, rates, most), _ONE, share="squares")
    squares = events + rates**2 * time - most * _of_arms(second)[0]
    variance = noise * (1.0 + (rates**2 / hand.TIME) ** 2)
    scale = np.sqrt((variance + most**2 * second.variance / 2.0) / 2.0)
    top, longest = tops = options.facts.tops
    one, other = adjustment.unequal if adjustment else (1.0, 1.0)
    table = RateTable(
        _arm_sums(first, tops),
        _pair(top**2 * squares),
        _pair(top**2 * scale),
        (top, longest),
        effective=(curator.n / one, curator.n / other),
        confounding=arm_tables.confounding_left(options, adjustment),
        unadjusted=_arm_sums(others[0], tops) if others else None,
    )
    own = {"arm_table": table, "per": float(options.per), "offset": options.offset}
    return arm_tables.tabled(RateEffects, options, adjustment, **own)


def _of_arms(release: NoisyValue) -> FloatArray:
    """Sums of both arms, one row for each column, of a released difference and sum of them."""
    difference, whole = release.value.reshape(2, -1)
    return np.stack([whole + difference, whole - difference], axis=1) / 2.0


def _arm_sums(release: NoisyValue, tops: tuple[float, ...]) -> ArmSums:
    """Events and time as they were before they were scaled."""
    sizes = np.array([tops[0], tops[1] / hand.TIME])
    events, time = map(_pair, _of_arms(release) * sizes[:, None])
    return ArmSums(events, time, _pair(sizes * (release.scale / 2.0)), release.gaussian)


def _pair(values: FloatArray) -> tuple[float, float]:
    one, other = values.tolist()
    return one, other


TABLE = arm_tables.table_spec(
    name="rate",
    options=RateOptions,
    budget_split=budget_split,
    fit=fit,
    uses_delta=uses_delta,
    **_SAID["spec"],
)


# --- the result ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ratio(Term):
    """A ratio of two numbers: its interval is what a test of it does not reject.

    ``released`` is the difference of the two.
    """

    means: ArmMeans = field(kw_only=True)

    @property
    def estimate(self) -> float:
        """The first over the second; infinite or NaN where that is not above zero."""
        one, zero = max(self.means.treated, 0.0), self.means.control
        return one / zero if zero > 0.0 else math.inf if one > 0.0 else math.nan

    @property
    def std_error(self) -> float | Unavailable:
        """Its standard error, by the delta method."""
        if not math.isfinite(self.estimate):
            return Unavailable("the second number is not above zero")
        found = intervals.std_error(self.means.combined(1.0, -self.estimate))
        return found if isinstance(found, Unavailable) else found / self.means.control

    def row(self, conf_level: float = 0.95) -> dict[str, Any]:
        """The number as a row of `tidy`; it is mostly noise where one of the two is."""
        noise = max(scales.mean_noise(self.means, treated) for treated in (True, False))
        return super().row(conf_level) | {"noise_ratio": noise}

    def conf_int(self, conf_level: float = 0.95) -> Interval | Unavailable:
        """Its confidence interval; it ends in infinity where the second may be zero."""
        return scales.ratio(self.means, conf_level).interval

    @property
    def p_value(self) -> float | Unavailable:
        """Two-sided p-value of a ratio of 1, by the test that the interval inverts."""
        return Unavailable(NO_TEST) if self.released.associated else scales.no_effect(self.means)


@dataclass(frozen=True, repr=False, kw_only=True)
class RateEffects(TableEffects):
    """Rates of events per person-time of two arms, from noisy sums of events and time.

    Parameters
    ----------
    arm_table
        The released sums.
    per
        The person-time that rates are given for: 1000 for events per 1,000 person-years.
    offset
        The column of person-time.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> trial = dpe.simulate("rates", n=5000, seed=1, randomised=True)
    >>> fit = dpe.dp_rate(
    ...     "events ~ treatment", trial, offset="years", epsilon=1, design="randomised", seed=1
    ... )
    >>> fit.tidy()["term"].tolist()
    ['rate_treated', 'rate_control', 'rate_difference', 'rate_ratio']
    """

    arm_table: RateTable  # type: ignore[assignment]
    per: float = 1.0
    offset: str = ""

    def terms(self) -> Sequence[Term]:
        """Both rates, their difference and their ratio."""
        means = self.arm_table.means(self.per)
        rates = [
            Term(f"rate_{arm}", self._based(scales.of_mean(means, k == 0)), tested=False)
            for k, arm in enumerate(ARMS)
        ]
        difference = self._based(means.combined(1.0, -1.0))
        ratio = Ratio("rate_ratio", difference, means=means)
        return [*rates, Term("rate_difference", difference), ratio]

    def __repr__(self) -> str:
        return self._head(f"of the rate {self.outcome}")

    def _per(self) -> str:
        per = "unit" if self.per == 1.0 else number(self.per)
        return f"per {per} of person-time ({self.offset})"

    def _after(self, place: str) -> str:
        return "" if place == "paragraph" else f", rates {self._per()}"

    def _tables(self, conf_level: float) -> list[Table]:
        """Events and person-time, as released."""
        weights = "weighted, " if self.details else ""
        found, cells = self.arm_table.sums, []
        for values, scale in zip((found.events, found.time), found.scales, strict=True):
            sd = scale * math.sqrt(2.0 if found.gaussian else 4.0)  # of two halves
            ratios = [noise_ratio(sd, value=max(x, COUNTED)) for x in values]
            cells.append([*map(printed, numbers(values, 4), ratios)])
        rows = tuple(zip(ARMS, *cells, strict=True))
        title = f"Events and person-time by arm ({weights}with privacy noise)"
        return [Table(title, ("arm", "events", self.offset), rows, "lrr")]

    def _open_end(self, conf_level: float) -> list[str]:
        return [_SAID["unbounded"]] if self.conf_int(conf_level)[-1, 1] == math.inf else []

    def _noted(self, conf_level: float) -> list[str]:
        return [*self.notes, *self._open_end(conf_level)]

    def _findings(self, conf_level: float) -> list[str]:
        found = {}
        for term in self.tidy(conf_level).to_dict("records"):
            value, _, low, high = effect_cells(term)
            interval = f"{percent(conf_level)} confidence interval from {low} to {high}"
            found[term["term"]] = f"{value} ({interval})"
        return [_SAID["findings"].format(per=self._per(), **found), *self._open_end(conf_level)]


# --- the call -----------------------------------------------------------------------------------


@public_call(OfTables, method="rate", plot="draw the rates, and their difference")
def dp_rate(
    formula: str,
    data: Any,
    *,
    offset: str,
    per: float = 1.0,
    epsilon: float,
    **more: Unpack[OfTables],
) -> RateEffects:
    r"""Compare rates of events per person-time of two arms.

    Parameters
    ----------
    formula
        ``"events ~ treatment"``, or ``"events ~ treatment | x1 + x2"``, where events are counts, or
        0 and 1. Effects are adjusted for covariates by inverse probability weights of a released
        propensity model, unless treatment was randomised.
    offset
        The column of person-time, such as years of follow-up: a time, not its logarithm. Records
        without person-time are left out.
    per
        The person-time that rates are given for: 1000 for events per 1,000 person-years. Rate
        ratios do not depend on it.
    bounds
        As in :func:`dp_ate`. The largest count and the largest time of a record must be declared,
        ``{"events": (0, 10), "years": (0, 5)}``: the noise in rates is proportional to the first.
    {shared}

    Returns
    -------
    RateEffects
        Rates of both arms, rate difference and rate ratio. Intervals are valid for overdispersed
        counts too: the variance is estimated from records, not taken from a Poisson distribution.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("rates", n=5000, seed=1)
    >>> formula = "events ~ treatment | x1 + x2 + x3"
    >>> fit = dpe.dp_rate(formula, data, offset="years", epsilon=2, seed=1)
    >>> fit.outcome, fit.guarantee.status
    ('events / years', 'void: seeded')

    In a shell::

        dpeffects rate "events ~ treated" trial.csv --offset years --epsilon 1 \
            --bounds bounds.toml --design randomised --per 1000
        dpeffects rate "events ~ treated | age + sex" patients.csv --offset years \
            --epsilon 1 --bounds bounds.toml --unit patient
    """
    return released(TABLE, locals())
