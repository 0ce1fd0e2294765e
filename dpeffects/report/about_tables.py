"""Summary, tables and paragraph of results that have their own words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpeffects.report.blocks import alert, budget, closing, header
from dpeffects.report.paragraph import describe, paragraph
from dpeffects.report.short import headline
from dpeffects.results.tabled import Worded
from dpeffects.results.words import Lines
from dpeffects.summary import Pairs, Summary, noted, summarise, tabulate


@summarise.register
def _(fit: Worded, conf_level: float = 0.95, **asked: Any) -> Summary:
    first, *others = header(fit).rows
    own = fit._headed(conf_level)
    head = Pairs((first, *own.items(), *(row for row in others if row[0] not in own)))
    blocks, notes = fit._content(conf_level, **asked)
    return Summary(fit._titled.format(fit), alert(fit), (head, *blocks, *closing(fit, notes)))


@tabulate.register
def _(fit: Worded, **asked: Any) -> dict[str, Summary]:
    tables = {}
    for name, table, notes in fit._made(**asked):
        last = noted(notes)
        blocks = (replace(table, title=""), *((last,) if last else ()))
        tables[name] = Summary(table.title, alert(fit), blocks)
    if fit.spends:
        tables["budget"] = Summary("Privacy budget", alert(fit), (budget(fit),))
    return tables


@headline.register
def _(fit: Worded, conf_level: float = 0.95, **asked: Any) -> Lines:
    return fit._shortly(conf_level, **asked)


@describe.register
def _(fit: Worded, conf_level: float) -> str:
    return paragraph(fit, fit._findings(conf_level), "", fit._subject, fit._verb)
