"""What can be audited: a method by its name, conditional effects, or any function of yours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dpeffects.api import prepare
from dpeffects.auditing.recording import RecordedNoise
from dpeffects.call import Ask
from dpeffects.cate.api import TITLES, dp_cate
from dpeffects.errors import OptionError
from dpeffects.estimators import get, registry
from dpeffects.privacy.budget import Budget

Run = Callable[[RecordedNoise], Any]
"""One run on a dataset that was read: noise in, everything shown out."""


@dataclass(frozen=True)
class Mechanism:
    """Something that is run many times on neighbours.

    ``public`` says which of "treatment" and "covariates" neighbours have in common; ``formula`` is
    for the pairs of the library, None where they do not fit; ``guarantee`` is the kind that is
    claimed. ``prepare(data, formula, bounds)`` reads a dataset and returns what runs on it.
    """

    name: str
    prepare: Callable[[Any, str | None, Any], Run]
    estimand: str = ""
    level: str = "sample"
    public: frozenset[str] = frozenset()
    formula: str | None = None
    guarantee: str = "exact"


def mechanism(
    method: Any,
    budget: Budget,
    level: str | None = None,
    estimand: str = "ATE",
    variance: bool = True,
    shares: Mapping[str, float] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Mechanism:
    """Return what a name or a function stands for."""
    options = options or {}
    if callable(method):
        if options:
            raise OptionError(f"a function takes no options, got {', '.join(options)}")
        name = getattr(method, "__name__", type(method).__name__)
        return Mechanism(name, partial(_prepare_function, method))
    if method in TITLES and (method not in registry() or estimand == "CATE"):
        if level not in (None, "sample"):
            raise OptionError(f"{method}: level must be 'sample', got {level!r}")
        arguments = {"variance": variance, "shares": shares, **options}
        kind = "asymptotic" if options.get("accept_asymptotic") else "exact"
        ready = partial(_prepare_cate, method, budget, arguments)
        return Mechanism(method, ready, "CATE", formula="y ~ t | x", guarantee=kind)
    spec = get(method)
    spec.check_estimand(estimand)
    level = spec.check_level(level)
    public = spec.make_options(spec.accepted(options)).public(level)
    covariate = " | g" if spec.needs_strata else " | x" if spec.uses_covariates else ""
    ask = Ask(budget, None, shares, variance)
    ready = partial(_prepare_method, method, estimand, level, ask, options)
    return Mechanism(method, ready, estimand, level, public, f"y ~ t{covariate}", spec.guarantee)


def _prepare_function(
    function: Callable[[Any, Any], Any], data: Any, formula: str | None, bounds: Any
) -> Run:
    """Nothing is read before the function does."""
    return partial(function, data)


def _prepare_cate(
    method: str,
    budget: Budget,
    arguments: Mapping[str, Any],
    data: Any,
    formula: str | None,
    bounds: Any,
) -> Run:
    """The whole of `dp_cate`, each time."""
    for_release: dict[str, dict[str, Any]] = {
        "points": {"at": {"x": [0.25, 0.75]}},
        "groups": {"by": "g"},
    }
    given = {**for_release.get(arguments.get("release", ""), {}), **arguments}

    def run(noise: RecordedNoise) -> Any:
        return dp_cate(
            str(formula),
            data,
            method,
            epsilon=budget.epsilon,
            delta=budget.delta,
            bounds=bounds,
            seed=noise,  # type: ignore[arg-type]
            **given,
        )

    return run


def _prepare_method(
    method: str,
    estimand: str,
    level: str,
    ask: Ask,
    options: Mapping[str, Any],
    data: Any,
    formula: str | None,
    bounds: Any,
) -> Run:
    """Everything up to the first charge is done once."""
    ask = replace(ask, bounds=bounds)
    ready = prepare(estimand, str(formula), data, method, ask, level, options)

    def run(noise: RecordedNoise) -> Any:
        ready.call.restart(noise)
        estimate = ready.estimate()
        return {"estimate": estimate, "spends": str(ready.call.ledger.spends)}

    return run
