"""Summary and paragraph about numbers that are made of one released table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpeffects.report.blocks import (
    alert,
    cells_of_rows,
    closing,
    header,
    limits,
    p_cell,
    percent,
    relation,
)
from dpeffects.report.paragraph import describe, p_words, paragraph
from dpeffects.report.short import Rows, estimates, headline
from dpeffects.results.numbers import with_ends
from dpeffects.results.tabled import TableEffects
from dpeffects.summary import Summary, Table, summarise

_TERMS = {"late": "effect among compliers", "logrank": "log-rank statistic"}


def table_of_terms(fit: TableEffects, conf_level: float, more: str = "") -> Table:
    """The terms of `tidy`, with their intervals; ``more`` says in what unit, or until when."""
    shown = fit.tidy(conf_level).to_dict("records")
    found = zip(shown, cells_of_rows(shown), strict=True)
    rows = [(in_words(row["term"]), *cells, p_cell(row)) for row, cells in found]
    about = relation(fit)
    columns = ("term", "estimate", "std. error", *limits(conf_level), "p-value")
    return Table(f"{about[0].upper()}{about[1:]}{more}", columns, tuple(rows), "lrrrrr")


@summarise.register
def _(fit: TableEffects, conf_level: float = 0.95) -> Summary:
    blocks = (header(fit), table_of_terms(fit, conf_level), *closing(fit, fit.notes))
    return Summary(f"Private {fit.method_title} ({fit.method})", alert(fit), blocks)


@headline.register
def _(fit: TableEffects, conf_level: float = 0.95) -> Rows:
    return compared(fit, conf_level)


def compared(fit: TableEffects, conf_level: float, more: str = "") -> Rows:
    """The numbers that compare the arms, before those of one arm; ``more`` as above."""
    tested = {term.name for term in fit.terms() if term.tested}
    rows = fit.tidy(conf_level).to_dict("records")
    shown = [row | {"term": in_words(row["term"])} for row in rows if row["term"] in tested]
    return estimates(shown or rows, relation(fit) + more, conf_level)


def in_words(term: str) -> str:
    """The name of a term of `tidy`, for people.

    Examples
    --------
    >>> in_words("rmst_difference"), in_words("hazard_ratio")
    ('restricted mean difference', 'hazard ratio')
    """
    return _TERMS.get(term) or term.replace("rmst", "restricted mean").replace("_", " ")


@describe.register
def _(fit: TableEffects, conf_level: float) -> str:
    rows = fit.tidy(conf_level).to_dict("records")
    found = "; ".join(f"{in_words(str(row['term']))}: {_tested(row)}" for row in rows)
    level = percent(conf_level)
    finding = f"Estimates, with {level} confidence intervals: {found}."
    return paragraph(fit, [finding], subject=relation(fit))


def _tested(row: Mapping[Any, Any]) -> str:
    p = row["p_value"]
    return with_limits(row) + ("" if math.isnan(p) else f", p {p_words(p)}")


def with_limits(row: Mapping[Any, Any]) -> str:
    """An estimate of `tidy` with its interval, as it is said in a sentence."""
    ends = row["conf_low"], row["conf_high"]
    value, low, high = with_ends(row["estimate"], *ends, row["std_error"])
    value = "mostly noise" if math.isinf(row["estimate"]) else value
    if math.isnan(row["conf_low"]):
        return value
    if row["conf_high"] == math.inf:
        return f"{value} (at least {low})" if row["conf_low"] > 0.0 else f"{value} (without limits)"
    return f"{value} ({low} to {high})"
