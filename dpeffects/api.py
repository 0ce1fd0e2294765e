"""The public door: formula -> design -> curator -> method -> inference -> result."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from dpeffects.call import Ask, Call, refuse_tables
from dpeffects.design import read as design
from dpeffects.design.engines import MOST_STRATA, LazyTable, memory
from dpeffects.errors import OptionError
from dpeffects.estimators import get, proved, registry
from dpeffects.estimators.spec import MethodSpec, Options
from dpeffects.formula import Formula, parse
from dpeffects.formula.expression import source
from dpeffects.inference.estimate import Estimate
from dpeffects.ledgers import Address
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.guarantee import KINDS
from dpeffects.privacy.ledger import Account
from dpeffects.results import Result

if TYPE_CHECKING:
    import pandas as pd

_UNREAD = "{} does not use covariates; those in the formula were not read."


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
    ledger: Account | Address | None = None,
    dataset: str | None = None,
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
        A pandas, polars or pyarrow frame, or one with bounds attached (:func:`declare`). Also rows
        that stay where they are: the path of a Parquet or CSV file, a DuckDB relation, a polars
        lazy frame, a Dask or a Spark frame, for methods that add up blocks of rows.
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
        A :class:`Ledger` that is charged too, and that may refuse; or the path or URL of one that
        outlives the process (:func:`create_ledger`).
    dataset
        Which dataset's budget in that file or on that server; needed where it has several.
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
        epsilon=epsilon,
        delta=delta,
        level=level,
        bounds=bounds,
        shares=shares,
        variance=variance,
        ledger=ledger,
        dataset=dataset,
        seed=seed,
        **options,
    )


def dp_att(formula: str, data: Any, method: str = "private_aipw", **arguments: Any) -> Result:
    """Estimate the average effect on the treated; arguments as in :func:`dp_ate`."""
    return _effect("ATT", formula, data, method, **arguments)


def dp_atc(formula: str, data: Any, method: str = "private_aipw", **arguments: Any) -> Result:
    """Estimate the average effect on the controls; arguments as in :func:`dp_ate`."""
    return _effect("ATC", formula, data, method, **arguments)


def _effect(which: str, /, formula: str, data: Any, method: str, **arguments: Any) -> Result:
    """The whole flow, for any estimand."""
    return finish(begin(which, formula, data, method, **arguments))


def begin(
    which: str,
    /,
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
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    attended: bool = True,
    **options: Any,
) -> Prepared:
    """Everything before the first charge, for any estimand."""
    if "estimand" in options:
        raise OptionError("the estimand is in the name of the function: dp_ate, dp_att or dp_atc")
    refuse_tables(
        method=method,
        epsilon=epsilon,
        delta=delta,
        level=level,
        variance=variance,
        dataset=dataset,
        seed=seed,
        **options,
    )
    ask = Ask(Budget(epsilon, delta), bounds, shares, variance, ledger, seed, dataset, attended)
    return prepare(which, formula, data, method, ask, level, options)


def finish(ready: Prepared) -> Result:
    """Everything from the first charge on."""
    with ready.call as call:
        estimate = ready.estimate()
    spec = ready.spec
    unread = spec.uses_covariates or not parse(call.formula.source).has_covariates
    return Result.from_estimate(
        estimate,
        estimand=ready.estimand,
        method=spec.name,
        method_title=spec.title,
        notes=(
            *(call.budget_notes() if spec.guarantee != "none" else ()),
            *(() if unread else (_UNREAD.format(spec.name),)),
            *call.bounds_notes(),
        ),
        citation=spec.citation,
        options=asdict(ready.options),
        **call.record(spec.guarantee),
    )


@dataclass(frozen=True)
class Prepared:
    """A call whose data is read and whose options are settled; nothing is charged yet."""

    spec: MethodSpec
    options: Options
    call: Call
    estimand: str

    def estimate(self) -> Estimate:
        """Divide the budget, and let the method release and estimate."""
        curator = self.call.curator(self.spec.shares(self.call.level, self.options))
        found = self.spec.fit(curator, self.options, self.estimand)
        size, what = self.options.collects()
        if isinstance(self.call.table, LazyTable) and size:
            return replace(found, notes=(*found.notes, _COLLECTED.format(what)))
        return found


_COLLECTED = "Collected from the engine, in its order: {}."


def prepare(
    estimand: str,
    formula: str,
    data: Any,
    method: str,
    ask: Ask,
    level: str | None,
    options: Mapping[str, Any],
) -> Prepared:
    """Check everything that can be checked before the first charge."""
    spec = get(method)
    spec.check_estimand(estimand)
    level = spec.check_level(level)
    made = spec.make_options(spec.accepted(options))
    if spec.guarantee == "none" and ask.ledger is not None:
        raise OptionError(f"{spec.name} has no differential privacy: no ledger can pay for it")
    parsed = _checked_formula(formula, spec)
    call = Call(parsed, ask, level, made.public(level), method)
    try:
        table = call.read(data)
        if isinstance(table, LazyTable):
            _check_engine(spec, made, table, parsed)
        if spec.needs_strata:
            design.strata(table, parsed)  # refuses covariates that are not discrete
        elif spec.uses_covariates:
            design.require_covariates(table, parsed)
        made.check(table.n, call.smallest_arm())
        settled = made.resolve(call.facts())
        call.divide(spec.shares(level, settled))
        return Prepared(spec, settled, call, estimand)
    except BaseException:
        call.close()
        raise


def _check_engine(spec: MethodSpec, made: Options, table: LazyTable, formula: Formula) -> None:
    """Refuse what needs all rows at once, where they are on an engine."""
    why = made.needs_memory()
    if spec.needs_strata and design.strata(table, formula).count > MOST_STRATA:
        why = f"more than {MOST_STRATA} strata are declared"
    size, what = made.collects()
    needed, there = size * table.n / 2**30, memory() / 2**30
    advice = "Collect the frame first, or use"
    if needed > there:
        why = f"{what}, take about {needed:.3g} GiB for {table.n} records, and this machine has "
        why, advice = f"{why}{there:.3g}", "Use"
    if why:
        others = [other.name for other in proved().values() if _adds_up(other.options())]
        raise OptionError(
            f"{spec.name} on a lazy frame: {why}. {advice} a method that adds up blocks of rows: "
            f"{', '.join(others)}"
        )


def _adds_up(made: Options) -> bool:
    """Whether a method never has more than a block of rows in memory."""
    return not made.needs_memory() and not made.collects()[0]


def _checked_formula(formula: str, spec: MethodSpec) -> Formula:
    parsed = parse(formula)
    if spec.uses_covariates and not parsed.has_covariates:
        y, t = source(parsed.outcome), parsed.treatment_column
        raise OptionError(
            f'{spec.name} needs covariates: write "{y} ~ {t} | x1 + x2", or use '
            'method="diff_in_means"'
        )
    return parsed if spec.uses_covariates else replace(parsed, terms=(), intercept=True)


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
    kind = KINDS[spec.guarantee]
    words = f": {kind.words}; needs {kind.accept}=True" if kind.accept else ""
    lines += [f"estimands  {', '.join(spec.estimands)}", f"levels     {', '.join(spec.levels)}"]
    lines += [f"guarantee  {spec.guarantee}{words}"]
    for level in spec.levels:
        split = ", ".join(f"{k} {v:g}" for k, v in spec.shares(level, made).items())
        lines.append(f"shares     {split}  (proportions at {level} level)")
    lines += ["", "options"]
    lines += [f"  {f.name} = {getattr(made, f.name)!r}" for f in fields(spec.options)] or ["  none"]
    lines += ["", inspect.cleandoc(spec.options.__doc__ or ""), "", f"Cite: {spec.citation}"]
    return "\n".join(lines)
