"""Summary and paragraph about rates per person-time."""

from __future__ import annotations

import math

from dpeffects.inference.noisy import COUNTED, noise_ratio
from dpeffects.report.about_tables import compared, table_of_terms
from dpeffects.report.blocks import alert, closing, effect_cells, header, percent, relation
from dpeffects.report.paragraph import describe, paragraph
from dpeffects.report.short import Rows, headline
from dpeffects.results.numbers import number, numbers
from dpeffects.results.rates import RateEffects
from dpeffects.summary import Summary, Table, printed, summarise

_UNBOUNDED = (
    "The rate of the controls is not bounded away from zero at this size and budget: its ratio has "
    "no upper end."
)


def _per(fit: RateEffects) -> str:
    return f"per {number(fit.per)} of {fit.offset}"


def _sums(fit: RateEffects) -> Table:
    """What was released."""
    weights = " of weights" if fit.details else ""
    found, cells = fit.table.sums, []
    for values, scale in zip((found.events, found.time), found.scales, strict=True):
        sd = scale * math.sqrt(2.0 if found.gaussian else 4.0)  # of two halves
        ratios = [noise_ratio(sd, value=max(x, COUNTED)) for x in values]
        cells.append([*map(printed, numbers(values, 4), ratios)])
    rows = tuple(zip(("treated", "control"), *cells, strict=True))
    return Table(f"Sums{weights} (noisy)", ("arm", "events", fit.offset), rows, "lrr")


def _notes(fit: RateEffects, conf_level: float) -> tuple[str, ...]:
    unbounded = fit.conf_int(conf_level)[-1, 1] == math.inf
    return (*fit.notes, *((_UNBOUNDED,) if unbounded else ()))


@summarise.register
def _(fit: RateEffects, conf_level: float = 0.95) -> Summary:
    terms = table_of_terms(fit, conf_level, f"; rates {_per(fit)}")
    blocks = (header(fit), terms, _sums(fit), *closing(fit, _notes(fit, conf_level)))
    return Summary(f"Private {fit.method_title} ({fit.method})", alert(fit), blocks)


@headline.register
def _(fit: RateEffects, conf_level: float = 0.95) -> Rows:
    return compared(fit, conf_level, f"; rates {_per(fit)}")


@describe.register
def _(fit: RateEffects, conf_level: float) -> str:
    said = {}
    for row in fit.tidy(conf_level).to_dict("records"):
        value, _, low, high = effect_cells(row)
        interval = f"{percent(conf_level)} confidence interval from {low} to {high}"
        said[row["term"]] = f"{value} ({interval})"
    findings = [
        f"The rate of events {_per(fit)} is {said['rate_treated']} among the treated and "
        f"{said['rate_control']} among the controls.",
        f"Their difference is {said['rate_difference']}, and the rate ratio {said['rate_ratio']}.",
        *_notes(fit, conf_level)[len(fit.notes) :],
    ]
    return paragraph(fit, findings, subject=relation(fit))
