"""The public door: formula -> design -> curator -> method -> inference -> result."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from dpeffects import design
from dpeffects.errors import BoundsError, OptionError
from dpeffects.formula import Formula, parse
from dpeffects.formula.expression import source
from dpeffects.methods import get, registry
from dpeffects.methods.spec import Facts, MethodSpec
from dpeffects.privacy.bounds import SOURCES, Bounds, records_needed, skeleton
from dpeffects.privacy.budget import Budget, Share, merge_shares
from dpeffects.privacy.curator import Curator, Releaser, find_bounds
from dpeffects.privacy.guarantee import Guarantee
from dpeffects.privacy.ledger import Ledger, Terms
from dpeffects.privacy.noise import NoiseSource, noise_source
from dpeffects.results import Result

if TYPE_CHECKING:
    import pandas as pd

_BOUNDS_SHARE = 0.5
"""Proportion for finding bounds privately, beside the method's own shares, which sum to about 1."""


def dp_ate(
    formula: str,
    data: Any,
    method: str = "private_aipw",
    *,
    epsilon: float,
    delta: float = 0.0,
    level: str | None = None,
    bounds: Mapping[str, Any] | str | None = None,
    shares: Mapping[str, float] | None = None,
    variance: bool = True,
    ledger: Ledger | None = None,
    seed: int | None = None,
    **options: Any,
) -> Result:
    """Estimate an average treatment effect with differential privacy.

    Parameters
    ----------
    formula
        ``"outcome ~ treatment | covariates"``. Terms are row-wise: ``log(x)``, ``I(x**2)``,
        ``C(region, levels=[...])``, ``cut(age, [0, 30, 60, 90])``, interactions.
    data
        A pandas, polars or pyarrow frame, or one with bounds attached (:func:`declare`).
    method
        One of :func:`methods`; the default adjusts for the covariates where n and epsilon carry it.
    epsilon, delta
        The whole price of this call. Nothing is charged when the call fails before its first draw.
    level
        "sample" (default): everything in a record is protected. "label": only the outcome is;
        covariates and treatment are taken as public.
    bounds
        ``{"y": (0, 1), "region": ["N", "S"]}`` from what the variables mean. Numeric columns left
        out are bounded privately out of the share "bounds". ``"from_data"`` voids the guarantee.
    shares
        Proportions of the budget by name; names left out keep the method's own, and all are
        divided by their sum.
    variance
        False gives the share of the variance to the estimate; there is no interval then.
    ledger
        A :class:`Ledger` that is charged too, and that may refuse.
    seed
        Makes the noise reproducible, and the result not private. It says so.
    **options
        Options of the method; ``print(dpe.methods("private_psm"))`` describes them.

    Returns
    -------
    Result

    Examples
    --------
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1, seed=1)
    >>> fit.estimand, fit.n, fit.guarantee.status
    ('ATE', 445, 'void: seeded')
    """
    return _effect(
        "ATE",
        formula,
        data,
        method,
        Budget(epsilon, delta),
        level=level,
        bounds=bounds,
        shares=shares,
        variance=variance,
        ledger=ledger,
        seed=seed,
        options=options,
    )


def dp_att(formula: str, data: Any, method: str = "private_aipw", **arguments: Any) -> Result:
    """Estimate the average effect on the treated; arguments as in :func:`dp_ate`."""
    return _of_part("ATT", formula, data, method, **arguments)


def dp_atc(formula: str, data: Any, method: str = "private_aipw", **arguments: Any) -> Result:
    """Estimate the average effect on the controls; arguments as in :func:`dp_ate`."""
    return _of_part("ATC", formula, data, method, **arguments)


def _of_part(
    estimand: str,
    formula: str,
    data: Any,
    method: str,
    *,
    epsilon: float,
    delta: float = 0.0,
    level: str | None = None,
    bounds: Mapping[str, Any] | str | None = None,
    shares: Mapping[str, float] | None = None,
    variance: bool = True,
    ledger: Ledger | None = None,
    seed: int | None = None,
    **options: Any,
) -> Result:
    return _effect(
        estimand,
        formula,
        data,
        method,
        Budget(epsilon, delta),
        level=level,
        bounds=bounds,
        shares=shares,
        variance=variance,
        ledger=ledger,
        seed=seed,
        options=options,
    )


