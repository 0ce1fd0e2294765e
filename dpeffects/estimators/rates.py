"""Rates of two arms per person-time: what `dp_rate` releases.

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
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.errors import OptionError
from dpeffects.estimators._checks import is_number
from dpeffects.estimators._tables import (
    Adjustment,
    TableOptions,
    TableWeight,
    confounding_left,
    table_shares,
    table_spec,
    tabled,
)
from dpeffects.estimators.spec import Facts, Options
from dpeffects.formula.expression import Column, Expression, Pair, columns
from dpeffects.inference.rates import ArmSums, RateTable
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Asked, Curator
from dpeffects.privacy.moments import WithSizes
from dpeffects.privacy.rows import Block
from dpeffects.privacy.sets import Box, entries
from dpeffects.results.rates import RateEffects
from dpeffects.results.tabled import Tabled

_TIME = 0.25
"""What time counts beside events in the noise: it is known far better where events are rare."""
_SUMS = WithSizes(Box([-1.0, -_TIME], [1.0, _TIME], centre=0.0))
_ONE = WithSizes(Box(-1.0, 1.0, centre=0.0))
_SQUARES = 0.18
"""Proportion of the budget of the rates that is for their sampling variance."""
_STEEPEST = 16.0
"""Largest rate of the squares, in largest counts per largest time."""


@dataclass(frozen=True)
class RateOptions(TableOptions):
    """``offset``: the column of the time in which events were counted; ``per``: the time that rates
    are given for, as 1000 (person-years); ``design``: "observational", or "randomised" where
    treatment was assigned by chance; ``on_unadjusted``: "caution", or "error" to refuse, before
    anything is paid, a result of an observational study that is not adjusted; ``adjust``: whether
    covariates are adjusted for, None where there are any, treatment was not randomised, and a
    propensity model can be learnt; ``model_share``: part of the budget for that model, by default
    from public numbers.
    """

    offset: str = ""
    per: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.offset, str):
            raise OptionError(f"offset must be the name of a column, got {self.offset!r}")
        if not (is_number(self.per) and 1e-100 < self.per < 1e100):
            raise OptionError(f"per must be a positive number, got {self.per!r}")

    def of_outcome(self, written: Expression) -> Expression:
        """Events and time as one number."""
        if not self.offset:
            raise OptionError('rates need the time of each record: write offset="years"')
        written = super().of_outcome(written)
        if self.offset in columns(written):
            raise OptionError(f"offset={self.offset!r} is the outcome: name the column of times")
        return Pair(written, Column(self.offset))

    def resolve(self, facts: Facts) -> Options:
        """Decide whether to adjust; keep the largest counts and times."""
        made = super().resolve(facts)
        own = {f.name: getattr(made, f.name) for f in fields(made) if f.init}
        return PlannedRate(**own, facts=facts)


@dataclass(frozen=True, kw_only=True)
class PlannedRate(RateOptions):
    """The options with every choice made, for the facts that they were made by."""

    facts: Facts


def shares(level: str, options: RateOptions) -> dict[str, float]:
    """Split of the budget: a fifth of what is not the model's for the sampling variance."""
    found = table_shares(level, options)
    whole = found["table"]
    return found | {"table": (1.0 - _SQUARES) * whole, "squares": _SQUARES * whole}


def uses_delta(options: Any, facts: Facts) -> dict[str, float | None]:
    """Shares that can use a delta."""
    sums = dict.fromkeys(("unadjusted", "table"), entries(_SUMS))
    return {"model": None, **sums, "squares": entries(_ONE)}


