"""Public functions for designs other than a comparison of arms: instruments, before and after.

They go through `dpeffects.flow` as all others do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast

from dpeffects.design.panel import Panel, label, wide_of
from dpeffects.design.read import written_out
from dpeffects.design.sample import Sample
from dpeffects.errors import OptionError
from dpeffects.estimators import get, table_methods
from dpeffects.estimators.spec import MethodSpec
from dpeffects.flow import Estimation, Request, refuse_tables
from dpeffects.formula import Formula, parse
from dpeffects.formula.expression import Binary, Expression, columns, source
from dpeffects.guarantee import printed
from dpeffects.ledgers import Address
from dpeffects.privacy.ledger import Account
from dpeffects.results import DidEffect, LateEffect, Result

_LONG = ("time", "start", "periods")


def dp_did(
    formula: str,
    data: Any,
    method: str = "auto",
    *,
    before: str | None = None,
    time: str | None = None,
    unit: str | None = None,
    start: float | str | None = None,
    periods: Sequence[float | str] | None = None,
    epsilon: float,
    delta: float = 0.0,
    estimand: str = "ATT",
    bounds: Any = None,
    shares: Mapping[str, float] | None = None,
    variance: bool = True,
    cluster: str | None = None,
    clusters: int | None = None,
    missing: str | Mapping[str, str] = "error",
    weights: str | None = None,
    subset: str | None = None,
    check_bounds: bool = False,
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> DidEffect:
    """Compare how outcomes changed with and without treatment: difference in differences.

    Parameters
    ----------
    formula
        ``"y_after ~ treatment"``, or ``"y_after ~ treatment | x1 + x2"`` where trends are parallel
        for the same covariates only. Of long data ``"y ~ treatment | x1"``.
    method
        One of :func:`methods`; it estimates the effect on the change of the outcome.
    before
        Where the data have one row for each record: the outcome before treatment.
    time, unit
        Where the data are long: the columns that say of which period a row is, and whose it is.
        Everything about a unit is protected, in however many rows, and n is the number of units.
    start
        The first period under treatment: by default the second of two.
    periods
        The periods, in their order: ``[2019, 2020]``. Rows of other periods are not read. They are
        declared because it is private which periods are in the data.
    estimand
        "ATT" (default), whose effect parallel trends speak of; "ATE" or "ATC".
    missing
        As in :func:`dp_ate`. In long data an outcome is missing where a unit has no row in a
        period, or more than one. Treatment is taken from the period ``start``, and covariates from
        the one before.
    data, epsilon, delta, bounds, shares, variance, ledger, dataset, seed
        As in :func:`dp_ate`. Bounds of the outcome are those in every period.
    cluster, clusters, weights, subset, check_bounds, **options
        As in :func:`dp_ate`.

    Returns
    -------
    DidEffect

    Examples
    --------
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> formula, before = "earnings_1978 ~ treatment", "earnings_1975"
    >>> fit = dpe.dp_did(formula, nsw, before=before, epsilon=1, seed=1)
    >>> fit.outcome, fit.estimand
    ('I(earnings_1978 - earnings_1975)', 'ATT')
    """
    given = dict(locals())
    given = {**given.pop("options"), **given}
    return _in_two_periods(given)


def _in_two_periods(given: dict[str, Any]) -> DidEffect:
    """The effect on the change between two periods."""
    before, estimand = given.pop("before"), given.pop("estimand")
    asked = {name: given.pop(name) for name in _LONG}
    about: dict[str, Any] = {}
    if before is not None:
        if wrong := [name for name, value in asked.items() if value is not None]:
            raise OptionError(f"{wrong[0]} is for long data, before for wide: write one of them")
        earlier = _outcome_before(before)
        ids = [given[name] for name in ("unit", "cluster", "weights")]
        left_out = (*columns(earlier), *ids)
        formula = parse(written_out(given["formula"], given["data"], given["bounds"], left_out))
        pair = formula.outcome, earlier
    else:
        given, formula, pair, about = _from_long(given, **asked)
    change = replace(formula, outcome=Binary("-", *pair))
    trends = not formula.has_covariates and _has_design(given["method"], estimand)
    if trends and "design" not in given:
        given["design"] = "randomised"  # nothing to adjust for: it rests on parallel trends alone
    else:
        trends = False
    made_of = about.pop("made_of", None)
    request = Request.of_effect(estimand, **given | {"formula": str(change), "contrasts": None})
    fit = Estimation(replace(request, made_of=made_of)).result()
    return _did(fit, pair, formula, trends, about)


def _outcome_before(before: Any) -> Expression:
    """The outcome before treatment, which is written as in a formula."""
    if not isinstance(before, str):
        kind = type(before).__name__
        raise OptionError(f"before must be the outcome before treatment, as text, not {kind}")
    return parse(f"{before} ~ `treatment of nobody`").outcome


def _from_long(
    given: dict[str, Any], **asked: Any
) -> tuple[dict[str, Any], Formula, tuple[Expression, Expression], dict[str, Any]]:
    """The same for long data, one record for each unit: arguments, formula, outcomes, words."""
    if asked["time"] is None:
        raise OptionError(
            "write the outcome before treatment as before=..., or the columns of long data as "
            "time=... and unit=..."
        )
    refuse_tables(asked)
    panel = Panel.asked(given.pop("unit"), **asked)
    if len(panel.periods) > 2:
        raise OptionError("more than two periods are not there yet")
    if given.get("max_rows") is not None:
        raise OptionError("max_rows has no meaning in long data: each unit is one record")
    if given.get("level", "sample") != "sample":
        raise OptionError('unit has no meaning with level="label": everything is protected')
    left_out = (panel.unit, panel.time, *(given[name] for name in ("cluster", "weights")))
    formula = parse(written_out(given["formula"], given["data"], given["bounds"], left_out))
    counting = {name: given[name] for name in ("cluster", "missing", "weights", "subset")}
    sample = Sample.asked(formula, **counting)
    strict = any(sample.policies[name] == "error" for name in formula.outcome_columns)
    bounds = given["bounds"]
    wide = wide_of(given["data"], formula, bounds, panel, sample, strict)
    given |= {"data": wide.data, "bounds": bounds if bounds == "from_data" else None}
    given["missing"] = wide.missing(given["missing"])
    after, before = (wide.outcome(formula.outcome, x) for x in (panel.start, panel.reference))
    first, last = label(panel.reference), label(panel.start)
    words = f"each {printed(panel.unit)} is one record, with treatment as of {last}"
    words += f" and covariates as of {first}" if formula.has_covariates else ""
    return given, formula, (after, before), {"made_of": panel.unit, "panel": words}


def _has_design(method: str | MethodSpec, estimand: str) -> bool:
    """Whether a method can be told that there is nothing to adjust for."""
    spec = method if isinstance(method, MethodSpec) else get(method, estimand)
    return "design" in {f.name for f in fields(spec.options)}


def _did(
    fit: Result,
    pair: tuple[Expression, Expression],
    formula: Formula,
    trends: bool,
    about: Mapping[str, str],
) -> DidEffect:
    """The result, which rests on parallel trends and says so."""
    if trends:
        shown = {name: x for name, x in fit.options.items() if name != "design"}
        fit = replace(fit, released=replace(fit.released, basis=""), options=shown)
    after, before = map(source, pair)
    return DidEffect.of(
        replace(fit, sample={**about, **fit.sample}),
        after=after,
        before=before,
        adjusted=fit.basis == "adjusted" or (formula.has_covariates and not fit.basis),
    )


def dp_late(
    formula: str,
    data: Any,
    *,
    instrument: str,
    epsilon: float,
    delta: float = 0.0,
    design: str = "observational",
    bounds: Any = None,
    shares: Mapping[str, float] | None = None,
    unit: str | None = None,
    max_rows: int | None = None,
    missing: str | Mapping[str, str] = "error",
    weights: str | None = None,
    subset: str | None = None,
    check_bounds: bool = False,
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> LateEffect:
    """Estimate the effect of a treatment among compliers, by an instrument (LATE, Wald).

    Compliers are those who take the treatment because of the instrument: because they were
    assigned to it, or encouraged. The estimate is the effect of the instrument on the outcome over
    its effect on treatment. It holds where the instrument is as good as random given the
    covariates, changes the outcome only through treatment, and makes nobody do the opposite.

    Parameters
    ----------
    formula
        ``"y ~ d"``, or ``"y ~ d | x1 + x2"``: outcome, treatment taken, covariates. Treatment is a
        column of 0 and 1, or a comparison, ``"y ~ I(visits > 0)"``.
    instrument
        The column of the instrument: 0 and 1, or two levels named in bounds, the reference first.
    design
        "observational" where the instrument is as good as random given the covariates, which are
        adjusted for; "randomised" where it was assigned by chance: then covariates make the
        interval shorter. Without covariates there is no difference.
    data, epsilon, delta, bounds, shares, ledger, dataset, seed
        As in :func:`dp_ate`. The range of the outcome must be declared.
    unit, max_rows, missing, weights, subset, check_bounds
        As in :func:`dp_ate`.
    **options
        Options of the method; ``print(dpe.methods("late"))`` describes them.

    Returns
    -------
    LateEffect
        The effect among compliers with an interval that also holds where the instrument is weak
        (Fieller), the first stage, the reduced form, and shares of those who always or never take
        the treatment.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(1)
    >>> z, complier = rng.integers(0, 2, 5000), rng.random(5000) < 0.6
    >>> d = z * complier
    >>> y = np.clip(0.4 + 0.2 * d + 0.15 * rng.normal(size=5000), 0, 1)
    >>> trial = pd.DataFrame({"z": z, "d": d, "y": y})
    >>> fit = dpe.dp_late("y ~ d", trial, instrument="z", bounds={"y": (0, 1)}, epsilon=1, seed=1)
    >>> low, high = fit.conf_int()
    >>> low < 0.2 < high, fit.shape()
    (True, 'interval')
    """
    given = {**locals(), **options}
    del given["options"]
    request = Request.of_effect("ATE", method=table_methods()["late"], **given)
    return cast(LateEffect, Estimation(request).result())
