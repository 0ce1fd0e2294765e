"""Summary and paragraph about a randomisation test."""

from __future__ import annotations

from dpeffects.abilities.randomisation import RandomisationTest
from dpeffects.inference.randomisation import GAMMA
from dpeffects.report.blocks import alert, closing, header
from dpeffects.report.paragraph import describe, paragraph
from dpeffects.report.short import headline
from dpeffects.results.numbers import number
from dpeffects.results.words import Lines, p_text, p_words
from dpeffects.summary import Pairs, Summary, Table, summarise

_ALTERNATIVES = {
    "two-sided": "it changes somebody's",
    "greater": "it raises somebody's",
    "less": "it lowers somebody's",
}


@summarise.register
def _(test: RandomisationTest, conf_level: float = 0.95) -> Summary:
    tested = Pairs(
        (
            ("Tested", f"{test.treatment} changes nobody's {test.outcome}"),
            ("Against", f"{_ALTERNATIVES[test.alternative]} ({test.alternative})"),
            ("Assigned", _assigned(test)),
            ("Successes", f"{test.successes:.0f} (noise of scale {test.count_scale:.3g})"),
        ),
        "Hypothesis",
    )
    row = ("", number(test.estimate, 3), f"{test.statistic:.3f}", p_text(test.p_value))
    table = Table("Randomisation test", ("", "estimate", "statistic", "p-value"), (row,), "lrrr")
    blocks = (header(test), tested, table, *closing(test, (*_notes(), *test.notes)))
    return Summary("Private randomisation test", alert(test), blocks)


@describe.register
def _(test: RandomisationTest, conf_level: float) -> str:
    subject = (
        f"the hypothesis that {test.treatment} changes nobody's {test.outcome} "
        f"(against: {_ALTERNATIVES[test.alternative]})"
    )
    evidence = (
        "which is evidence of an effect on somebody"
        if test.p_value < 1.0 - conf_level
        else "which is no evidence that there is none"
    )
    findings = (
        f"Treatment was taken as assigned by chance: {_assigned(test)}.",
        f"The randomisation test, which is exact for the assignment and the privacy noise, has "
        f"p {p_words(test.p_value)}, {evidence}.",
    )
    return paragraph(test, findings, subject=subject, verb="tested")


@headline.register
def _(test: RandomisationTest, **options: float) -> Lines:
    return [
        ("Tested", f"{test.treatment} changes nobody's {test.outcome}"),
        ("Against", f"{_ALTERNATIVES[test.alternative]} ({test.alternative})"),
        ("p-value", p_text(test.p_value)),
        ("Estimate", f"{number(test.estimate, 3)} (no interval: dp_ate has one)"),
    ]


def _assigned(test: RandomisationTest) -> str:
    design = test.assignment
    if design.fixed:
        return f"{design.treated} of {design.n} records were treated"
    return f"each of {design.n} records was treated with chance {number(design.r / design.s)}"


def _notes() -> tuple[str, ...]:
    return (
        "The p-value is exact: where treatment changes nobody's outcome it is at most alpha with a "
        "chance of at most alpha, in samples of any size and with any epsilon, if treatment was "
        f"assigned as said. It is at least {GAMMA:g}, the chance that the number of successes is "
        "not where its release says.",
        "The estimate is the average effect that the sum alone gives; dp_ate gives a better one, "
        "with an interval.",
    )
