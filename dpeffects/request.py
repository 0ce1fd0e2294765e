"""What a user asks for, and whatever can be checked of it without data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from dpeffects.design.codebook import opened
from dpeffects.design.frames import written_out
from dpeffects.design.points import refuse_private_rows
from dpeffects.design.sample import missing_by_column
from dpeffects.errors import OptionError, advised, not_among, quoted, refusal
from dpeffects.estimators import get, registry
from dpeffects.estimators.option_checks import check_flag
from dpeffects.estimators.spec import ARGUMENTS, CONTRASTS, MethodSpec, Options
from dpeffects.formula import Formula, parse
from dpeffects.formula.expression import Number, source
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.ledger import Account

if TYPE_CHECKING:
    from dpeffects.ledgers import Address

_NOBODYS = "`outcome of nobody`"
"""Stands where a formula needs an outcome, and the call has none."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a user asks for: one for every public function."""

    formula: str
    data: Any
    method: str | MethodSpec
    estimand: str
    budget: Budget
    level: str | None = None
    bounds: Any = None
    budget_split: Mapping[str, float] | None = None
    variance: bool = True
    ledger: Account | Address | None = None
    dataset: str | None = None
    seed: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    unit: str | None = None
    max_rows: int | None = None
    cluster: str | None = None
    clusters: int | None = None
    missing: str | Mapping[str, str] = "error"
    weights: str | None = None
    subset: str | None = None
    check_bounds: bool | None = None
    contrasts: str | None = "reference"
    """Of more than two arms: "reference" or "pairwise"; None where one effect is wanted."""
    means: bool = False
    """Whether mean outcomes by arm are wanted of a method that does not release them."""
    release: str = ""
    """What is released of conditional effects: "function", "points" or "groups"."""
    at: Any = None
    by: str | None = None
    made_of: str | None = None
    """The column of units, where each record was made of all rows of one (`design.panel`)."""

    def __post_init__(self) -> None:
        for name in ("variance", "check_bounds", "means"):
            if (name, value := getattr(self, name)) != ("check_bounds", None):
                check_flag(name, value)
        whole = isinstance(self.clusters, Integral) and not isinstance(self.clusters, bool)
        if not (self.clusters is None or (whole and self.clusters >= 2)):
            raise OptionError(refusal("clusters", got=quoted(self.clusters)))
        if self.clusters is not None and self.cluster is None:
            raise OptionError(refusal("clusters", got="no cluster="))
        known = isinstance(self.contrasts, str) and self.contrasts in CONTRASTS
        if not (known or self.contrasts is None):
            raise OptionError(not_among("contrasts", self.contrasts, CONTRASTS))

    @classmethod
    def of_effect(
        cls,
        estimand: str,
        /,
        formula: str,
        data: Any,
        method: str | MethodSpec = "auto",
        *,
        epsilon: Any = None,
        delta: float = 0.0,
        **arguments: Any,
    ) -> Request:
        """Return the request that the arguments of :func:`dp_ate` make; the rest are options."""
        if "estimand" in arguments:
            raise OptionError(_other_door(estimand, arguments["estimand"]))
        own = {name: arguments.pop(name) for name in ARGUMENTS if name in arguments}
        tables = ("bounds", "budget_split", "ledger", "missing")
        plain = {k: x for k, x in own.items() if k not in tables}
        plain |= {"method": method, "estimand": estimand, "epsilon": epsilon, "delta": delta}
        refuse_tables({**plain, **arguments})
        about = {"formula": formula, "data": data, "method": method, "estimand": estimand}
        return cls(**about, budget=Budget(epsilon, delta), options=arguments, **own)

    def written_out(self) -> Request:
        """Return the same with a codebook read, and `.` replaced by the columns it stands for."""
        bounds = opened(self.bounds)
        beside = (self.options.get(name) for name in ("offset", "instrument"))
        left_out = (self.unit, self.cluster, self.weights, *beside)
        formula = written_out(self.formula, self.data, bounds, left_out)
        return replace(self, formula=formula, bounds=bounds)


def refuse_tables(arguments: Mapping[str, Any]) -> None:
    """Refuse a table or a column in the place of an option: messages quote what options hold."""
    for name, value in arguments.items():
        table = any(hasattr(value, hook) for hook in ("__array__", "__arrow_c_stream__"))
        many = isinstance(value, list | tuple | set) and len(value) > 20
        if many or (table and not isinstance(value, np.generic)):
            words = advised("values").get(name, "a single value").format(name)
            raise OptionError(f"{name} must be {words}, got {type(value).__name__}.")


