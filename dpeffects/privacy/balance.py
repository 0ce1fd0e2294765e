"""Covariates by arm, as they are or weighted: what balance is made of."""

from __future__ import annotations

import math

import numpy as np

from dpeffects.privacy.erm import unit_rows
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.release import BoolArray, FloatArray, Holder
from dpeffects.privacy.weighting import Propensity, ratios

_BITS = 20
_WIDER = 1.0 + 1e-9


class BalanceReleases(Holder):
    """Releases about covariates in the two arms."""

    def arm_covariates(self, share: str) -> Noisy:
        """Release counts by arm and, of each covariate, sums and half squares (claim 43).

        A covariate is centred to u in [-1, 1], the intercept left out; its half square is
        (u^2 - 1/2) / 2, which costs a quarter of u itself and is needed less exactly. One row for
        each arm (treated, control): the count, m sums, m half squares.
        """
        u = self._centred()
        columns = [np.ones(self.n), *u, *((column**2 - 0.5) / 2.0 for column in u)]
        m = len(u)
        moves = (2.0 + 2.5 * m, max(4.0 * m, 2.0 + 2.125 * m))
        return self._arm_totals("covariates by arm", columns, moves, share)

    def weighted_covariates(self, model: Propensity, estimand: str, share: str) -> Noisy:
        """Release sums by arm of weights and of weighted covariates (claim 43).

        Weights are those of `ratios` over the largest that the model gives in the arm, so within
        [0, 1]. One row for each arm: the weights, then m sums.
        """
        weights = relative_weights(
            model, estimand, self._rows.treated, unit_rows(self._covariates())
        )
        u = self._centred()
        columns = [weights, *(weights * column for column in u)]
        m = len(u)
        moves = (2.0 + 2.0 * m, max(4.0 * m, 2.0 + 2.0 * m))
        return self._arm_totals("weighted covariates by arm", columns, moves, share)

    def _arm_totals(
        self, label: str, columns: list[FloatArray], moves: tuple[float, float], share: str
    ) -> Noisy:
        """Release sums by arm that a record moves by ``moves`` in L1 and in squared L2."""
        treated, size = self._rows.treated, len(columns)
        sums = np.empty((2, size), dtype=np.int64)
        for k, column in enumerate(columns):
            steps = np.rint(column * 2.0**_BITS).astype(np.int64)
            sums[:, k] = steps[treated].sum(), steps[~treated].sum()
        return self._releaser.release(
            label,
            sums,
            math.ceil(moves[0] * 2**_BITS * _WIDER) + size,
            2.0**-_BITS,
            l2=math.sqrt(moves[1]) * 2**_BITS * _WIDER + math.sqrt(size),
            share=share,
            claim=43,
        )

    def _centred(self) -> list[FloatArray]:
        """Columns of the covariates in [-1, 1], without the intercept."""
        return [2.0 * np.clip(column, 0.0, 1.0) - 1.0 for column in self._covariates()[:, 1:].T]


def relative_weights(
    model: Propensity, estimand: str, treated: BoolArray, rows: FloatArray
) -> FloatArray:
    """Weights over the largest that any record of the arm could have: within [0, 1]."""
    tops = [float(w.max()) for w in ratios(estimand, np.array([model.low, model.high]))]
    a, b = ratios(estimand, model.scores(rows))
    scaled = np.where(treated, a / max(tops[0], 1e-300), b / max(tops[1], 1e-300))
    return np.clip(scaled, 0.0, 1.0)
