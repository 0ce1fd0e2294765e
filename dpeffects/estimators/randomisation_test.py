"""A randomisation test of no effect on anybody, for an outcome of 0 and 1 in a trial.

1. The number of successes (share "successes").
2. The sum of (t - p)(y - c) over the records (share "sum"), p being the chance or the share of
   treatment, and c 0, 1/2 or 1, as the first release makes best.

Both are sums of whole numbers with discrete Laplace noise, so the law of what is released under the
null hypothesis is known exactly, but for the number of successes; `dpeffects.inference.
randomisation` has the p-value. Two sums are better than four counts by arm and outcome: a record
that moves from one of these to another moves two of them, so that their noise is twice that of the
sum, and what is needed of the number of successes is no more than about how many they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray
from dpeffects.errors import OptionError
from dpeffects.estimators._checks import check_choice, check_whole, is_number
from dpeffects.estimators.spec import Facts, MethodSpec, Options
from dpeffects.inference.hypotheses import ALTERNATIVES
from dpeffects.inference.randomisation import Assignment, Noise, Statistic
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.rows import Block, Cells
from dpeffects.privacy.sets import COUNT, Box
from dpeffects.results.randomisation import ReleasedTest

_FINEST = 10**6
"""Largest denominator of a chance of treatment."""
_HOW = (
    "say how treatment was assigned: treated_share=0.5 if everybody was treated with that chance, "
    "or treated=500 if so many were"
)


@dataclass(frozen=True)
class RandomisationOptions(Options):
    """``treated_share``: the chance with which each record was treated, independently of all
    others; ``treated``: instead, how many records were treated, where their number was fixed or is
    public; ``alternative``: "two-sided", "greater" or "less".
    """

    treated_share: float | None = None
    treated: int | None = None
    alternative: str = "two-sided"

    def __post_init__(self) -> None:
        check_choice("alternative", self.alternative, ALTERNATIVES)
        if not (self.treated_share is None or self.treated is None):
            raise OptionError(_HOW)
        share = self.treated_share
        if share is not None and not (is_number(share) and 1e-6 <= share <= 1.0 - 1e-6):
            raise OptionError(f"treated_share must be between 0 and 1, got {share!r}")
        if self.treated is not None:
            check_whole("treated", self.treated, 1)

    def resolve(self, facts: Facts) -> RandomisationOptions:
        """Refuse an outcome that is not 0 and 1 by its declaration."""
        if not facts.indicator:
            raise OptionError(
                "a randomisation test is for an outcome of 0 and 1 by its declaration: a boolean "
                'column, bounds={"y": [0, 1]}, or a comparison such as I(y > 0.5), with bounds '
                "for y"
            )
        return self

    def check(self, n: int, smallest_arm: int | None, arms: int = 2) -> None:
        """Refuse a number of treated records that leaves no controls, or none that is said."""
        if self.treated_share is None and self.treated is None:
            raise OptionError(_HOW)
        if self.treated is not None and self.treated >= n:
            raise OptionError(f"treated must be less than the number of records, {n}")

    def assignment(self, n: int) -> Assignment:
        """How treatment was assigned to n records."""
        if self.treated is not None:
            share = Fraction(self.treated, n)
            return Assignment(n, share.numerator, share.denominator, fixed=True)
        assert self.treated_share is not None
        share = Fraction(self.treated_share).limit_denominator(_FINEST)
        return Assignment(n, share.numerator, share.denominator, fixed=False)


@dataclass(frozen=True)
class Failure:
    """0 for a record whose outcome is 1, and 1 for others."""

    reads: ClassVar[tuple[str, ...]] = ("outcome",)

    def __call__(self, rows: Block) -> BoolArray:
        """Cells of some rows."""
        return ~(rows.outcome > 0.5)


@dataclass(frozen=True)
class AssignmentScore:
    """What treated and control successes, treated and control failures add to the sum."""

    scores: tuple[int, int, int, int]
    reads: ClassVar[tuple[str, ...]] = ("outcome", "treated")

    def __call__(self, rows: Block) -> FloatArray:
        """Scores of some rows."""
        a, b, c, d = map(float, self.scores)
        of_success, of_failure = (np.where(rows.treated, *x) for x in ((a, b), (c, d)))
        return np.where(rows.outcome > 0.5, of_success, of_failure)


def shares(level: str, options: RandomisationOptions) -> dict[str, float]:
    """Split of the budget."""
    return {"sum": 0.75, "successes": 0.25}


def fit(curator: Curator, options: RandomisationOptions, estimand: str) -> ReleasedTest:
    """Release both sums; the p-value is post-processing."""
    assignment = options.assignment(curator.n)
    cells = Cells(Failure(), 1)
    count = curator.sums("number of successes", None, COUNT, cells, share="successes")
    # noise of a sum that a record moves by 1, were it on the same grid
    noise = Noise(1.0 / curator.epsilon("sum"), count.scale)
    centre = Statistic(assignment, noise).centre(float(count))
    scores = assignment.scores(centre)
    within = Box(float(min(scores)), float(max(scores)), centre=0.0, whole=True)
    total = curator.sums("sum by assignment", AssignmentScore(scores), within, share="sum")
    return ReleasedTest(
        assignment=assignment,
        centre=centre,
        total=float(total),
        scale=total.scale,
        successes=float(count),
        count_scale=count.scale,
        alternative=options.alternative,
    )


TABLE = MethodSpec(
    name="randomisation_test",
    title="randomisation test",
    about=(
        "dp_randomisation_test: two noisy sums, and the p-value of no effect on anybody, exact in "
        "samples of any size"
    ),
    assumes="treatment was randomised as the call says",
    estimands=("ATE",),
    levels=("sample",),
    options=RandomisationOptions,
    shares=shares,
    fit=fit,
    uses_covariates=False,
    tabled=True,
    variance_shares=(),
    citation=(
        "Berger and Boos (1994), P values maximized over a confidence set for the nuisance "
        "parameter, Journal of the American Statistical Association 89."
    ),
)
"""It estimates no effect, so it is not among the methods of `dp_ate`."""