@dataclass(frozen=True, eq=False)
class EventsAndTime:
    """Events and time of a record over the largest, by weight; a minus for control records.

    A record without time counts as nothing.
    """

    weight: TableWeight | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Arm and outcome, and what weights need."""
        more = () if self.weight is None else self.weight.reads
        return tuple(dict.fromkeys(("treated", "outcome", *more)))

    def both(self, rows: Block) -> tuple[FloatArray, FloatArray]:
        """Events and time of some rows, within [0, 1]."""
        events, time = Pair.apart(rows.outcome)
        share = np.where(time > 0.0, 1.0, 0.0)
        if self.weight is not None:
            share = share * self.weight(rows)
        return share * events, share * time

    def __call__(self, rows: Block) -> tuple[FloatArray, FloatArray]:
        """Both, with the sign of the arm."""
        events, time = self.both(rows)
        sign = np.where(rows.treated, 1.0, -1.0)
        return sign * events, sign * _TIME * time


@dataclass(frozen=True, eq=False)
class Lacking:
    """What the square of events beyond a rate lacks of the most that it can be; signed by arm.

    For events x, time u and a rate r the square is at most x + r^2 u, as x and u are within [0, 1].
    """

    sums: EventsAndTime
    rates: FloatArray

    @property
    def reads(self) -> tuple[str, ...]:
        """What the sums read."""
        return self.sums.reads

    @property
    def largest(self) -> FloatArray:
        """The most that a square can lack, in either arm."""
        return (0.5 + self.rates) ** 2 + self.rates**2 / 4.0

    def __call__(self, rows: Block) -> FloatArray:
        """Over the most of the arm."""
        events, time = self.sums.both(rows)
        arm = np.where(rows.treated, 0, 1)
        rate, most = self.rates[arm], self.largest[arm]
        lacking = events - (events - rate * time) ** 2 + rate**2 * time
        return np.where(rows.treated, 1.0, -1.0) * lacking / most


@dataclass(frozen=True, eq=False)
class BothArms:
    """Sums of two arms out of a released sum and difference of them."""

    release: Noisy

    @property
    def sums(self) -> FloatArray:
        """One row for each column: treated, control."""
        difference, whole = self.release.value.reshape(2, -1)
        return np.stack([whole + difference, whole - difference], axis=1) / 2.0

    @property
    def scale(self) -> float:
        """Scale of the noise in either half."""
        return self.release.scale / 2.0

    @property
    def variance(self) -> float:
        """Variance of the noise in the sum of an arm."""
        return self.release.variance / 2.0

    def arm_sums(self, tops: tuple[float, ...]) -> ArmSums:
        """Events and time as they were before they were scaled."""
        top, longest = tops[0], tops[1] / _TIME
        events, time = (_pair(x) for x in self.sums * np.array([[top], [longest]]))
        return ArmSums(
            events, time, (top * self.scale, longest * self.scale), self.release.gaussian
        )


def fit(curator: Curator, options: PlannedRate, estimand: str) -> Tabled:
    """Release the model of treatment, where there is one, then sums, then squares."""
    adjustment = Adjustment.released(curator, estimand) if options.adjust else None
    row = EventsAndTime(adjustment.weight if adjustment else None)
    asked = [Asked("events and time by arm", row, _SUMS, None, "table")]
    if curator.has("unadjusted"):
        asked.append(Asked("the same without weights", EventsAndTime(), _SUMS, None, "unadjusted"))
    first, *plain = map(BothArms, curator.several(*asked))
    events, time = first.sums / np.array([[1.0], [_TIME]])
    noise = math.sqrt(first.variance)
    rates = np.clip(events / np.maximum(time, noise / _TIME), 0.0, _STEEPEST)
    lacking = Lacking(row, rates)
    second = BothArms(curator.sums("squares by arm", lacking, _ONE, share="squares"))
    squares = events + rates**2 * time - lacking.largest * second.sums[0]
    variance = first.variance * (1.0 + (rates**2 / _TIME) ** 2)
    scale = np.sqrt((variance + lacking.largest**2 * second.variance) / 2.0)
    top, longest = tops = options.facts.tops
    table = RateTable(
        first.arm_sums(tops), _pair(top**2 * squares), _pair(top**2 * scale), (top, longest)
    )
    one, other = adjustment.unequal if adjustment else (1.0, 1.0)
    table = replace(
        table,
        effective=(curator.n / one, curator.n / other),
        confounding=confounding_left(options, adjustment),
        unadjusted=plain[0].arm_sums(tops) if plain else None,
    )
    own = {"table": table, "per": float(options.per), "offset": options.offset}
    return tabled(RateEffects, options, adjustment, **own)


def _pair(values: FloatArray) -> tuple[float, float]:
    one, other = values.tolist()
    return one, other


TABLE = table_spec(
    name="rate",
    title="rates per person-time",
    about="dp_rate: sums of events and of time by arm; rates, their difference and ratio",
    assumes="the time of a record does not depend on what would have happened",
    options=RateOptions,
    shares=shares,
    fit=fit,
    uses_delta=uses_delta,
    citation="dpeffects (software): noisy sums of events and time.",
)
