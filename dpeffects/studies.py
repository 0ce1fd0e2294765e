"""Public functions for a whole paper: several outcomes, subgroups and Table 1 out of one budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpeffects.errors import OptionError, checked_call
from dpeffects.estimators import table_methods
from dpeffects.flow import Estimation, Request
from dpeffects.formula.discrete import joined
from dpeffects.ledgers import Address
from dpeffects.privacy.ledger import Account
from dpeffects.results import Moments, StudyEffects


@checked_call
def dp_study(
    formula: str,
    data: Any,
    *,
    subgroups: str | Sequence[str] = (),
    estimand: str = "ATE",
    epsilon: float,
    delta: float = 0.0,
    design: str = "observational",
    bounds: Any = None,
    shares: Mapping[str, float] | None = None,
    unit: str | None = None,
    missing: str | Mapping[str, str] = "error",
    weights: str | None = None,
    subset: str | None = None,
    contrasts: str = "reference",
    check_bounds: bool | None = None,
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> StudyEffects:
    """Release a whole study at once: effects on several outcomes, subgroups and Table 1.

    Parameters
    ----------
    formula
        ``"pain + walking + died ~ treatment | age + sex"``: outcomes, the treatment, and baseline
        variables, which are compared between the arms and, unless treatment was randomised,
        adjusted for.
    subgroups
        Discrete terms, each of which makes subgroups by itself: ``"sex"``, or
        ``["sex", "cut(age, [18, 65, 100])"]``. They are not crossed.
    estimand
        "ATE", "ATT" or "ATC": effects on all records, on the treated or on the controls.
    design
        "randomised" where treatment was assigned by chance, "observational" where not.
    contrasts
        Of more than two arms: "reference" (each with the first) or "pairwise".
    missing
        As in :func:`dp_ate`, by column. "available", for outcomes: each is compared among the
        records that have it, which assumes that it is missing at random within an arm.
    data, epsilon, delta, bounds, shares, ledger, dataset, seed
        As in :func:`dp_ate`.
    unit, weights, subset, check_bounds
        As in :func:`dp_ate`.
    **options
        Options of the method; ``print(dpe.methods("study"))`` describes them.

    Returns
    -------
    StudyEffects
        Effects with intervals for all outcomes at once, in subgroups, and baseline variables by
        arm. Totals agree: subgroups add up to all records.

    Notes
    -----
    All numbers come out of one joint release, in which a record moves all columns at once. For
    twenty outcomes its noise is about half of that of twenty calls of :func:`dp_ate` with a
    twentieth of the budget each; for one outcome `dp_ate` has less. With ``delta`` > 0 noise is
    Gaussian where that is less.

    Unless treatment was randomised, records count by inverse probability weights of one released
    propensity model of the baseline variables, for all outcomes and subgroups at once, and what is
    averaged is what released slopes on these variables leave of an outcome: an error of the weights
    matters only where the slopes are wrong too. For about three outcomes, calls of `dp_ate` with a
    third of epsilon each have less error than that.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> trial = dpe.load_data("lalonde")
    >>> fit = dpe.dp_study(
    ...     "earnings_1978 + I(earnings_1978 > 0) ~ treatment | age + black",
    ...     trial, subgroups="married", epsilon=2, design="randomised", seed=1,
    ... )
    >>> fit.labels
    ('earnings_1978', 'I(earnings_1978 > 0)')
    """
    arguments = {**locals(), **options}
    del arguments["options"]
    return Estimation(study_request(**arguments)).result()


def study_request(
    formula: str,
    data: Any,
    *,
    subgroups: str | Sequence[str] = (),
    estimand: str = "ATE",
    **arguments: Any,
) -> Request:
    """What the arguments of :func:`dp_study` ask for."""
    if "method" in arguments:
        raise OptionError("dp_study has one method: leave method out")
    spec, by = table_methods()["study"], joined(subgroups, "subgroups", crossed=False) or None
    return replace(Request.of_effect(estimand, formula, data, spec, **arguments), by=by)


@checked_call
def dp_moments(
    formula: str,
    data: Any,
    *,
    subgroups: str | Sequence[str] = (),
    epsilon: float,
    delta: float = 0.0,
    design: str = "observational",
    bounds: Any = None,
    unit: str | None = None,
    max_rows: int | None = None,
    missing: str | Mapping[str, str] = "error",
    weights: str | None = None,
    subset: str | None = None,
    check_bounds: bool | None = None,
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
) -> Moments:
    """Release second moments once, and analyse them often: regressions, effects, balance.

    Parameters
    ----------
    formula
        ``"y1 + y2 ~ treatment | x1 + x2 + region"``: all columns that analyses may have, each
        outcome and covariate on either side of a regression. Every column adds noise to all. With
        the square of an outcome, ``y1 + I(y1**2) ~ ...``, residuals need not have one variance.
    subgroups
        Factors with declared levels, ``["sex", "region"]``, by whose levels effects are wanted, by
        those of each of them by itself.
    design
        "randomised" where treatment was assigned by chance, "observational" where not.
    data, epsilon, delta, bounds, ledger, dataset, seed
        As in :func:`dp_ate`. Noise in products is proportional to the ranges of both columns.
    unit, max_rows, missing, weights, subset, check_bounds
        As in :func:`dp_ate`. Where units have several rows, each row counts as a part of its unit,
        and standard errors are those of as many units: too long rather than too short.

    Returns
    -------
    Moments
        ``regression("y1 ~ treatment + x1")``, ``effect("y1 ~ treatment | x1")``, ``effects_by``,
        ``balance()`` follow from it and cost nothing; ``worth`` says how large the noise is. It is
        saved as JSON, and moments of several sites add up.

    Notes
    -----
    The noise is one matrix for all products. With five covariates and epsilon 1 it is about as
    large as the sampling error of an effect at n = 100,000, and three times as large in slopes of
    numbers; ``worth`` has the figures for a call. For one effect :func:`dp_ate` is much better.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("cate_1", n=20_000, seed=1)
    >>> kept = dpe.dp_moments("outcome ~ treatment | x1 + x2", data, epsilon=4, seed=1)
    >>> kept.regression("outcome ~ treatment + x1").fit.names
    ('(Intercept)', 'treatment', 'x1')
    """
    arguments = dict(locals())
    for name in ("formula", "data", "subgroups"):
        arguments.pop(name)
    factors = joined(subgroups, "subgroups", crossed=False) or None
    if "available" in (missing.values() if isinstance(missing, Mapping) else [missing]):
        raise OptionError('missing="available" is for dp_study: write "complete"')
    if factors is not None and isinstance(formula, str):
        formula += f"{' +' if '|' in formula else ' |'} {factors}"
    spec = table_methods()["moments"]
    return Estimation(
        Request.of_effect("ATE", formula, data, spec, factors=factors, **arguments)
    ).result()
