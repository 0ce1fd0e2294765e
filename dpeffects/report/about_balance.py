"""Summary and paragraph about overlap and balance of two arms."""

from __future__ import annotations

import math

from dpeffects.guarantee import counted
from dpeffects.inference.noisy import COUNTED, RARE, noise_ratio
from dpeffects.report.about_records import headline
from dpeffects.report.blocks import alert, closing, header
from dpeffects.report.paragraph import paragraph
from dpeffects.results.covariate_balance import (
    ARMS,
    HIGH,
    LOW,
    WITHIN,
    Balance,
    hidden,
    within_noise,
)
from dpeffects.results.numbers import number, to_error
from dpeffects.results.words import Lines
from dpeffects.summary import Block, Pairs, Summary, Table, describe, printed, summarise

_SHOWN = 40
_APART = 0.1
"""Standardised differences above it are said to matter."""


@summarise.register
def _(balance: Balance, conf_level: float = 0.95) -> Summary:
    tables: list[Block] = [_arms(balance), _differences(balance)]
    if balance.edges:
        tables.append(_histogram(balance))
    notes = (*_notes(balance), *balance.notes)
    about = Pairs(tuple(row for row in header(balance).rows if row[0] != "Estimand"))
    blocks = (about, *tables, *closing(balance, notes))
    return Summary("Private overlap and balance", alert(balance), blocks)


@describe.register
def _(balance: Balance, conf_level: float) -> str:
    largest = _largest(balance)
    findings = [f"No difference is known: {next(filter(None, balance.reasons), '')}."]
    if not all(math.isnan(smd) for smd in balance.smd):
        findings = ["No difference can be told: all are mostly noise."]
    if largest:
        findings = [
            f"The largest standardised mean difference is {largest}; sampling error is not in that."
        ]
    subject = f"the balance of covariates between the arms of {balance.treatment}"
    return paragraph(balance, findings, subject=subject)


@headline.register
def _(balance: Balance, **options: float) -> Lines:
    apart = [smd for smd in balance.smd if abs(smd) > _APART]
    return [
        ("About", f"how far the arms of {balance.treatment} differ in {_counted(balance)}"),
        ("Largest", _largest(balance) or "not known: no difference is usable"),
        ("Apart", f"{len(apart)} of {len(balance.smd)} differ by more than {_APART}"),
        *_arms(balance).rows,
    ]


def _counted(balance: Balance) -> str:
    return f"{len(balance.terms)} covariate{'' if len(balance.terms) == 1 else 's'}"


def _largest(balance: Balance) -> str:
    """The largest standardised difference, or nothing where none is known."""
    rows = zip(balance.terms, balance.smd, balance.noise_sd, strict=True)
    usable = [x for x in rows if not (math.isnan(x[1]) or hidden(*x[1:]) > 1.0)]
    if not usable:
        return ""
    term, smd, sd = max(usable, key=lambda row: abs(row[1]))
    value, noise = to_error((smd, sd), sd)
    return f"{value}, of {term} (standard deviation of its privacy noise {noise})"


def _arms(balance: Balance) -> Pairs:
    (treated, sd), (outside, outside_sd) = balance.treated, balance.scores_outside
    who = counted(balance.guarantee.unit)
    of = who if "size" in balance.sample else f"of {balance.n} {who}"
    rows = [("Treated", f"{_count(treated, sd)} {of} (noise sd {number(sd, 2)})")]
    if balance.edges:
        part, noise = to_error((100 * outside, 100 * outside_sd), 100 * outside_sd)
        share = printed(
            f"{part} %", noise_ratio(outside_sd, 1.0, max(outside, RARE)), "mostly noise:"
        )
        scores = f"{share} of {who} have scores below {LOW} or above {HIGH}"
        rows += [
            ("Overlap", f"{scores} (noise sd {noise} %)"),
            ("Model", f"about {100 * balance.model_noise:.0f} % of its log odds are noise"),
        ]
    return Pairs(tuple(rows), "Arms")


def _differences(balance: Balance) -> Table:
    columns = ["covariate", "difference", "noise sd"]
    cells = [list(balance.terms), *_cells(balance.smd, balance.noise_sd)]
    if balance.smd_adjusted:
        columns += ["weighted", "noise sd"]
        cells += _cells(balance.smd_adjusted, balance.noise_sd_adjusted)
    rows = tuple(zip(*cells, strict=True))[:_SHOWN]
    title = "Standardised mean differences, treated less control"
    return Table(title, tuple(columns), rows, "l" + "r" * (len(columns) - 1))


def _histogram(balance: Balance) -> Table:
    digits = 2 if (len(balance.edges) - 1) in (2, 4, 5, 10, 20, 25, 50) else 3
    rows = tuple(
        (f"{low:.{digits}f} to {high:.{digits}f}", *(_count(x, balance.count_sd) for x in counts))
        for low, high, *counts in zip(
            balance.edges[:-1], balance.edges[1:], *balance.counts, strict=True
        )
    )
    title = f"Records by propensity score (noise sd {number(balance.count_sd, 3)})"
    return Table(title, ("score", *ARMS), rows[:_SHOWN], "lrr")


def _count(value: float, sd: float) -> str:
    return printed(f"{value:.0f}", noise_ratio(sd, value=max(value, COUNTED)))


def _notes(balance: Balance) -> list[str]:
    notes = [
        "A difference divides by the root of the arms' average variance, before weighting. In "
        f"brackets: below {WITHIN} standard deviations of its noise, so perhaps nothing but "
        "noise. Sampling error is not in noise sd."
    ]
    if balance.edges:
        notes.append(
            "Scores come from a private model with a penalty, which pulls them together: overlap "
            "looks better than it is. A call of dp_ate fits a model of its own."
        )
    if balance.smd_adjusted:
        notes.append("The noise sd of a weighted difference includes that of the model.")
    else:
        notes.append(_left_out(balance))
    notes += [f"n/a: {reason}." for reason in dict.fromkeys(filter(None, balance.reasons))]
    if max(len(balance.terms), len(balance.edges) - 1) > _SHOWN:
        notes.append(f"The first {_SHOWN} rows; tidy() and overlap() have them all.")
    return notes


def _left_out(balance: Balance) -> str:
    """Say what was not released, and why."""
    if balance.edges:
        return (
            "Balance after weighting was not released; adjusted=True asks for it, and None "
            "(default) where its noise is small."
        )
    if balance.options.get("overlap"):
        return (
            "The differences say nothing, so no propensity model was released. Its part of epsilon "
            "was not used, but counts: what was released decided on it."
        )
    return (
        "No propensity model was released, and all of epsilon went to the differences; "
        "overlap=True asks for one, and None (default) where n and epsilon make it more than noise."
    )


def _cells(values: tuple[float, ...], sds: tuple[float, ...]) -> list[list[str]]:
    """Differences, in brackets where they are within their noise, and the noise."""
    pairs = [difference_cells(*pair) for pair in zip(values, sds, strict=True)]
    return [list(cells) for cells in zip(*pairs, strict=True)]


def difference_cells(value: float, sd: float) -> tuple[str, str]:
    """A standardised difference, in brackets where it is within its noise, and the noise."""
    text = "n/a" if math.isnan(value) else f"{round(value, 3) + 0.0:.3f}"
    text = f"({text})" if within_noise(value, sd) else text
    return printed(text, hidden(value, sd)), f"{sd:.3f}" if math.isfinite(sd) else "n/a"
