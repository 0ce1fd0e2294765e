"""Summary and paragraph about numbers that are made of one released table."""

from __future__ import annotations

import math

from dpeffects.inference.estimate import Unavailable
from dpeffects.report.blocks import alert, closing, header, limits, p_text, relation
from dpeffects.report.paragraph import describe, paragraph
from dpeffects.results.numbers import number, numbers
from dpeffects.results.tabled import TableEffects
from dpeffects.summary import Summary, Table, summarise


def table_of_terms(fit: TableEffects, conf_level: float) -> Table:
    """The terms of `tidy`, with their intervals."""
    rows = []
    for row in fit.tidy(conf_level).to_dict("records"):
        values = [row[name] for name in ("estimate", "std_error", "conf_low", "conf_high")]
        if all(map(math.isfinite, values)):
            cells = numbers(values)
        else:
            cells = tuple("n/a" if math.isnan(x) else number(x) for x in values)
        p = row["p_value"]
        rows.append((row["term"], *cells, p_text(Unavailable("") if math.isnan(p) else p)))
    about = relation(fit)
    columns = ("term", "estimate", "std. error", *limits(conf_level), "p-value")
    return Table(f"{about[0].upper()}{about[1:]}", columns, tuple(rows), "lrrrrr")


@summarise.register
def _(fit: TableEffects, conf_level: float = 0.95) -> Summary:
    blocks = (header(fit), table_of_terms(fit, conf_level), *closing(fit, fit.notes))
    return Summary(f"Private {fit.method_title} ({fit.method})", alert(fit), blocks)


@describe.register
def _(fit: TableEffects, conf_level: float) -> str:
    return paragraph(fit, [], subject=relation(fit))
