"""`dp_study`: several outcomes, subgroups and Table 1 out of one budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from dpeffects.calls import OfReleases, public_call
from dpeffects.errors import OptionError
from dpeffects.estimators.joint import TABLE
from dpeffects.flow import Estimation, Request
from dpeffects.formula.discrete import joined
from dpeffects.results.study import StudyEffects


class _OfStudy(OfReleases, total=False):
    unit: str | None
    design: str
    shares: Mapping[str, float] | None
    contrasts: str
    on_unadjusted: str
    adjust: bool | None
    model_share: float | None


@public_call(_OfStudy, method="study")
def dp_study(
    formula: str,
    data: Any,
    *,
    subgroups: str | Sequence[str] = (),
    estimand: str = "ATE",
    epsilon: float,
    **more: Unpack[_OfStudy],
) -> StudyEffects:
    r"""Release a whole study at once: effects on several outcomes, subgroups and Table 1.

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
    contrasts
        Of more than two arms: "reference" (each with the first) or "pairwise".
    missing
        As in :func:`dp_ate`, by column. "available", for outcomes: each is compared among the
        records that have it, which assumes that it is missing at random within an arm.
    {shared}

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

    In a shell::

        dpeffects study "pain + died ~ treated | age + sex" trial.csv --epsilon 1 \
            --subgroups sex "cut(age, [18, 65, 100])" --design randomised \
            --bounds bounds.toml --plot forest.png
        dpeffects protocol-template trial.csv --out protocol.toml
        dpeffects study trial.csv --protocol protocol.toml --record record.html
        dpeffects study north.csv --protocol protocol.toml --site North \
            --sign North.private.pem --ledger north.db --out north.json
    """
    given = dict(locals())
    return Estimation(study_request(**given.pop("more"), **given)).result()


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
    spec, by = TABLE, joined(subgroups, "subgroups", crossed=False) or None
    return replace(Request.of_effect(estimand, formula, data, spec, **arguments), by=by)
