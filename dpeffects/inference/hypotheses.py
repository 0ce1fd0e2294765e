"""Hypotheses on an effect, their p-values, and the intervals that go with them.

What is to be shown is that an effect is not a number, is more than one, is less than one, or lies
between two (equivalence, by two one-sided tests: Schuirmann 1987). Non-inferiority is the second,
against a number below zero. A p-value is below alpha exactly where the interval that goes with it
lies in what is to be shown: the interval at 1 - alpha for a two-sided test, that at 1 - 2 alpha for
equivalence, and one side of that for a one-sided test.

A test asks its `Evidence` for the p-values of the two one-sided tests and for intervals, nothing
else, so an effect on any scale can be tested that has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from numbers import Real
from typing import Any

from dpeffects.errors import OptionError, not_among
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import Estimate, Unavailable

ALTERNATIVES = ("two-sided", "greater", "less")
EQUIVALENCE = "equivalence"
_BOTH = "between {0.low:.6g} and {0.high:.6g}", "{0.low:.6g} or less, or {0.high:.6g} or more"
_SAID = {
    "two-sided": ("not {0.null:.6g}", "{0.null:.6g}"),
    "greater": ("more than {0.low:.6g}", "{0.low:.6g} or less"),
    "less": ("less than {0.high:.6g}", "{0.high:.6g} or more"),
    EQUIVALENCE: _BOTH,
}
"""What is to be shown, and what is tested, by alternative."""


@dataclass(frozen=True)
class Evidence:
    """What tests need to know of an effect.

    ``above`` gives the p-value of the hypothesis that the effect is at most a number, ``below``
    that it is at least one, ``interval`` an interval by its level; ``possible`` is the range that
    the effect can have.
    """

    point: float
    above: Callable[[float], float]
    below: Callable[[float], float]
    interval: Callable[[float], inference.Interval]
    possible: tuple[float, float] = (-math.inf, math.inf)

    @classmethod
    def of(cls, estimate: Estimate) -> Evidence | Unavailable:
        """That of an estimate, by the distribution of `interval`; an association is no test."""
        if estimate.associated:
            return Unavailable(inference.NO_TEST)
        dist = inference.distribution_of(estimate)
        if isinstance(dist, Unavailable):
            return dist

        @cache
        def at_level(conf_level: float) -> inference.Interval:
            return inference.around(
                estimate, dist.upper_point((1.0 - conf_level) / 2.0), conf_level
            )

        # an interval is cut to what is possible: numbers outside are ruled out, whatever came out
        within, point = estimate.possible or (-math.inf, math.inf), estimate.point
        above, below = (partial(_one_sided, dist, within, point, sign) for sign in (1.0, -1.0))
        return cls(point, above, below, at_level, within)


def _one_sided(
    dist: inference.ErrorDistribution,
    within: tuple[float, float],
    point: float,
    sign: float,
    null: float,
) -> float:
    """P-value of an effect that is at most ``null``; at least, where ``sign`` is -1."""
    if not within[0] <= null <= within[1]:
        return float(sign * (null - within[0]) > 0.0)
    distance = sign * (point - null)
    if dist.unit == 0.0:
        return 0.0 if distance > 0.0 else 1.0
    tail = float(dist.tail(abs(distance)))
    return tail if distance >= 0.0 else 1.0 - tail


@dataclass(frozen=True)
class Hypothesis:
    """What is to be shown of an effect: that it is not ``null``, or lies between two numbers.

    ``alternative`` is one of `ALTERNATIVES`, or "equivalence". "two-sided" is about ``null``, the
    others are about ``low`` and ``high``, one of which is infinite where they are one-sided.
    ``margin`` is how far from ``null`` these are, where that was asked for.

    Examples
    --------
    >>> Hypothesis.asked(alternative="greater", margin=0.1).claim()
    'the effect is more than -0.1'
    """

    alternative: str
    null: float
    low: float
    high: float
    margin: float | None = None

    @classmethod
    def asked(
        cls,
        null: float = 0.0,
        alternative: str = "two-sided",
        equivalence: tuple[float, float] | None = None,
        margin: float | None = None,
    ) -> Hypothesis:
        """Read the arguments of a test; refuses those that do not go together."""
        null = _number("null", null)
        if not (isinstance(alternative, str) and alternative in ALTERNATIVES):
            hint = ". For equivalence write equivalence=(low, high)"
            raise OptionError(not_among("alternative", alternative, ALTERNATIVES) + hint)
        if equivalence is not None:
            if margin is not None or null or alternative != "two-sided":
                raise OptionError(
                    "equivalence=(low, high) cannot be combined with null, alternative or margin"
                )
            pair = isinstance(equivalence, tuple | list) and len(equivalence) == 2
            low, high = (_number("equivalence", x) for x in equivalence) if pair else (0.0, 0.0)
            if not low < high:
                raise OptionError(
                    f"equivalence must be two numbers (low, high), got {equivalence!r}"
                )
            return cls(EQUIVALENCE, (low + high) / 2.0, low, high)
        if margin is None:
            low = null if alternative == "greater" else -math.inf
            return cls(alternative, null, low, null if alternative == "less" else math.inf)
        if not (margin := _number("margin", margin)) > 0.0:
            raise OptionError(f"margin must be positive, got {margin!r}")
        if alternative == "greater":
            return cls(alternative, null, null - margin, math.inf, margin)
        if alternative == "less":
            return cls(alternative, null, -math.inf, null + margin, margin)
        return cls(EQUIVALENCE, null, null - margin, null + margin, margin)

    def p_value(self, evidence: Evidence) -> float:
        """The p-value; for equivalence the larger of two one-sided ones."""
        if self.alternative == "two-sided":
            return min(1.0, 2.0 * min(evidence.above(self.null), evidence.below(self.null)))
        lower = evidence.above(self.low) if math.isfinite(self.low) else 0.0
        return max(lower, evidence.below(self.high) if math.isfinite(self.high) else 0.0)

    def conf_int(self, evidence: Evidence, conf_level: float) -> inference.Interval:
        """The interval that goes with the test at 1 - conf_level."""
        if self.alternative == "two-sided":
            return evidence.interval(conf_level)
        low, high = evidence.interval(2.0 * conf_level - 1.0)
        low = evidence.possible[0] if self.low == -math.inf else low
        high = evidence.possible[1] if self.high == math.inf else high
        return inference.Interval(low, high, self.interval_level(conf_level))

    def interval_level(self, conf_level: float) -> float:
        """The level of the interval that goes with the test at 1 - conf_level."""
        return 2.0 * conf_level - 1.0 if self.alternative == EQUIVALENCE else conf_level

    def equivalence_bound(self, evidence: Evidence, conf_level: float) -> float:
        """The smallest margin around ``null`` for which equivalence would be shown."""
        low, high = evidence.interval(2.0 * conf_level - 1.0)
        return max(self.null - low, high - self.null)

    def claim(self, subject: str = "effect", *, denied: bool = False) -> str:
        """What is to be shown, in words, or where ``denied`` the hypothesis that is tested."""
        return f"the {subject} is {_SAID[self.alternative][denied].format(self)}"

    def name(self) -> str:
        """What tests of this kind are called."""
        if self.alternative == EQUIVALENCE:
            return "equivalence, by two one-sided tests"
        if self.margin is not None:
            return f"non-inferiority, with a margin of {self.margin:.6g}"
        return "two-sided" if self.alternative == "two-sided" else f"one-sided ({self.alternative})"


def check_test_level(conf_level: float) -> float:
    """Return a level of confidence at which one-sided tests have an interval: above one half."""
    if not (level := inference.check_conf_level(conf_level)) > 0.5:
        raise OptionError(f"a test needs a conf_level above 0.5, got {conf_level!r}")
    return level


def _number(name: str, value: Any) -> float:
    known = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not known:
        raise OptionError(f"{name} is a finite number, got {value!r}")
    return float(value)
