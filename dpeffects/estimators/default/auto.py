"""The default: the estimator with the shortest interval to expect, by public numbers only.

It compares `clipped_contrast`, `one_step` and `regression` by the number of records and of
covariates, epsilon, delta, the design and declared types (`forecast`), before anything is released.
It says what it chose, what the others would have given, and what a delta would buy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dpeffects.estimands import AVERAGES
from dpeffects.estimators import constants as hand
from dpeffects.estimators.default import clipped_contrast, one_step, regression
from dpeffects.estimators.default.clipped_contrast import (
    NO_COVARIATES,
    TOO_LITTLE,
    ClippedContrastOptions,
    StudyOptions,
    refuse_unadjusted,
)
from dpeffects.estimators.default.forecast import Forecast
from dpeffects.estimators.default.one_step import OneStepOptions
from dpeffects.estimators.option_checks import whole
from dpeffects.estimators.spec import NO_CONFOUNDER, STOOD_IN, Contrasts, Facts, MethodSpec
from dpeffects.inference.estimate import Effects
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.curator import Curator

_CAN_WIDEN = "noise in an adjustment can also make it wider: ask for it by name"


@dataclass(frozen=True)
class AutoOptions(StudyOptions):
    """Options of the default method.

    ``design``: "observational" (default), or "randomised" where treatment was assigned by chance.
    ``on_unadjusted``: "caution", or "error" to refuse, before anything is paid, where the public
    numbers do not carry an adjustment. ``flexible``: 0 adjusts for the formula's own terms alone,
    1 for squares of its columns too, 2 for their products too; None chooses by n, epsilon, delta
    and the number of columns.
    """

    flexible: int | None = whole(None, 0, 2)

    def resolve(self, facts: Facts) -> Chosen:
        """Choose the method by what its interval is expected to be."""
        method, options, why = choose(self, facts)
        if method is clipped_contrast.SPEC:
            refuse_unadjusted(self, *(TOO_LITTLE if facts.columns else NO_COVARIATES))
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

    def has_means(self, facts: Facts) -> bool:
        """As the method that was chosen."""
        return self.own.has_means(facts)

    def shown(self) -> dict[str, Any]:
        """The options of what was chosen."""
        own = {"design": self.design, "on_unadjusted": self.on_unadjusted}
        return {"chosen": self.method.name, **self.own.shown(), **own}


Plan = tuple[Forecast, MethodSpec, ClippedContrastOptions]


@lru_cache(maxsize=256)
def plans(options: AutoOptions, facts: Facts) -> tuple[Plan, ...]:
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


def _pays(adjusted: Forecast, unadjusted: Forecast, options: AutoOptions, facts: Facts) -> bool:
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


def choose(options: AutoOptions, facts: Facts) -> tuple[MethodSpec, ClippedContrastOptions, str]:
    """The best method, its options, and sentences about it and the alternatives."""
    if facts.level == "label" and facts.columns:
        why = "one_step was chosen: covariates and treatment are public, so adjusting is free."
        return (
            one_step.SPEC,
            OneStepOptions(options.design, flexible=options.flexible).resolve(facts),
            why,
        )
    unadjusted, *adjusted = plans(options, facts)
    better = [one for one in adjusted if _pays(one[0], unadjusted[0], options, facts)]
    forecast, method, own = better[-1] if better else unadjusted
    why = f"{method.name} was chosen by n, epsilon, delta, the design and the declared covariates."
    known = [unadjusted] if method is regression.SPEC else [unadjusted, *adjusted]
    others = [one for one in known if one[1] is not method]
    if others:
        listed = ", ".join(
            f"{x[0].error / forecast.error:.2g} times as wide with {x[1].name}" for x in others
        )
        why += f" The interval is expected to be {listed}"
        shorter = any(x[0].error < forecast.error for x in others)
        why += f", but at this n and epsilon {_CAN_WIDEN}." if shorter else "."
    if not facts.budget.delta:
        with_delta = replace(facts, budget=Budget(facts.budget.epsilon, 1e-6))
        least = min(one[0].error for one in plans(options, with_delta)) / forecast.error
        if least < hand.GAIN:
            why += f" With delta = 1e-06 it would be about {least:.2g} times as wide as here."
    return method, own, why


def shares(level: str, options: AutoOptions) -> Mapping[str, float]:
    """Split of the budget, by the method that was chosen."""
    if isinstance(options, Chosen):
        return options.method.shares(level, options.own)
    return one_step.shares(level, OneStepOptions())


def uses_delta(options: AutoOptions, facts: Facts) -> Mapping[str, float | None]:
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
    shares=shares,
    uses_delta=uses_delta,
    fit_arms=fit_arms,
    needs_covariates=False,
    citation="dpeffects (software): one-step estimation from private moments.",
)
