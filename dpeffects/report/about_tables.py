"""Summary and paragraph about numbers that are made of one released table, in its own words."""

from __future__ import annotations

from dpeffects.report.blocks import alert, closing, header
from dpeffects.report.paragraph import describe, paragraph
from dpeffects.report.short import headline
from dpeffects.results.tabled import TableEffects
from dpeffects.results.words import Rows, cells_of_rows, estimates, limits, p_cell, relation
from dpeffects.summary import Pairs, Summary, Table, summarise


@summarise.register
def _(fit: TableEffects, conf_level: float = 0.95) -> Summary:
    first, *others = header(fit).rows
    own = fit._headed(conf_level)
    head = Pairs((first, *own.items(), *(row for row in others if row[0] not in own)))
    tables = (_terms(fit, conf_level), *fit._tables(conf_level))
    blocks = (head, *tables, *closing(fit, fit._noted(conf_level)))
    return Summary(fit._titled.format(fit), alert(fit), blocks)


def _terms(fit: TableEffects, conf_level: float) -> Table:
    """The terms of `tidy`, with their intervals."""
    shown = fit.tidy(conf_level).to_dict("records")
    found = zip(shown, cells_of_rows(shown), strict=True)
    rows = [(fit._in_words(row["term"]), *cells, p_cell(row)) for row, cells in found]
    about = relation(fit) + fit._after("title")
    columns = ("term", "estimate", "std. error", *limits(conf_level), "p-value")
    return Table(f"{about[0].upper()}{about[1:]}", columns, tuple(rows), "lrrrrr")


@headline.register
def _(fit: TableEffects, conf_level: float = 0.95) -> Rows:
    """The numbers that compare the arms, before those of one arm."""
    tested = {term.name for term in fit.terms() if term.tested}
    rows = fit.tidy(conf_level).to_dict("records")
    shown = [row | {"term": fit._in_words(row["term"])} for row in rows if row["term"] in tested]
    return estimates(shown or rows, relation(fit) + fit._after("short"), conf_level)


@describe.register
def _(fit: TableEffects, conf_level: float) -> str:
    subject = relation(fit) + fit._after("paragraph")
    return paragraph(fit, fit._findings(conf_level), subject=subject)
