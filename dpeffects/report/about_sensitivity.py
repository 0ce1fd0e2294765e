"""Summary and paragraph about what confounding would do to an effect."""

from __future__ import annotations

import math
from dataclasses import replace

from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import Unavailable
from dpeffects.report.blocks import alert, asked_for, noted
from dpeffects.report.paragraph import describe, paragraph
from dpeffects.report.short import headline
from dpeffects.results.numbers import NOT_AVAILABLE, number, to_error
from dpeffects.results.sensitivity import SensitivityAnalysis
from dpeffects.results.words import Lines, estimates, limits, percent, relation
from dpeffects.summary import Block, Pairs, Summary, Table, summarise

_DIFFERENCES = (0.1, 0.25, 0.5, 1.0)
"""By how much the prevalence of a confounder may differ between the arms."""
_MEANS = {
    "": "The numbers are about confounding that is left after whatever was adjusted for.",
    "adjusted": "The numbers are about confounders that are missing from the formula. Models that "
    "are not linear in its terms are another matter, and not in them.",
    "randomised": "Treatment was declared to be randomised, which excludes confounding: the "
    "numbers say what it would take if that was broken, by dropouts for example.",
    "association": "Nothing was adjusted for: the numbers are about all confounding, by what was "
    "measured too. They can say how strong it must be to make this association, not that there "
    "is an effect.",
}


@summarise.register
def _(found: SensitivityAnalysis, conf_level: float | None = None) -> Summary:
    found = _at(found, conf_level)
    blocks: tuple[Block | None, ...] = (
        _header(found),
        _tipping(found),
        _confounders(found),
        _readings(found),
        noted(_notes(found)),
    )
    title = f"Sensitivity to confounding of the {relation(found)}"
    return Summary(title, alert(found), tuple(block for block in blocks if block))


@describe.register
def _(found: SensitivityAnalysis, conf_level: float) -> str:
    found = _at(found, conf_level)
    figures = found.figures()
    sentences = [
        f"The estimate is {_text(found, found.estimate)}; confounding that adds a bias of "
        f"{_text(found, found.estimate)} explains it away",
        f" (E-value {_short(figures['e_value'])}).",
    ]
    limit = figures["tipping_bias_limit"]
    if isinstance(limit, Unavailable):
        text = f"There is no interval ({limit})."
    elif limit == 0.0:
        text = f"The {percent(found.conf_level)} interval includes zero as it is."
    else:
        text = (
            f"A bias of {_text(found, limit)} moves the {percent(found.conf_level)} interval to "
            f"zero (E-value {_short(figures['e_value_limit'])})."
        )
    stated = [
        f"With a bias of {number(bias)} ({name}) the interval is from "
        f"{' to '.join(_cells(found, (), tuple(interval)))}."
        for name, bias, _, interval in found.readings()[1:]
        if not isinstance(interval, Unavailable)
    ]
    findings = ["".join(sentences), text, *stated, _deviation(found), _MEANS[found.released.basis]]
    return paragraph(found, findings, subject=f"the sensitivity to confounding of {_whole(found)}")


@headline.register
def _(found: SensitivityAnalysis, conf_level: float | None = None) -> Lines:
    found = _at(found, conf_level)
    figures = found.figures()
    rows = estimates(found.tidy().to_dict("records"), relation(found), found.conf_level)
    for name, end in (("estimate", ""), ("interval", "_limit")):
        bias, e_value = (figures[f"{figure}{end}"] for figure in ("tipping_bias", "e_value"))
        about = " (approximate)" if found.approximate else ""
        takes = (
            f"a bias of {_text(found, bias)}, or confounding of E-value {_short(e_value)}{about}"
        )
        if bias == 0.0:
            takes = "nothing: it includes zero as it is"
        rows.append((f"Moves the {name} to zero", takes))
    return rows


def _whole(found: SensitivityAnalysis) -> str:
    return f"the {relation(found)} ({found.estimand})"


def _at(found: SensitivityAnalysis, conf_level: float | None) -> SensitivityAnalysis:
    return found if conf_level is None else replace(found, conf_level=conf_level)


def _header(found: SensitivityAnalysis) -> Pairs:
    rows = (
        ("Formula", found.formula),
        ("Estimand", asked_for(found)),
        ("Method", found.method),
        ("Records", f"n = {found.n}"),
        ("Guarantee", found.guarantee.sentence()),
        ("Budget", "nothing more: computed from released numbers"),
    )
    return Pairs(rows)


