"""The law of the noise of a draw along a ladder (claim 34), for forecasts.

Of a private ladder it is private too: an estimator makes a ladder from released numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.privacy.ladder import PARTS, TOP, Ladder, Pace

_FAR = 50.0
"""Stairs whose chances are below exp(-50) of the first one's are left out of a forecast."""


def stairs(ladder: Ladder) -> list[int]:
    """Widths of the stairs on one side of the value, in steps; all later ones are PARTS TOP."""
    first, rungs = ladder.pace.first, [*ladder.rungs, TOP]
    before = [0, *((PARTS - first) * rung for rung in ladder.rungs)]
    return [a + first * b for a, b in zip(before, rungs, strict=True)]


@dataclass(frozen=True)
class LadderNoise:
    """Noise of a draw: ends of its stairs on one side, and the chance of each on both sides.

    Examples
    --------
    A ladder that does not widen has about the noise of a Laplace variable:

    >>> noise = LadderNoise.of(np.full(2000, 1.0), 1e6, epsilon=1.0, smoothing=0.05)
    >>> 1.4 < noise.sd < 1.6
    True
    """

    ends: FloatArray
    chances: FloatArray

    @classmethod
    def of(cls, levels: FloatArray, span: float, epsilon: float, smoothing: float) -> LadderNoise:
        """Noise along a ladder of a value within an interval of length ``span``."""
        pace = Pace.of(epsilon, smoothing)
        ladder = Ladder.of(0.0, levels, (0.0, span), pace)
        count = math.ceil(-_FAR / math.log(pace.falls))
        widths = np.full(count, float(PARTS * TOP))
        known = stairs(ladder)[:count]
        widths[: len(known)] = known
        mass = widths * float(pace.falls) ** np.arange(count)
        return cls(np.cumsum(widths) * (span / (PARTS * TOP)), mass / mass.sum())

    @property
    def sd(self) -> float:
        """Standard deviation."""
        low = np.append(0.0, self.ends[:-1])
        mean_squares = (low**2 + low * self.ends + self.ends**2) / 3.0
        return math.sqrt(float(self.chances @ mean_squares))

    def half_width(self, level: float) -> float:
        """Half the length of the interval about 0 that has the noise with this chance."""
        return float(np.interp(level, [0.0, *np.cumsum(self.chances)], [0.0, *self.ends]))