def _effect(
    estimand: str,
    formula: str,
    data: Any,
    method: str,
    budget: Budget,
    *,
    level: str | None,
    bounds: Mapping[str, Any] | str | None,
    shares: Mapping[str, float] | None,
    variance: bool,
    ledger: Ledger | None,
    seed: int | None,
    options: Mapping[str, Any],
) -> Result:
    """The whole flow, for any estimand."""
    spec = get(method)
    spec.check_estimand(estimand)
    level = spec.check_level(level)
    made = spec.make_options(options)
    parsed = _checked_formula(formula, spec)
    noise = noise_source(seed)
    _flag("variance", variance)
    public = made.public(level)
    charged = _open_ledger(budget, ledger, _terms(level, public, noise))
    table = design.read(data, parsed, bounds, public)
    if spec.needs_strata:
        design.strata(table, parsed)  # refuses covariates that are not discrete
    made.check(table.n, _smallest_arm(table) if "treatment" in public else None)
    made = made.resolve(Facts(table.n, design.width(table, parsed), budget, level))
    wanted = dict(spec.shares(level, made))
    if not variance:
        wanted.pop("variance", None)
    if table.missing:
        wanted["bounds"] = _BOUNDS_SHARE
    split = budget.shares(merge_shares(wanted, shares))
    _require_records(split, table)
    releaser = Releaser(split, charged, noise)
    found = find_bounds({name: table.numeric[name] for name in table.missing}, releaser)
    complete = table.bounds.updated(found)
    curator = Curator(design.encode(table, parsed, complete), releaser, public)
    estimate = spec.fit(curator, made, estimand)
    return Result.from_estimate(
        estimate,
        estimand=estimand,
        guarantee=_guarantee(budget, charged, spec, level, public, noise, complete),
        spends=charged.spends,
        epsilon_asked=budget.epsilon,
        n=table.n,
        method=spec.name,
        method_title=spec.title,
        formula=parsed.source,
        level=level,
        bounds=_bounds_shown(parsed, complete, curator.outcome_range),
        notes=_notes(parsed, spec, complete),
        noise_source=noise.description,
        citation=spec.citation,
        outcome=source(parsed.outcome),
        treatment=parsed.treatment_column,
        options=asdict(made),
    )


def _checked_formula(formula: str, spec: MethodSpec) -> Formula:
    parsed = parse(formula)
    if spec.uses_covariates and not parsed.has_covariates:
        y, t = source(parsed.outcome), parsed.treatment_column
        raise OptionError(
            f'{spec.name} needs covariates: write "{y} ~ {t} | x1 + x2", or use '
            'method="diff_in_means"'
        )
    return parsed if spec.uses_covariates else replace(parsed, terms=(), intercept=True)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"{name} must be True or False, got {value!r}")
    return value


def _smallest_arm(table: design.Table) -> int:
    treated = int(table.treated.sum())
    return min(treated, table.n - treated)


def _terms(level: str, public: frozenset[str], noise: NoiseSource) -> Terms:
    """What a charge of this call protects, so that a ledger adds up like with like only."""
    unit = "outcome" if level == "label" else "record"
    return Terms(unit, tuple(sorted(public)), noise.void)


def _open_ledger(budget: Budget, ledger: Ledger | None, terms: Terms) -> Ledger:
    """Open a ledger for this call; refuse an overspend before any data is read."""
    if ledger is not None and not isinstance(ledger, Ledger):
        raise OptionError(f"ledger must be a dpeffects.Ledger, got {type(ledger).__name__}")
    charged = Ledger(budget.epsilon, budget.delta, parent=ledger, terms=terms)
    charged.require(budget.epsilon, budget.delta)
    return charged


