"""Where the bins of an outcome are: first on a public grid, then where the records are.

Declared ranges are wide and outcomes skewed: costs up to a million have a median of 2,000. So a
small part of the budget counts records of each arm on a grid that has no scale of its own, twenty
halvings of the range towards zero; the bins of the table follow from these counts, at no cost: most
of them around the quantiles that are asked for. A record is in one bin either way.

A bin has its upper end: (a, b]. Zero and both ends of the range have bins of their own, because
many outcomes have a lump of records there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray

_OCTAVES, _PARTS, _EVEN = 20, 4, 32
"""Halvings of the range, bins of each, and how many bins the whole range has at least."""
_AROUND = 4.0
"""Bins of one width around the quantiles asked for, where other places have one."""
_ANYWHERE = 0.1
"""Share of bins that go to all places with records alike, and to all places."""
FEWEST, MOST = 28, 64
"""Bins of a table."""
_LEAST = 2.0**-1022
"""The smallest number above zero that all machines have."""


@dataclass(frozen=True)
class OutcomeRange:
    """The range of an outcome; ``whole`` says that it has whole numbers only."""

    lower: float
    upper: float
    whole: bool = False

    @property
    def anchor(self) -> float:
        """Zero, or the end of the range that is nearest to it."""
        return min(max(0.0, self.lower), self.upper)

    @property
    def fixed(self) -> FloatArray:
        """Ends of bins that every table has: of those at zero and at both ends of the range."""
        last = self.upper - 1.0 if self.whole else np.nextafter(self.upper, -np.inf)
        inside = [-1.0 if self.whole else -_LEAST, 0.0] if self.lower < 0.0 < self.upper else []
        return np.array([self.lower, *inside, last])

    def grid(self) -> FloatArray:
        """Ends of the bins of the first stage, but for the last, which is the upper end."""
        full = max(self.upper - self.anchor, self.anchor - self.lower)
        parts = [max(_PARTS, _EVEN >> k + 1) for k in range(_OCTAVES)]
        steps = [2.0 ** -(k + 1) * (1.0 + j / m) for k, m in enumerate(parts) for j in range(m)]
        away = full * np.array(steps)
        return self.with_fixed(np.concatenate([self.anchor - away, self.anchor + away]))

    def each(self) -> FloatArray:
        """Ends of bins of one whole number each, but for the last."""
        return np.arange(self.lower, self.upper)

    def with_fixed(self, ends: FloatArray) -> FloatArray:
        """Ends of bins within the range, in order, with those that every table has."""
        ends = np.floor(ends) if self.whole else ends
        fixed = self.fixed
        ends = np.unique(np.concatenate([ends, fixed]))
        return ends[(ends >= fixed[0]) & (ends <= fixed[-1])]

    def is_point(self, ends: FloatArray, single: bool = True) -> BoolArray:
        """Which of the bins between some ends hold one value; ``single``: whole numbers do too."""
        widths = np.diff(np.concatenate([[self.lower], ends, [self.upper]]))
        least = 1.5 if single and self.whole else 1e-12 * (self.upper - self.lower)
        return np.asarray(widths <= least)


def number_of_bins(smallest_arm: float, noise_variance: float) -> int:
    """More bins where noise is small beside the sampling error of a count."""
    return int(np.clip(0.1 * smallest_arm / max(noise_variance, 1e-9), FEWEST, MOST))


def place(
    scale: OutcomeRange,
    ends: FloatArray,
    plausible: FloatArray,
    quantiles: Sequence[float],
    bins: int,
    apart: float = 0.02,
) -> FloatArray:
    """Ends of the bins of a table, from counts by arm on the grid that are not negative.

    Most bins are where a quantile that is asked for may be: within three standard errors and
    ``apart`` of where the counts have it.
    """
    points, cells = scale.is_point(ends, single=False), len(ends) + 1
    weight = np.zeros(cells)
    for counts in plausible:
        size = max(float(counts.sum()), 1.0)
        shares = counts / size if counts.sum() > 0.0 else np.full(cells, 1.0 / cells)
        up = np.cumsum(shares)
        near = np.zeros(cells, bool)
        for p in quantiles:
            reach = apart + 3.0 * np.sqrt(p * (1.0 - p) / size)
            near |= (up >= p - reach) & (up - shares <= p + reach)
        wanted = np.where(points, 0.0, shares * np.where(near, _AROUND, 1.0))
        weight += wanted / max(float(wanted.sum()), 1e-12)
    for where in (~points & (plausible.sum(axis=0) > 0.0), ~points):
        weight = weight / max(float(weight.sum()), 1e-12) + _ANYWHERE * where / max(where.sum(), 1)
    along = np.concatenate([[0.0], np.cumsum(weight)])
    edges = np.concatenate([[scale.lower], ends, [scale.upper]])
    levels = np.arange(1, bins) / bins * along[-1]
    found = np.interp(levels, along, edges)
    if scale.whole:  # a whole number that has a bin of its own has both ends
        above = np.minimum(np.searchsorted(edges, found), cells)
        found = np.append(found, edges[above][scale.is_point(ends)[above - 1]])
    return scale.with_fixed(found)
