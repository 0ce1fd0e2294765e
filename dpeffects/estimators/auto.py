"""The default: the estimator with the shortest interval to expect, by public numbers only.

It compares `one_step` with `clipped_contrast` by the number of records and of covariates, epsilon,
delta, the design and declared types (`_forecast`), before anything is released. It says what it
chose, what the other would have given, and what a delta would buy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dpeffects.estimands import AVERAGES
from dpeffects.estimators import clipped_contrast, one_step
from dpeffects.estimators.clipped_contrast import ClippedContrastOptions, refuse_unadjusted
from dpeffects.estimators.one_step import OneStepOptions
from dpeffects.estimators.private_aipw import reference
from dpeffects.estimators.spec import Facts, MethodSpec
from dpeffects.inference.estimate import Estimate
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.curator import Curator

_DELTA = 1e-6
"""What a delta would buy is said for this one."""
_WORTH = 0.8
"""It is said where the interval would be at most this much of the one without."""
_GAIN = {"observational": 0.7, "randomised": 0.95}
"""Using the covariates has to reduce the error to expect to this part: where there is no
confounding after all, or they explain nothing, its noise is for nothing."""
_RECORDS, _LARGE_GAIN = 75, 0.3
"""With fewer records for each covariate, it has to reduce the error to this part."""


@dataclass(frozen=True)
class AutoOptions(ClippedContrastOptions):
    """Options of the default method.

    ``design``: "observational" (default), or "randomised" where treatment was assigned by chance.
    ``on_unadjusted``: "caution", or "error" to refuse, before anything is paid, where the public
    numbers do not carry an adjustment.
    """

    chosen: OneStepOptions | ClippedContrastOptions | None = None
    why: str = ""

    def resolve(self, facts: Facts) -> AutoOptions:
        """Choose the method by what its interval is expected to be."""
        choice, why = choose(self, facts)
        if isinstance(choice, ClippedContrastOptions) and not isinstance(choice, OneStepOptions):
            refuse_unadjusted(self, "n, epsilon and the number of covariates carry no adjustment")
        return replace(self, chosen=choice, why=why)

    def shown(self) -> dict[str, Any]:
        """The design, and what was chosen."""
        chosen = self.chosen.shown() if self.chosen else {}
        return {"design": self.design, "on_unadjusted": self.on_unadjusted, **chosen}


@lru_cache(maxsize=256)
def expected_errors(options: AutoOptions, facts: Facts) -> dict[str, tuple[float, Any]]:
    """Expected standard error, in ranges of the outcome, and options of each method."""
    pure = replace(facts, budget=Budget(facts.budget.epsilon))
    plain, error = clipped_contrast.planned(ClippedContrastOptions(options.design), pure)
    found: dict[str, tuple[float, Any]] = {"clipped_contrast": (error, plain)}
    if any(k != 1 for k in facts.values[:-1]):
        best, error = one_step.planned(OneStepOptions(options.design), facts)
        found["one_step"] = error, best
    return found


def choose(options: AutoOptions, facts: Facts) -> tuple[Any, str]:
    """The options of the best method, and a sentence about it and the alternatives."""
    errors = expected_errors(options, facts)
    name = "clipped_contrast"
    columns = sum(k != 1 for k in facts.values[:-1])
    sparse = not options.randomised and facts.n < _RECORDS * columns
    least = errors[name][0] * (_LARGE_GAIN if sparse else _GAIN[options.design])
    if "one_step" in errors and errors["one_step"][0] < least:
        name = "one_step"
    error, chosen = errors[name]
    others = [f"{k} {x / error:.2g}" for k, (x, _) in errors.items() if k != name]
    why = f"{name} was chosen by n, epsilon, delta, the design and the declared covariates."
    if others:
        why += f" Expected width of the interval, against it: {', '.join(others)}."
    if not facts.budget.delta:
        with_delta = replace(facts, budget=Budget(facts.budget.epsilon, _DELTA))
        other = min(x for x, _ in expected_errors(options, with_delta).values())
        if other < _WORTH * error:
            why += f" With delta = {_DELTA:g} it would be about {other / error:.2g} of this width."
    return chosen, why


def _method(options: AutoOptions) -> Any:
    adjusts = isinstance(options.chosen, OneStepOptions)
    return one_step if adjusts else clipped_contrast


def shares(level: str, options: AutoOptions) -> dict[str, float]:
    """Split of the budget, by the method that was chosen."""
    chosen = options.chosen or OneStepOptions()
    return dict((one_step if not options.chosen else _method(options)).shares(level, chosen))


def uses_delta(options: AutoOptions, facts: Facts) -> dict[str, float | None]:
    """Shares with Gaussian noise, by the method that was chosen."""
    if isinstance(options.chosen, OneStepOptions):
        return one_step.uses_delta(options.chosen, facts)
    return {}


def fit(curator: Curator, options: AutoOptions, estimand: str) -> Estimate:
    """Let the chosen method estimate."""
    estimate: Estimate = _method(options).fit(curator, options.chosen, estimand)
    return replace(estimate, notes=(*estimate.notes, options.why))


SPEC = MethodSpec(
    name="auto",
    title="chosen by public numbers",
    about="the default: adjusts by private moments where n, epsilon and covariates carry it",
    estimands=AVERAGES,
    levels=("sample", "label"),
    options=AutoOptions,
    shares=shares,
    uses_delta=uses_delta,
    fit=fit,
    reference=reference,
    variance_shares=(),
    needs_covariates=False,
    citation="dpeffects: one-step estimation from private moments (docs/architecture.md).",
)
