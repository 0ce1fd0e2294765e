"""Summary and paragraph about survival of two arms."""

from __future__ import annotations

import math

from dpeffects.report.about_tables import compared, table_of_terms, with_limits
from dpeffects.report.blocks import alert, closing, header, percent, relation
from dpeffects.report.paragraph import describe, p_words, paragraph
from dpeffects.report.short import Rows, headline
from dpeffects.results.numbers import number, numbers, to_error
from dpeffects.results.survival import ARMS, SurvivalEffects
from dpeffects.summary import Summary, Table, printed, summarise

_SHOWN = 6
_RECORDS = "Numbers at risk are weighted, as parts of the records of their arm. "
_CHANGES = 2.58
"""Standard errors beyond which hazards are said not to be proportional: 1 % by chance."""


@summarise.register
def _(fit: SurvivalEffects, conf_level: float = 0.95) -> Summary:
    tables = (table_of_terms(fit, conf_level, _until(fit)), _curves(fit, conf_level))
    blocks = (header(fit), *tables, *closing(fit, (*_notes(fit, conf_level), *fit.notes)))
    return Summary(f"Private survival: {fit.method_title} ({fit.method})", alert(fit), blocks)


@headline.register
def _(fit: SurvivalEffects, conf_level: float = 0.95) -> Rows:
    return compared(fit, conf_level, _until(fit))


def _until(fit: SurvivalEffects) -> str:
    return f" until {number(fit.horizon)}"


@describe.register
def _(fit: SurvivalEffects, conf_level: float) -> str:
    rows = {row["term"]: row for row in fit.tidy(conf_level).to_dict("records")}
    means, gap = [rows[f"rmst_{arm}"]["estimate"] for arm in ARMS], rows["rmst_difference"]
    risks, ratio = [rows[f"risk_{arm}"]["estimate"] for arm in ARMS], rows["hazard_ratio"]
    level = percent(conf_level)
    treated, control = to_error(means, gap["std_error"])
    findings = [
        f"Over {number(fit.horizon)} units of time the mean without the event is {treated} with "
        f"treatment and {control} without: a difference of {with_limits(gap)}, with a {level} "
        "confidence interval.",
        f"By then {percent(risks[0], '.1f')} and {percent(risks[1], '.1f')} had the event. The "
        f"hazard ratio is {with_limits(ratio)}"
        + ("." if math.isnan(ratio["p_value"]) else f"; log-rank p {p_words(ratio['p_value'])}."),
        *_notes(fit, conf_level)[:-1],
    ]
    return paragraph(fit, findings, subject=relation(fit))


def _curves(fit: SurvivalEffects, conf_level: float) -> Table:
    """Both curves at some of the times, with the joint band and the people at risk."""
    curves = fit.curves(conf_level)
    arms = [curves[curves["arm"] == arm].to_dict("records") for arm in ARMS]
    last = len(fit.edges) - 1
    picked = sorted({round(last * k / min(_SHOWN, last)) for k in range(min(_SHOWN, last) + 1)})
    rows = []
    for k, time in zip(picked, numbers([fit.edges[k] for k in picked], 4), strict=True):
        cells = [time]
        for row in (arm[k] for arm in arms):
            band = f"{row['conf_low']:.3f}-{row['conf_high']:.3f}"
            curve = printed(f"{row['survival']:.3f}", row["noise_ratio"])
            cells += [curve, band, printed(f"{row['at_risk']:.0f}", row["at_risk_noise_ratio"])]
        rows.append(tuple(cells))
    columns = ["time"]
    for arm in ARMS:
        columns += [arm, "band", "at risk"]
    what = "weighted numbers at risk" if fit.life.weighted else "numbers at risk"
    title = f"Survival, with a joint band ({percent(conf_level)}) and noisy {what}"
    return Table(title, tuple(columns), tuple(rows), "r" * len(columns))


def _notes(fit: SurvivalEffects, conf_level: float) -> list[str]:
    notes = []
    if abs(change := fit.life.drift) > _CHANGES:
        moves = "rises" if change > 0.0 else "falls"
        notes.append(
            f"The ratio of the hazards {moves} with time: the hazard ratio is an average, and the "
            "log-rank test can miss effects that change sign. Read the curves and the restricted "
            "means."
        )
    halves = fit.median(conf_level)
    parts = [
        f"{arm} {number(row['estimate'], 3) if math.isfinite(row['estimate']) else 'not reached'}"
        for arm, row in zip(ARMS, halves.to_dict("records"), strict=True)
    ]
    notes.append(f"Median time to the event: {', '.join(parts)}.")
    weighted = "" if fit.table.unequal == (1.0, 1.0) else _RECORDS
    weighted = "Numbers at risk are sums of weights. " if fit.life.weighted else weighted
    notes.append(
        f"{weighted}The band holds for both curves at all times at once. Within an interval of the "
        "table hazards are taken as constant: where most events come early in an interval, or all "
        "at its end, the restricted mean of an arm is off by a part of it (differences hardly "
        "are). Other times and horizons cost nothing: curves(), rmst(), risk(), median()."
    )
    return notes
