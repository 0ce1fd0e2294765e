"""Summary and paragraph of results that have their own words."""

from __future__ import annotations

from typing import Any

from dpeffects.report.blocks import alert, closing, header
from dpeffects.report.paragraph import describe, paragraph
from dpeffects.report.short import headline
from dpeffects.results.tabled import Worded
from dpeffects.results.words import Lines
from dpeffects.summary import Pairs, Summary, summarise


@summarise.register
def _(fit: Worded, conf_level: float = 0.95, **asked: Any) -> Summary:
    first, *others = header(fit).rows
    own = fit._headed(conf_level)
    head = Pairs((first, *own.items(), *(row for row in others if row[0] not in own)))
    last = closing(fit, fit._noted(conf_level, **asked))
    blocks = (head, *fit._blocks(conf_level, **asked), *last)
    return Summary(fit._titled.format(fit), alert(fit), blocks)


@headline.register
def _(fit: Worded, conf_level: float = 0.95, **asked: Any) -> Lines:
    return fit._shortly(conf_level, **asked)


@describe.register
def _(fit: Worded, conf_level: float) -> str:
    return paragraph(fit, fit._findings(conf_level), "", fit._subject, fit._verb)