def _tipping(found: SensitivityAnalysis) -> Table:
    """What it takes to explain the estimate away, and to move its interval to zero."""
    figures, limit = found.figures(), found.limit
    low, high = limits(found.conf_level)
    rows = []
    for name, value, end in (
        ("estimate", found.estimate, ""),
        (f"{low if found.estimate > 0.0 else high} limit", limit, "_limit"),
    ):
        bias, *ratios = (figures[name + end] for name in ("tipping_bias", "risk_ratio", "e_value"))
        share = figures[f"robustness_value{end}"]
        part = "n/a" if isinstance(share, Unavailable) else percent(share, ".1f")
        rows.append((name, _text(found, value), _text(found, bias), *map(_short, ratios), part))
    columns = ("", "value", "bias to zero", "risk ratio", "E-value", "robustness value")
    return Table("What explains it away", columns, tuple(rows), "lrrrrr")


def _confounders(found: SensitivityAnalysis) -> Table | None:
    """What confounders of two values must add to the outcome, by their prevalence in the arms."""
    limit = found.limit
    if not math.isfinite(found.estimate):
        return None
    columns = ["difference in prevalence", "for the estimate"]
    targets = [abs(found.estimate)]
    if not isinstance(limit, Unavailable):
        columns.append("for the limit")
        targets.append(abs(limit))
    low, high = found.outcome_range or (-math.inf, math.inf)
    rows = []
    for difference in _DIFFERENCES:
        texts = _cells(found, tuple(x / difference for x in targets), (), difference)
        there = [x / difference <= high - low for x in targets]
        shown = (t if ok else "none has it" for t, ok in zip(texts, there, strict=True))
        rows.append((number(difference), *shown))
    title = f"What a confounder of two values must add to {found.outcome} to do so"
    return Table(title, tuple(columns), tuple(rows), "l" + "r" * len(targets))


def _readings(found: SensitivityAnalysis) -> Table | None:
    """Estimate and interval under the stated bias."""
    if found.stated is None:
        return None
    rows = []
    for name, bias, estimate, interval in found.readings():
        ends = (math.nan, math.nan) if isinstance(interval, Unavailable) else tuple(interval)
        rows.append((name, number(bias, 4), *_cells(found, (estimate,), ends)))
    columns = ("", "bias", "estimate", *limits(found.conf_level))
    return Table("Under the stated confounding", columns, tuple(rows), "lrrrr")


def _notes(found: SensitivityAnalysis) -> list[str]:
    figures = found.figures()
    notes = [_MEANS[found.released.basis], _deviation(found)]
    if isinstance(found.limit, Unavailable):
        notes.append(f"The interval is {found.limit}: only the estimate is looked at.")
    elif found.limit == 0.0:
        notes.append("The interval includes zero: no confounding is needed to explain it away.")
    notes.append(
        "E-value: the least risk ratio that a confounder must have with treatment and with "
        "outcome, both, beyond what was adjusted for (VanderWeele and Ding 2017)."
    )
    robust = figures["robustness_value"]
    if isinstance(robust, Unavailable):
        notes.append(f"The robustness value is {robust}.")
    else:
        notes.append(
            "Robustness value: the part of what is left of the variance of both, treatment and "
            "outcome, that a confounder must explain (Cinelli and Hazlett 2020), as in a linear "
            "regression with the sampling error of this estimate."
        )
    if found.prevalence_difference is not None:
        notes.append(
            f"The bias is that of a confounder whose prevalence is higher among the treated by "
            f"{number(found.prevalence_difference)}, and which adds "
            f"{number(found.confounder_effect)} to {found.outcome}."
        )
    return notes


def _deviation(found: SensitivityAnalysis) -> str:
    """Say how risk ratios were found."""
    if found.control_risk is not None:
        return (
            f"Risk ratios are those to a risk of {number(found.control_risk)} without treatment, "
            "as given."
        )
    if not found.approximate:
        return (
            "Risk ratios are those of the released risks; that of the limit is the limit of the "
            "interval of their ratio."
        )
    known = found.deviation
    if isinstance(known, Unavailable):
        return f"Risk ratios and E-values are {known}."
    return (
        f"Risk ratios are approximate, exp(0.91 d) with d the estimate in standard deviations of "
        f"the outcome: {number(known[0], 3)}, {known[1]}."
    )


def _short(value: float | Unavailable) -> str:
    """A number of which three digits are enough."""
    return NOT_AVAILABLE if isinstance(value, Unavailable) else number(value, 3)


def _cells(
    found: SensitivityAnalysis, values: tuple[float, ...], ends: tuple[float, ...], per: float = 1.0
) -> tuple[str, ...]:
    """Numbers in units of the outcome, to two digits of the standard error over ``per``."""
    error = inference.std_error(found.released)
    return to_error(values, math.nan if isinstance(error, Unavailable) else error / per, ends=ends)


def _text(found: SensitivityAnalysis, value: float | Unavailable) -> str:
    if isinstance(value, Unavailable):
        return NOT_AVAILABLE
    return _cells(found, (), (value,))[0]
