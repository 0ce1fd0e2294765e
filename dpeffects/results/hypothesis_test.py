"""Test: a hypothesis on an effect, its p-value, and the interval that goes with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from dpeffects.guarantee import status_warning
from dpeffects.inference import Estimate, Hypothesis, Interval, Unavailable, ratio_of
from dpeffects.inference import intervals as inference
from dpeffects.inference.hypotheses import EQUIVALENCE, Evidence, check_test_level
from dpeffects.lazy import pd
from dpeffects.results.export import IntervalResult, JsonDocument, frame_of, or_nan
from dpeffects.results.number_format import NOT_AVAILABLE, number, with_ends
from dpeffects.results.wording import Lines, capital, cells_of_rows, p_text, percent, relation, said
from dpeffects.summary import Notes, Pairs, Summary, SummaryMixin, Table, starred


@dataclass(frozen=True, repr=False, kw_only=True)
class Test(SummaryMixin, IntervalResult):
    """A test of an effect, from what was released already: nothing is spent.

    Parameters
    ----------
    what
        What is tested, such as "effect of treatment on earnings".
    asked
        The hypothesis: its alternative and the numbers that it is about.
    estimate
        The effect, within the range that an effect can have.
    p_value
        Adjusted for the number of tests, where there are several; or why there is none.
    interval
        The confidence interval that goes with the test, as ``conf_int()``: it lies within the
        alternative hypothesis exactly where the p-value is below 1 - conf_level. For a one-sided
        test it has one
        end, for equivalence it is that of two one-sided tests, at 1 - 2 (1 - conf_level).
    equivalence_bound
        The smallest equivalence margin: by two one-sided tests (TOST) equivalence would be shown
        for every margin above it.
    conf_level, tests
        1 minus the significance level, and the number of simultaneous tests.
    subject, term, method, guarantee, warnings, noise_ratio
        What the number is called ("effect", "ratio"), name of the effect, method that estimated
        it, the guarantee, the warnings, and above 1 that it is mostly noise.
    std_error
        Standard error of the effect, by which numbers are rounded.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> nsw = dpe.load_data("lalonde")
    >>> fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1)
    >>> fit.test(alternative="greater", margin=1000).hypothesis
    'H0: the effect is -1000 or less. H1: the effect is more than -1000.'
    """

    __test__: ClassVar[bool] = False  # pytest takes every Test for one of its own

    _computed = ("hypothesis", "conclusion", "reject")
    what: str
    asked: Hypothesis
    estimate: float
    p_value: float | Unavailable
    interval: Interval | Unavailable
    equivalence_bound: float | Unavailable
    conf_level: float = 0.95
    tests: int = 1
    subject: str = "effect"
    term: str = ""
    method: str = ""
    guarantee: str = ""
    warnings: str = ""
    noise_ratio: float = 0.0
    std_error: float = math.nan
    recompute: Callable[..., Any] | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        evidence: Estimate | Evidence | Unavailable,
        asked: Hypothesis,
        *,
        conf_level: float = 0.95,
        tests: int = 1,
        **about: Any,
    ) -> Test:
        """Test an estimate, or whatever there is `Evidence` of; ``about`` are the other fields.

        With several tests each is at the level over their number (Bonferroni).
        """
        conf_level = check_test_level(conf_level)
        given = {"asked": asked, "conf_level": conf_level, "tests": tests, **about}
        given["recompute"] = partial(cls.of, evidence, asked, tests=tests, **about)
        if isinstance(evidence, Estimate):
            error = or_nan(inference.std_error(evidence))
            own = {"estimate": evidence.point, "noise_ratio": ratio_of(evidence)}
            given = own | {"std_error": error} | given
            evidence = Evidence.of(evidence)
        if isinstance(evidence, Unavailable):
            given.setdefault("estimate", math.nan)
            return cls(p_value=evidence, interval=evidence, equivalence_bound=evidence, **given)
        each = 1.0 - (1.0 - conf_level) / tests
        given.setdefault("estimate", evidence.point)
        return cls(
            p_value=min(1.0, tests * asked.p_value(evidence)),
            interval=asked.conf_int(evidence, each),
            equivalence_bound=asked.equivalence_bound(evidence, each),
            **given,
        )

    @property
    def alternative(self) -> str:
        """ "two-sided", "greater", "less" or "equivalence"."""
        return self.asked.alternative

    @property
    def reject(self) -> bool | None:
        """Whether H0 is rejected at this level; None where there is no test."""
        p = self.p_value
        return None if isinstance(p, Unavailable) else p < 1.0 - self.conf_level

    @property
    def _claim(self) -> str:
        return self.asked.claim(self.subject)

    @property
    def hypothesis(self) -> str:
        """The null hypothesis and the alternative, in words."""
        return f"H0: {self.asked.claim(self.subject, denied=True)}. H1: {self._claim}."

    @property
    def conclusion(self) -> str:
        """What the test says, in a sentence."""
        p, stated = self.p_value, self._claim
        if isinstance(p, Unavailable):
            return f"There is no test ({p})."
        level = f"At the {100 * (1.0 - self.conf_level):.4g} % level"
        if self.reject:
            return f"{level} H0 is rejected in favour of: {stated}."
        if self.alternative == EQUIVALENCE:
            bound = number(self.equivalence_bound, 3)
            more = f"equivalence would be shown for margins above {bound} only"
        else:
            more = "this is no evidence for H0"
        return f"{level} H0 is not rejected ({stated}: not shown); {more}."

    def tidy(self) -> pd.DataFrame:
        """One row for the test; what is not available is NaN."""
        return frame_of([self.row()])

    def row(self) -> dict[str, Any]:
        """The test as a row of `tidy`."""
        interval, asked = self.interval, self.asked
        null = {"two-sided": asked.null, "greater": asked.low, "less": asked.high}
        low, high = (math.nan, math.nan) if isinstance(interval, Unavailable) else interval
        return {
            "term": self.term,
            "alternative": asked.alternative,
            "null": null.get(asked.alternative, math.nan),
            "low": asked.low,
            "high": asked.high,
            "estimate": float(self.estimate),
            "p_value": or_nan(self.p_value),
            "conf_low": low,
            "conf_high": high,
            "conf_level": self.conf_level,
            "equivalence_bound": or_nan(self.equivalence_bound),
            "reject": self.reject,
            "method": self.method,
            "guarantee": self.guarantee,
        }

    def __repr__(self) -> str:
        p = self.p_value
        text = "not available" if isinstance(p, Unavailable) else number(p, 4)
        return f"<dpeffects test: {self._claim}, p {text}, {self.guarantee}>"

    # --- in words ---------------------------------------------------------------------------------

    def _summary(self) -> Summary:
        rows = [
            *self._tested,
            ("Estimate", self._ends[0]),
            ("p-value", p_text(self.p_value)),
            ("Confidence interval", self._between),
            ("Equivalence", self._excluded),
            ("Conclusion", self.conclusion),
        ]
        pairs = Pairs(tuple((name, text) for name, text in rows if text))
        return Summary(f"Test of the {self.what}", self._starred, (pairs, self._notes))

    @property
    def _starred(self) -> str:
        void = status_warning(self.guarantee) if self.guarantee.startswith("void") else ""
        return starred((void, self.warnings))

    @property
    def _tested(self) -> Lines:
        many = f", adjusted for {self.tests} tests" if self.tests > 1 else ""
        return [("Hypotheses", self.hypothesis), ("Test", self.asked.name() + many)]

    @property
    def _level(self) -> str:
        """The level of the interval, of one test."""
        if isinstance(self.interval, Unavailable):
            return ""
        return percent(self.asked.interval_level(self.conf_level))

    @property
    def _ends(self) -> tuple[str, ...]:
        """The estimate, and both ends of the interval."""
        if isinstance(self.interval, Unavailable):
            return number(self.estimate, 4), NOT_AVAILABLE, NOT_AVAILABLE
        low, high = self.interval
        if self.alternative in ("greater", "less"):  # the other end is that of what is possible
            low, high = (low, math.inf) if self.alternative == "greater" else (-math.inf, high)
        return with_ends(self.estimate, low, high, self.std_error)

    @property
    def _between(self) -> str:
        if isinstance(self.interval, Unavailable):
            return ""
        _, low, high = self._ends
        one_sided = {"greater": f"at least {low}", "less": f"at most {high}"}
        ends = one_sided.get(self.alternative, f"from {low} to {high}")
        return f"{ends} ({self._level})"

    @property
    def _excluded(self) -> str:
        if isinstance(self.equivalence_bound, Unavailable) or self.alternative in (
            "greater",
            "less",
        ):
            return ""
        far, null = number(self.equivalence_bound, 3), number(self.asked.null)
        level = percent(1.0 - self.conf_level)
        return f"shown for margins above {far} around {null} (two one-sided tests at {level})"

    @property
    def _notes(self) -> Notes:
        if isinstance(self.p_value, Unavailable):
            return Notes((f"The p-value is {self.p_value}.",))
        return Notes((said("test")["distribution"],))


@dataclass(frozen=True, repr=False)
class Tests(SummaryMixin, JsonDocument):
    """Tests of several effects, in the order of the effects; made by ``fit.test()``."""

    __test__: ClassVar[bool] = False

    tests: tuple[Test, ...]

    def __iter__(self) -> Iterator[Test]:
        return iter(self.tests)

    def __len__(self) -> int:
        return len(self.tests)

    def __getitem__(self, term: str | int) -> Test:
        """The test of an effect by its name, or by its place."""
        if isinstance(term, str):
            return {test.term: test for test in self.tests}[term]
        return self.tests[term]

    def tidy(self) -> pd.DataFrame:
        """One row for each test; what is not available is NaN."""
        return frame_of([test.row() for test in self.tests])

    def __repr__(self) -> str:
        shown = sum(bool(test.reject) for test in self.tests)
        stated = self.tests[0].asked.claim(self.tests[0].subject)
        return f"<dpeffects {len(self)} tests: {stated}; H0 rejected for {shown}>"

    def _summary(self) -> Summary:
        first, rows = self[0], []
        more = ("noise_ratio", "std_error")
        found = [test.row() | {name: getattr(test, name) for name in more} for test in self]
        for row, (value, _, *ends) in zip(found, cells_of_rows(found), strict=True):
            shown = {True: "yes", False: "no", None: NOT_AVAILABLE}[row["reject"]]
            rows.append((row["term"], value, *ends, p_text(row["p_value"]), shown))
        columns = ("", "estimate", f"{first._level} low".strip(), "high", "p-value", "reject")
        table = Table(capital(first.what), columns, tuple(rows), "lrrrrr")
        blocks = (Pairs(tuple(first._tested)), table, first._notes)
        return Summary(f"Tests of the {first.what}", first._starred, blocks)


def facts_tested(result: Any, method: str, guarantee: str) -> dict[str, Any]:
    """What a test says of the result that it is about."""
    return {
        "what": relation(result),
        "term": result.treatment,
        "method": method,
        "guarantee": guarantee,
        "warnings": result.warnings,
    }