def _other_door(estimand: str, asked: Any) -> str:
    """Which function to call for another estimand."""
    name = str(asked).upper() if isinstance(asked, str) else ""
    if name == estimand:
        return f"the function already names the estimand, {name}: leave estimand= out"
    known = name in ("ATE", "ATT", "ATC", "CATE", "LATE", "QTE")
    which = f"dp_{name.lower()}" if known else "dp_ate, dp_att or dp_atc"
    return f"the function names the estimand: call {which}, without estimand="


def checked(request: Request) -> tuple[MethodSpec, Options, Formula]:
    """What can be checked without data: method, options and formula."""
    own = request.method
    spec = own if isinstance(own, MethodSpec) else get(own, request.estimand)
    spec.check_estimand(request.estimand)
    spec.check_level(request.level)
    released = {"release": request.release} if spec.conditional else {}
    spec, options = spec.with_options({**request.options, **released})
    spec.check_estimand(request.estimand, " with these options")
    if spec.needs_delta and not request.budget.delta:
        raise OptionError(f"{spec.name} needs a delta above 0, such as delta=1e-5")
    if spec.guarantee == "none" and request.ledger is not None:
        raise OptionError(f"{spec.name} is not differentially private: leave ledger out")
    if spec.guarantee == "none" and request.check_bounds:
        raise OptionError(f"{spec.name} is not differentially private: leave check_bounds out")
    formula = _formula(request, spec, options)
    if spec.conditional:
        for name, value, release in (("at", request.at, "points"), ("by", request.by, "groups")):
            if value is None and request.release == release:
                raise OptionError(f'release="{release}" needs {name}=...')
            if value is not None and request.release != release:
                raise OptionError(f'{name} needs release="{release}", got "{request.release}"')
        refuse_private_rows(request.at, request.data, formula.covariate_columns)
    return spec, options, formula


def with_groups(formula: Formula, by: str | None) -> Formula:
    """The formula, with the terms that make groups after its own."""
    if not isinstance(by, str):
        return formula
    outcome = source(formula.outcome) if formula.outcome_columns else _NOBODYS
    groups = parse(f"{outcome} ~ {source(formula.treatment)} | {by}")
    return replace(formula, terms=(*formula.terms, *groups.terms))


def parsed(request: Request, spec: MethodSpec, options: Options) -> Formula:
    """The formula, with what the options make of its outcome."""
    formula = parse(request.formula)
    if spec.several:
        options.of_outcome(formula.outcome)
        policies = missing_policies(request, formula)
        return formula.with_outcomes_as_columns(k for k, x in policies.items() if x == "available")
    if formula.more_outcomes and spec.uses_outcome:
        raise OptionError(f"{spec.name} is for one outcome; for several use dp_study")
    formula = replace(formula, more_outcomes=())
    return options.of_formula(formula) if spec.uses_outcome else formula


def missing_policies(request: Request, formula: Formula) -> dict[str, str]:
    """What is done about missing values of several outcomes and of the baseline variables."""
    return missing_by_column(request.missing, with_groups(formula, request.by), several=True)


def _formula(request: Request, spec: MethodSpec, options: Options) -> Formula:
    """The formula, with what the method reads of it."""
    formula = parsed(request, spec, options)
    if spec.uses_covariates and spec.needs_covariates and not formula.has_covariates:
        y, t = source(formula.outcome), source(formula.treatment)
        others = [other.name for other in registry().values() if not other.uses_covariates]
        hint = f', or use method="{others[0]}"' if others and spec in registry().values() else ""
        raise OptionError(refusal("no_covariates", method=spec.name, y=y, t=t, hint=hint))
    responds = False
    if not spec.several:
        policies = missing_by_column(request.missing, with_groups(formula, request.by))
        responds = "weight" in policies.values()
    if not spec.uses_covariates and not responds:
        formula = replace(formula, terms=())
    if not spec.uses_outcome:
        formula = replace(formula, outcome=Number(0.0))
    intercept = responds or spec.needs_intercept or not spec.uses_covariates
    return replace(formula, intercept=True) if intercept else formula


def account_of(ledger: Account | Address | None, dataset: str | None) -> Account | None:
    """Return the account to charge: the one given, or a dataset's in a file or on a server."""
    if isinstance(ledger, str | os.PathLike):
        from dpeffects.ledgers import open_ledger

        return open_ledger(ledger, dataset)
    if ledger is not None and not isinstance(ledger, Account):
        raise OptionError(refusal("no_such_ledger", kind=type(ledger).__name__))
    whole = getattr(ledger, "ledger", ledger)  # that of an allotment
    own = getattr(whole, "dataset", None)
    if not (dataset is None or isinstance(dataset, str)):
        raise OptionError(f"dataset must be a name, got {type(dataset).__name__}")
    if dataset is not None and dataset != own:
        has = f"is for {own!r}" if own else "is not in a file or on a server: leave dataset out"
        raise OptionError(f"dataset={dataset!r} does not fit: the ledger {has}")
    return ledger
