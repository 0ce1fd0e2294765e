"""Short summaries: what was estimated, what came out, what it rests on, and what is promised."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from dpeffects.errors import FormulaError
from dpeffects.estimators import conditional_methods, registry, table_methods
from dpeffects.formula import parse
from dpeffects.formula.expression import source
from dpeffects.inference.estimate import UNADJUSTED
from dpeffects.inference.noisy import ratio_of
from dpeffects.report.blocks import RANDOMISED
from dpeffects.results.average import Result
from dpeffects.results.record import Record
from dpeffects.results.words import Lines, estimates, relation
from dpeffects.sites.combination import Combined
from dpeffects.summary import EVERYTHING, Pairs, Prose, Summary, brief, summarise

_NAMED = 6
"""Covariates that are named."""
_KEPT = ("Assumes", "Who counts", "Sites", "Records", "Units")
"""Lines of the whole summary that the short one has too."""


@brief.register
def _(result: Record, **options: Any) -> Summary:
    return short(result, result.guarantee.short(), **options)


def short(result: Record | Combined, guarantee: str, **options: Any) -> Summary:
    """Build the short summary of what was released under a guarantee."""
    whole = summarise(result, **options)
    known: dict[str, str] = {}
    for block in whole.blocks:
        if isinstance(block, Pairs):
            known = dict(block.rows) | known
    known["Assumes"] = known.get("Assumes", "").removeprefix(RANDOMISED).removeprefix("; ")
    if known["Assumes"] == "treatment was randomised":
        del known["Assumes"]
    rows = [
        *headline(result, **options),
        _basis(result),
        *((name, known.get(name, "")) for name in _KEPT),
        ("Guarantee", guarantee),
    ]
    pairs = Pairs(tuple((name, text) for name, text in rows if text))
    return Summary(whole.title, whole.alert, (pairs, Prose(EVERYTHING)))


@singledispatch
def headline(result: Any, conf_level: float = 0.95, **options: Any) -> Lines:
    """Say what was estimated, and the first numbers; each type may have its own function."""
    rows = result.tidy(conf_level, **options).to_dict("records")
    if isinstance(result, Result):
        rows[0]["noise_ratio"] = ratio_of(result.released)
    what = relation(result) + ("" if result.associated else f" ({result.estimand})")
    return estimates(rows, what, conf_level, at_once=options.get("simultaneous", False))


def _basis(result: Record | Combined) -> tuple[str, str]:
    """What an effect is adjusted for, or what it has in the place of that."""
    if result.basis == "randomised":
        return "Design", RANDOMISED.removeprefix("treatment was ")
    of_effects = getattr(result, "_of_effects", True)
    return "Adjusted for", adjusted_for(result) if of_effects else ""


def adjusted_for(result: Record | Combined) -> str:
    """Name the covariates, or say that nothing is adjusted for; empty where nothing need be."""
    if result.associated:
        return "nothing: this is an association, not an effect"
    try:
        terms = [":".join(map(source, term)) for term in parse(result.formula).terms]
    except FormulaError:  # a result that was read may hold any text
        return ""
    methods = registry() | conditional_methods() | table_methods()
    spec = methods.get(result.method) if isinstance(result, Record) else None
    if not terms and isinstance(result, Record) and result.assumes:  # such as parallel trends
        return ""
    if not terms or UNADJUSTED in result.caution or not (spec is None or spec.uses_covariates):
        return "nothing: an effect only where treatment was randomised"
    more = [f"{len(terms) - _NAMED} more"] if len(terms) > _NAMED + 1 else []
    *first, last = [*terms[: _NAMED if more else len(terms)], *more]
    return f"{', '.join(first)} and {last}" if first else last
