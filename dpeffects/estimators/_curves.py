"""Is the score curved where the formula has lines? A released check, column by column.

For every column that is not an indicator, the residual of treatment from its score is multiplied
with a square and with a cube of the column, both free of a line, and added up. Sums that noise
does not explain say that the log odds of treatment bend along that column. If outcomes bend along
it too, an adjustment by lines leaves confounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.estimators._moments import Models
from dpeffects.estimators.row import row
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Asked, Curator
from dpeffects.privacy.rows import Block
from dpeffects.privacy.sets import Cube

_SURE = 3.5
"""Standard deviations of its noise and sampling error that a sum has to exceed to be named."""
_VARIANCE = 0.3
"""Variance of the bent columns, each within [-1, 1]."""
_USUAL = 0.0016
"""Variance of confounding by curves over that of outcomes, for each unit of what covariates explain
of the outcome times the variance of the log odds along them."""
_OUTCOME = 0.5
"""How much of what covariates explain of the outcome may be by curves."""


class _Treatment(Protocol):
    """A score."""

    def of(self, rows: Block) -> FloatArray:
        """Chances of some rows to be in each arm, a column each."""

    @property
    def overlap(self) -> float:
        """Mean of e(1 - e)."""


@row("treated", "covariates")
def _bent(rows: Block, columns: IntArray, models: Models, score: _Treatment) -> FloatArray:
    """Residuals of treatment times squares, then cubes, of standardised columns, in [-1, 1]."""
    standard, k = models.standard, columns.size
    off = rows.treated - score.of(rows)[:, 0]
    out = np.empty((rows.size, 2 * k), order="F")
    for j, column in enumerate(columns):
        x = rows.covariates[:, standard.columns[column]] - standard.means[column]
        x = np.clip(x / standard.sds[column], -2.5, 2.5)
        out[:, j] = off * (x * x / 3.125 - 1.0)
        out[:, k + j] = off * ((x * x - 2.2) * x / 10.2)
    return out


@dataclass(frozen=True)
class Curves:
    """Columns along which the log odds surely bend, and the variance of the log odds by that.

    ``missed`` is the variance of curves that the check could not have told from noise and chance.
    """

    selection: float = 0.0
    bent: tuple[str, ...] = ()
    missed: float = 0.0

    def left_variance(self, outcome_variance: float, explained: float, lines: float) -> float:
        """Variance of the confounding by curves, where outcomes bend along the same columns.

        Curves that nobody saw are as strong as is usual beside the ``lines`` of the score, or as
        strong as the check could have missed, whichever is less.
        """
        unseen = min(_USUAL * lines, _OUTCOME * self.missed)
        return (_OUTCOME * self.selection + unseen) * explained * outcome_variance

    @property
    def caution(self) -> str:
        """What to do about it."""
        if not self.bent:
            return ""
        named, first = ", ".join(self.bent[:5]), self.bent[0]
        more = " and others" if len(self.bent) > 5 else ""
        spline = f"bs({first}, knots=[...], lower_bound=..., upper_bound=...)"
        write = spline if first.isidentifier() else "more knots"
        return (
            f"the log odds of treatment are not linear in {named}{more}: write {write} "
            "or products of terms, or the adjustment may miss confounding"
        )


@dataclass(frozen=True, eq=False)
class CurvesAsked:
    """The columns that may bend, with the score that they are held against."""

    columns: IntArray
    models: Models
    score: _Treatment
    share: str = "curves"

    @classmethod
    def of(cls, curator: Curator, models: Models, score: _Treatment) -> CurvesAsked:
        """All columns that are not indicators."""
        values = np.array(curator.values[:-1])[models.standard.columns]
        return cls(np.flatnonzero(values != 2), models, score)

    @property
    def asked(self) -> list[Asked]:
        """What the curator is asked for; nothing where there are indicators only."""
        if not self.columns.size:
            return []
        ends = np.ones(2 * self.columns.size)
        bent = _bent(self.columns, self.models, self.score)
        return [Asked("curves of the score", bent, Cube(-ends, ends), None, self.share)]

    def read(self, curator: Curator, *answers: Noisy) -> Curves:
        """What noise and chance do not explain."""
        if not answers:
            return Curves()
        (noisy,) = answers
        h, n = self.score.overlap, curator.n
        variance = (noisy.sd / n) ** 2 + h * _VARIANCE / n
        means = noisy.value / n
        sure = np.abs(means) > _SURE * math.sqrt(variance)
        selection = float((means[sure] ** 2).sum()) / (h**2 * _VARIANCE)
        bent = self.columns[sure.reshape(2, -1).any(axis=0)]
        names = (curator.names[k] for k in self.models.standard.columns[bent])
        missed = 2.0 * self.columns.size * variance / (h**2 * _VARIANCE)
        return Curves(selection, tuple(names), float(missed))
