"""Summary, short summary and paragraph about a release: the words are those of its result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpeffects import summary
from dpeffects.errors import FormulaError
from dpeffects.estimators import conditional_methods, find, registry, table_methods
from dpeffects.formula import parse
from dpeffects.formula.expression import source
from dpeffects.inference.estimate import UNADJUSTED, Unavailable
from dpeffects.inference.intervals import check_conf_level
from dpeffects.report.blocks import RANDOMISED, alert, assumed, budget, closing, header
from dpeffects.report.paragraph import paragraph, reading
from dpeffects.results.average import Result
from dpeffects.results.record import Record

_NAMED = 6
"""Covariates that are named."""
_KEPT = ("Assumes", "Who counts", "Sites", "Records", "Units")
"""Lines of the whole summary that the short one has too."""
_BASIS = {
    "adjusted": "The estimate assumes that no confounder is missing from the formula, and models "
    "that are linear in the terms of the formula.",
    "randomised": "Treatment is taken as randomised because the call said so: the interval allows "
    "for no confounding.",
}
"""A sentence on what the estimate rests on; what an association lacks is in its caution."""


def whole(fit: Record, conf_level: float = 0.95, **asked: Any) -> summary.Summary:
    """Build the summary of a release."""
    check_conf_level(conf_level)
    first, *others = header(fit).rows
    own = fit._headed(conf_level)
    rows = (first, *own.items(), *(row for row in others if row[0] not in own))
    head = summary.Pairs(tuple(row for row in rows if row[1]))
    notes = fit._noted(conf_level, **asked)
    last = closing(fit, notes) if fit._released else filter(None, (summary.noted(notes),))
    blocks = (head, *fit._blocks(conf_level, **asked), *last)
    return summary.Summary(fit._titled.format(fit), alert(fit), blocks)


def tables_of(fit: Record, **asked: Any) -> dict[str, summary.Summary]:
    """Build the tables of a release, each as a summary of its own."""
    tables = {}
    for name, table, notes in fit._apart(**asked):
        blocks = replace(table, title=""), summary.noted(notes)
        tables[name] = summary.Summary(table.title, alert(fit), tuple(x for x in blocks if x))
    if fit.spends:
        tables["budget"] = summary.Summary("Privacy budget", alert(fit), (budget(fit),))
    return {name: summary.explained(table) for name, table in tables.items()}


def described(fit: Record, conf_level: float) -> str:
    """Write the paragraph on methods and results for a paper."""
    about = (fit._lacks(conf_level), fit._subject, fit._verb)
    return paragraph(fit, (*fit._findings(conf_level), *_shown(fit, conf_level)), *about)


def _shown(fit: Record, conf_level: float) -> tuple[str, ...]:
    """What the interval of one effect shows, and what that rests on."""
    interval = fit.conf_int(conf_level) if isinstance(fit, Result) else Unavailable("")
    if isinstance(interval, Unavailable):
        return ()
    rests_on = _BASIS.get(fit.basis, "")
    if fit.assumes and not fit.associated:
        rests_on = f"The estimate assumes {assumed(fit)}."
    what = "association" if fit.associated else "effect"
    return reading(interval, _if_random(fit), what), rests_on


def _if_random(fit: Record) -> str:
    if fit.basis == "randomised":
        return "treatment was randomised"
    if fit.assumes:
        return "trends were parallel"
    spec = find(fit.method)
    try:
        covariates = parse(fit.formula).has_covariates
    except FormulaError:  # a result that was read from a file says what it likes
        covariates = True
    adjusted = covariates and (spec is None or spec.uses_covariates)
    if adjusted and not fit.doubts.startswith(("NOT ADJUSTED", "HARDLY ADJUSTED")):
        return "treatment was as good as random given the covariates"
    return "treatment was randomised, as nothing or hardly anything is adjusted for"


def brief(result: Record, **asked: Any) -> summary.Summary:
    """Build the short summary of a release."""
    return short(result, result.guarantee.short(), **asked)


def short(result: Record, guarantee: str, **asked: Any) -> summary.Summary:
    """Build the short summary of what was released under a guarantee."""
    whole = summary.summarise(result, **asked)
    known: dict[str, str] = {}
    for block in whole.blocks:
        if isinstance(block, summary.Pairs):
            known = dict(block.rows) | known
    known["Assumes"] = known.get("Assumes", "").removeprefix(RANDOMISED).removeprefix("; ")
    if known["Assumes"] == "treatment was randomised":
        del known["Assumes"]
    rows = [
        *result._headline(**asked),
        _basis(result),
        *((name, known.get(name, "")) for name in _KEPT),
        ("Guarantee", guarantee),
    ]
    pairs = summary.Pairs(tuple((name, text) for name, text in rows if text))
    return summary.Summary(whole.title, whole.alert, (pairs, summary.Prose(summary.EVERYTHING)))


def _basis(result: Record) -> tuple[str, str]:
    """What an effect is adjusted for, or what it has in the place of that."""
    if result.basis == "randomised":
        return "Design", RANDOMISED.removeprefix("treatment was ")
    return "Adjusted for", adjusted_for(result) if result._of_effects else ""


def adjusted_for(result: Record) -> str:
    """Name the covariates, or say that nothing is adjusted for; empty where nothing need be."""
    if result.associated:
        return "nothing: this is an association, not an effect"
    try:
        terms = [":".join(map(source, term)) for term in parse(result.formula).terms]
    except FormulaError:  # a result that was read may hold any text
        return ""
    methods = registry() | conditional_methods() | table_methods()
    spec = methods.get(result.method)
    if not terms and result.assumes:  # such as parallel trends
        return ""
    if not terms or UNADJUSTED in result.caution or not (spec is None or spec.uses_covariates):
        return "nothing: an effect only where treatment was randomised"
    more = [f"{len(terms) - _NAMED} more"] if len(terms) > _NAMED + 1 else []
    *first, last = [*terms[: _NAMED if more else len(terms)], *more]
    return f"{', '.join(first)} and {last}" if first else last