def _require_records(split: Mapping[str, Share], table: design.Table) -> None:
    """Refuse a private search for bounds that public numbers say would fail."""
    if not table.missing:
        return
    each = split["bounds"].epsilon / len(table.missing)
    needed = records_needed(2.0 / each)
    if table.n < needed:
        raise BoundsError(
            f"no bounds are declared for {', '.join(table.missing)}, and finding them privately "
            f"with epsilon = {each:.3g} each takes about {needed} records; there are {table.n}. "
            f"Declare what the variables could be:\n{skeleton(table.missing, [])}"
        )


def _guarantee(
    budget: Budget,
    charged: Ledger,
    spec: MethodSpec,
    level: str,
    public: frozenset[str],
    noise: NoiseSource,
    bounds: Bounds,
) -> Guarantee:
    from_data = any(source == "data" for source in bounds.sources.values())
    void = (*noise.void, *(("bounds read from data",) if from_data else ()))
    epsilon, delta = charged.spent
    asked = budget.epsilon  # shares are rounded down, by less than anybody should read
    return Guarantee(
        epsilon=asked if float(epsilon) > asked * (1 - 1e-9) else float(epsilon),
        delta=float(delta),
        unit="outcome" if level == "label" else "record",
        public=("n", *sorted(public)),
        kind=spec.guarantee,
        void=void,
    )


def _bounds_shown(
    formula: Formula, bounds: Bounds, outcome_range: tuple[float, float]
) -> tuple[tuple[str, str, str], ...]:
    """Name, bound and source of each column; a transformed outcome is shown as it is analysed."""
    names = [n for n in formula.columns if n in bounds and n not in formula.outcome_columns]
    shown = [(name, bounds.describe(name), bounds.source(name)) for name in names]
    of_outcome = max((bounds.source(n) for n in formula.outcome_columns), key=SOURCES.index)
    text = f"[{outcome_range[0]:.6g}, {outcome_range[1]:.6g}]"
    return ((source(formula.outcome), text, of_outcome), *shown)


def _notes(formula: Formula, spec: MethodSpec, bounds: Bounds) -> tuple[str, ...]:
    notes = []
    if formula.source.count("|") and not spec.uses_covariates:
        notes.append(f"{spec.name} does not use covariates; those in the formula were not read.")
    if any(bounds.source(name) == "private" for name in formula.outcome_columns):
        notes.append(
            "Outcomes beyond the privately found range are clipped to it, and the effect is that "
            "on the clipped outcome. Declare the range to avoid this and its cost."
        )
    return tuple(notes)


def methods(name: str | None = None) -> pd.DataFrame | str:
    """List the methods, or describe one: its options, their defaults, its shares of the budget.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> "private_psm" in list(dpe.methods()["method"])
    True
    >>> print(dpe.methods("diff_in_means").splitlines()[0])
    diff_in_means: difference in means
    """
    import pandas as pd

    if name is not None:
        return _described(get(name))
    return pd.DataFrame(
        {
            "method": spec.name,
            "estimands": ", ".join(spec.estimands),
            "levels": ", ".join(spec.levels),
            "guarantee": spec.guarantee,
            "covariates": "required" if spec.uses_covariates else "not used",
        }
        for spec in registry().values()
    )


def _described(spec: MethodSpec) -> str:
    made = spec.options()
    lines = [f"{spec.name}: {spec.title}", spec.about, ""]
    lines += [f"estimands  {', '.join(spec.estimands)}", f"levels     {', '.join(spec.levels)}"]
    for level in spec.levels:
        split = ", ".join(f"{k} {v:g}" for k, v in spec.shares(level, made).items())
        lines.append(f"shares     {split}  (proportions at {level} level)")
    lines += ["", "options"]
    lines += [f"  {f.name} = {getattr(made, f.name)!r}" for f in fields(spec.options)] or ["  none"]
    lines += ["", inspect.cleandoc(spec.options.__doc__ or ""), "", f"Cite: {spec.citation}"]
    return "\n".join(lines)
