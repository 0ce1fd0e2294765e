"""RandomisationTest: two released sums, and the p-value of no effect on anybody."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dpeffects.inference.randomisation import CENTRES, Assignment, Noise, Statistic, p_value
from dpeffects.results.export import TIDY, frame_of
from dpeffects.results.numbers import number
from dpeffects.results.record import Record

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class ReleasedTest:
    """What a randomisation test releases; the fields of `RandomisationTest`."""

    assignment: Assignment
    centre: str
    total: float
    scale: float
    successes: float
    count_scale: float
    alternative: str


@dataclass(frozen=True, repr=False, kw_only=True)
class RandomisationTest(Record, words="about_randomisation"):
    """A randomisation test of the sharp null hypothesis; made by `dp_randomisation_test`.

    Parameters
    ----------
    assignment
        How treatment was assigned, as the call says.
    centre
        Whose treatment counts in the sum: of "successes", "failures", or "both".
    total, scale
        The released sum, in whole numbers, and the scale of the noise in it.
    successes, count_scale
        The released number of records whose outcome is 1, and the scale of its noise.
    alternative
        "two-sided", "greater" or "less".
    estimand, method, ...
        The fields of `Record`.
    """

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
        """The released sum, in standard deviations of what it is without an effect."""
        return self._statistic.of(self.total, self.successes)

    @cached_property
    def p_value(self) -> float:
        """P-value of the hypothesis that treatment changes nobody's outcome.

        It is at most alpha with a chance of at most alpha where that is true, in samples of any
        size and with any epsilon.
        """
        return p_value(self._statistic, self.total, self.successes, self.alternative)

    @property
    def estimate(self) -> float:
        """The sum as an average effect: unbiased, within the range that an effect can have."""
        design = self.assignment
        unit = design.s * (2.0 if self.centre == "both" else 1.0)
        share = design.r / design.s
        return min(max(self.total / unit / (design.n * share * (1.0 - share)), -1.0), 1.0)

    @property
    def _statistic(self) -> Statistic:
        unit = self.scale / self.assignment.reach(self.centre)
        return Statistic(self.assignment, Noise(unit, self.count_scale))

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
        return frame_of([dict.fromkeys(TIDY, math.nan) | row])

    def _glance(self) -> dict[str, Any]:
        released = {"successes": self.successes, "successes_noise_scale": self.count_scale}
        return super()._glance() | released | {"p_value": self.p_value}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        found = {"p_value": self.p_value, "statistic": self.statistic, "estimate": self.estimate}
        return found | super().to_dict()

    def __repr__(self) -> str:
        return (
            f"<dpeffects randomisation test, p {number(self.p_value, 4)}, "
            f"{self.guarantee.line(self.n)}>"
        )
