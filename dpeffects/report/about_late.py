"""Summary and paragraph about effects among compliers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dpeffects.errors import FormulaError
from dpeffects.formula import parse
from dpeffects.formula.expression import source
from dpeffects.inference.estimate import Unavailable
from dpeffects.inference.late import STRONG
from dpeffects.report.about_tables import table_of_terms, with_limits
from dpeffects.report.blocks import alert, closing, header, percent, relation
from dpeffects.report.paragraph import describe, p_words, paragraph
from dpeffects.results.late import LateEffect
from dpeffects.results.numbers import to_error
from dpeffects.summary import Pairs, Summary, summarise

_MOST = 4
"""Covariates that are named in a sentence."""
_SHAPES = {
    "interval": "",
    "half": "The data give it a limit to one side only: the other is that of the declared range.",
    "outside": "It has two pieces: what lies between them is excluded, effects beyond are not.",
    "everything": "The data exclude no effect that the declared range allows.",
}
"""What an interval by Fieller's method can be, said where it is not an interval."""


def _given(fit: LateEffect) -> str:
    """Given what the instrument is as good as random."""
    try:
        terms = [":".join(map(source, term)) for term in parse(fit.formula).terms]
    except FormulaError:  # a result that was read may hold any text
        terms = []
    if not terms:
        return ""
    if len(terms) > _MOST:
        return f" given the {len(terms)} covariates"
    return f" given {' and '.join(filter(None, (', '.join(terms[:-1]), terms[-1])))}"


def assumptions(fit: LateEffect) -> str:
    """What has to be true for the effect among compliers to be what it is called."""
    by_chance = fit.options.get("design") == "randomised"
    how = "was randomised" if by_chance else f"is as good as random{_given(fit)}"
    return (
        f"{fit.instrument} {how}, affects {fit.outcome} only through {fit.treatment}, and makes "
        "nobody do the opposite"
    )


def first_stage(fit: LateEffect, conf_level: float) -> str:
    """How strongly the instrument changes treatment, in words."""
    strength = fit.table.strength
    if isinstance(strength, Unavailable):
        return str(strength)
    row = fit.terms()[1].row(conf_level)
    how = "WEAK: F" if fit.table.weak else "F"
    asked = f" (at least {STRONG**2:.0f} is wanted)" if fit.table.weak else ""
    size = f"{strength**2:.0f}" if 10.0 <= strength**2 < 1e6 else f"{strength**2:.2g}"
    return f"{with_limits(row)}; {how} about {size}{asked}"


def pieces(fit: LateEffect, conf_level: float) -> str:
    """The interval, piece by piece."""
    ends = [end for piece in fit.region(conf_level) for end in piece]
    _, *texts = _cells(fit, ends)
    return " and ".join(
        f"{low} to {high}" for low, high in zip(texts[::2], texts[1::2], strict=True)
    )


def _cells(fit: LateEffect, ends: Sequence[float] = ()) -> tuple[str, ...]:
    error = fit.std_error
    known = math.nan if isinstance(error, Unavailable) else error
    return to_error((fit.estimate,), known, ends=ends)


@summarise.register
def _(fit: LateEffect, conf_level: float = 0.95) -> Summary:
    rows = [(name, text) for name, text in header(fit).rows if name != "Assumes"]
    words = _SHAPES[fit.shape(conf_level)]
    own = [
        ("Assumes", assumptions(fit)),
        ("First stage", first_stage(fit, conf_level)),
        ("Interval", f"{pieces(fit, conf_level)}. {words}" if words else ""),
    ]
    head = Pairs((*rows[:1], *((name, text) for name, text in own if text), *rows[1:]))
    terms = table_of_terms(fit, conf_level)
    terms = replace(terms, title=f"{terms.title} among compliers, by {fit.instrument}")
    blocks = (head, terms, *closing(fit, fit.notes))
    return Summary(f"Private {fit.method_title} ({fit.method})", alert(fit), blocks)


@describe.register
def _(fit: LateEffect, conf_level: float) -> str:
    p, level = fit.p_value, percent(conf_level)
    tested = "" if isinstance(p, Unavailable) else f"; p {p_words(p)}"
    findings = [
        f"It assumes that {assumptions(fit)}.",
        f"The effect of {fit.instrument} on {fit.treatment} is {first_stage(fit, conf_level)}.",
        f"The effect among compliers is {_cells(fit)[0]} ({level} confidence interval by "
        f"Fieller's method: {pieces(fit, conf_level)}{tested}).",
        _SHAPES[fit.shape(conf_level)],
    ]
    return paragraph(fit, findings, subject=f"{relation(fit)} among compliers")
