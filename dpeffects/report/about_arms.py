"""Summary and paragraph about effects between more than two arms."""

from __future__ import annotations

import math

from dpeffects.estimands import ESTIMANDS
from dpeffects.inference.estimate import Unavailable
from dpeffects.report.about_conditional import EFFECTS, listed, noise_sentence
from dpeffects.report.blocks import (
    alert,
    called,
    closing,
    header,
    limits,
    p_text,
    percent,
    relation,
)
from dpeffects.report.paragraph import describe, effect_words, paragraph
from dpeffects.results.numbers import number, numbers
from dpeffects.results.several import ArmEffects
from dpeffects.summary import Pairs, Summary, Table, summarise


@summarise.register
def _(fit: ArmEffects, conf_level: float = 0.95, simultaneous: bool = True) -> Summary:
    rows = []
    shown = fit.tidy(conf_level, simultaneous=simultaneous).to_dict("records")
    for row in shown[:EFFECTS]:
        values = [row[name] for name in ("estimate", "std_error", "conf_low", "conf_high")]
        cells = (number(values[0]), *["n/a"] * 3) if math.isnan(values[2]) else numbers(values)
        p = row["p_value"]
        rows.append((row["term"], *cells, p_text(Unavailable("") if math.isnan(p) else p)))
    about = relation(fit)
    table = Table(
        f"{about[0].upper()}{about[1:]}, between arms",
        ("contrast", "estimate", "std. error", *limits(conf_level), "p-value"),
        tuple(rows),
        "lrrrrr",
    )
    more = f"The first {EFFECTS} of {len(shown)}; tidy() has them all."
    told = _missing(fit) or (_at_once(fit, conf_level, simultaneous),)
    notes = (*told, more if len(shown) > EFFECTS else "")
    return Summary(
        f"Private {called(fit)}s between {len(fit.arms)} arms: {fit.method_title} ({fit.method})",
        alert(fit),
        (_header(fit), table, *closing(fit, (*notes, *fit.notes))),
    )


@describe.register
def _(fit: ArmEffects, conf_level: float) -> str:
    rows = fit.tidy(conf_level).to_dict("records")
    what = "Associations" if fit.associated else "Effects"
    findings = [
        f"The arms are {', '.join(fit.arms)}. {what} between arms, with {percent(conf_level)} "
        f"intervals, are {listed(rows)}.",
        "" if fit.associated else "All of them are averages over the records of all arms.",
        "" if _missing(fit) else _at_once(fit, conf_level, True),
        noise_sentence(rows),
    ]
    sampling = fit.effects[0].sampling
    lost = isinstance(sampling, Unavailable)
    lack = f"standard errors and intervals ({sampling})" if lost else ""
    return paragraph(fit, findings, lack, f"{effect_words(fit)} between {len(fit.arms)} arms")


def _header(fit: ArmEffects) -> Pairs:
    (formula, (name, words), *rows) = header(fit).rows
    average = ESTIMANDS[fit.estimand].words
    estimand = name, words.replace(average, f"{average} over the records of all arms", 1)
    arms = ", ".join((f"{fit.arms[0]} (reference)", *fit.arms[1:]))
    return Pairs((formula, estimand, ("Arms", arms), *rows))


def _at_once(fit: ArmEffects, conf_level: float, simultaneous: bool) -> str:
    if simultaneous:
        p = "" if fit.associated else ", and p-values are adjusted for their number"
        count, level = len(fit.labels), percent(conf_level, "g")
        return f"All {count} intervals hold at once with {level}{p} (Bonferroni)."
    what = "Intervals" if fit.associated else "Intervals and p-values"
    return f"{what} are for one contrast at a time, not for all at once."


def _missing(fit: ArmEffects) -> tuple[str, ...]:
    """Why there are no intervals, where there are none."""
    reasons = [str(e.sampling) for e in fit.effects if isinstance(e.sampling, Unavailable)]
    return tuple(f"Standard errors and intervals are {why}." for why in dict.fromkeys(reasons))
