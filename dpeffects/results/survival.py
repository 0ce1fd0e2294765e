"""SurvivalEffects: life tables of two arms, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.results.tabled import TableEffects, Term


@dataclass(frozen=True, repr=False, kw_only=True)
class SurvivalEffects(TableEffects):
    """Survival of two arms up to a horizon, from one noisy life table.

    Parameters
    ----------
    edges
        Ends of the intervals of the life table, the first of them 0.
    """

    edges: tuple[float, ...]

    def terms(self) -> Sequence[Term]:
        """Differences and ratios at the horizon."""
        return [self.term("risk_difference", _risk_difference)]


def _risk_difference(shares: FloatArray) -> FloatArray:
    bins = (shares.shape[1] - 1) // 2
    left = np.ones(2)
    there = np.ones(2)
    for b in range(bins):
        lost, died = shares[:, 2 * b], shares[:, 2 * b + 1]
        at_risk = np.maximum(there - lost / 2.0, 1e-9)
        left = left * np.clip(1.0 - died / at_risk, 0.0, 1.0)
        there = there - lost - died
    return np.array([left[1] - left[0]])
