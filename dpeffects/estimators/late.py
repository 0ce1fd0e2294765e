"""The effect among compliers of an instrument: what `dp_late` releases.

The instrument z takes the place of the treatment, and whatever the default method does (`auto`) is
done twice, on the same rows with another outcome each time:

1. The effect of z on treatment d: the first stage. Its price is small, as what noise in it does to
   the result is multiplied by how far step 2 misses.
2. A pilot: one sum of outcomes, with the weights of step 1. Over the first stage it gives an effect
   among compliers, tau_0, that is about right.
3. The effect of z on y - tau_0 d, with most of the budget: it is small, and what it is over the
   first stage corrects tau_0.
4. The covariance of the two, by the product of what a record adds to either. It says how errors
   of both go together in intervals that reach far from tau_0.

`dpeffects.inference.late` has the interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray, Interval
from dpeffects.errors import OptionError
from dpeffects.estimands import LATE
from dpeffects.estimators import clipped_contrast, one_step
from dpeffects.estimators._centres import clipped_term, residual
from dpeffects.estimators.arm_sums import OfArm
from dpeffects.estimators.auto import AutoOptions
from dpeffects.estimators.clipped_contrast import ClippedContrastOptions, StudyOptions
from dpeffects.estimators.one_step import OneStepOptions
from dpeffects.estimators.spec import Facts, MethodSpec, Options
from dpeffects.formula import Formula
from dpeffects.formula.expression import Categorical, Column, Cut, Taken, is_binary, shown
from dpeffects.inference.estimate import Estimate, Influence
from dpeffects.inference.late import Wald
from dpeffects.privacy.budget import Budget, Share
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.release import Split
from dpeffects.privacy.rows import Block
from dpeffects.privacy.sets import Box
from dpeffects.privacy.units import with_outcome
from dpeffects.results.late import LateEffect
from dpeffects.results.tabled import Tabled

_SHARES = {"pilot": 0.05, "first_stage": 0.18, "effect": 0.75, "covariance": 0.02}
"""Split of the budget where the instrument was randomised,"""
_ADJUSTED = {"pilot": 0.1, "first_stage": 0.28, "effect": 0.6, "covariance": 0.02}
"""and where covariates are adjusted for, which makes the first stage dearer."""
_USUAL = 0.2
"""Effects among compliers over studies, in ranges of the outcome: a pilot is pulled to 0 by it."""


@dataclass(frozen=True)
class LateOptions(StudyOptions):
    """``instrument``: the column, 0 or 1, that changes who is treated and nothing else;
    ``design``: "observational" where it is as good as random given the covariates of the formula,
    "randomised" where it was assigned by chance; ``on_unadjusted``: "caution", or "error" to
    refuse, before anything is paid, a result that cannot be adjusted for them.
    """

    instrument: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.instrument, str):
            raise OptionError(f"instrument must be the name of a column, got {self.instrument!r}")

    def of_formula(self, written: Formula) -> Formula:
        """The instrument in the place of the treatment, which becomes a part of the outcome."""
        if not self.instrument.strip():
            raise OptionError('name the instrument: write instrument="z"')
        outcome, taken = self.of_outcome(written.outcome), written.treatment
        if isinstance(taken, Categorical | Cut) or not (
            isinstance(taken, Column) or is_binary(taken)
        ):
            raise OptionError(
                f"treatment `{shown(taken)}`: beside an instrument it is a column of 0 and 1, or a "
                "comparison"
            )
        if self.instrument in written.columns:
            raise OptionError(f"instrument={self.instrument!r} also stands in the formula")
        return replace(written, outcome=Taken(outcome, taken), treatment=Column(self.instrument))

    def resolve(self, facts: Facts) -> Options:
        """Keep the facts that plans are made by."""
        if facts.arms > 2:
            raise OptionError("an instrument has two levels: name two in bounds, with their rows")
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        return PlannedLate(**own, facts=facts)


@dataclass(frozen=True, kw_only=True)
class PlannedLate(LateOptions):
    """The options, and the facts that plans are made by."""

    facts: Facts

    @property
    def study(self) -> str:
        """The design: without covariates nothing is adjusted for, and nothing is to be."""
        return self.design if self.facts.columns else "randomised"

    def facts_of(self, price: Share, values: int) -> Facts:
        """The facts of an analysis with this price, of an outcome with so many values."""
        own = (*self.facts.values[:-1], values)
        # a hair less than the share, so that rounding never makes it more
        budget = Budget(price.epsilon * (1.0 - 1e-12), price.delta * (1.0 - 1e-12))
        return replace(self.facts, budget=budget, values=own, tops=(), indicator=False)

    def of_residual(self, price: Share) -> tuple[MethodSpec, Options, Facts]:
        """How the effect on the residual is estimated: as the default does."""
        facts = self.facts_of(price, 2 if self.facts.two_valued else 0)
        chosen = AutoOptions(self.study, self.on_unadjusted).resolve(facts)
        return chosen.method, chosen.own, facts

    def of_first(self, price: Share, method: MethodSpec) -> tuple[MethodSpec, Options, Facts]:
        """How the first stage is estimated: adjusted, where the effect on the residual is."""
        facts = self.facts_of(price, 2)
        if self.study == "randomised":
            chosen = AutoOptions(self.study).resolve(facts)
            return chosen.method, chosen.own, facts
        if method is one_step.SPEC:
            return method, one_step.planned(OneStepOptions(self.study), facts)[0], facts
        plain = ClippedContrastOptions(self.study)
        return clipped_contrast.SPEC, clipped_contrast.planned(plain, facts)[0], facts

    def check_shares(self, facts: Facts, shares: Mapping[str, Share]) -> None:
        """Refuse what cannot be adjusted, where that was asked for."""
        method, _, _ = self.of_residual(shares["effect"])
        self.of_first(shares["first_stage"], method)


def shares(level: str, options: LateOptions) -> dict[str, float]:
    """Split of the budget: most of it for the effect on the residual."""
    study = options.study if isinstance(options, PlannedLate) else options.design
    return dict(_SHARES if study == "randomised" else _ADJUSTED)


def uses_delta(options: Any, facts: Facts) -> dict[str, float | None]:
    """Both analyses can use a delta, which they divide by themselves."""
    return dict.fromkeys(("first_stage", "effect"))


@dataclass(frozen=True)
class LessTaken:
    """The outcome less a multiple of the treatment: a row function of both as one number."""

    ends: Interval
    factor: float
    own: float = 1.0
    reads: tuple[str, ...] = field(default=("outcome",), init=False)

    def __call__(self, rows: Block) -> FloatArray:
        """Values of some rows."""
        first, taken = Taken.apart(rows.outcome)
        low, high = self.ends
        return self.own * (low + (high - low) * first) - self.factor * taken

    @property
    def range(self) -> Interval:
        """What it lies in."""
        low, high = (self.own * end for end in self.ends)
        return low - max(self.factor, 0.0), high - min(self.factor, 0.0)


TAKEN = LessTaken((0.0, 1.0), -1.0, 0.0)
"""Whether treatment was taken."""


@dataclass(frozen=True, eq=False)
class Weighted:
    """What a record adds to a sum of an outcome, over the largest that it can be."""

    outcome: LessTaken
    term: Any
    largest: float
    mean: float = 0.0

    @classmethod
    def of(cls, outcome: LessTaken, influence: Influence) -> Weighted:
        """What a record adds to an estimate, from the mean."""
        largest = max(abs(influence.low), abs(influence.high)) + abs(influence.mean)
        return cls(outcome, influence.term, largest, influence.mean)

    @property
    def reads(self) -> tuple[str, ...]:
        """What outcome and term read."""
        return tuple(dict.fromkeys(("outcome", *self.term.reads)))

    def __call__(self, rows: Block) -> FloatArray:
        """Values of some rows, within [-1, 1]."""
        seen = replace(rows, outcome=np.clip(self.outcome(rows), *self.outcome.range))
        return np.asarray((self.term(seen.only(self.term.reads)) - self.mean) / self.largest)


@dataclass(frozen=True, eq=False)
class Product:
    """The product of what a record adds to two estimates, each less its mean, over the largest."""

    factors: tuple[Weighted, Weighted]

    @property
    def reads(self) -> tuple[str, ...]:
        """What both read."""
        return tuple(dict.fromkeys(x for each in self.factors for x in each.reads))

    def __call__(self, rows: Block) -> FloatArray:
        """Products of some rows, within [-1, 1]."""
        one, other = (each(rows) for each in self.factors)
        return one * other


def fit(curator: Curator, options: PlannedLate, estimand: str) -> Tabled:
    """Release the first stage, a pilot, the effect on the residual, and their covariance."""
    method, own, facts = options.of_residual(_price(curator, "effect"))
    plan = options.of_first(_price(curator, "first_stage"), method)
    first, by_taken = _fitted(curator, TAKEN, "first stage", *plan)
    ends = options.facts.tops[0], options.facts.tops[1]
    start = _pilot(curator, ends, first, by_taken)
    outcome = LessTaken(ends, start)
    residual, by_outcome = _fitted(curator, outcome, "effect", method, own, facts)
    product = Product((Weighted.of(outcome, by_outcome), Weighted.of(TAKEN, by_taken)))
    largest = math.prod(each.largest for each in product.factors) / curator.n**2
    noisy = curator.sums("products of residuals", product, Box(-1.0, 1.0), share="covariance")
    width = ends[1] - ends[0]
    table = Wald(
        replace(residual, details={}, notes=(), caution="", means=None),
        replace(first, details={}, notes=(), caution=""),
        float(noisy) * largest,
        noisy.scale * largest,
        start,
        (-width, width),
    )
    made = {"table": table, "stands_on": residual.basis, "warning": residual.caution}
    made["instrument"] = options.instrument
    return Tabled(LateEffect, made, details=residual.details)


def _price(curator: Curator, share: str) -> Share:
    return Share(curator.epsilon(share), curator.delta(share))


def _fitted(
    curator: Curator,
    outcome: LessTaken,
    name: str,
    method: MethodSpec,
    options: Options,
    facts: Facts,
) -> tuple[Estimate, Influence]:
    """Estimate the effect of the instrument on an outcome, and how it adds up over rows."""
    shares, able = method.shares(facts.level, options), method.uses_delta(options, facts)
    split = Split.of(facts.budget, shares, able)
    seen = with_outcome(curator, outcome, outcome.range, facts.values[-1], split, name)
    found: Estimate = method.fit(seen, options, "ATE")
    assert found.influence is not None
    return replace(found, influence=None), found.influence


def _pilot(curator: Curator, ends: Interval, first: Estimate, influence: Influence) -> float:
    """An effect among compliers that is about right, pulled to 0 by what is not known of it."""
    middle, half = sum(ends) / 2.0, (ends[1] - ends[0]) / 2.0
    weight = influence.term.given["weight"]
    if isinstance(weight, OfArm):
        reach = float(np.abs(weight.numbers).max())
    else:
        reach = float(weight.given["largest"].numbers.max()) / weight.given["overlap"]
    flat = clipped_term(residual(np.full(2, middle)), weight, half)
    row = Weighted(LessTaken(ends, 0.0), flat, half * reach)
    sums = curator.sums("weighted outcomes", row, Box(-1.0, 1.0), share="pilot")
    unit = reach / 2.0 / curator.n  # in ranges of the outcome
    noise = (unit * sums.sd) ** 2 + reach**2 / (16.0 * curator.n)
    least = first.noise_variance + first.bias_variance + 1.0 / curator.n
    found = unit * float(sums) * first.value
    found /= first.value**2 + least + noise / _USUAL**2
    return 2.0 * half * min(max(found, -1.0), 1.0)


TABLE = MethodSpec(
    name="late",
    title="effect among compliers",
    about="dp_late: effects of an instrument on outcome and treatment; their ratio",
    assumes="the instrument changes the outcome only through treatment, and makes nobody do the "
    "opposite",
    estimands=(LATE.name,),
    levels=("sample",),
    options=LateOptions,
    shares=shares,
    fit=fit,
    uses_delta=uses_delta,
    variance_shares=(),
    needs_covariates=False,
    tabled=True,
    citation="dpeffects (software): Wald's ratio from two private effects.",
)
