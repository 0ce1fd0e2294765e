"""Summary and paragraph about effects between more than two arms, and in subsets."""

from __future__ import annotations

from dpeffects.abilities.did import EventStudy
from dpeffects.estimands import ESTIMANDS
from dpeffects.inference.estimate import Unavailable
from dpeffects.report.about_conditional import EFFECTS, listed, noise_sentence
from dpeffects.report.blocks import (
    alert,
    called,
    cells_of_rows,
    closing,
    effect_table,
    header,
    limits,
    means_block,
    p_cell,
    percent,
    relation,
)
from dpeffects.report.paragraph import describe, effect_words, paragraph
from dpeffects.results.several import ArmEffects, AtOnce, SubsetEffects
from dpeffects.summary import Pairs, Summary, Table, summarise


@summarise.register
def _(fit: AtOnce, conf_level: float = 0.95, simultaneous: bool = True) -> Summary:
    shown = fit.tidy(conf_level, simultaneous=simultaneous).to_dict("records")
    found = zip(shown[:EFFECTS], cells_of_rows(shown[:EFFECTS]), strict=True)
    rows = [(row["term"], *cells, p_cell(row)) for row, cells in found]
    about = relation(fit)
    table = Table(
        f"{about[0].upper()}{about[1:]}, {_where(fit)}",
        (_each(fit), "estimate", "std. error", *limits(conf_level), "p-value"),
        tuple(rows),
        "lrrrrr",
    )
    more = f"The first {EFFECTS} of {len(shown)}; tidy() has them all."
    at_once = family_words(fit, conf_level, simultaneous, _each(fit))
    notes = (
        at_once,
        *_missing(fit),
        more if len(shown) > EFFECTS else "",
        *_trends(fit, conf_level),
    )
    what = "differences in differences" if isinstance(fit, EventStudy) else f"{called(fit)}s"
    return Summary(
        f"Private {what} {_where(fit, count=True)}: {fit.method_title} ({fit.method})",
        alert(fit),
        (
            _header(fit),
            *_over_periods(fit, conf_level),
            table,
            *means_block(fit, conf_level),
            *closing(fit, (*notes, *fit.notes)),
        ),
    )


@describe.register
def _(fit: AtOnce, conf_level: float) -> str:
    rows = fit.tidy(conf_level).to_dict("records")
    what = "Associations" if fit.associated else "Effects"
    name, named = _named(fit)
    over_all = isinstance(fit, ArmEffects) and not fit.associated
    findings = [
        f"The {name.lower()} are {named.replace(' (reference)', '')}. {what} {_where(fit)}, with "
        f"{percent(conf_level)} intervals, are {listed(rows)}.",
        "All of them are averages over the records of all arms." if over_all else "",
        family_words(fit, conf_level),
        noise_sentence(rows),
        *_trends(fit, conf_level),
        f"The estimates assume {fit.assumes}." if fit.assumes else "",
    ]
    sampling = fit.effects[0].sampling
    lost = isinstance(sampling, Unavailable)
    lack = f"standard errors and intervals ({sampling})" if lost else ""
    return paragraph(fit, findings, lack, f"{effect_words(fit)} {_where(fit, count=True)}")


def _header(fit: AtOnce) -> Pairs:
    (formula, (name, words), *rows) = header(fit).rows
    average = ESTIMANDS[fit.estimand].words
    if isinstance(fit, ArmEffects):
        words = words.replace(average, f"{average} over the records of all arms", 1)
    return Pairs((formula, (name, words), _named(fit), *rows))


def _named(fit: AtOnce) -> tuple[str, str]:
    """What the effects are for: arms, or subsets with their conditions."""
    if isinstance(fit, ArmEffects):
        return "Arms", ", ".join((f"{fit.arms[0]} (reference)", *fit.arms[1:]))
    if isinstance(fit, EventStudy):
        here = {fit.reference: f"{fit.reference} (reference)"}
        return "Periods", ", ".join(here.get(name, name) for name in fit.periods)
    assert isinstance(fit, SubsetEffects)
    pairs = zip(fit.labels, fit.subsets, strict=True)
    texts = [a if a == b else f"{a} ({b})" for a, b in pairs]
    more = "; no record is in two of them" if fit.disjoint else ""
    return "Subsets", "; ".join(texts) + more


def _where(fit: AtOnce, count: bool = False) -> str:
    if isinstance(fit, ArmEffects):
        return f"between {len(fit.arms)} arms" if count else "between arms"
    if isinstance(fit, EventStudy):
        return f"in {len(fit.periods)} periods" if count else "by period"
    return f"in {len(fit.labels)} subsets" if count else "by subset"


def _each(fit: AtOnce) -> str:
    if isinstance(fit, EventStudy):
        return "period"
    return "contrast" if isinstance(fit, ArmEffects) else "subset"


def family_words(
    fit: AtOnce, conf_level: float, simultaneous: bool = True, each: str = "effect"
) -> str:
    """Say for how many effects intervals and p-values hold at once."""
    if all(isinstance(effect.sampling, Unavailable) for effect in fit.effects):
        return ""
    if simultaneous:
        p = "" if fit.associated else ", and p-values are adjusted for their number"
        count, level = len(fit.labels), percent(conf_level, "g")
        if count == 1:
            return ""
        return f"All {count} intervals hold at once with {level}{p} (Bonferroni)."
    what = "Intervals" if fit.associated else "Intervals and p-values"
    return f"{what} are for one {each} at a time, not for all at once."


def _over_periods(fit: AtOnce, conf_level: float) -> tuple[Table, ...]:
    """The mean effect over several periods under treatment."""
    several = isinstance(fit, EventStudy) and len(fit.labels) > fit.leads + 1
    return (effect_table(fit.one(), conf_level),) if isinstance(fit, EventStudy) and several else ()


def _trends(fit: AtOnce, conf_level: float) -> tuple[str, ...]:
    """What changes before treatment say about trends."""
    if not isinstance(fit, EventStudy):
        return ()
    return (f"Pre-trends: {fit.pretrends(conf_level)}",)


def _missing(fit: AtOnce) -> tuple[str, ...]:
    """Why there are no intervals, where there are none."""
    reasons: dict[str, list[str]] = {}
    for label, effect in zip(fit.labels, fit.effects, strict=True):
        if isinstance(effect.sampling, Unavailable):
            reasons.setdefault(str(effect.sampling), []).append(label)
    return tuple(
        f"Standard errors and intervals{_of(fit, labels)} are {why}."
        for why, labels in reasons.items()
    )


def _of(fit: AtOnce, labels: list[str]) -> str:
    return "" if len(labels) == len(fit.labels) else f" of {', '.join(labels)}"
