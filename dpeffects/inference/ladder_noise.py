"""The distribution of the noise of a draw along a ladder (claim 34), for forecasts.

Of a private ladder it is private too: an estimator makes a ladder from released numbers.
"""

from __future__ import annotations

import math

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.privacy.ladder import PARTS, TOP, Ladder, LadderPace

_FAR = 50.0
"""Stairs whose chances are below exp(-50) of the first one's are left out of a forecast."""


def stairs(ladder: Ladder) -> list[int]:
    """Widths of the stairs on one side of the value, in steps; all later ones are PARTS TOP."""
    first, rungs = ladder.pace.first, [*ladder.rungs, TOP]
    before = [0, *((PARTS - first) * rung for rung in ladder.rungs)]
    return [a + first * b for a, b in zip(before, rungs, strict=True)]


def along_ladder(
    levels: FloatArray, span: float, epsilon: float, smoothing: float
) -> tuple[FloatArray, FloatArray]:
    """The distribution of noise along a ladder of a value within an interval of length ``span``.

    It is even on stairs, the same on both sides: how far each reaches, and the chance of both.
    """
    pace = LadderPace.of(epsilon, smoothing)
    ladder = Ladder.of(0.0, levels, (0.0, span), pace)
    count = math.ceil(-_FAR / math.log(pace.falls))
    widths = np.full(count, float(PARTS * TOP))
    known = stairs(ladder)[:count]
    widths[: len(known)] = known
    mass = widths * float(pace.falls) ** np.arange(count)
    return np.cumsum(widths) * (span / (PARTS * TOP)), mass / mass.sum()


def half_width(ends: FloatArray, chances: FloatArray, level: float = 0.95) -> float:
    """Half the length of the interval about 0 that has the noise with this chance.

    Examples
    --------
    A ladder that does not widen has about the noise of a Laplace variable:

    >>> dist = along_ladder(np.full(2000, 1.0), 1e6, epsilon=1.0, smoothing=0.05)
    >>> 2.9 < half_width(*dist) < 3.3
    True
    """
    return float(np.interp(level, [0.0, *np.cumsum(chances)], [0.0, *ends]))
