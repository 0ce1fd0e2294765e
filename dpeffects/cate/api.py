"""The public door to conditional effects: `dp_cate` and `load_cate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.call import Ask, Call, refuse_tables
from dpeffects.cate import function, groups, points
from dpeffects.cate.aggregate import AggregateOptions, fit_blocks
from dpeffects.cate.asymptotic import NAMED, NEEDS_OPT_IN, check_learner
from dpeffects.cate.options import STAGES, CateOptions
from dpeffects.design import read as design
from dpeffects.design.engines import LazyTable
from dpeffects.errors import OptionError
from dpeffects.estimators import dp_ebm, sample_aggregate
from dpeffects.estimators.dp_ebm import DPEBMOptions
from dpeffects.formula import Formula, parse
from dpeffects.formula.expression import source
from dpeffects.inference.estimate import Estimate
from dpeffects.ledgers import Address
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.ledger import Account
from dpeffects.results import CateEffects, CateFunction
from dpeffects.results.effect_function import EffectFunction

FloatArray = npt.NDArray[np.float64]

TITLES = {
    "r_learner": "R-learner with private nuisances",
    "dr_learner": "DR-learner with private nuisances",
    "sample_aggregate": "sample and aggregate",
    "dp_ebm": "DP-EBM",
}
_MOST_POINTS = 10_000
RELEASES = ("function", "points", "groups")
_CLAIMED = (
    "The paper's finite release: an asymptotic claim, not a proven guarantee at this n. The scale "
    "of its noise was computed from the data."
)
_CITATION = (
    "Schröder, Melnychuk and Feuerriegel (2025), Differentially private learners for "
    "heterogeneous treatment effects."
)


def dp_cate(
    formula: str,
    data: Any,
    method: str = "r_learner",
    *,
    release: str = "function",
    at: Any = None,
    by: str | None = None,
    epsilon: float,
    delta: float = 0.0,
    bounds: Mapping[str, Any] | str | None = None,
    shares: Mapping[str, float] | None = None,
    variance: bool = True,
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    accept_asymptotic: bool = False,
    accept_library: bool = False,
    **options: Any,
) -> CateFunction | CateEffects:
    """Estimate conditional average treatment effects with differential privacy.

    Parameters
    ----------
    formula, data, epsilon, delta, bounds, shares, variance, ledger, dataset, seed
        As in :func:`dp_ate`. Functions are much less noisy with a small delta, such as 1e-5.
    method
        "r_learner" (careful where overlap is poor), "dr_learner" (less error where it is good), or
        for points "sample_aggregate": any scikit-learn learners, exact, at the price of more noise;
        or "dp_ebm": boosted additive models, with a library's guarantee.
    release
        "function" (a function of the covariates that answers any number of queries), "points"
        (effects at the rows of ``at``), or "groups" (effects by the groups of ``by``).
    at
        A frame or a dict with the covariates of the points, such as a grid of your own: they are
        printed with the result. Rows of ``data`` are refused where they can be recognised.
    by
        Discrete terms that make disjoint groups: ``"cut(age, [18, 40, 65, 90])"``, ``"sex"``,
        ``"sex + cut(age, [18, 65, 90])"``.
    accept_asymptotic
        With ``release="points"``, a ``second_stage`` that is "random_forest", "neural_net" or any
        scikit-learn regressor reproduces the paper's finite release, whose guarantee is a claim
        about large n that is false for flexible learners. It needs this opt-in, and says so.
    accept_library
        The opt-in that ``method="dp_ebm"`` needs: its noise is drawn by a library, whose authors
        prove the guarantee (`dpeffects.estimators.dp_ebm`).
    **options
        ``kernel``, ``bandwidth``, ``second_stage``, ``noise``, ``clip``, ``threshold``: see
        `dpeffects.cate.options.CateOptions`; of sample and aggregate ``outcome``, ``propensity``,
        ``second_stage``, ``learner``, ``blocks``, ``effect_range``: see
        `dpeffects.cate.aggregate.AggregateOptions`.

    Returns
    -------
    CateFunction or CateEffects

    Examples
    --------
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("cate_1", n=3000, seed=1)
    >>> fit = dpe.dp_cate("outcome ~ treatment | x1 + x2", data, epsilon=1, delta=1e-5, seed=1)
    >>> fit.effect({"x1": [0.1, 0.9], "x2": [0.5, 0.5]}).shape
    (2,)
    """
    refuse_tables(
        method=method, epsilon=epsilon, delta=delta, seed=seed, dataset=dataset, **options
    )
    refuse_tables(release=release, by=by, variance=variance)
    made = options_of(method, options)
    parsed = _formula(formula)
    _check_release(release, at, by)
    if isinstance(made, DPEBMOptions):
        dp_ebm.SPEC.accepted({"accept_library": accept_library})
    if isinstance(made, CateOptions):
        _check_second_stage(made.second_stage, release, delta, accept_asymptotic)
    elif release != "points":
        raise OptionError(f'method="{method}" is for release="points"')
    points.refuse_private_rows(at, data, parsed.covariate_columns)
    ask = Ask(Budget(epsilon, delta), bounds, shares, variance, ledger, seed, dataset)
    about: dict[str, Any] = {"estimand": "CATE", "method": method}
    about |= {"method_title": TITLES[method], "citation": _CITATION, "options": _shown(made)}
    with Call(parsed, ask, "sample", made.public("sample"), method) as call:
        table = call.read(data)
        design.require_covariates(table, parsed)
        if isinstance(table, LazyTable) and not adds_up(made):
            raise OptionError("these learners need rows in memory: collect the lazy frame first")
        if isinstance(made, AggregateOptions):
            return _blocks(call, made, at, about)
        if isinstance(made, DPEBMOptions):
            return _boosted(call, made, at, about)
        if release == "groups":
            return _groups(call, data, made, method, str(by), about)
        if release == "points":
            return _points(call, made, method, at, about)
        return _function(call, made, method, about)


def _function(call: Call, made: CateOptions, method: str, about: dict[str, Any]) -> CateFunction:
    curator = call.curator(function.shares(call.ask.variance))
    found = function.fit_function(curator, made, method)
    return CateFunction(
        function=found,
        space=_space(call),
        details=_details(found),
        notes=(*call.budget_notes(), *call.bounds_notes()),
        **about,
        **call.record("exact"),
    )


def _points(
    call: Call,
    made: CateOptions,
    method: str,
    at: Any,
    about: dict[str, Any],
) -> CateEffects:
    queries, clipped = _queries(call, at)
    exact = adds_up(made)
    if exact:
        estimates = points.fit_points(call.curator(points.shares()), made, method, queries)
    else:
        curator = call.curator({"effect": 1.0})
        estimates = points.fit_claimed(curator, method, made.second_stage, queries)
        about |= {"method_title": f"{method[:-8].upper()}-learner, paper's finite release"}
        about |= {"options": {"second_stage": _shown(made)["second_stage"]}}
    notes = () if exact else (_CLAIMED,)
    kind = "exact" if exact else "asymptotic"
    return _at_points(call, at, estimates, clipped, notes, about, kind=kind)


def _blocks(call: Call, made: AggregateOptions, at: Any, about: dict[str, Any]) -> CateEffects:
    made.check(call.table.n, None)
    queries, clipped = _queries(call, at)
    made = made.resolve(call.facts())
    about |= {"options": _shown(made), "citation": sample_aggregate.SPEC.citation}
    estimates = fit_blocks(call.curator({"effect": 1.0}), made, queries)
    records = call.table.n // (made.blocks or 2)
    notes = (
        f"Learners are fitted in blocks of {records} records: what they miss at that size is in "
        "the effects.",
    )
    return _at_points(call, at, estimates, clipped, notes, about, kind="exact")


def _boosted(call: Call, made: DPEBMOptions, at: Any, about: dict[str, Any]) -> CateEffects:
    queries, clipped = _queries(call, at)
    made = made.resolve(call.facts())
    about |= {"citation": dp_ebm.SPEC.citation}
    curator = call.curator(dp_ebm.shares("sample", made))
    estimates, note = points.fit_boosted(curator, made, queries)
    return _at_points(call, at, estimates, clipped, note, about, kind="library")


def _queries(call: Call, at: Any) -> tuple[FloatArray, dict[str, int]]:
    if call.table.missing:
        raise OptionError(
            f"effects at points need declared bounds for {', '.join(call.table.missing)}"
        )
    queries, clipped = design.queries(at, call.formula, call.table.bounds)
    if not 1 <= len(queries) <= _MOST_POINTS:
        raise OptionError(
            f"at has {len(queries)} rows; from 1 to {_MOST_POINTS} effects are released together. "
            'For more, release="function"'
        )
    return queries, clipped


def _at_points(
    call: Call,
    at: Any,
    estimates: tuple[Estimate, ...],
    clipped: Mapping[str, int],
    notes: tuple[str, ...],
    about: dict[str, Any],
    *,
    kind: str,
) -> CateEffects:
    return CateEffects(
        kind="points",
        labels=_labels(at, call.formula, len(estimates)),
        effects=estimates,
        points=_columns(at, call.formula),
        notes=(*call.budget_notes(), *_clipped(clipped), *call.bounds_notes(), *notes),
        **about,
        **call.record(kind),
    )


def _groups(
    call: Call, data: Any, made: CateOptions, method: str, by: str, about: dict[str, Any]
) -> CateEffects:
    grouping = _grouping(call.formula, by)
    table = design.read(data, grouping, call.ask.bounds, call.public)
    design.require_same_kinds(call.table, table)
    found = design.strata(table, grouping)
    if found.count > 1000:
        raise OptionError(f"by makes {found.count} groups; at most 1000 are released")
    curator = call.curator(groups.shares(), (table, found))
    return CateEffects(
        kind="groups",
        labels=found.labels(),
        effects=groups.fit_groups(curator, made, method),
        points={},
        notes=(*call.budget_notes(), *call.bounds_notes()),
        details={"groups": by},
        **about,
        **call.record("exact"),
    )


_Made = CateOptions | AggregateOptions | DPEBMOptions


def options_of(method: str, options: Mapping[str, Any]) -> _Made:
    """Options of a method, checked."""
    if not isinstance(method, str) or method not in TITLES:
        raise OptionError(f"unknown method {method!r} for dp_cate; there are {', '.join(TITLES)}")
    others: dict[str, type[Any]] = {"sample_aggregate": AggregateOptions, "dp_ebm": DPEBMOptions}
    make: type[_Made] = others.get(method, CateOptions)
    known = [f.name for f in fields(make) if f.init]
    for name in options:
        if name not in known:
            raise OptionError(f"unknown option {name!r}: {method} has {', '.join(known)}")
    return make(**options)


def adds_up(made: _Made) -> bool:
    """True where sums over the records are all that is asked of the data."""
    return isinstance(made, CateOptions) and made.second_stage in STAGES


def _check_second_stage(stage: Any, release: str, delta: float, accepted: bool) -> None:
    if isinstance(stage, str) and stage in STAGES:
        return
    if not (isinstance(stage, str) and stage in NAMED):
        check_learner(stage, "second_stage")
    if release != "points":
        raise OptionError(f'second_stage={stage!r} is for release="points"; else use "kernel"')
    if accepted is not True:
        raise OptionError(NEEDS_OPT_IN.format(stage))
    if not delta > 0:
        raise OptionError("the paper's finite release needs a delta, for example delta=1e-5")


def _formula(formula: str) -> Formula:
    parsed = parse(formula)
    if not parsed.has_covariates:
        raise OptionError('dp_cate needs covariates: write "y ~ t | x1 + x2"')
    return replace(parsed, intercept=True)


def _check_release(release: str, at: Any, by: str | None) -> None:
    if not isinstance(release, str) or release not in RELEASES:
        raise OptionError(f"release must be one of {', '.join(RELEASES)}, got {release!r}")
    for name, given, wanted in (("at", at, "points"), ("by", by, "groups")):
        if given is None and release == wanted:
            raise OptionError(f'release="{wanted}" needs {name}=...')
        if given is not None and release != wanted:
            raise OptionError(f'{name} is for release="{wanted}", not "{release}"')
    if by is not None and not isinstance(by, str):
        raise OptionError(f"by must be a string of discrete terms, got {by!r}")


def _grouping(formula: Formula, by: str) -> Formula:
    return parse(f"{source(formula.outcome)} ~ {source(formula.treatment)} | {by}")


def _space(call: Call) -> Any:
    kept = call.bounds
    wanted = call.formula.covariate_columns
    return type(kept)(
        {name: kept[name] for name in wanted},
        {name: kept.source(name) for name in wanted},
        frozenset(name for name in wanted if kept.is_levels(name)),
    )


def _details(found: EffectFunction) -> dict[str, Any]:
    return {
        "features": found.features.size,
        "strength of the penalty": found.strength,
        "threshold of Huber's loss": found.unit,
    }


def _clipped(counts: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(
        f"{count} value{'s' if count > 1 else ''} of {name} in `at` outside the declared range "
        "clipped to it."
        for name, count in counts.items()
    )


def _shown(made: _Made) -> dict[str, Any]:
    """Options as values that print: a learner by its name."""
    values = {f.name: getattr(made, f.name) for f in fields(made) if f.init}
    plain = (str, float, int, tuple, type(None))
    return {name: x if isinstance(x, plain) else repr(x) for name, x in values.items()}


def _columns(at: Any, formula: Formula) -> dict[str, list[Any]]:
    import pandas as pd

    frame = pd.DataFrame({n: np.atleast_1d(np.asarray(at[n])) for n in formula.covariate_columns})
    return {str(name): frame[name].tolist() for name in frame}


def _labels(at: Any, formula: Formula, size: int) -> tuple[str, ...]:
    columns = _columns(at, formula)
    shown = list(columns)[:3]
    more = ", ..." if len(columns) > 3 else ""
    return tuple(
        ", ".join(f"{n} {_short(columns[n][i])}" for n in shown) + more for i in range(size)
    )


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
