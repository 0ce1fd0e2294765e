"""RateEffects: rates of two arms per person-time, their difference and their ratio."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dpeffects.inference import intervals as inference
from dpeffects.inference import scales
from dpeffects.inference.estimate import Means, Unavailable
from dpeffects.inference.intervals import NO_TEST, Interval
from dpeffects.inference.rates import RateTable
from dpeffects.results.tabled import TableEffects, Term


@dataclass(frozen=True)
class Ratio(Term):
    """A ratio of two numbers: its interval is what a test of it does not reject.

    ``released`` is the difference of the two.
    """

    means: Means = field(kw_only=True)

    @property
    def estimate(self) -> float:
        """The first over the second; infinite or NaN where that is not above zero."""
        one, zero = max(self.means.treated, 0.0), self.means.control
        return one / zero if zero > 0.0 else math.inf if one > 0.0 else math.nan

    @property
    def std_error(self) -> float | Unavailable:
        """Its standard error, by the delta method."""
        if not math.isfinite(self.estimate):
            return Unavailable("the second number is not above zero")
        found = inference.std_error(self.means.combined(1.0, -self.estimate))
        return found if isinstance(found, Unavailable) else found / self.means.control

    def row(self, conf_level: float = 0.95) -> dict[str, Any]:
        """The number as a row of `tidy`; it is mostly noise where one of the two is."""
        noise = max(scales.mean_noise(self.means, treated) for treated in (True, False))
        return super().row(conf_level) | {"noise_ratio": noise}

    def conf_int(self, conf_level: float = 0.95) -> Interval | Unavailable:
        """Its confidence interval; it ends in infinity where the second may be zero."""
        return scales.ratio(self.means, conf_level).interval

    @property
    def p_value(self) -> float | Unavailable:
        """Two-sided p-value of a ratio of 1, by the test that the interval inverts."""
        return Unavailable(NO_TEST) if self.released.associated else scales.no_effect(self.means)


@dataclass(frozen=True, repr=False, kw_only=True)
class RateEffects(TableEffects, words="about_rates"):
    """Rates of events per person-time of two arms, from noisy sums of events and time.

    Parameters
    ----------
    table
        The released sums.
    per
        The time that rates are given for: 1000 for events per 1,000 person-years.
    offset
        The column of times.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> trial = dpe.simulate("rates", n=5000, seed=1, randomised=True)
    >>> fit = dpe.dp_rate(
    ...     "events ~ treatment", trial, offset="years", epsilon=1, design="randomised", seed=1
    ... )
    >>> fit.tidy()["term"].tolist()
    ['rate_treated', 'rate_control', 'rate_difference', 'rate_ratio']
    """

    table: RateTable  # type: ignore[assignment]
    per: float = 1.0
    offset: str = ""

    @cached_property
    def _means(self) -> Means:
        return self.table.means(self.per)

    def terms(self) -> Sequence[Term]:
        """Both rates, their difference and their ratio."""
        means = self._means
        rates = [
            Term(f"rate_{arm}", self._based(scales.of_mean(means, k == 0)), tested=False)
            for k, arm in enumerate(("treated", "control"))
        ]
        difference = self._based(means.combined(1.0, -1.0))
        ratio = Ratio("rate_ratio", difference, means=means)
        return [*rates, Term("rate_difference", difference), ratio]

    def __repr__(self) -> str:
        return self._head(f"of the rate {self.outcome}")
