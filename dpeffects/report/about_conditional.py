"""Summaries and paragraphs about conditional effects: functions, points and groups."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from statistics import NormalDist
from typing import Any

from dpeffects.report.blocks import EFFECTS, left_out, of_record
from dpeffects.report.paragraph import describe, paragraph
from dpeffects.report.short import headline
from dpeffects.results.conditional import CateEffects, CateFunction
from dpeffects.results.numbers import number, with_ends
from dpeffects.results.several import SeveralRows
from dpeffects.results.words import (
    Lines,
    cells_of_rows,
    effects_table,
    estimates,
    limits,
    listed,
    narrower,
    noise_sentence,
    percent,
    relation,
)
from dpeffects.summary import Block, Pairs, Summary, Table, summarise

_COVARIATES = 6
"""Covariates in a summary."""
_COVERS = {
    "noise": "privacy noise only: where the function would be had none been drawn",
    "effect": "noise, sampling, shrinkage and confounding left by shrunk models: the effect, on "
    "average over points",
}
_INTERVALS = {
    "groups": (
        "Intervals are for the effect in each group: sampling error, privacy noise, and "
        "confounding that shrunk models of treatment and outcome may leave."
    ),
    "points": (
        "Intervals cover privacy noise only: where the fitted effect would be had none been drawn. "
        "They leave out sampling error and shrinkage."
    ),
}
_NO_INTERVALS = "There are no intervals: the method does not say how much its effects vary."
_NOISE_ONLY = "an interval for the effect (the intervals below cover privacy noise only)"


@summarise.register
def _(
    fit: CateFunction,
    conf_level: float = 0.95,
    points: int | Mapping[str, Sequence[Any]] = 3,
    at: Mapping[str, Any] | None = None,
) -> Summary:
    rows: list[tuple[str, ...]] = []
    values = fit.values(points)
    names = list(values)[:_COVARIATES]
    shown = fit.tidy(conf_level, {name: values[name] for name in names}, at).to_dict("records")
    points_shown = [_with_noise(point) for point in shown]
    cells = zip(points_shown, cells_of_rows(points_shown), strict=True)
    for name, own in groupby(cells, key=lambda pair: pair[0]["covariate"]):
        for i, (point, known) in enumerate(own):
            rows.append((name if i == 0 else "", number(point["value"], 4), *known))
    covers = shown[0]["covers"]
    others = "others as chosen" if at else "others at their medians"
    table = Table(
        f"Effect of {fit.treatment} on {fit.outcome} along each covariate, {others}",
        ("covariate", "at", "effect", "std. dev.", *limits(conf_level)),
        tuple(rows),
        "llrrrr",
    )
    value, low, high = with_ends(*_average(fit, conf_level, covers))
    name, whose = ("Average effect", "the function over the records")
    if fit.function.variation is None:
        name, whose = ("Average of the function", "evenly over the declared ranges")
    average = Pairs(((name, f"{value}, from {low} to {high} ({whose})"),))
    notes = [f"Bands cover {_COVERS[covers]}.", *_limits_of(fit)]
    hidden = len(values) - _COVARIATES
    if hidden > 0:
        notes.append(f"{hidden} more covariates are not shown; see curve() and plot().")
    return _summary(fit, (average, table), notes)


def _with_noise(row: dict[Any, Any]) -> dict[Any, Any]:
    """A row of `tidy`, with its privacy noise in the place of a standard error it has not."""
    return row | {"std_error": row["noise_sd"]} if math.isnan(row["std_error"]) else row


@headline.register
def _(
    fit: CateFunction,
    conf_level: float = 0.95,
    points: int | Mapping[str, Sequence[Any]] = 3,
    at: Mapping[str, Any] | None = None,
) -> Lines:
    rows = fit.tidy(conf_level, points, at).to_dict("records")
    value, low, high = with_ends(*_average(fit, conf_level, rows[0]["covers"]))
    first, *others = estimates(rows, f"{relation(fit)} as a function of covariates", conf_level)
    return [first, ("Average", f"{value} ({low} to {high})"), *others]


def _average(fit: CateFunction, conf_level: float, covers: str) -> tuple[float, float, float]:
    """Average of the function over the records, and its interval."""
    value, sd = fit.function.over_records(covers)
    half = NormalDist().inv_cdf(0.5 + conf_level / 2.0) * sd
    return value, value - half, value + half


def _limits_of(fit: CateFunction) -> list[str]:
    """Say what a function cannot follow, and where it is known least."""
    if fit.options.get("second_stage") == "linear":
        notes = ["A linear function: bands are for the best one, not for effects that bend."]
    else:
        widths = list(fit.bandwidths.items())[:_COVARIATES]
        sharp = ", ".join(f"{number(width, 2)} of {name}" for name, width in widths)
        within = f": here about {sharp}" if sharp else ""
        notes = [
            "Bands do not allow for steps and turns of the effect that are sharper than the "
            f"kernel's bandwidth{within}."
        ]
    worst = "Single points are worst at the ends of the declared ranges and where records are few"
    if fit.function.variation is None or not fit.bandwidths:
        return [*notes, f"{worst}."]
    ranges = []
    for name in list(fit.bandwidths)[:_COVARIATES]:
        low, high = (number(x, 3) for x in fit.quantiles(name, [0.05, 0.95]))
        ranges.append(f"{name} from {low} to {high}")
    return [*notes, f"{worst}; nine in ten have {', '.join(ranges)}."]


@summarise.register
def _(fit: CateEffects, conf_level: float = 0.95, simultaneous: bool = False) -> Summary:
    groups = fit.kind == "groups"
    found = fit.tidy(conf_level, simultaneous=simultaneous).to_dict("records")
    shown = [row if math.isnan(row["conf_low"]) else _with_noise(row) for row in found[:EFFECTS]]
    where, error = ("by group", "std. error") if groups else ("at points", "noise sd")
    effect_name = "Overlap-weighted effect" if fit.overlap_weighted else "Effect"
    title = f"{effect_name} of {fit.treatment} on {fit.outcome} {where}"
    heads = (fit.kind.rstrip("s"), "effect", error)
    table = effects_table(title, heads, shown, conf_level, tested=False)
    known = any(math.isfinite(row["conf_low"]) for row in found)
    notes = [_INTERVALS[fit.kind] if known else _NO_INTERVALS]
    if simultaneous:
        notes.append(f"All intervals hold at once with {percent(conf_level, 'g')} (Bonferroni).")
    notes += [left_out(len(fit.labels)), narrower(None, "dp_cate") if groups else ""]
    return _summary(fit, (table,), notes)


def _summary(fit: SeveralRows, blocks: Iterable[Block], notes: Iterable[str]) -> Summary:
    what = "Private" if fit.guarantee.kind != "none" else "Not private:"
    title = f"{what} conditional effects: {fit.method_title} ({fit.method})"
    return of_record(fit, title, blocks, notes)


@describe.register
def _(fit: CateFunction, conf_level: float) -> str:
    rows = fit.tidy(conf_level).to_dict("records")
    covers = rows[0]["covers"]
    bands = (
        "The bands cover privacy noise, sampling error, shrinkage and confounding that shrunk "
        "models may leave, and hold on average over points."
        if covers == "effect"
        else "The bands cover privacy noise only, not sampling error and shrinkage."
    )
    value, low, high = with_ends(*_average(fit, conf_level, covers))
    whose = "the records" if fit.function.variation is not None else "the declared ranges"
    findings = [
        "An effect function of the covariates was released, which can be asked for any of their "
        f"values; its average over {whose} is {value} (from {low} to {high}).",
        "Along each covariate, with the others at their medians, effects with pointwise "
        f"{percent(conf_level)} bands are {listed(rows)}.",
        f"{bands} {' '.join(_limits_of(fit))} {noise_sentence(rows)}",
    ]
    return paragraph(fit, findings, "" if covers == "effect" else _NOISE_ONLY)


@describe.register
def _(fit: CateEffects, conf_level: float) -> str:
    rows = fit.tidy(conf_level).to_dict("records")
    groups = fit.kind == "groups"
    where = "by group" if groups else "at the points asked for"
    effects = "Overlap-weighted effects" if fit.overlap_weighted else "Effects"
    covers = (
        "The intervals cover sampling error, privacy noise and confounding that shrunk models may "
        "leave, one group at a time and not all at once."
        if groups
        else "The intervals say where the fitted effects would be had no noise been drawn; they "
        "leave out sampling error and shrinkage, so they are no evidence for or against effects."
    )
    findings = [
        f"{effects} {where}, with {percent(conf_level)} intervals, are {listed(rows)}.",
        f"{covers} {noise_sentence(rows)}",
    ]
    if all(math.isnan(row["conf_low"]) for row in rows):
        findings = [f"{effects} {where} are {listed(rows)}."]
    lost = [row for row in rows if math.isnan(row["conf_low"])]
    missing = f"an interval for {len(lost)} of {len(rows)} {fit.kind} (not available)"
    return paragraph(fit, findings, missing if lost else "" if groups else _NOISE_ONLY)
