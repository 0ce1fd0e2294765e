"""What can be audited: a method by its name, conditional effects, or any function of yours."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from dpeffects.api import prepare
from dpeffects.auditing.watch import Watch
from dpeffects.call import Ask
from dpeffects.cate.api import TITLES, dp_cate
from dpeffects.errors import OptionError
from dpeffects.estimators import get, registry
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.ledger import Ledger

Run = Callable[[Watch], Any]
"""One run on a dataset that was read: noise in, everything shown out."""


class Target(Protocol):
    """Something that is run many times."""

    @property
    def name(self) -> str:
        """What the report calls it."""

    @property
    def estimand(self) -> str:
        """What it estimates; empty where that is not known."""

    @property
    def level(self) -> str:
        """Whose change is hidden: "sample" or "label"."""

    @property
    def public(self) -> frozenset[str]:
        """Which of "treatment" and "covariates" neighbours have in common."""

    @property
    def formula(self) -> str | None:
        """Formula for the pairs of the library; None where they do not fit."""

    @property
    def guarantee(self) -> str:
        """What is claimed: the kind of the guarantee."""

    def ready(self, data: Any, formula: str | None, bounds: Any) -> Run:
        """Read and check a dataset once, and return what runs on it."""


@dataclass(frozen=True)
class MethodTarget:
    """A registered method, as `dp_ate` runs it."""

    name: str
    estimand: str
    budget: Budget
    given_level: str | None = None
    variance: bool = True
    shares: Mapping[str, float] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def level(self) -> str:
        """The level, by default the method's first."""
        return get(self.name).check_level(self.given_level)

    @property
    def public(self) -> frozenset[str]:
        """By level and options."""
        spec = get(self.name)
        return spec.make_options(spec.accepted(self.options)).public(self.level)

    @property
    def formula(self) -> str | None:
        """One covariate that the method can use."""
        spec = get(self.name)
        if not spec.uses_covariates:
            return "y ~ t"
        return "y ~ t | g" if spec.needs_strata else "y ~ t | x"

    @property
    def guarantee(self) -> str:
        """As the method's record says."""
        return get(self.name).guarantee

    def ready(self, data: Any, formula: str | None, bounds: Any) -> Run:
        """Everything up to the first charge is done once."""
        ask = Ask(self.budget, bounds, self.shares, self.variance, None, 0)
        read = str(formula or self.formula)
        ready = prepare(self.estimand, read, data, self.name, ask, self.level, self.options)

        def run(noise: Watch) -> Any:
            ready.call.noise = noise
            ready.call.ledger = Ledger(self.budget.epsilon, self.budget.delta)
            return ready.estimate()

        return run


@dataclass(frozen=True)
class CateTarget:
    """A release of conditional effects, as `dp_cate` makes it."""

    name: str
    budget: Budget
    variance: bool = True
    shares: Mapping[str, float] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    estimand: str = "CATE"
    level: str = "sample"
    public: frozenset[str] = frozenset()
    formula: str | None = "y ~ t | x"

    @property
    def guarantee(self) -> str:
        """Asymptotic where the paper's finite release was accepted."""
        return "asymptotic" if self.options.get("accept_asymptotic") else "exact"

    def ready(self, data: Any, formula: str | None, bounds: Any) -> Run:
        """The whole call, each time."""
        given = dict(self.options)
        if given.get("release") == "points":
            given.setdefault("at", {"x": [0.25, 0.75]})
        if given.get("release") == "groups":
            given.setdefault("by", "g")

        def run(noise: Watch) -> Any:
            return dp_cate(
                str(formula or self.formula),
                data,
                self.name,
                epsilon=self.budget.epsilon,
                delta=self.budget.delta,
                bounds=bounds,
                variance=self.variance,
                shares=self.shares,
                seed=noise,  # type: ignore[arg-type]
                **given,
            )

        return run


@dataclass(frozen=True)
class FunctionTarget:
    """A function ``run(data, seed)``: pass ``seed`` on to whatever draws, return what is shown."""

    function: Callable[[Any, Any], Any]
    budget: Budget
    estimand: str = ""
    level: str = "sample"
    public: frozenset[str] = frozenset()
    formula: str | None = None
    guarantee: str = "exact"

    @property
    def name(self) -> str:
        """Name of the function."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def ready(self, data: Any, formula: str | None, bounds: Any) -> Run:
        """Nothing is read before."""
        return lambda noise: self.function(data, noise)


def target(
    method: Any,
    budget: Budget,
    level: str | None,
    estimand: str,
    variance: bool,
    shares: Mapping[str, float] | None,
    options: Mapping[str, Any],
) -> Target:
    """Return what a name or a function stands for."""
    if callable(method):
        if options:
            raise OptionError(f"a function takes no options, got {', '.join(options)}")
        return FunctionTarget(method, budget)
    if method in TITLES and (method not in registry() or estimand == "CATE"):
        if level not in (None, "sample"):
            raise OptionError(f"{method}: level must be 'sample', got {level!r}")
        return CateTarget(method, budget, variance, shares, options)
    known = list(dict.fromkeys([*registry(), *TITLES]))
    if method not in known:
        close = difflib.get_close_matches(str(method), known, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise OptionError(f"unknown method {method!r}; there are {', '.join(known)}.{hint}")
    made = MethodTarget(str(method), estimand, budget, level, variance, shares, options)
    get(made.name).check_estimand(estimand)
    _ = made.public  # refuses unknown levels and options
    return made
