"""The public functions: each makes a `Request`, which goes through `dpeffects.flow`."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, cast

from dpeffects.calls import OfSplits, OfUnits, public_call
from dpeffects.errors import OptionError, advised, checked_call, did_you_mean, refusal
from dpeffects.estimators import conditional_methods, default_learner, registry, table_methods
from dpeffects.estimators.spec import MethodSpec
from dpeffects.flow import Estimation
from dpeffects.formula.discrete import joined
from dpeffects.guarantee import KINDS
from dpeffects.lazy import pd
from dpeffects.privacy.ledger import Account
from dpeffects.request import Request, refuse_tables

if TYPE_CHECKING:
    from dpeffects.ledgers import Address
    from dpeffects.results import ArmEffects, CateEffects, CateFunction, Result, SubsetEffects


@checked_call
def dp_ate(
    formula: str,
    data: Any,
    method: str = "auto",
    *,
    epsilon: float,
    delta: float = 0.0,
    level: str | None = None,
    bounds: Any = None,
    budget_split: Mapping[str, float] | None = None,
    variance: bool = True,
    contrasts: str = "reference",
    unit: str | None = None,
    max_rows: int | None = None,
    cluster: str | None = None,
    clusters: int | None = None,
    missing: str | Mapping[str, str] = "error",
    weights: str | None = None,
    subset: str | None = None,
    check_bounds: bool | None = None,
    means: bool = False,
    by: str | Sequence[str] | Mapping[str, str] | None = None,
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> Result | ArmEffects | SubsetEffects:
    r"""Estimate an average treatment effect with differential privacy.

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
        One of :func:`methods`. The default, "auto", takes the one whose interval is expected to be
        shortest by n, epsilon, delta, the design and the declared covariates:
        ``regression`` or ``one_step``, which adjust for the covariates, or ``clipped_contrast``,
        which does not, and says so.
    epsilon, delta
        The privacy budget of this call. Nothing is charged if the call fails before it draws noise.
    level
        "sample" (default): everything in a record is protected. "label": only the outcome is;
        covariates and treatment are taken as public.
    bounds
        ``{"y": (0, 1), "region": ["N", "S"], "*_hx": [0, 1]}`` from what the variables mean: a
        tuple is a range (of dates too, which are then days since the first), a list is levels (of
        a treatment control first, of an outcome two, ``["no", "yes"]`` or ``[0, 1]``), and
        ``range(18, 91)`` the whole numbers 18 to 90: as in Python, the last number is not
        included, so that a count from 0 to 30 is ``range(0, 31)``. ``*`` and ``?`` stand for parts
        of names. Or a codebook:
        a frame or the path of a TOML or CSV file, with names, lower and upper or levels. ``.``
        among the covariates of the formula is all columns that are declared. Numeric columns left
        out are bounded privately out of the share "bounds". ``"from_data"`` voids the guarantee.
    budget_split
        Proportions of the budget by name; names left out keep the method's own, and all are
        divided by their sum.
    variance
        False gives the share of the variance to the estimate; there is no interval then. In
        ``smooth_matching`` the estimate then has all of the budget, and the size of its noise is
        private.
    contrasts
        Where the treatment has more than two declared levels, such as
        ``bounds={"dose": ["none", "low", "high"]}``: "reference" compares each with the first,
        "pairwise" each with each. One budget pays for all, and all effects are averages over the
        records of all arms.
    unit
        The column that says whose row it is, where a person has several: everything of one person
        is protected then, in however many rows. n is the number of persons. Each of them counts
        once: their rows share one vote, so that noise is that of one row each. (Somebody with more
        than 65,536 rows counts as nothing; from 1,000 on, a per cent of the vote is lost.)
    max_rows
        With ``unit``: every row counts, up to so many of one person. Those of a person with more
        count less. The price is more noise: a row counts 1/max_rows of a person.
    cluster
        The column of villages, schools or hospitals whose records have something in common: the
        standard error is that of their sums. Records stay the unit of privacy, unless ``unit``
        says otherwise.
    clusters
        How many clusters there are, where the design says so; or their levels in ``bounds``. Else
        they are counted at a price.
    missing
        "error" (default) refuses missing values. "indicator": the missing-indicator method for a
        covariate; records where it is missing are not adjusted for it. "complete":
        complete-case analysis; the number of complete records is released. "weight": inverse
        probability of missingness weights for the outcome, from a released model of whether it is
        observed; it is assumed missing at random given covariates and treatment. Multiple
        imputation is not available. One word, or a mapping by column.
    weights
        A column of weights, such as those of a survey, from 0 to an upper bound that is declared:
        ``bounds={"w": (0, 8)}``. The effect is that in the weighted population.
    subset
        A condition such as ``"age >= 18 & sex == 'f'"``: only these records are analysed, and
        their number is released.
    check_bounds
        True releases, out of the share "check_bounds", how many values of each numeric column lay
        outside its declared range and were clipped to it, with a warning where it is many. The
        default counts records with such a value, for 1 % of the budget, where n times epsilon is
        5,000 or more (10,000 where some records do not count, or count less), so that wrong units
        are noticed. False does nothing.
    means
        Most methods release what gives the mean outcome of each arm too, for ratios and risks
        (:meth:`Result.effect`). For those that do not, True releases it out of the share "means".
    by
        Effects in several groups, in one call and out of one budget: those of the levels of a
        column, ``"sex"``, or of a discrete term, ``"cut(age, [18, 40, 65, 90])"``; of several,
        ``["sex", "region"]`` or ``"sex + region"``, they are crossed. Or in subsets: a list of
        conditions, ``["age < 40", "sex == 'f'"]``, or a mapping of names to conditions,
        ``{"women": "sex == 'f'", "men": "sex == 'm'"}``. The budget is divided among
        them. Where their texts show that nobody is in two of them, each has half of it, however
        many they are (not with ``unit``: rows of a person may be in several). All checks of all
        subsets come before the first charge.
    ledger
        A :class:`Ledger` that is charged too, and that may refuse; or the path or URL of one that
        outlives the process (:func:`create_ledger`), or a share of one for these calls
        (:meth:`Ledger.allot`).
    dataset
        Which dataset's budget in that file or on that server; needed where it has several.
    seed
        Makes the noise reproducible, and the result not private. It says so.
    **options
        Options of the method; ``print(dpe.methods("private_psm"))`` describes them. Those of the
        default: ``design="randomised"`` declares that treatment was assigned by chance, so that
        there is nothing to adjust for and covariates only make the interval shorter
        ("observational" is assumed otherwise); ``on_unadjusted="error"`` refuses, before anything
        is charged, an observational study that n and epsilon are too small to adjust (by default
        it is answered with "warn": as an association, without a test).

    Returns
    -------
    Result, ArmEffects or SubsetEffects
        ``Result`` is the usual one: ``print(fit)``, ``fit.summary()``, ``fit.conf_int()``,
        ``fit.test()``, ``fit.effect("ratio")``, ``fit.tidy()``. ``ArmEffects`` where the treatment
        has more than two levels, ``SubsetEffects`` with ``by``.

    Notes
    -----
    The estimand is E[Y(1) - Y(0)], the mean over all records of the difference between the outcomes
    with and without treatment. In a randomised trial it is the intention-to-treat effect of
    assignment. Elsewhere it is identified if no confounder is missing from the formula and every
    kind of record could have had either treatment. Results say what their interval covers.

    References
    ----------
    Dwork, C., & Roth, A. (2014). The algorithmic foundations of differential privacy. *Foundations
    and Trends in Theoretical Computer Science*, 9(3-4), 211-407. doi:10.1561/0400000042

    Imbens, G. W. (2004). Nonparametric estimation of average treatment effects under exogeneity: A
    review. *Review of Economics and Statistics*, 86(1), 4-29. doi:10.1162/003465304323023651

    Examples
    --------
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1, seed=1)
    >>> fit.estimand, fit.n, fit.guarantee.status
    ('ATE', 445, 'void: seeded')

    In a shell::

        dpeffects ate "y ~ t | age + sex" data.csv --epsilon 1 --bounds bounds.toml
        dpeffects ate "y ~ t" trial.csv --epsilon 1 --bounds bounds.toml \
            --option design=randomised
        dpeffects ate '`length of stay` ~ t | age' data.csv --epsilon 1 \
            --bounds bounds.toml
        dpeffects ate "y ~ t | age" data.parquet --epsilon 1 --bounds bounds.toml \
            --method private_ipw --option clip=0.05 --conf-level 0.9
        dpeffects ate "y ~ t | age" data.csv --epsilon 1 --bounds bounds.toml \
            --ledger study.db --dataset nsw --out effect.json --record record.html
        dpeffects ate "y ~ t | age" visits.csv --epsilon 1 --bounds bounds.toml \
            --unit patient --missing age=indicator --subset "age >= 18"
        dpeffects ate "y ~ t | age" data.csv --epsilon 1 --bounds bounds.toml \
            --by "women=sex == 'f'" --by "men=sex == 'm'"
    """
    given = dict(locals())
    return estimate_effect("ATE", **given.pop("options"), **given)


@checked_call
def dp_att(formula: str, data: Any, method: str = "auto", **arguments: Any) -> Result:
    """Estimate the average effect on the treated (ATT); arguments as in :func:`dp_ate`.

    For the question whether those who were treated were helped, such as by a programme that nobody
    else would take. Only the controls need to be like the treated: where some records could never
    have been treated, it needs less overlap than the ATE.

    Returns
    -------
    Result
        As in :func:`dp_ate`.

    Notes
    -----
    The estimand is E[Y(1) - Y(0) | T = 1]: the mean effect among those who were treated.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> formula = "earnings_1978 ~ treatment | age"
    >>> dpe.dp_att(formula, nsw, "private_ipw", epsilon=1, seed=1).estimand
    'ATT'
    """
    return estimate_effect("ATT", formula, data, method, **arguments)


@checked_call
def dp_atc(formula: str, data: Any, method: str = "auto", **arguments: Any) -> Result:
    """Estimate the average effect on the controls (ATC); arguments as in :func:`dp_ate`.

    For the question whether treatment should be extended to those who do not have it yet. Only the
    treated need to be like the controls: where some records are always treated, it needs less
    overlap than the ATE.

    Returns
    -------
    Result
        As in :func:`dp_ate`.

    Notes
    -----
    The estimand is E[Y(1) - Y(0) | T = 0]: the mean effect that treatment would have had among
    those who were not treated.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> formula = "earnings_1978 ~ treatment | age"
    >>> dpe.dp_atc(formula, nsw, "private_ipw", epsilon=1, seed=1).estimand
    'ATC'
    """
    return estimate_effect("ATC", formula, data, method, **arguments)


def estimate_effect(estimand: str, /, *arguments: Any, **more: Any) -> Result:
    """Estimate the average effect that an estimand names."""
    by = more.pop("by", None)
    request = Request.of_effect(estimand, *arguments, **more)
    if by is not None:
        from dpeffects.subsets import subset_effects

        return cast("Result", subset_effects(request, by))
    return cast("Result", Estimation(request).result())


class _OfCate(OfUnits, OfSplits, total=False):
    variance: bool


@public_call(_OfCate)
def dp_cate(
    formula: str,
    data: Any,
    method: str | None = None,
    *,
    release: str = "function",
    at: Any = None,
    by: str | Sequence[str] | None = None,
    epsilon: float,
    accept_asymptotic: bool = False,
    accept_library: bool = False,
    accept_none: bool = False,
    **more: Any,
) -> CateFunction | CateEffects:
    r"""Estimate conditional average treatment effects with differential privacy.

    Parameters
    ----------
    formula, delta
        As in :func:`dp_ate`. Functions are much less noisy with a small delta, such as 1e-5.
    {shared}
    method
        "r_learner" (careful where overlap is poor; the default for functions and points),
        "dr_learner" (less error where overlap is good), or for groups "one_step" (their default:
        least error, and fewest looks at the rows; the R-learner gives overlap-weighted effects
        there), or for points "sample_aggregate": any scikit-learn
        learners, exact, at the price of more noise; or "dp_ebm": boosted additive models, with a
        library's guarantee; or, to compare, "k_anonymous": any learners on covariates averaged in
        groups of k records, which is not differential privacy.
    release
        "function" (a function of the covariates that answers any number of queries), "points"
        (effects at the rows of ``at``), or "groups" (effects by the groups of ``by``).
    at
        A frame or a dict with the covariates of the points, such as a grid of your own: they are
        printed with the result. Rows of ``data`` are refused where they can be recognised.
    by
        Columns and discrete terms whose levels make groups: ``"sex"``, ``"I(age >= 40)"``,
        ``"cut(age, [18, 40, 65, 90])"``. Several of them, ``["sex", "region"]`` or
        ``"sex + region"``, are crossed.
    accept_asymptotic
        With ``release="points"``, a ``second_stage`` that is "random_forest", "neural_net" or any
        scikit-learn regressor reproduces the paper's finite release, whose guarantee is a claim
        about large n that is false for flexible learners. It needs this opt-in, and says so.
        ``outcome`` and ``propensity`` are its other models, any of scikit-learn's.
    accept_library
        The opt-in that ``method="dp_ebm"`` needs: its noise is drawn by a library, whose authors
        prove the guarantee (`dpeffects.replication.dp_ebm`).
    accept_none
        The opt-in that ``method="k_anonymous"`` needs: it protects nobody, charges nothing, and its
        results say so.
    **options
        Options of the method; ``print(dpe.methods("r_learner"))`` describes them.

    Returns
    -------
    CateFunction or CateEffects
        Functions are smooth: they do not follow steps of the effect, nor turns sharper than the
        kernel's bandwidth (`CateFunction.bandwidths`).

    Notes
    -----
    The estimand is E[Y(1) - Y(0) | X = x], the mean effect among records with covariates x. It is
    identified if no confounder is missing from the formula.

    References
    ----------
    Nie, X., & Wager, S. (2021). Quasi-oracle estimation of heterogeneous treatment effects.
    *Biometrika*, 108(2), 299-319. doi:10.1093/biomet/asaa076

    Examples
    --------
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("cate_1", n=3000, seed=1)
    >>> fit = dpe.dp_cate("outcome ~ treatment | x1 + x2", data, epsilon=1, delta=1e-5, seed=1)
    >>> fit.effect({"x1": [0.1, 0.9], "x2": [0.5, 0.5]}).shape
    (2,)

    In a shell::

        dpeffects cate "y ~ t | age + sex" data.csv --epsilon 1 --delta 1e-5 \
            --bounds bounds.toml --save effects.json
        dpeffects cate "y ~ t | age + sex" data.csv --epsilon 1 --bounds bounds.toml \
            --release groups --by "sex + cut(age, [18, 65, 90])"
        dpeffects cate "y ~ t | age + sex" data.csv --epsilon 1 --delta 1e-5 \
            --bounds bounds.toml --release points --at points.csv
    """
    given = dict(locals())
    given |= given.pop("more")
    asked = {name: given.pop(name) for name in ("release", "at", "by")}
    accepted = {kind.accept: given.pop(kind.accept) for kind in KINDS.values() if kind.accept}
    refuse_tables({"release": release, "by": by})
    asked["by"] = by if by is None else joined(by, "by")
    given["method"] = default_learner(release) if method is None else method
    request = Request.of_effect("CATE", **given)
    options = {**request.options, **{name: x for name, x in accepted.items() if x is not False}}
    request = replace(request, options=options, **asked)
    return cast("CateFunction | CateEffects", Estimation(request).result())


@checked_call
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
    kinds = (registry(), conditional_methods(), table_methods())
    if name is not None:
        known = [name for specs in kinds for name in specs]
        if name not in known:
            hint = advised("methods").get(str(name).casefold()) or did_you_mean(name, known).strip()
            names = ", ".join(dict.fromkeys(known))
            raise OptionError(refusal("unknown_method", name=name, hint=hint, known=names))
        return "\n\n\n".join(_described(specs[name]) for specs in kinds if name in specs)
    return pd.DataFrame(
        {
            "method": spec.name,
            "estimands": ", ".join(spec.estimands),
            "levels": ", ".join(spec.levels),
            "guarantee": spec.guarantee,
            "covariates": _covariates(spec),
        }
        for specs in kinds
        for spec in specs.values()
    )


def _covariates(spec: MethodSpec) -> str:
    if not spec.uses_covariates:
        return "not used"
    return "required" if spec.needs_covariates else "used"


def _described(spec: MethodSpec) -> str:
    options = spec.options()
    lines = [f"{spec.name}: {spec.title}", spec.about, ""]
    kind = KINDS[spec.guarantee]
    words = f": {kind.words}; needs {kind.accept}=True" if kind.accept else ""
    lines += [f"estimands  {', '.join(spec.estimands)}", f"levels     {', '.join(spec.levels)}"]
    lines += [f"guarantee  {spec.guarantee}{words}"]
    lines += ["arms       two or more"] if spec.fit_arms else []
    for level in spec.levels:
        split = ", ".join(f"{k} {v:.3g}" for k, v in spec.budget_split(level, options).items())
        text = f"budget split at {level} level, proportions: {split}"
        lines += textwrap.wrap(text, 80, subsequent_indent="  ")
    lines += ["", "options"]
    values = {f.name: getattr(options, f.name) for f in fields(options) if f.init}
    lines += [f"  {name} = {value!r}" for name, value in values.items()] or ["  none"]
    lines += ["", inspect.cleandoc(options.__doc__ or ""), "", f"Cite: {spec.citation}"]
    return "\n".join(lines)
