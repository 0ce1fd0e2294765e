"""What can be audited: a method by its name, conditional effects, or any function of yours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from dpeffects.auditing.watch import Watch
from dpeffects.errors import OptionError
from dpeffects.estimators import conditional_methods, get, registry
from dpeffects.estimators.spec import MethodSpec, Options
from dpeffects.flow import Estimation, Request
from dpeffects.privacy.budget import Budget

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
    """A registered method, as `dp_ate` or `dp_cate` runs it."""

    name: str
    estimand: str
    budget: Budget
    given_level: str | None = None
    variance: bool = True
    shares: Mapping[str, float] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    conditional: Mapping[str, Any] = field(default_factory=dict)
    """``release``, ``at`` and ``by`` of conditional effects."""

    @property
    def _spec(self) -> MethodSpec:
        return get(self.name, self.estimand)

    @property
    def _adapted(self) -> tuple[MethodSpec, Options]:
        released = {k: v for k, v in self.conditional.items() if k == "release"}
        return self._spec.with_options({**self.options, **released})

    @property
    def level(self) -> str:
        """The level, by default the method's first."""
        return self._spec.check_level(self.given_level)

    @property
    def public(self) -> frozenset[str]:
        """By level and options."""
        return self._adapted[1].public(self.level)

    @property
    def formula(self) -> str | None:
        """One covariate that the method can use."""
        if not self._spec.uses_covariates:
            return "y ~ t"
        return "y ~ t | g" if self._spec.needs_strata else "y ~ t | x"

    @property
    def guarantee(self) -> str:
        """As the method's record says."""
        return self._adapted[0].guarantee

    def ready(self, data: Any, formula: str | None, bounds: Any) -> Run:
        """Everything up to the first charge is done once."""
        request = Request(
            formula=str(formula or self.formula),
            data=data,
            method=self.name,
            estimand=self.estimand,
            budget=self.budget,
            level=self.level,
            bounds=bounds,
            shares=self.shares,
            variance=self.variance,
            seed=0,
            options=self.options,
            **self.conditional,
        )
        return Estimation(request).fit


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
    if isinstance(method, str) and method not in registry() and method in conditional_methods():
        estimand = "CATE"
    spec = get(method, estimand)
    spec.check_estimand(estimand)
    conditional: dict[str, Any] = {}
    if spec.conditional:
        release = options.get("release", "function")
        conditional = {"release": release}
        if release == "points":
            conditional["at"] = {"x": [0.25, 0.75]}
        if release == "groups":
            conditional["by"] = "g"
        conditional |= {name: options[name] for name in ("at", "by") if name in options}
        options = {k: v for k, v in options.items() if k not in ("release", "at", "by")}
    aim = MethodTarget(spec.name, estimand, budget, level, variance, shares, options, conditional)
    _ = aim.level, aim.public  # refuses unknown levels and options
    return aim
