"""One draw along a ladder: noise for a value that few records can move far, but not yet (claim 34).

A ladder bounds, for each k, how far one record can move the value on any data that are k records
away. The chance of an output falls by the same factor with each step of the ladder between it and
the value. All numbers are whole or rational, so the draw is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dpeffects.arrays import FloatArray, Interval
from dpeffects.errors import OptionError

TOP = 2**40
"""Units of a ladder from one end of the value's interval to the other: far finer than any noise."""
PARTS = 16
"""Steps of the output in a unit of the ladder; of the first stair, some of them
(`LadderPace.first`)."""
RUNGS = 2**14
"""Rungs that are computed. From there on a record may move the value to either end."""
_MOST = 64.0
"""A larger epsilon is not used up: chances fall by 2^-50 at most, which keeps them rational."""


class LadderPace(NamedTuple):
    """How fast chances fall, and how fast a ladder may widen: public, and rational.

    Together they cost -ln(``falls``) + ln(``widens``) <= epsilon. ``first`` of `PARTS` steps of a
    rung are as likely as the rung's beginning, the others as the next one's: the part that makes
    the second moment of a staircase least (Geng and Viswanath 2016).
    """

    falls: Fraction
    widens: Fraction
    first: int

    @classmethod
    def of(cls, epsilon: float, smoothing: float) -> LadderPace:
        """The pace for a price, of which ``smoothing`` pays for the widening."""
        if not 0.0 < smoothing < 0.5:
            raise OptionError("the smoothing of a ladder must be between 0 and a half")
        price = Fraction(min(epsilon, _MOST))
        beta = Fraction(smoothing) * price
        rest = float(price - beta)
        falls = Fraction(math.exp(-rest)) + Fraction(1, 2**50)  # above exp(-rest), exactly
        widens = Fraction(math.floor((1 + beta + beta**2 / 2) * 2**64), 2**64)  # below exp(beta)
        if falls * widens >= 1:
            raise OptionError("an epsilon too small for a draw along a ladder")
        return cls(falls, widens, max(1, round(PARTS / (1.0 + math.exp(rest / 2.0)))))


@dataclass(frozen=True)
class Ladder:
    """A private value within ``ends`` and its private ladder, on a public grid.

    The value is ``place`` + 1/2 steps above the lower end; ``rungs`` are in units of `PARTS` steps,
    and `TOP` after the last.
    """

    place: int
    rungs: list[int]
    pace: LadderPace
    ends: Interval

    @classmethod
    def of(
        cls, value: Fraction | float, levels: FloatArray, ends: Interval, pace: LadderPace
    ) -> Ladder:
        """Put a value on the grid, and make a ladder that widens no faster than its pace.

        ``levels`` are any numbers, in the units of the value; what is no number is the interval.
        """
        low, high = map(Fraction, ends)
        if low >= high:
            raise OptionError("a ladder needs an interval for its value")
        inside = min(max(Fraction(value), low), high)
        place = math.floor((inside - low) / (high - low) * TOP * PARTS)
        known = np.nan_to_num(levels / float(high - low), nan=1.0, posinf=1.0, neginf=1.0)
        rungs = np.minimum(np.floor(np.clip(known, 0.0, 1.0) * TOP) + 2, TOP).astype(int).tolist()
        top, bottom = pace.widens.as_integer_ratio()
        above = TOP
        for k in range(len(rungs) - 1, -1, -1):
            above = rungs[k] = max(rungs[k], -(-above * bottom // top))
        return cls(place, rungs, pace, ends)

    def width(self, j: int) -> int:
        """Rung j, in its units."""
        return self.rungs[j] if j < len(self.rungs) else TOP

    def draw(self, below: Callable[[int], int]) -> int:
        """Draw a step of the grid; ``below(n)`` is uniform from 0 to n - 1."""
        (q, d), (up, down) = (x.as_integer_ratio() for x in self.pace[:2])
        first, j = self.pace.first, 0
        while below(d * down) < q * up:  # width(j + 1) is at most widens width(j): go on, or anew
            j = j + 1 if below(up * self.width(j)) < down * self.width(j + 1) else 0
        width = self.width(j)
        if below(first * d + (PARTS - first) * q) < first * d:
            x = below(first * width)
        else:
            x = first * width + below((PARTS - first) * width)
        i = PARTS * sum(map(self.width, range(j))) + x
        return self.place + 1 + i if below(2) else self.place - i

    def at(self, step: int) -> float:
        """A step of the grid in the units of the value."""
        low, high = map(Fraction, self.ends)
        return float(low + (high - low) * step / (TOP * PARTS))
