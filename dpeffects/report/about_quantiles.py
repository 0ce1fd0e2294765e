"""Summary and paragraph about quantiles of two arms, and about ordered levels."""

from __future__ import annotations

from dpeffects.report.about_tables import table_of_terms, with_limits
from dpeffects.report.blocks import alert, closing, header, percent, relation
from dpeffects.report.paragraph import describe, paragraph
from dpeffects.results.numbers import with_ends
from dpeffects.results.ordinal import OrdinalEffects
from dpeffects.results.quantiles import QuantileEffects
from dpeffects.results.survival import ARMS
from dpeffects.summary import Summary, Table, printed, summarise

_WHOLE = "The outcome has whole numbers only, and so have its quantiles."
_SHOWN = 12


@summarise.register
def _(fit: QuantileEffects, conf_level: float = 0.95) -> Summary:
    tables = (table_of_terms(fit, conf_level), _by_arm(fit, conf_level))
    blocks = (header(fit), *tables, *closing(fit, (*_notes(fit), *fit.notes)))
    return Summary(
        f"Private effects on quantiles: {fit.method_title} ({fit.method})", alert(fit), blocks
    )


def _by_arm(fit: QuantileEffects, conf_level: float) -> Table:
    """Quantiles of both arms, each with its interval."""
    rows = []
    for row in fit.quantiles(conf_level=conf_level).to_dict("records"):
        cells = [f"{row['quantile']:g}"]
        for arm in ARMS:
            value, low, high = with_ends(row[arm], row[f"{arm}_low"], row[f"{arm}_high"])
            cells += [printed(value, row[f"{arm}_noise_ratio"]), f"{low} to {high}"]
        rows.append(tuple(cells))
    each = percent(conf_level, "g")
    columns = ("quantile", "treated", f"{each} interval", "control", f"{each} interval")
    return Table(f"Quantiles of {fit.outcome}", columns, tuple(rows), "lrrrr")


def _notes(fit: QuantileEffects) -> list[str]:
    notes = [_WHOLE] if fit.whole else []
    notes.append(
        "Quantiles of the two distributions are compared: this is not the quantile of the effects "
        "of single records. Other quantiles cost nothing: quantiles(), distribution(). "
        "simultaneous=True makes intervals that hold for all of them at once."
    )
    return notes


@describe.register
def _(fit: QuantileEffects, conf_level: float) -> str:
    rows = fit.tidy(conf_level).to_dict("records")
    parts = [f"{row['term'].removeprefix('quantile ')}: {with_limits(row)}" for row in rows]
    findings = [
        f"Differences between treatment and control at quantiles of {fit.outcome} "
        f"({percent(conf_level, 'g')} confidence intervals) are: {'; '.join(parts)}."
    ]
    return paragraph(fit, findings, subject=relation(fit))


@summarise.register
def _(fit: OrdinalEffects, conf_level: float = 0.95) -> Summary:
    tables = (table_of_terms(fit, conf_level), _shares(fit, conf_level))
    blocks = (header(fit), *tables, *closing(fit, (*_reading(fit), *fit.notes)))
    return Summary(
        f"Private effects on ordered levels: {fit.method_title} ({fit.method})", alert(fit), blocks
    )


def _shares(fit: OrdinalEffects, conf_level: float) -> Table:
    """Shares of both arms at each level, each with its interval."""
    found = fit.distribution(conf_level).to_dict("records")
    count = len(fit.levels)
    rows = []
    for k, level in enumerate(fit.levels[:_SHOWN]):
        cells = [level]
        for row in (found[k], found[count + k]):
            ends = (percent(row[name], ".1f") for name in ("conf_low", "conf_high"))
            share = printed(percent(row["share"], ".1f"), row["noise_ratio"])
            cells += [share, " to ".join(ends)]
        rows.append(tuple(cells))
    each = percent(conf_level, "g")
    columns = ("level", "treated", f"{each} interval", "control", f"{each} interval")
    return Table(f"Levels of {fit.outcome}, from the lowest on", columns, tuple(rows), "lrrrr")


def _reading(fit: OrdinalEffects) -> list[str]:
    lowest, highest = fit.levels[0], fit.levels[-1]
    notes = [
        f"Levels go from {lowest} to {highest}. The probability is that of a treated record "
        "having a higher level than a control, ties counting half: 0.5 without effect. The odds "
        "ratio is that of a higher level, taken as the same at each level (proportional odds)."
    ]
    if len(fit.levels) > _SHOWN:
        notes.append(f"The first {_SHOWN} of {len(fit.levels)} levels; distribution() has all.")
    return notes


@describe.register
def _(fit: OrdinalEffects, conf_level: float) -> str:
    rows = {row["term"]: row for row in fit.tidy(conf_level).to_dict("records")}
    findings = [
        f"A treated record has a higher level of {fit.outcome} than a control with probability "
        f"{with_limits(rows['probability_higher'])}, ties counting half, and the common odds "
        f"ratio of a higher level is {with_limits(rows['odds_ratio'])} "
        f"({percent(conf_level, 'g')} confidence intervals)."
    ]
    return paragraph(fit, findings, subject=relation(fit))
