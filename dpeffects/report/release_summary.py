"""Summary, short summary and paragraph about a release: the words are those of its result."""

from __future__ import annotations

import math
from typing import Any

from dpeffects import summary
from dpeffects.inference.estimate import Unavailable
from dpeffects.inference.intervals import check_conf_level
from dpeffects.report.blocks import adjusted_for, assumed, closing, header, starred_warnings
from dpeffects.report.paragraph import paragraph, reading
from dpeffects.results import wording
from dpeffects.results.average import Result
from dpeffects.results.number_format import number
from dpeffects.results.result_base import ResultBase

_KEPT = ("Multiplicity", "Adjusted for", "Assumes", "Analysis sample", "Sites", "Records", "Units")
"""Rows of the full summary that the short one has too."""
_BASIS = wording.said("reading")
"""A sentence on what the estimate rests on; what an association lacks is in its warning."""


def whole(fit: ResultBase, conf_level: float = 0.95, **asked: Any) -> summary.Summary:
    """Build the summary of a release."""
    check_conf_level(conf_level)
    first, *others = header(fit).rows
    own = fit._headed(conf_level)
    rows = (first, *own.items(), *(row for row in others if row[0] not in own))
    head = summary.Pairs(tuple(row for row in rows if row[1]))
    notes = fit._noted(conf_level, **asked)
    last = closing(fit, notes) if fit._released else filter(None, (summary.noted(notes),))
    blocks = (head, *fit._blocks(conf_level, **asked), *last)
    return summary.Summary(wording.capital(fit._titled.format(fit)), starred_warnings(fit), blocks)


def described(fit: ResultBase, conf_level: float) -> str:
    """Write the paragraph on methods and results for a paper."""
    about = (fit._lacks(conf_level), fit._subject, fit._verb)
    known = adjusted_for(fit)
    adjusted = "" if not known or "nothing" in known else f"Estimates were adjusted for {known}."
    findings = (adjusted, *fit._findings(conf_level), *_shown(fit, conf_level))
    return paragraph(fit, findings, *about)


def _shown(fit: ResultBase, conf_level: float) -> tuple[str, ...]:
    """What the interval of one effect shows, and what that rests on."""
    interval = fit.conf_int(conf_level) if isinstance(fit, Result) else Unavailable("")
    if isinstance(interval, Unavailable):
        return ()
    rests_on = _BASIS.get(fit.identification, "")
    if fit.assumes and not fit.associated:
        rests_on = f"The estimate assumes {assumed(fit)}."
    what = "association" if fit.associated else "effect"
    return reading(interval, _if_random(fit), what), rests_on


def _if_random(fit: ResultBase) -> str:
    if fit.identification == "randomised":
        return "treatment was randomised"
    if fit.assumes:
        return "trends were parallel"
    adjusted = not adjusted_for(fit).startswith("nothing (")
    if adjusted and not fit.estimate_warnings.startswith(("NOT ADJUSTED", "Weak adjustment")):
        return "treatment was as good as random given the covariates"
    return "treatment was randomised, because there is no or little adjustment for covariates"


def brief(result: ResultBase, **asked: Any) -> summary.Summary:
    """Build the short summary of a release."""
    return short(result, result.guarantee.short(), **asked)


def short(result: ResultBase, guarantee: str, **asked: Any) -> summary.Summary:
    """Build the short summary of what was released under a guarantee."""
    whole = summary.summarise(result, **asked)
    known: dict[str, str] = {}
    for block in whole.blocks:
        if isinstance(block, summary.Pairs):
            known = dict(block.rows) | known
    rows = [
        *result._headline(**asked),
        *((name, known.get(name, "")) for name in _KEPT),
        ("Guarantee", guarantee),
    ]
    pairs = summary.Pairs(tuple((name, text) for name, text in rows if text))
    return summary.Summary(
        whole.title, whole.starred_warnings, (pairs, summary.Prose(summary.EVERYTHING))
    )


def explain(result: Any) -> summary.Summary:
    """Say what the short summary says in sentences, and what can be done about each warning."""
    short = result.summary("short")
    (pairs, *_) = (block for block in short.blocks if isinstance(block, summary.Pairs))
    rows, found, said = dict(pairs.rows), [], wording.said("explain")
    numbers = [f"{name}: {text}." for name, text in rows.items() if name not in said["rows"]]
    for title, names in said["sections"].items():
        lines = [said["rows"][name].format(rows[name]) for name in names if name in rows]
        found.append((title, [*lines, *numbers] if title == "Result" else lines))
    guarantee = getattr(result, "guarantee", None)
    if guarantee is not None and guarantee.holds:
        factor = number(math.exp(min(guarantee.epsilon, 700.0)), 2)
        found[-1][1].append(said["strength"][bool(guarantee.delta)].format(factor, guarantee.delta))
    found.append(("Sources of error", _largest(result, said["largest"])))
    advice = said["advice"]
    for text in short.warnings:
        words = text.removeprefix("Warning: ")
        head = next((name for name in advice if name in words), "other")
        found.append(("Warning", [f"{words}. {advice[head]}"]))
    blocks = (summary.Prose(" ".join(lines), title) for title, lines in found if lines)
    return summary.Summary(short.title, "", tuple(blocks))


def _largest(result: Any, said: dict[str, str]) -> list[str]:
    """The largest part of the standard error, and what would make it smaller."""
    variances = result._sources() if isinstance(result, Result) else {}
    total = sum(variances.values())
    if not (math.isfinite(total) and total > 0.0):
        return []
    name = max(variances, key=variances.__getitem__)
    share = wording.percent(variances[name] / total, ".0f")
    return [said["text"].format(name, share), said[name.split()[0]]]
