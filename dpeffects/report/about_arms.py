"""Summary and paragraph about effects between more than two arms, and in subsets."""

from __future__ import annotations

from dpeffects.abilities.did import EventStudy
from dpeffects.estimands import ESTIMANDS
from dpeffects.inference.estimate import Unavailable
from dpeffects.report.blocks import (
    EFFECTS,
    effect_table,
    header,
    left_out,
    means_block,
    of_record,
    relation_title,
)
from dpeffects.report.paragraph import describe, effect_words, paragraph
from dpeffects.results.several import ArmEffects, AtOnce
from dpeffects.results.words import (
    called,
    effects_table,
    family_words,
    listed,
    narrower,
    noise_sentence,
    percent,
)
from dpeffects.summary import Pairs, Summary, Table, summarise


@summarise.register
def _(fit: AtOnce, conf_level: float = 0.95, simultaneous: bool = True) -> Summary:
    labels, rows = fit._named, fit.tidy(conf_level, simultaneous=simultaneous).to_dict("records")
    title, heads = f"{relation_title(fit)}, {labels.by}", (labels.each, "estimate", "std. error")
    tables = (
        *_over_periods(fit, conf_level),
        effects_table(title, heads, rows[:EFFECTS], conf_level),
        *means_block(fit, conf_level),
    )
    notes = (
        family_words(fit, conf_level, simultaneous, labels.each),
        *_missing(fit),
        left_out(len(rows)),
        *_trends(fit, conf_level),
        narrower(fit.basis == "randomised", "dp_ate") if "groups" in fit.details else "",
    )
    what = "differences in differences" if isinstance(fit, EventStudy) else f"{called(fit)}s"
    title = f"Private {what} {labels.among}: {fit.method_title} ({fit.method})"
    return of_record(fit, title, tables, notes, _header(fit))


@describe.register
def _(fit: AtOnce, conf_level: float) -> str:
    labels, rows = fit._named, fit.tidy(conf_level).to_dict("records")
    what = "Associations" if fit.associated else "Effects"
    over_all = isinstance(fit, ArmEffects) and not fit.associated
    findings = [
        f"The {labels.name.lower()} are {labels.all.replace(' (reference)', '')}. {what} "
        f"{labels.by}, with {percent(conf_level)} intervals, are {listed(rows)}.",
        "All of them are averages over the records of all arms." if over_all else "",
        family_words(fit, conf_level),
        noise_sentence(rows),
        *_trends(fit, conf_level),
        f"The estimates assume {fit.assumes}." if fit.assumes else "",
    ]
    sampling = fit.effects[0].sampling
    lost = isinstance(sampling, Unavailable)
    lack = f"standard errors and intervals ({sampling})" if lost else ""
    return paragraph(fit, findings, lack, f"{effect_words(fit)} {labels.among}")


def _header(fit: AtOnce) -> Pairs:
    (formula, (name, words), *rows) = header(fit).rows
    average = ESTIMANDS[fit.estimand].words
    if isinstance(fit, ArmEffects):
        words = words.replace(average, f"{average} over the records of all arms", 1)
    return Pairs((formula, (name, words), (fit._named.name, fit._named.all), *rows))


def _over_periods(fit: AtOnce, conf_level: float) -> tuple[Table, ...]:
    """The mean effect over several periods under treatment."""
    if isinstance(fit, EventStudy) and len(fit.labels) > fit.leads + 1:
        return (effect_table(fit.one(), conf_level),)
    return ()


def _trends(fit: AtOnce, conf_level: float) -> tuple[str, ...]:
    """What changes before treatment say about trends."""
    return (f"Pre-trends: {fit.pretrends(conf_level)}",) if isinstance(fit, EventStudy) else ()


def _missing(fit: AtOnce) -> tuple[str, ...]:
    """Why there are no intervals, where there are none."""
    reasons: dict[str, list[str]] = {}
    for label, effect in zip(fit.labels, fit.effects, strict=True):
        if isinstance(effect.sampling, Unavailable):
            reasons.setdefault(str(effect.sampling), []).append(label)
    return tuple(
        f"Standard errors and intervals{of_some} are {why}."
        for why, labels in reasons.items()
        for of_some in ["" if len(labels) == len(fit.labels) else f" of {', '.join(labels)}"]
    )
