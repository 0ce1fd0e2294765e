"""The default: the estimator with the shortest interval to expect, by public numbers only.

It compares `clipped_contrast`, `one_step` and `regression` by the number of records and of
covariates, epsilon, delta, the design and declared types (`forecast`), before anything is released.
It says what it chose, what the others would have given, and what a delta would buy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dpeffects.estimands import AVERAGES
from dpeffects.estimators import constants as hand
from dpeffects.estimators.default import clipped_contrast, one_step, regression
from dpeffects.estimators.default.clipped_contrast import (
    NO_COVARIATES,
    ClippedContrastOptions,
    StudyOptions,
    refuse_unadjusted,
)
from dpeffects.estimators.default.forecast import Forecast
from dpeffects.estimators.default.one_step import OneStepOptions
from dpeffects.estimators.option_checks import whole
from dpeffects.estimators.spec import NO_CONFOUNDER, STOOD_IN, Contrasts, MethodSpec, PublicInfo
from dpeffects.inference.estimate import Effects
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.curator import Curator

_CAN_WIDEN = "noise in an adjustment can also make it wider: ask for it by name"


@dataclass(frozen=True)
class AutoOptions(StudyOptions):
    """Options of the default method.

    ``design``: "observational" (default), or "randomised" where treatment was assigned by chance.
    ``on_unadjusted``: "warn", or "error" to refuse, before anything is paid, where the public
    numbers do not carry an adjustment. ``flexible``: 0 adjusts for the formula's own terms alone,
    1 for squares of its columns too, 2 for their products too; None chooses by n, epsilon, delta
    and the number of columns.
    """

    flexible: int | None = whole(None, 0, 2)

    def resolve(self, facts: PublicInfo) -> Chosen:
        """Choose the method by what its interval is expected to be."""
        method, options, why = choose(self, facts)
        if method is clipped_contrast.SPEC:
            refuse_unadjusted(self, *(_rule(self, facts) if facts.columns else NO_COVARIATES))
        given = self.design, self.on_unadjusted, self.flexible
        return Chosen(*given, method=method, own=options, why=why)


@dataclass(frozen=True, kw_only=True)
class Chosen(AutoOptions):
    """The options, the method that was chosen, its own options, and why."""

    method: MethodSpec
    own: ClippedContrastOptions
    why: str

    def adapt(self, spec: MethodSpec) -> MethodSpec:
        """The record of the default, with the title of what was chosen."""
        own = self.method
        return replace(spec, title=own.title, citation=own.citation, may_stop=own.may_stop)

    def has_means(self, facts: PublicInfo) -> bool:
        """As the method that was chosen."""
        return self.own.has_means(facts)

    def shown(self) -> dict[str, Any]:
        """The options of what was chosen."""
        own = {"design": self.design, "on_unadjusted": self.on_unadjusted}
        return {"chosen": self.method.name, **self.own.shown(), **own}


Plan = tuple[Forecast, MethodSpec, ClippedContrastOptions]


@lru_cache(maxsize=256)
def plans(options: AutoOptions, facts: PublicInfo) -> tuple[Plan, ...]:
    """What to expect of each method, and its options; the one that adjusts for nothing first."""
    pure = replace(facts, budget=Budget(facts.budget.epsilon))
    plain, forecast = clipped_contrast.planned(ClippedContrastOptions(options.design), pure)
    unadjusted = forecast, clipped_contrast.SPEC, plain
    if not 0 < facts.columns <= hand.MOST_COLUMNS:
        return (unadjusted,)
    best, forecast = one_step.planned(
        OneStepOptions(options.design, flexible=options.flexible), facts
    )
    found = [unadjusted, (forecast, one_step.SPEC, best)]
    if regression.enough(facts, options.flexible) and not options.randomised:
        best, forecast = regression.planned(OneStepOptions(flexible=options.flexible), facts)
        found.append((forecast, regression.SPEC, best))
    return tuple(found)


def _pays(
    adjusted: Forecast, unadjusted: Forecast, options: AutoOptions, facts: PublicInfo
) -> bool:
    """Whether using the covariates is worth its noise."""
    if options.randomised:
        idle = replace(adjusted, sampling=unadjusted.sampling).with_noise(hand.NARROWER)
        gain = hand.TRIAL_GAIN
        safe = gain * idle <= unadjusted.with_noise(hand.NARROWER)
    else:
        enough = facts.n * facts.budget.epsilon >= hand.LEAST_RECORDS
        safe = enough and adjusted.with_noise(hand.NARROW) <= unadjusted.error
        gain = hand.LARGE_GAIN if facts.n < hand.RECORDS * facts.columns else hand.GAIN
    return safe and adjusted.error < gain * unadjusted.error


def _best(options: AutoOptions, facts: PublicInfo) -> Plan:
    """The plan that is chosen."""
    unadjusted, *adjusted = plans(options, facts)
    better = [one for one in adjusted if _pays(one[0], unadjusted[0], options, facts)]
    return better[-1] if better else unadjusted


def _printed(plan: Plan) -> float:
    """The error behind the interval that is printed: that of an association has no confounding."""
    forecast, method, _ = plan
    if method is clipped_contrast.SPEC:
        return math.hypot(forecast.noise, forecast.sampling)
    return forecast.error


def _rule(options: AutoOptions, facts: PublicInfo) -> tuple[str, str]:
    """Why covariates are not adjusted for, and which epsilon would do."""
    epsilon, least = facts.budget.epsilon, hand.LEAST_RECORDS
    why = f"The noise of an adjustment for {facts.columns} columns would be too large here"
    if facts.n * epsilon < least:
        why = f"To adjust for covariates, n x epsilon must be at least {least:,.0f}, and is "
        why += f"{facts.n * epsilon:,.4g}"
    tried = max(epsilon, least / facts.n)
    while facts.n * tried <= least**2:
        unit = 10.0 ** (2 - math.floor(math.log10(tried)))
        tried = math.ceil(tried * unit) / unit
        budget = Budget(tried, facts.budget.delta)
        if _best(options, replace(facts, budget=budget))[1] is not clipped_contrast.SPEC:
            return why, f"With epsilon = {tried:.3g} covariates would be adjusted for"
        tried *= 1.1
    return why, "Use more records or fewer covariates"


def choose(
    options: AutoOptions, facts: PublicInfo
) -> tuple[MethodSpec, ClippedContrastOptions, str]:
    """The best method, its options, and sentences about it and the alternatives."""
    if facts.level == "label" and facts.columns:
        why = "one_step was chosen: covariates and treatment are public, so adjusting is free."
        return (
            one_step.SPEC,
            OneStepOptions(options.design, flexible=options.flexible).resolve(facts),
            why,
        )
    own, known = _best(options, facts), plans(options, facts)
    _, method, made = own
    unadjusted = method is clipped_contrast.SPEC and not options.randomised
    why = f"{method.name} was chosen by n, epsilon, delta, the design and the declared covariates."
    others = [x for x in known if x[1] is not method]
    if others and (unadjusted or options.randomised):  # else a contrast is no effect
        how = " (adjusted)" if unadjusted else ""
        times = [(_printed(x) / _printed(own), x[1].name) for x in others]
        listed = ", ".join(f"{ratio:.2g} times as wide with {name}{how}" for ratio, name in times)
        why += f" The printed interval is expected to be {listed}"
        shorter = method is clipped_contrast.SPEC and min(times)[0] < 1.0
        why += f", but at this n and epsilon {_CAN_WIDEN}." if shorter else "."
    if facts.columns and unadjusted:
        why += " {}. {}.".format(*_rule(options, facts))
    if not facts.budget.delta:
        with_delta = _best(options, replace(facts, budget=Budget(facts.budget.epsilon, 1e-6)))
        least = _printed(with_delta) / _printed(own)
        if unadjusted and with_delta[1] is not method:
            why += " With delta = 1e-06 they would be at this epsilon."
        elif least < hand.GAIN:
            why += f" With delta = 1e-06 it would be about {least:.2g} times as wide as here."
    return method, made, why


def budget_split(level: str, options: AutoOptions) -> Mapping[str, float]:
    """Split of the budget, by the method that was chosen."""
    if isinstance(options, Chosen):
        return options.method.budget_split(level, options.own)
    return one_step.budget_split(level, OneStepOptions())


def uses_delta(options: AutoOptions, facts: PublicInfo) -> Mapping[str, float | None]:
    """Shares with Gaussian noise, by the method that was chosen."""
    return options.method.uses_delta(options.own, facts) if isinstance(options, Chosen) else {}


def fit_arms(curator: Curator, options: Chosen, estimand: str, contrasts: Contrasts) -> Effects:
    """Let the chosen method estimate; where another stood in, its own note says why."""
    assert options.method.fit_arms is not None
    found: Effects = options.method.fit_arms(curator, options.own, estimand, contrasts)
    why = () if STOOD_IN in found.details else (options.why,)
    return replace(found, notes=(*found.notes, *why))


SPEC = MethodSpec(
    name="auto",
    title="chosen by public numbers",
    about="the default: adjusts where n, epsilon and covariates carry it, for squares and products "
    "of columns too",
    assumes=f"{NO_CONFOUNDER}; outcomes are linear in its terms and the columns added",
    estimands=AVERAGES,
    levels=("sample", "label"),
    options=AutoOptions,
    budget_split=budget_split,
    uses_delta=uses_delta,
    fit_arms=fit_arms,
    needs_covariates=False,
    citation="dpeffects (software): one-step estimation from private moments.",
)
