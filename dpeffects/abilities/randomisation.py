"""`dp_randomisation_test`: the sharp null hypothesis, for an outcome of 0 and 1 in a trial.

1. The number of successes (share "successes").
2. The sum of (t - p)(y - c) over the records (share "sum"), p being the probability or the share of
   treatment, and c 0, 1/2 or 1, as the first release makes best.

Both are sums of whole numbers with discrete Laplace noise, so the distribution of what is released
under the null hypothesis is known exactly, but for the number of successes; `dpeffects.inference.
randomisation_distribution` has the p-value. Two sums are better than four counts by arm and
outcome: a record
that moves from one of these to another moves two of them, so that their noise is twice that of the
sum, and what is needed of the number of successes is no more than about how many they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Unpack

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray
from dpeffects.calls import OfLedgers, OfSplits, public_call, released
from dpeffects.errors import OptionError, refusal
from dpeffects.estimators.arm_tables import table_spec
from dpeffects.estimators.option_checks import between, choice, whole
from dpeffects.estimators.row_functions import row
from dpeffects.estimators.spec import Options, PublicInfo, uses_no_delta
from dpeffects.inference.hypotheses import ALTERNATIVES
from dpeffects.inference.randomisation_distribution import (
    CENTRES,
    GAMMA,
    Assignment,
    RandomisationStatistic,
    p_value,
)
from dpeffects.lazy import pd
from dpeffects.privacy import COUNT, Block, Box, Curator, GroupIndex
from dpeffects.results import export, result_base, table_results, wording
from dpeffects.results.number_format import number
from dpeffects.summary import Pairs, Table

_SAID = wording.said("randomisation")
_HOW: str = _SAID["how"]


@dataclass(frozen=True)
class RandomisationOptions(Options):
    """``treated_share``: the probability with which each record was treated, independently of all
    others; ``treated``: instead, the number of treated records, where it was fixed or is public;
    ``alternative``: "two-sided", "greater" or "less".
    """

    treated_share: float | None = between(None, 1e-6, 1.0 - 1e-6)
    treated: int | None = whole(None, 1)
    alternative: str = choice(*ALTERNATIVES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.treated_share is None or self.treated is None):
            raise OptionError(_HOW)

    def resolve(self, facts: PublicInfo) -> RandomisationOptions:
        """Refuse an outcome that is not 0 and 1 by its declaration."""
        if not facts.indicator:
            raise OptionError(refusal("binary_outcome"))
        return self

    def check(self, n: int, smallest_arm: int | None, arms: int = 2) -> None:
        """Refuse a number of treated records that leaves no controls, or a call without one."""
        if self.treated_share is None and self.treated is None:
            raise OptionError(_HOW)
        if self.treated is not None and self.treated >= n:
            raise OptionError(f"treated must be below the number of records, {n}")

    def assignment(self, n: int) -> Assignment:
        """How treatment was assigned to n records."""
        if self.treated is not None:
            share = Fraction(self.treated, n)
            return Assignment(n, share.numerator, share.denominator, fixed=True)
        assert self.treated_share is not None
        share = Fraction(self.treated_share).limit_denominator()
        return Assignment(n, share.numerator, share.denominator, fixed=False)


@row("outcome")
def failure(rows: Block) -> BoolArray:
    """0 for a record whose outcome is 1, and 1 for others."""
    return ~(rows.outcome > 0.5)


@row("outcome", "treated")
def assignment_score(rows: Block, scores: tuple[int, int, int, int]) -> FloatArray:
    """What treated and control successes, treated and control failures add to the sum."""
    a, b, c, d = map(float, scores)
    of_success, of_failure = (np.where(rows.treated, *x) for x in ((a, b), (c, d)))
    return np.where(rows.outcome > 0.5, of_success, of_failure)


def budget_split(level: str, options: RandomisationOptions) -> dict[str, float]:
    """Split of the budget."""
    return {"sum": 0.75, "successes": 0.25}


def fit(
    curator: Curator, options: RandomisationOptions, estimand: str
) -> table_results.TableRelease:
    """Release both sums; the p-value is post-processing."""
    assignment = options.assignment(curator.n)
    cells = GroupIndex(failure(), 1)
    count = curator.sums("number of successes", None, COUNT, cells, share="successes")
    # noise of a sum that a record moves by 1, were it on the same grid
    statistic = RandomisationStatistic(assignment, 1.0 / curator.epsilon("sum"), count.scale)
    centre = statistic.centre(float(count))
    scores = assignment.scores(centre)
    within = Box(float(min(scores)), float(max(scores)), centre=0.0, whole=True)
    total = curator.sums("sum by assignment", assignment_score(scores), within, share="sum")
    own = {
        "assignment": assignment,
        "centre": centre,
        "total": float(total),
        "scale": total.scale,
        "successes": float(count),
        "count_scale": count.scale,
        "alternative": options.alternative,
    }
    return table_results.TableRelease(RandomisationTest, own)


TABLE = table_spec(
    name="randomisation_test",
    estimands=("ATE",),
    levels=("sample",),
    options=RandomisationOptions,
    budget_split=budget_split,
    fit=fit,
    uses_delta=uses_no_delta,
    uses_covariates=False,
    **_SAID["spec"],
)
"""It estimates no effect, so it is not among the methods of `dp_ate`."""


@dataclass(frozen=True, repr=False, kw_only=True)
class RandomisationTest(result_base.ResultBase):
    """A randomisation test of the sharp null hypothesis; made by `dp_randomisation_test`.

    Parameters
    ----------
    assignment
        How treatment was assigned, as declared in the call.
    centre
        Records whose treatment enters the sum: "successes", "failures", or "both".
    total, scale
        The released sum, in whole numbers, and the scale of the noise in it.
    successes, count_scale
        The released number of records whose outcome is 1, and the scale of its noise.
    alternative
        "two-sided", "greater" or "less".
    estimand, method, ...
        The fields of `ResultBase`.
    """

    _computed = ("p_value", "statistic", "estimate")
    _titled = "Randomisation test, {0._private}"
    _verb = "tested"
    _of_effects = False
    assignment: Assignment
    centre: str
    total: float
    scale: float
    successes: float
    count_scale: float
    alternative: str = "two-sided"

    def __post_init__(self) -> None:
        design = self.assignment
        scales = 0.0 < self.scale < math.inf and 0.0 < self.count_scale < math.inf
        numbers = abs(self.total) < math.inf and abs(self.successes) < math.inf
        known = 0 < design.r < design.s and 2 <= design.n <= 10**12 and self.centre in CENTRES
        if not (scales and numbers and known):
            raise ValueError("a test needs a release")

    @property
    def statistic(self) -> float:
        """The released sum, in standard deviations of its null distribution."""
        return self._statistic.of(self.total, self.successes)

    @cached_property
    def p_value(self) -> float:
        """P-value of the sharp null hypothesis that treatment has no effect on any unit.

        If it is true, the p-value is at most alpha with probability at most alpha, in samples of
        any size and with any epsilon.
        """
        return p_value(self._statistic, self.total, self.successes, self.alternative)

    @property
    def estimate(self) -> float:
        """The average effect that the sum gives, within the range that an effect can have."""
        design = self.assignment
        unit = design.s * (2.0 if self.centre == "both" else 1.0)
        share = design.r / design.s
        return min(max(self.total / unit / (design.n * share * (1.0 - share)), -1.0), 1.0)

    @property
    def _statistic(self) -> RandomisationStatistic:
        unit = self.scale / self.assignment.reach(self.centre)
        return RandomisationStatistic(self.assignment, unit, self.count_scale)

    def tidy(self) -> pd.DataFrame:
        """One row for the test, with the columns of `Result.tidy`; it has no interval."""
        row = {
            "term": self.treatment,
            "outcome": self.outcome,
            "estimand": self.estimand,
            "estimate": self.estimate,
            "statistic": self.statistic,
            "p_value": self.p_value,
            "method": self.method,
            "guarantee": self.guarantee.status,
            "alternative": self.alternative,
        }
        return export.frame_of([dict.fromkeys(export.TIDY, math.nan) | row])

    def _glance(self) -> dict[str, Any]:
        released = {"successes": self.successes, "successes_noise_scale": self.count_scale}
        return super()._glance() | released | {"p_value": self.p_value}

    def __repr__(self) -> str:
        return self._line(f"randomisation test, p {number(self.p_value, 4)}")

    # --- in words ---------------------------------------------------------------------------------

    @property
    def _null(self) -> str:
        return f"{self.treatment} has no effect on {self.outcome} in any unit"

    @property
    def _against(self) -> str:
        return str(_SAID[self.alternative])

    @property
    def _assigned(self) -> str:
        design = self.assignment
        if design.fixed:
            return f"{design.treated} of {design.n} records were treated"
        chance = number(design.r / design.s)
        return f"each of {design.n} records was treated with probability {chance}"

    @property
    def _subject(self) -> str:
        return f"the sharp null hypothesis that {self._null} (alternative: {self._against})"

    def _headed(self, conf_level: float) -> Mapping[str, str]:
        return {"Estimand": ""}

    def _headline(self, conf_level: float = 0.95, **asked: Any) -> wording.Lines:
        return [
            ("Sharp null hypothesis", self._null),
            ("Alternative", f"{self._against} ({self.alternative})"),
            ("p-value", wording.p_text(self.p_value)),
            ("Estimate", f"{number(self.estimate, 3)} (no interval: dp_ate has one)"),
        ]

    def _blocks(self, conf_level: float) -> Sequence[Pairs | Table]:
        successes = f"{self.successes:.0f} (privacy noise of scale {self.count_scale:.3g})"
        more = [("Assignment", self._assigned), ("Outcomes of 1", successes)]
        tested = Pairs((*self._headline()[:2], *more), "Hypothesis")
        row = ("", number(self.estimate, 3), f"{self.statistic:.3f}", wording.p_text(self.p_value))
        columns = ("", "estimate", "statistic", "p-value")
        return tested, Table("Randomisation test", columns, (row,), "lrrr")

    def _noted(self, conf_level: float) -> Sequence[str]:
        return _SAID["exact"].format(GAMMA), _SAID["estimate"], *self.notes

    def _findings(self, conf_level: float) -> Sequence[str]:
        evidence = "reject" if self.p_value < 1.0 - conf_level else "keep"
        return [
            f"Treatment was taken as randomised: {self._assigned}.",
            f"The randomisation test, which is exact for the assignment and the privacy noise, has "
            f"p {wording.p_words(self.p_value)}, {_SAID[evidence]}.",
        ]


class _OfTest(OfLedgers, OfSplits):
    pass


@public_call(
    _OfTest,
    options=False,
    after="alternative",
    conf_level=False,
    treated={"help": "number of treated records"},
    treated_share={"help": "probability with which each record was treated"},
)
def dp_randomisation_test(
    formula: str,
    data: Any,
    *,
    epsilon: float,
    treated_share: float | None = None,
    treated: int | None = None,
    alternative: str = "two-sided",
    **more: Unpack[_OfTest],
) -> RandomisationTest:
    r"""Test the sharp null hypothesis that a randomised treatment has no effect on any unit.

    The outcome is 0 or 1. The p-value is exact in samples of any size and with any epsilon: it
    uses only the distributions of the assignment and of the privacy noise, which are known.

    Parameters
    ----------
    formula, bounds
        As in :func:`dp_ate`. The outcome is 0 or 1 by its declaration: a boolean column, one with
        the bounds [0, 1], or a comparison, ``"I(weeks > 3) ~ t"``. No covariates are read.
    treated_share
        The probability with which each record was treated, independently of all others.
    treated
        Instead: the number of treated records, where it was fixed or is public. The test is then
        conditional on it, and more powerful where the outcome is neither rare nor frequent.
    alternative
        "two-sided": treatment changes the outcome of at least one unit; "greater": it increases
        it; "less": it decreases it.
    {shared}

    Returns
    -------
    RandomisationTest

    Notes
    -----
    Two numbers are released: how many outcomes are 1, with a quarter of epsilon, and the sum of
    (t - p)(y - c). Under the null hypothesis the distribution of the sum is known but for that
    number, over which the p-value is maximised within a confidence set
    (`dpeffects.inference.randomisation_distribution`). Several rows per person, weights, subsets
    and missing values are refused, because treatment was assigned to records: exclude rows
    beforehand, by a criterion that does not depend on private values.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> trial = dpe.load_data("lalonde")
    >>> found = dpe.dp_randomisation_test(
    ...     "I(earnings_1978 > 0) ~ treatment", trial, epsilon=1, treated=185, seed=1
    ... )
    >>> 0 < found.p_value < 1
    True

    In a shell::

        dpeffects randomisation-test "cured ~ treated" trial.csv --epsilon 1 \
            --bounds bounds.toml --treated 500
        dpeffects randomisation-test "cured ~ treated" trial.csv --epsilon 1 \
            --bounds bounds.toml --treated-share 0.5 --alternative greater
    """
    return released(TABLE, locals())
