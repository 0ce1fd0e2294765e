"""Summaries and paragraphs about conditional effects: functions, points and groups."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import Unavailable
from dpeffects.report.blocks import alert, closing, header, limits, percent
from dpeffects.report.paragraph import describe, paragraph
from dpeffects.results.conditional import CateEffects, CateFunction, CateResult
from dpeffects.results.numbers import number, numbers
from dpeffects.summary import Block, Pairs, Summary, Table, summarise

_COVARIATES, _EFFECTS, _SENTENCES = 6, 40, 6
"""Covariates and effects in a summary, and effects in a paragraph."""
_COVERS = {
    "noise": "privacy noise only: where the function would be without it",
    "effect": "noise, sampling and shrinkage: the effect, on average over points",
}
_INTERVALS = {
    "groups": "Intervals are for the effect in each group: sampling error and privacy noise.",
    "points": (
        "Intervals cover privacy noise only: where the fitted effect would be without it. They "
        "leave out sampling error and shrinkage."
    ),
}
_NOISE_ONLY = "an interval for the effect (the intervals below cover privacy noise only)"


@summarise.register
def _(fit: CateFunction, conf_level: float = 0.95) -> Summary:
    rows: list[tuple[str, ...]] = []
    covers = ""
    for name in fit.covariates[:_COVARIATES]:
        for i, point in enumerate(fit.curve(name, 3, conf_level=conf_level).to_dict("records")):
            values = numbers([point[x] for x in ("effect", "std_dev", "conf_low", "conf_high")])
            rows.append((name if i == 0 else "", number(point[name]), *values))
            covers = point["covers"]
    table = Table(
        f"Effect of {fit.treatment} on {fit.outcome} along each covariate, others midway",
        ("covariate", "at", "effect", "std. dev.", *limits(conf_level)),
        tuple(rows),
        "llrrrr",
    )
    average = Pairs((("Average effect", f"{number(fit.function.average)} (released first)"),))
    notes = [f"Bands cover {_COVERS[covers]}."]
    if fit.options.get("second_stage") == "linear":
        notes.append("A linear function: bands are for the best one, not for effects that bend.")
    hidden = len(fit.covariates) - _COVARIATES
    if hidden > 0:
        notes.append(f"{hidden} more covariates are not shown; see curve() and plot().")
    return _summary(fit, (average, table), notes)


@summarise.register
def _(fit: CateEffects, conf_level: float = 0.95, simultaneous: bool = False) -> Summary:
    groups = fit.kind == "groups"
    intervals = fit.conf_int(conf_level, simultaneous=simultaneous).tolist()
    rows = []
    for label, effect, interval in list(zip(fit.labels, fit.effects, intervals, strict=True))[
        :_EFFECTS
    ]:
        error = inference.std_error(effect)
        sd = math.sqrt(effect.noise_variance) if isinstance(error, Unavailable) else error
        if math.isfinite(interval[0]):
            rows.append((label, *numbers([effect.point, sd, *interval])))
        else:
            rows.append((label, number(effect.point), "n/a", "n/a", "n/a"))
    where, error_name = ("by group", "std. error") if groups else ("at points", "noise sd")
    table = Table(
        f"Effect of {fit.treatment} on {fit.outcome} {where}",
        (fit.kind.rstrip("s"), "effect", error_name, *limits(conf_level)),
        tuple(rows),
        "lrrrr",
    )
    notes = [_INTERVALS[fit.kind]]
    if simultaneous:
        notes.append(f"All intervals hold at once with {percent(conf_level, 'g')} (Bonferroni).")
    if len(fit.labels) > _EFFECTS:
        notes.append(f"The first {_EFFECTS} of {len(fit.labels)}; tidy() has them all.")
    return _summary(fit, (table,), notes)


def _summary(fit: CateResult, blocks: Iterable[Block], notes: Iterable[str]) -> Summary:
    title = f"Private conditional effects: {fit.method_title} ({fit.method})"
    return Summary(title, alert(fit), (header(fit), *blocks, *closing(fit, (*notes, *fit.notes))))


@describe.register
def _(fit: CateFunction, conf_level: float) -> str:
    rows = fit.tidy(conf_level).to_dict("records")
    covers = rows[0]["covers"]
    bands = (
        "The bands cover privacy noise, sampling error and shrinkage, and hold on average over "
        "points."
        if covers == "effect"
        else "The bands cover privacy noise only, not sampling error and shrinkage."
    )
    findings = [
        "An effect function of the covariates was released, which can be asked for any of their "
        f"values; the average effect, released first, is {number(fit.function.average)}.",
        "Along each covariate, with the others midway, effects with pointwise "
        f"{percent(conf_level)} bands are {_listed(rows)}.",
        f"{bands} {_noise(rows)}",
    ]
    return paragraph(fit, findings, "" if covers == "effect" else _NOISE_ONLY)


@describe.register
def _(fit: CateEffects, conf_level: float) -> str:
    rows = fit.tidy(conf_level).to_dict("records")
    groups = fit.kind == "groups"
    where = "by group" if groups else "at the points asked for"
    covers = (
        "The intervals cover sampling error and privacy noise, one group at a time and not all at "
        "once."
        if groups
        else "The intervals say where the fitted effects would be without privacy noise; they "
        "leave out sampling error and shrinkage, so they are no evidence for or against effects."
    )
    findings = [
        f"Effects {where}, with {percent(conf_level)} intervals, are {_listed(rows)}.",
        f"{covers} {_noise(rows)}",
    ]
    lost = [row for row in rows if math.isnan(row["conf_low"])]
    missing = f"an interval for {len(lost)} of {len(rows)} {fit.kind} (not available)"
    return paragraph(fit, findings, missing if lost else "" if groups else _NOISE_ONLY)


def _listed(rows: list[dict[Any, Any]]) -> str:
    parts = []
    for row in rows[:_SENTENCES]:
        if math.isnan(row["conf_low"]):
            parts.append(f"{number(row['estimate'])} (no interval) for {row['term']}")
        else:
            effect, low, high = numbers([row["estimate"], row["conf_low"], row["conf_high"]])
            parts.append(f"{effect} (from {low} to {high}) for {row['term']}")
    more = f"; {len(rows) - _SENTENCES} more are in tidy()" if len(rows) > _SENTENCES else ""
    return "; ".join(parts) + more


def _noise(rows: list[dict[Any, Any]]) -> str:
    text = f"The standard deviation of the privacy noise is {_range(r['noise_sd'] for r in rows)}"
    errors = [row["std_error"] for row in rows if not math.isnan(row["std_error"])]
    if not errors:
        return f"{text}; that of the sampling error is not known."
    return f"{text}, that of the whole error {_range(errors)}."


def _range(values: Iterable[float]) -> str:
    known = list(values)
    low, high = numbers((min(known), max(known)))
    return low if low == high else f"{low} to {high}"
