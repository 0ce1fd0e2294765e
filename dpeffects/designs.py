"""Public functions for designs other than a comparison of arms: instruments, before and after.

They go through `dpeffects.flow` as all others do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any

from dpeffects.design.bounds import SOURCES
from dpeffects.design.panel import Panel, label, wide_of
from dpeffects.design.read import written_out
from dpeffects.design.sample import Sample
from dpeffects.errors import OptionError, checked_call
from dpeffects.estimators import get, table_methods
from dpeffects.estimators.spec import MethodSpec
from dpeffects.flow import Estimation, Request, refuse_tables
from dpeffects.formula import Formula, parse
from dpeffects.formula.expression import Binary, Clip, Expression, Survival, columns, shown, source
from dpeffects.guarantee import printed
from dpeffects.ledgers import Address
from dpeffects.privacy.ledger import Account
from dpeffects.results import DidEffect, EventStudy
from dpeffects.results.did import without_design

_LONG = ("time", "start", "periods")


@checked_call
def dp_did(
    formula: str,
    data: Any,
    method: str = "auto",
    *,
    before: str | Sequence[str] | None = None,
    time: str | None = None,
    unit: str | None = None,
    start: float | str | None = None,
    periods: Sequence[float | str] | None = None,
    change: tuple[float, float] | None = None,
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
    check_bounds: bool | None = None,
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> DidEffect | EventStudy:
    """Compare how outcomes changed with and without treatment: difference in differences.

    Parameters
    ----------
    formula
        ``"y_after ~ treatment"``, or ``"y_after ~ treatment | x1 + x2"`` where trends are parallel
        for the same covariates only. Of long data ``"y ~ treatment | x1"``.
    method
        One of :func:`methods`; it estimates the effect on the change of the outcome.
    before
        Where the data have one row for each record: the outcome before treatment. Of several, in
        their order, the last is the one that changes are measured from.
    time
        Where the data are long: the column that says of which period a row is.
    unit
        The column that says whose row it is. Everything about a unit is protected, in however many
        rows, and n is the number of units.
    start
        The first period under treatment: by default the second of two.
    periods
        The periods, in their order: ``[2019, 2020]``. Rows of other periods are not read. They are
        declared because it is private which periods are in the data.
    change
        A range that changes lie in, such as ``(-20, 20)``, where it is narrower than the bounds of
        the outcome say: those beyond it are clipped. The noise of more than two periods is in
        proportion to it; with two periods a clip is found privately.
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
    DidEffect or EventStudy
        The second with more than two periods: differences by period from one joint release, those
        before treatment as a test of parallel trends.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> formula, before = "earnings_1978 ~ treatment", "earnings_1975"
    >>> fit = dpe.dp_did(formula, nsw, before=before, epsilon=1, seed=1)
    >>> fit.outcome, fit.estimand
    ('I(earnings_1978 - earnings_1975)', 'ATT')
    """
    given = {name: x for name, x in locals().items() if name not in ("options", "estimand")}
    asked = _panel({**options, **given})
    return (_in_two_periods if len(asked.changes) == 1 else _by_period)(asked, estimand)


@dataclass(frozen=True)
class _Panel:
    """What a call compares: the outcome in each period, and which period is the reference.

    ``given`` are the other arguments, for one record each; changes are clipped to lie ``within``
    two numbers. ``made_of`` is the column of units, and ``words`` say what a record is, where the
    data are long.
    """

    given: dict[str, Any]
    formula: Formula
    outcomes: Mapping[str, Expression]
    reference: int
    within: tuple[float, float] | None
    made_of: str | None = None
    words: Mapping[str, str] = field(default_factory=dict)

    @property
    def changes(self) -> dict[str, Expression]:
        """Changes against the reference, by period."""
        before = list(self.outcomes.values())[self.reference]
        after = {name: x for name, x in self.outcomes.items() if x is not before}
        found: dict[str, Expression]
        found = {name: Binary("-", x, before) for name, x in after.items()}
        if self.within is None:
            return found
        return {name: Clip(x, *self.within) for name, x in found.items()}

    def released(self, estimand: str, method: str | MethodSpec) -> Any:
        """The result on the changes; without covariates there is nothing to adjust for."""
        given, formula = {**self.given, "method": method, "contrasts": None}, self.formula
        if self.by_trends(estimand, method):
            given["design"] = "randomised"
        first, *more = self.changes.values()
        text = str(replace(formula, outcome=first, more_outcomes=tuple(more)))
        request = Request.of_effect(estimand, **given | {"formula": text})
        fit = Estimation(replace(request, made_of=self.made_of)).result()
        return replace(fit, sample={**self.words, **fit.sample})

    def by_trends(self, estimand: str, method: str | MethodSpec) -> bool:
        """Whether the effect rests on parallel trends alone."""
        if self.formula.has_covariates or "design" in self.given:
            return False
        spec = method if isinstance(method, MethodSpec) else get(method, estimand)
        return "design" in {f.name for f in fields(spec.options)}


def _panel(given: dict[str, Any]) -> _Panel:
    """What a call compares; long data get one record for each unit."""
    before, asked = given.pop("before"), {name: given.pop(name) for name in _LONG}
    if before is None:
        return _from_long(given, **asked)
    if wrong := [name for name, value in asked.items() if value is not None]:
        raise OptionError(f"{wrong[0]} is for long data, before for wide: write one of them")
    listed = [before] if isinstance(before, str) else before
    if not isinstance(listed, list | tuple) or not all(isinstance(x, str) for x in listed):
        raise OptionError('before must be outcomes as text: before="y_2019"')
    earlier = [parse(f"{x} ~ `treatment of nobody`").outcome for x in listed]
    ids = [given[name] for name in ("unit", "cluster", "weights")]
    left_out = (*(name for x in earlier for name in columns(x)), *ids)
    formula = parse(written_out(given["formula"], given["data"], given["bounds"], left_out))
    outcomes = {source(x): _number(x) for x in (*earlier, *formula.outcomes)}
    if len(outcomes) < len(earlier) + len(formula.outcomes) or not earlier:
        raise OptionError("before must be other outcomes than those in the formula, each once")
    return _Panel(given, formula, outcomes, len(earlier) - 1, _range(given.pop("change")))


def _number(outcome: Any) -> Expression:
    """An outcome that can be subtracted."""
    if not isinstance(outcome, Expression) or isinstance(outcome, Survival):
        raise OptionError(f"outcome {shown(outcome)} is no number: it has no change")
    return outcome


def _from_long(given: dict[str, Any], **asked: Any) -> _Panel:
    """The same for long data."""
    if asked["time"] is None:
        raise OptionError(
            "write the outcome before treatment as before=..., or the columns of long data as "
            "time=... and unit=..."
        )
    refuse_tables(asked)
    panel = Panel.asked(given.pop("unit"), **asked)
    if given.get("max_rows") is not None:
        raise OptionError("max_rows has no meaning in long data: each unit is one record")
    if given.get("level", "sample") != "sample":
        raise OptionError('unit has no meaning with level="label": everything is protected')
    bounds, left_out = given["bounds"], [panel.unit, panel.time, given["cluster"], given["weights"]]
    formula = parse(written_out(given["formula"], given["data"], bounds, left_out))
    if formula.more_outcomes:
        raise OptionError("long data have one outcome, in several periods")
    counting = {name: given[name] for name in ("cluster", "missing", "weights", "subset")}
    sample = Sample.asked(formula, **counting)
    strict = any(sample.policies[name] == "error" for name in formula.outcome_columns)
    wide = wide_of(given["data"], formula, bounds, panel, sample, strict)
    given |= {"data": wide.data, "bounds": bounds if isinstance(bounds, str) else None}
    given["missing"] = wide.missing(given["missing"])
    outcome = _number(formula.outcome)
    outcomes = {label(x): wide.outcome(outcome, x) for x in panel.periods}
    words = f"each {printed(panel.unit)} is one record, with treatment as of {label(panel.start)}"
    words += f" and covariates as of {label(panel.reference)}" if formula.has_covariates else ""
    reference = panel.periods.index(panel.reference)
    within = _range(given.pop("change"))
    return _Panel(given, formula, outcomes, reference, within, panel.unit, {"panel": words})


def _range(change: Any) -> tuple[float, float] | None:
    """The declared range of a change."""
    if change is None:
        return None
    given = list(change) if isinstance(change, list | tuple) else []
    known = [x for x in given if isinstance(x, Real) and math.isfinite(x)]
    if len(known) != 2 or len(given) != 2 or not known[0] < known[1]:
        raise OptionError("change must be its range, such as change=(-20, 20)")
    return float(known[0]), float(known[1])


def _in_two_periods(asked: _Panel, estimand: str) -> DidEffect:
    """The effect on one change."""
    method = asked.given.pop("method")
    fit = asked.released(estimand, method)
    if asked.by_trends(estimand, method):
        released = replace(fit.released, basis="")
        fit = replace(fit, released=released, options=without_design(fit.options))
    before, after = map(source, asked.outcomes.values())
    adjusted = asked.formula.has_covariates and not fit.associated
    return DidEffect.of(fit, after=after, before=before, adjusted=adjusted)


def _by_period(asked: _Panel, estimand: str) -> EventStudy:
    """The effects on several changes, from one joint release."""
    if asked.given.pop("method") != "auto":
        raise OptionError("with more than two periods there is one method: leave method out")
    if asked.given["variance"] is not True:
        raise OptionError("variance=False is for two periods")
    method = table_methods()["study"]
    fit, formula = asked.released(estimand, method), asked.formula
    outcome, change = f"change of {source(formula.outcome)}", fit.sums.outcomes[0]
    read = {name for x in asked.outcomes.values() for name in columns(x)}
    sources = [of for name, _, of in fit.bounds if name in read]
    worst = max(sources, key=SOURCES.index, default="declared")
    bound = outcome, f"[{change.low:.6g}, {change.high:.6g}]", worst
    others = [x for x in fit.bounds if x[0] not in read]
    return EventStudy.of(
        replace(fit, formula=formula.source, outcome=outcome, bounds=(bound, *others)),
        labels=tuple(asked.changes),
        periods=tuple(asked.outcomes),
        leads=asked.reference,
        trends=asked.by_trends(estimand, method),
    )
