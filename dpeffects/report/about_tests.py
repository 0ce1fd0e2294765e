"""Summaries of tests."""

from __future__ import annotations

import math

from dpeffects.inference.estimate import Unavailable
from dpeffects.report.blocks import noted, starred
from dpeffects.results.hypothesis_test import Test, Tests
from dpeffects.results.numbers import NOT_AVAILABLE, number, with_ends
from dpeffects.results.words import cells_of_rows, p_text, percent
from dpeffects.summary import Block, Notes, Pairs, Summary, Table, summarise


@summarise.register
def _(test: Test) -> Summary:
    rows = [
        ("Tested", test.hypothesis),
        ("Test", _kind(test)),
        ("Estimate", _cells(test)[0]),
        ("p-value", p_text(test.p_value)),
        ("Interval", _interval(test)),
        ("Excluded", _excluded(test)),
        ("Conclusion", test.conclusion),
    ]
    pairs = Pairs(tuple((name, text) for name, text in rows if text))
    return Summary(f"Test of the {test.what}", _alert(test), (pairs, Notes(_notes(test))))


@summarise.register
def _(found: Tests) -> Summary:
    first = found[0]
    about = Pairs((("Tested", first.hypothesis), ("Test", _kind(first))))
    cells = cells_of_rows([_row(test) for test in found])
    rows = tuple(
        (
            test.term,
            value,
            low,
            high,
            p_text(test.p_value),
            {True: "yes", False: "no", None: "n/a"}[test.shown],
        )
        for test, (value, _, low, high) in zip(found, cells, strict=True)
    )
    level = "" if isinstance(first.interval, Unavailable) else percent(_level(first))
    title = f"{first.what[0].upper()}{first.what[1:]}"
    columns = ("", "estimate", f"{level} low".strip(), "high", "p-value", "shown")
    table = Table(title, columns, rows, "lrrrrr")
    blocks: tuple[Block | None, ...] = (about, table, noted(_notes(first)))
    return Summary(f"Tests of the {first.what}", _alert(first), tuple(b for b in blocks if b))


def _alert(test: Test) -> str:
    void = test.guarantee.startswith("void")
    return starred((f"NOT PRIVATE: {test.guarantee[6:]}" if void else "", test.caution))


def _level(test: Test) -> float:
    """The level of the interval, of one test."""
    return test.asked.interval_level(test.conf_level)


def _kind(test: Test) -> str:
    many = f", adjusted for {test.tests} tests" if test.tests > 1 else ""
    return test.asked.name() + many


def _cells(test: Test) -> tuple[str, ...]:
    """The estimate, and both ends of the interval."""
    if isinstance(test.interval, Unavailable):
        return number(test.estimate, 4), NOT_AVAILABLE, NOT_AVAILABLE
    return with_ends(test.estimate, *test.interval)


def _row(test: Test) -> dict[str, float]:
    """The same as a row of `tidy`, whose error is what the interval says of it."""
    ends = test.interval
    low, high = (math.nan, math.nan) if isinstance(ends, Unavailable) else ends
    error = (high - low) / 4.0 if math.isfinite(high - low) else math.nan
    row = {"std_error": error, "conf_low": low, "conf_high": high}
    return row | {"estimate": test.estimate, "noise_ratio": test.noise_ratio}


def _interval(test: Test) -> str:
    if isinstance(test.interval, Unavailable):
        return ""
    _, low, high = _cells(test)
    ends = f"from {low} to {high}"
    if test.alternative == "greater":
        ends = f"{low} and more"
    if test.alternative == "less":
        ends = f"{high} and less"
    return f"{ends} ({percent(_level(test))})"


def _excluded(test: Test) -> str:
    if isinstance(test.excluded, Unavailable) or test.alternative in ("greater", "less"):
        return ""
    far, null = number(test.excluded, 3), number(test.asked.null)
    level = percent(1.0 - test.conf_level)
    return f"{test.subject}s further than {far} from {null}, by two one-sided tests at {level}"


def _notes(test: Test) -> tuple[str, ...]:
    if isinstance(test.p_value, Unavailable):
        return (f"The p-value is {test.p_value}.",)
    return (
        "The test has the law of the interval: sampling error, privacy noise, and the noise of the "
        "released variance. It is computed from what was released, and costs nothing.",
    )
