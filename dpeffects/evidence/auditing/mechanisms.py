"""What can be audited: a method by its name, conditional effects, or any function of yours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dpeffects.errors import OptionError
from dpeffects.estimators import conditional_methods, get, registry, table_methods
from dpeffects.evidence.auditing.recording import RecordedNoise
from dpeffects.flow import Estimation, Request
from dpeffects.guarantee import rows_of
from dpeffects.privacy.budget import Budget

Run = Callable[[RecordedNoise], Any]
"""One run on a dataset that was read: noise in, everything shown out."""


@dataclass(frozen=True)
class Mechanism:
    """Something that is run many times on neighbours.

    ``public`` says which of "treatment" and "covariates" neighbours have in common; ``formula`` is
    for the pairs of the library, None where they do not fit; ``guarantee`` is the kind that is
    claimed. ``sample`` says which rows count, and whose they are: arguments of `SAMPLE`.
    ``prepare(data, formula, bounds)`` reads a dataset and returns what runs on it.
    """

    name: str
    prepare: Callable[[Any, str | None, Any], Run]
    estimand: str = ""
    level: str = "sample"
    public: frozenset[str] = frozenset()
    formula: str | None = None
    guarantee: str = "exact"
    sample: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        """What neighbours differ in."""
        if self.sample.get("unit") is not None:
            return rows_of(self.sample["unit"])
        return "outcome" if self.level == "label" else "record"


SAMPLE = ("unit", "max_rows", "cluster", "clusters", "missing", "weights", "subset")
"""Arguments of `dp_ate` that say which rows count, and whose they are."""


_TABLES: dict[str, tuple[str, dict[str, Any]]] = {
    "ordinal_table": ("g ~ t | x", {}),
    "quantile_table": ("y ~ t | x", {"quantiles": (0.5,)}),
    "moments": ("y ~ t | x + g", {"factors": "g"}),
    "late": ("y ~ I(x > 0.5)", {"instrument": "t"}),
    "rate": ("y ~ t", {"offset": "x", "design": "randomised"}),
    "life_table": ("Surv(y, y > 0.5) ~ t | x", {"horizon": 1.0, "bins": 4}),
}
"""Formulas and options of methods with a function of their own, for the pairs of the library."""


def mechanism(
    method: Any,
    budget: Budget,
    level: str | None = None,
    estimand: str = "ATE",
    variance: bool = True,
    budget_split: Mapping[str, float] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Mechanism:
    """Return what a name or a function stands for."""
    options = options or {}
    if callable(method):
        if options:
            raise OptionError(f"a function takes no options, got {', '.join(options)}")
        name = getattr(method, "__name__", type(method).__name__)
        return Mechanism(name, partial(_prepare_function, method))
    if method not in registry() and method in conditional_methods():
        estimand = "CATE"
    spec = table_methods().get(method) or get(method, estimand)
    if spec.tabled and estimand not in spec.estimands:
        estimand = spec.estimands[0]
    spec.check_estimand(estimand)
    level = spec.check_level(level)
    released = _released(options) if spec.conditional else {}
    sample = {name: options[name] for name in SAMPLE if options.get(name) is not None}
    options = {name: x for name, x in options.items() if name not in {*released, *SAMPLE}}
    kind = {"release": released["release"]} if released else {}
    written, usual = _TABLES.get(spec.name, ("", {})) if spec.tabled else ("", {})
    options = {**usual, **options}
    adapted, checked = spec.with_options({**options, **kind})
    request = partial(
        Request,
        method=spec if spec.tabled else method,
        estimand=estimand,
        budget=budget,
        level=level,
        budget_split=budget_split,
        variance=variance,
        options=options,
        **released,
        **sample,
    )
    covariate = " | g" if spec.needs_strata else " | x" if spec.uses_covariates else ""
    formula = written or f"y ~ t{covariate}"
    return Mechanism(
        spec.name,
        partial(_prepare_method, request),
        estimand,
        level,
        checked.public(level),
        formula,
        adapted.guarantee,
        sample,
    )


def _released(options: Mapping[str, Any]) -> dict[str, Any]:
    """What is released of conditional effects, by default on the library of pairs."""
    release = options.get("release", "function")
    where: dict[str, Any] = {"at": {"x": [0.25, 0.75]}} if release == "points" else {}
    if release == "groups":
        where = {"by": "g"}
    given = {name: options[name] for name in ("at", "by") if name in options}
    return {"release": release, **where, **given}


def _prepare_function(
    function: Callable[[Any, Any], Any], data: Any, formula: str | None, bounds: Any
) -> Run:
    """Nothing is read before the function does."""
    return partial(function, data)


def _prepare_method(
    request: Callable[..., Request], data: Any, formula: str | None, bounds: Any
) -> Run:
    """Everything up to the first charge is done once."""
    estimation = Estimation(request(data=data, formula=str(formula), bounds=bounds))

    def run(noise: RecordedNoise) -> Any:
        estimate = estimation.fit(noise)
        return {"estimate": estimate, "charges": str(estimation.ledger.charges)}

    return run
