"""Summary and paragraph about numbers that are made of one released table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpeffects.inference.estimate import Unavailable
from dpeffects.report.blocks import alert, closing, header, limits, p_text, percent, relation
from dpeffects.report.paragraph import describe, p_words, paragraph
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
    rows = fit.tidy(conf_level).to_dict("records")
    found = "; ".join(f"{str(row['term']).replace('_', ' ')}: {_tested(row)}" for row in rows)
    level = percent(conf_level)
    finding = f"Estimates, with {level} confidence intervals: {found}."
    return paragraph(fit, [finding], subject=relation(fit))


def _tested(row: Mapping[Any, Any]) -> str:
    p = row["p_value"]
    return with_limits(row) + ("" if math.isnan(p) else f", p {p_words(p)}")


def with_limits(row: Mapping[Any, Any]) -> str:
    """An estimate of `tidy` with its interval, as it is said in a sentence."""
    values = [row[name] for name in ("estimate", "conf_low", "conf_high")]
    if math.isnan(values[1]):
        return number(values[0])
    value, low, high = numbers(values) if all(map(math.isfinite, values)) else map(number, values)
    if values[2] == math.inf:
        return f"{value} (at least {low})" if values[1] > 0.0 else f"{value} (without limits)"
    return f"{value} ({low} to {high})"
