"""The capability record of a method: validation, listing, documentation and tests read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from dpeffects.errors import OptionError, nearest, not_among, refusal, unknown_option
from dpeffects.estimands import ESTIMANDS
from dpeffects.formula import Formula
from dpeffects.formula.encoding import EncodedColumn
from dpeffects.formula.expression import Expression, Survival
from dpeffects.guarantee import KINDS
from dpeffects.inference.estimate import Effects, Estimate
from dpeffects.privacy import Budget, Curator, Share

Contrasts = tuple[tuple[int, int], ...]
"""Pairs of arms, by their numbers: the first of a pair against the second."""
CONTRASTS: dict[str, Callable[[int], Contrasts]] = {
    "reference": lambda arms: tuple((a, 0) for a in range(1, arms)),
    "pairwise": lambda arms: tuple((a, b) for b in range(arms) for a in range(b + 1, arms)),
}
"""Which of several arms are compared: each with the first, or each with each."""
ARGUMENTS: tuple[str, ...] = (
    *("level", "bounds", "budget_split", "variance", "ledger", "dataset", "seed"),
    *("unit", "max_rows", "cluster", "clusters", "missing", "weights", "subset", "contrasts"),
    *("check_bounds", "means"),
)
"""Arguments of calls that are not options of a method, beside the formula, data and budget."""
LEVELS = {
    "sample": "everything in one record is protected",
    "label": "only the outcome is protected; covariates and treatment are public",
}
"""What can be protected. A method without differential privacy has the level "none" instead."""


@dataclass(frozen=True)
class PublicInfo:
    """What is public before anything is released: sizes and prices, never data."""

    n: int
    width: int
    budget: Budget
    level: str
    points: int = 0
    values: tuple[int, ...] = ()
    """Values that each encoded column, and last the outcome, can take; 0 for a continuum."""
    arms: int = 2
    """Declared levels of the treatment."""
    tops: tuple[float, ...] = ()
    """The largest that events and times can be, where the outcome is a rate."""
    indicator: bool = False
    """Whether the outcome is 0 or 1 by its declaration."""
    outcomes: int = 0
    """Encoded columns that are outcomes, the first ones after the intercept, where there are
    several."""
    missing: tuple[int, ...] = ()
    """For each of these the column that says where it is missing, 0 where none does."""
    groups: tuple[int, ...] = ()
    """Levels of each factor that makes groups."""
    grouped: bool = False
    """Whether rows belong to units or clusters, whose variances need what each row adds."""
    means: bool = False
    """Whether means of the arms are asked for."""
    encoded: tuple[EncodedColumn, ...] = ()
    """What the encoded columns are made of."""
    treatment: tuple[str, ...] = ()
    """The treatment, and the declared levels after the first, where there are several outcomes."""

    @property
    def columns(self) -> int:
        """Encoded columns that vary."""
        return sum(k != 1 for k in self.values[:-1])

    @property
    def released(self) -> int:
        """Encoded columns of several outcomes, with those that say where these are missing."""
        return max(self.outcomes, *self.missing, 0)

    @property
    def two_valued(self) -> bool:
        """Whether the outcome has two values."""
        return self.values[-1:] == (2,)


@dataclass(frozen=True)
class Options:
    """Options of a method, checked where they are made. Subclasses add fields (`option_checks`)."""

    def __post_init__(self) -> None:
        """Check the fields that declare how."""
        for f in fields(self):
            value, check = getattr(self, f.name), f.metadata.get("check")
            if check and not (value is None and f.default is None):
                check(f.name, value, *f.metadata["limits"])

    def public(self, level: str) -> frozenset[str]:
        """Return which columns the call takes as public knowledge, beside n."""
        return frozenset({"covariates", "treatment"}) if level == "label" else frozenset()

    def of_outcome(self, written: Expression) -> Expression:
        """Return what is made of the outcome that a formula has; times need a life table."""
        if isinstance(written, Survival):
            raise OptionError("Surv(time, event) is for dp_survival")
        return written

    def of_formula(self, written: Formula) -> Formula:
        """Return what is made of a formula, by default of its outcome."""
        return replace(written, outcome=self.of_outcome(written.outcome))

    def resolve(self, facts: PublicInfo) -> Options:
        """Return options with every open choice made from public numbers."""
        return self

    def needs_memory(self) -> str:
        """Say why the rows must be in memory, if so: a method that sums blocks does not care."""
        return ""

    def memory_per_row(self, arms: int, contrasts: int, level: str) -> tuple[int, str]:
        """Bytes a record that come into memory where rows are on an engine, and what they hold."""
        return 0, ""

    def adapt(self, spec: MethodSpec) -> MethodSpec:
        """Return the record of the method with these options: they may change its guarantee."""
        return spec

    def has_means(self, facts: PublicInfo) -> bool:
        """Say whether what is released tells the mean outcomes of the arms too."""
        return False

    def shown(self) -> dict[str, Any]:
        """Return the options as values that print: a model by its name.

        What is released of conditional effects, and the facts of a plan, are said elsewhere.
        """
        values = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.init and f.name not in ("release", "facts")
        }
        plain = (str, float, int, tuple, type(None))
        return {name: x if isinstance(x, plain) else repr(x) for name, x in values.items()}

    def check(self, n: int, smallest_arm: int | None, arms: int = 2) -> None:
        """Refuse options that do not fit the data's size, before anything is charged.

        ``smallest_arm`` is None where the treatment is private; ``arms`` is how many there are.
        """

    def check_split(self, facts: PublicInfo, shares: Mapping[str, Share]) -> None:
        """Refuse options that the shares cannot pay for, before anything is charged."""


def uses_no_delta(options: Any, facts: PublicInfo) -> Mapping[str, float | None]:
    """No share can use a delta."""
    return {}


def _of_two_arms(
    fit_arms: Callable[[Curator, Any, Any, Contrasts], Effects],
    curator: Curator,
    options: Any,
    estimand: str,
) -> Estimate:
    """Treated against control records."""
    effects = fit_arms(curator, options, estimand, ((0, 1),))
    (estimate,) = effects.estimates
    return replace(estimate, details=effects.details, notes=effects.notes)


NO_CONFOUNDER = "no confounder is missing from the formula"
"""What every adjustment assumes."""
STOOD_IN = "estimated by"
"""Which detail names the method that estimated, where it stood in for the one of the call."""


@dataclass(frozen=True)
class MethodSpec:
    """Everything the package knows about a method.

    ``budget_split`` gives the default split of the budget for a level and options; the shares
    named in
    ``variance_shares`` are dropped (and their part goes to the others) when no variance is wanted.
    ``uses_delta`` names the shares that can use a delta: with the number of entries in which a
    record moves their release, or None for a mechanism with a delta of its own. ``fit`` gets the
    curator, the options and the estimand, and returns an `Estimate`. A method for
    conditional effects gets the encoded points instead, or None, and returns an `EffectFunction` or
    `Effects`. ``fit_arms`` is for a treatment of any number of levels, and a method that has it
    needs no ``fit``: it gets the contrasts too, pairs of arms by number, of two arms (0, 1) for
    treated against control records, and returns `Effects`, one estimate for each.
    ``guarantee`` is one of `KINDS`; all but "exact" have to be accepted by the caller.

    ``needs_covariates`` is False where covariates are used if the formula has any.
    ``needs_strata`` asks for discrete covariates, ``needs_delta`` for a delta, ``needs_intercept``
    for an intercept among the covariates, whatever the formula says; ``smooth`` says that the scale
    of the noise is private, so that what is shown of it is a release too. ``may_stop`` says that
    released values decide whether all of the budget is used: then all of it is promised.
    ``tabled`` says that a table of counts is released, of which a call of its own makes a result;
    ``several`` that a formula may have several outcomes, which are columns of the design then.
    ``assumes`` says what has to be true for an interval to hold; a summary has it above the
    estimate.
    """

    name: str
    title: str
    about: str
    estimands: tuple[str, ...]
    levels: tuple[str, ...]
    options: type[Options]
    budget_split: Callable[[str, Any], Mapping[str, float]]
    citation: str
    fit: Callable[[Curator, Any, Any], Any] = None  # type: ignore[assignment]
    fit_arms: Callable[[Curator, Any, Any, Contrasts], Any] | None = None
    assumes: str = ""
    uses_delta: Callable[[Any, PublicInfo], Mapping[str, float | None]] = uses_no_delta
    variance_shares: tuple[str, ...] = ("variance",)
    uses_outcome: bool = True
    uses_covariates: bool = True
    needs_covariates: bool = True
    guarantee: str = "exact"
    needs_strata: bool = False
    needs_delta: bool = False
    needs_intercept: bool = False
    smooth: bool = False
    may_stop: bool = False
    tabled: bool = False
    several: bool = False

    def __post_init__(self) -> None:
        if self.fit is None:
            object.__setattr__(self, "fit", partial(_of_two_arms, self.fit_arms))

    @property
    def conditional(self) -> bool:
        """True for conditional effects, False for an average."""
        return any(ESTIMANDS[x].conditional for x in self.estimands if x in ESTIMANDS)

    def check_level(self, level: str | None) -> str:
        """Return the level, by default the first (and safest) the method has."""
        if level is None:
            return self.levels[0]
        if not isinstance(level, str) or level not in self.levels:
            raise OptionError(f"{self.name}: {not_among('level', level, self.levels)}")
        return level

    def check_estimand(self, estimand: str, how: str = "") -> str:
        """Return the estimand if the method has it."""
        if estimand not in self.estimands:
            names, hint = ", ".join(self.estimands), nearest(estimand, self.estimands)
            hint = "; call dp_cate" if self.conditional else hint
            raise OptionError(f"{self.name}{how} estimates {names}, not {estimand}{hint}")
        return estimand

    def with_options(self, given: Mapping[str, Any]) -> tuple[MethodSpec, Options]:
        """Check options; return the method's record as they adapt it, and the options.

        A method whose guarantee is not "exact" never runs by accident: without the argument that
        accepts it this raises.
        """
        accepted = {name: x for name, x in given.items() if name in _ACCEPTS}
        options = self.make_options({n: x for n, x in given.items() if n not in accepted})
        spec = options.adapt(self)
        kind = KINDS[spec.guarantee]
        if kind.accept and accepted.get(kind.accept) is not True:
            raise OptionError(refusal("accept", method=self, kind=kind))
        if not self.conditional and set(accepted) - {kind.accept}:
            raise OptionError(refusal("needless_accept", method=self, accept=min(accepted)))
        return spec, options

    def make_options(self, given: Mapping[str, Any]) -> Options:
        """Build the options; an unknown name is an error that suggests the nearest one."""
        known = [f.name for f in fields(self.options) if f.init]
        for name in given:
            if name not in known:
                near = (*ARGUMENTS, "epsilon", "delta", "method", "by")
                raise OptionError(unknown_option(name, self.name, known, near))
            entries = given[name] if isinstance(given[name], list | tuple) else (given[name],)
            if any(isinstance(entry, int) and abs(entry) > 2**62 for entry in entries):
                raise OptionError(f"{name} is too large")  # beyond all floats comparisons break
        return self.options(**given)


_ACCEPTS = {kind.accept for kind in KINDS.values() if kind.accept}
