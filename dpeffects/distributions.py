"""Public functions beyond averages: survival, quantiles, ordered levels, rates, a test for trials.

Each releases one table, or two sums, by a method of its own, and goes through `dpeffects.flow` as
all others do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, cast

from dpeffects.errors import OptionError, checked_call
from dpeffects.estimators import table_methods
from dpeffects.flow import Estimation, Request
from dpeffects.ledgers import Address
from dpeffects.privacy.ledger import Account
from dpeffects.results import (
    OrdinalEffects,
    QuantileEffects,
    RandomisationTest,
    RateEffects,
    SurvivalEffects,
)


@checked_call
def dp_survival(
    formula: str,
    data: Any,
    *,
    horizon: float,
    bins: int | Sequence[float] = 12,
    epsilon: float,
    delta: float = 0.0,
    estimand: str = "ATE",
    design: str = "observational",
    level: str | None = None,
    bounds: Any = None,
    shares: Mapping[str, float] | None = None,
    unit: str | None = None,
    max_rows: int | None = None,
    missing: str | Mapping[str, str] = "error",
    weights: str | None = None,
    subset: str | None = None,
    check_bounds: bool | None = None,
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> SurvivalEffects:
    """Compare survival of two arms, from one noisy life table.

    Parameters
    ----------
    formula
        ``"Surv(time, event) ~ treatment"``, or ``"Surv(time, status == 2) ~ treatment | x1 + x2"``.
        Covariates are adjusted for, by weights of a released propensity model, unless treatment
        was randomised.
    horizon
        Until when records are followed, in the unit of the times: a number from the protocol. Times
        beyond it count as still there.
    bins
        Intervals of the life table up to the horizon, equally long; or their ends.
    estimand
        "ATE", "ATT" or "ATC": whose survival is compared, where covariates are adjusted for.
    design
        "randomised" where treatment was assigned by chance, "observational" where not.
    data, epsilon, delta, level, bounds, shares, ledger, dataset, seed
        As in :func:`dp_ate`. Times and events need no bounds.
    unit, max_rows, missing, weights, subset, check_bounds
        As in :func:`dp_ate`.
    **options
        Options of the method; ``print(dpe.methods("life_table"))`` describes them.

    Returns
    -------
    SurvivalEffects
        Curves, restricted means, risks, hazard ratio and log-rank test: all of them, also at other
        times than were asked for at first, follow from the one table and cost nothing.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> import pandas as pd
    >>> data = pd.DataFrame({"t": [0, 1] * 200, "time": range(400), "died": [1, 1, 0, 1] * 100})
    >>> fit = dpe.dp_survival(
    ...     "Surv(time, died) ~ t", data, horizon=365, epsilon=1, design="randomised", seed=1
    ... )
    >>> fit.n, fit.guarantee.status
    (400, 'void: seeded')
    """
    return cast(SurvivalEffects, _released("life_table", locals()))


@checked_call
def dp_randomisation_test(
    formula: str,
    data: Any,
    *,
    epsilon: float,
    treated_share: float | None = None,
    treated: int | None = None,
    alternative: str = "two-sided",
    bounds: Any = None,
    shares: Mapping[str, float] | None = None,
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
) -> RandomisationTest:
    """Test whether a randomised treatment changes anybody's outcome, which is 0 or 1.

    The p-value is exact in samples of any size, with any epsilon: it rests on the assignment of
    treatment and on the noise, whose laws are known, and on nothing else.

    Parameters
    ----------
    formula, data, epsilon, bounds, shares, ledger, dataset, seed
        As in :func:`dp_ate`. The outcome is 0 or 1 by its declaration: a boolean column, one with
        the bounds [0, 1], or a comparison, ``"I(weeks > 3) ~ t"``. No covariates are read.
    treated_share
        The chance with which each record was treated, independently of all others.
    treated
        Instead: how many records were treated, where that was fixed, or is public. The test is
        then conditional on it, and more powerful where the outcome is neither rare nor frequent.
    alternative
        "two-sided": treatment changes somebody's outcome; "greater": it raises somebody's; "less".

    Returns
    -------
    RandomisationTest

    Notes
    -----
    Two numbers are released: how many outcomes are 1, with a quarter of epsilon, and the sum of
    (t - p)(y - c). Under the null hypothesis their law is known but for the former, over which the
    p-value is maximised, within a confidence set (`dpeffects.inference.randomisation`). Persons
    with several rows, weights, subsets and missing values are refused, because the assignment of
    treatment is one of records: leave out rows first, where whether they are left out does not
    depend on anything that is private.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> trial = dpe.load_data("lalonde")
    >>> found = dpe.dp_randomisation_test(
    ...     "I(earnings_1978 > 0) ~ treatment", trial, epsilon=1, treated=185, seed=1
    ... )
    >>> 0 < found.p_value < 1
    True
    """
    return cast(RandomisationTest, _released("randomisation_test", locals()))


@checked_call
def dp_ordinal(
    formula: str,
    data: Any,
    *,
    epsilon: float,
    delta: float = 0.0,
    estimand: str = "ATE",
    design: str = "observational",
    level: str | None = None,
    bounds: Any = None,
    shares: Mapping[str, float] | None = None,
    unit: str | None = None,
    max_rows: int | None = None,
    missing: str | Mapping[str, str] = "error",
    weights: str | None = None,
    subset: str | None = None,
    check_bounds: bool | None = None,
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> OrdinalEffects:
    """Compare an outcome of ordered levels in two arms, from one noisy table.

    Parameters
    ----------
    formula
        ``"pain ~ treatment"``, or ``"pain ~ treatment | x1 + x2"``. Covariates are adjusted for, by
        weights of a released propensity model, unless treatment was randomised.
    bounds
        As in :func:`dp_ate`. The levels of the outcome are a list from the lowest to the highest,
        of texts or numbers: ``{"pain": ["none", "mild", "severe"]}``.
    estimand
        "ATE", "ATT" or "ATC": whose outcomes are compared, where covariates are adjusted for.
    design
        "randomised" where treatment was assigned by chance, "observational" where not.
    data, epsilon, delta, level, shares, ledger, dataset, seed
        As in :func:`dp_ate`.
    unit, max_rows, missing, weights, subset, check_bounds
        As in :func:`dp_ate`.
    **options
        Options of the method; ``print(dpe.methods("ordinal_table"))`` describes them.

    Returns
    -------
    OrdinalEffects
        Differences of cumulative risks ("at least mild"), the probability that a treated record has
        a higher level than a control one, a common odds ratio, and both distributions.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> import pandas as pd
    >>> data = pd.DataFrame({"t": [0, 1] * 500, "grade": [1, 2, 3, 2] * 250})
    >>> fit = dpe.dp_ordinal(
    ...     "grade ~ t", data, bounds={"grade": [1, 2, 3]}, epsilon=1, design="randomised", seed=1
    ... )
    >>> fit.levels
    ('1', '2', '3')
    """
    return cast(OrdinalEffects, _released("ordinal_table", locals()))


@checked_call
def dp_qte(
    formula: str,
    data: Any,
    *,
    quantiles: float | Sequence[float] = (0.1, 0.25, 0.5, 0.75, 0.9),
    epsilon: float,
    delta: float = 0.0,
    estimand: str = "ATE",
    design: str = "observational",
    level: str | None = None,
    bounds: Any = None,
    shares: Mapping[str, float] | None = None,
    unit: str | None = None,
    max_rows: int | None = None,
    missing: str | Mapping[str, str] = "error",
    weights: str | None = None,
    subset: str | None = None,
    check_bounds: bool | None = None,
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> QuantileEffects:
    """Compare quantiles of the outcome in two arms, from one noisy table.

    Parameters
    ----------
    formula
        ``"outcome ~ treatment"``, or ``"outcome ~ treatment | x1 + x2"``. Covariates are adjusted
        for, by weights of a released propensity model, unless treatment was randomised.
    quantiles
        Shares of records, 0.5 for the median. The table is finest around these; others can be asked
        of the result, and cost nothing.
    estimand
        "ATE", "ATT" or "ATC": whose outcomes are compared, where covariates are adjusted for.
    design
        "randomised" where treatment was assigned by chance, "observational" where not.
    data, epsilon, delta, level, bounds, shares, ledger, dataset, seed
        As in :func:`dp_ate`. The range of the outcome may be wide: a part of epsilon finds out
        where the records are.
    unit, max_rows, missing, weights, subset, check_bounds
        As in :func:`dp_ate`.
    **options
        Options of the method; ``print(dpe.methods("quantile_table"))`` describes them.

    Returns
    -------
    QuantileEffects
        Quantiles of both arms with their differences, and both distributions.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> import pandas as pd
    >>> data = pd.DataFrame({"t": [0, 1] * 1000, "cost": [i**2 / 40 for i in range(2000)]})
    >>> fit = dpe.dp_qte(
    ...     "cost ~ t", data, quantiles=0.5, bounds={"cost": (0, 1e6)}, epsilon=1,
    ...     design="randomised", seed=1,
    ... )
    >>> bool(20_000 < fit.quantiles()["control"][0] < 30_000)  # 25,000
    True
    """
    return cast(QuantileEffects, _released("quantile_table", locals()))


@checked_call
def dp_rate(
    formula: str,
    data: Any,
    *,
    offset: str,
    per: float = 1.0,
    epsilon: float,
    delta: float = 0.0,
    estimand: str = "ATE",
    design: str = "observational",
    level: str | None = None,
    bounds: Any = None,
    shares: Mapping[str, float] | None = None,
    unit: str | None = None,
    max_rows: int | None = None,
    missing: str | Mapping[str, str] = "error",
    weights: str | None = None,
    subset: str | None = None,
    check_bounds: bool | None = None,
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> RateEffects:
    """Compare rates of events per person-time of two arms.

    Parameters
    ----------
    formula
        ``"events ~ treatment"``, or ``"events ~ treatment | x1 + x2"``, where events are counts, or
        0 and 1. Covariates are adjusted for, by weights of a released propensity model, unless
        treatment was randomised.
    offset
        The column of the time in which the events of a record were counted, such as years of
        follow-up. It is a time, not its logarithm. A record without time counts as nothing.
    per
        The time that rates are given for: 1000 for events per 1,000 years. Ratios do not change.
    estimand
        "ATE", "ATT" or "ATC": whose rates are compared, where covariates are adjusted for.
    design
        "randomised" where treatment was assigned by chance, "observational" where not.
    bounds
        As in :func:`dp_ate`. The largest count and the largest time of a record must be declared,
        ``{"events": (0, 10), "years": (0, 5)}``: the noise in rates is proportional to the first.
    data, epsilon, delta, level, shares, ledger, dataset, seed
        As in :func:`dp_ate`.
    unit, max_rows, missing, weights, subset, check_bounds
        As in :func:`dp_ate`.
    **options
        Options of the method; ``print(dpe.methods("rate"))`` describes them.

    Returns
    -------
    RateEffects
        Both rates, their difference and their ratio. Intervals hold for overdispersed counts too:
        the variance is that of single records, not that of a Poisson law.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("rates", n=5000, seed=1)
    >>> formula = "events ~ treatment | x1 + x2 + x3"
    >>> fit = dpe.dp_rate(formula, data, offset="years", epsilon=2, seed=1)
    >>> fit.outcome, fit.guarantee.status
    ('events / years', 'void: seeded')
    """
    return cast(RateEffects, _released("rate", locals()))


def _released(method: str, given: Mapping[str, Any]) -> Any:
    """The result of a call with these arguments, by a method that has a function of its own."""
    arguments = {**given, **given.get("options", {})}
    arguments.pop("options", None)
    if "method" in arguments:
        raise OptionError(f"there is one method for it, {method}: leave method out")
    for name in ("bins", "quantiles"):
        if name in arguments:
            arguments[name] = _plain(arguments[name])
    estimand = arguments.pop("estimand", "ATE")
    spec = table_methods()[method]
    return Estimation(Request.of_effect(estimand, method=spec, **arguments)).result()


def _plain(given: Any) -> Any:
    """A whole number, or a tuple of numbers, whatever sequence has them."""
    if isinstance(given, Integral) and not isinstance(given, bool):
        return int(given)
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else given
