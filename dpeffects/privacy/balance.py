"""Covariates by arm, as they are or weighted: what balance is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np

from dpeffects.privacy.erm import unit_rows
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.release import BoolArray, FloatArray, Holder
from dpeffects.privacy.rows import Block, Totals
from dpeffects.privacy.weighting import Propensity, ratios

_BITS = 20
_WIDER = 1.0 + 1e-9

Columns = Callable[[Block], Iterable[FloatArray]]
"""From some rows to what is summed by arm, one column after the other."""


class BalanceReleases(Holder):
    """Releases about covariates in the two arms."""

    def arm_covariates(self, share: str) -> Noisy:
        """Release counts by arm and, of each covariate, sums and half squares (claim 43).

        A covariate is centred to u in [-1, 1], the intercept left out; its half square is
        (u^2 - 1/2) / 2, which costs a quarter of u itself and is needed less exactly. One row for
        each arm (treated, control): the count, m sums, m half squares.
        """
        m = self.width - 1
        moves = (2.0 + 2.5 * m, max(4.0 * m, 2.0 + 2.125 * m))
        return self._arm_totals("covariates by arm", _plain_columns, moves, share)

    def weighted_covariates(self, model: Propensity, estimand: str, share: str) -> Noisy:
        """Release sums by arm of weights and of weighted covariates (claim 43).

        Weights are those of `ratios` over the largest that the model gives in the arm, so within
        [0, 1]. One row for each arm: the weights, then m sums.
        """
        m = self.width - 1
        moves = (2.0 + 2.0 * m, max(4.0 * m, 2.0 + 2.0 * m))
        columns = partial(_weighted_columns, model=model, estimand=estimand)
        return self._arm_totals("weighted covariates by arm", columns, moves, share)

    def _arm_totals(
        self, label: str, columns: Columns, moves: tuple[float, float], share: str
    ) -> Noisy:
        """Release sums by arm that a record moves by ``moves`` in L1 and in squared L2."""
        (sums,) = self._source.fold(partial(_arm_sums, columns=columns), "covariates")
        size = sums.shape[1]
        return self._releaser.release(
            label,
            sums,
            math.ceil(moves[0] * 2**_BITS * _WIDER) + size,
            2.0**-_BITS,
            l2=math.sqrt(moves[1]) * 2**_BITS * _WIDER + math.sqrt(size),
            share=share,
            claim=43,
        )


def _arm_sums(block: Block, columns: Columns) -> Totals:
    """Sums by arm, each term rounded to the grid."""
    sums = []
    for column in columns(block):
        steps = np.rint(column * 2.0**_BITS).astype(np.int64)
        one = steps[block.treated].sum()
        sums.append([one, steps.sum() - one])
    return (np.array(sums, dtype=np.int64).T,)


def _plain_columns(block: Block) -> Iterator[FloatArray]:
    """Ones, covariates, half squares of covariates."""
    yield np.ones(block.treated.size)
    yield from _centred(block)
    yield from ((column**2 - 0.5) / 2.0 for column in _centred(block))


def _weighted_columns(block: Block, model: Propensity, estimand: str) -> Iterator[FloatArray]:
    """Weights, and covariates times weights."""
    weights = relative_weights(model, estimand, block.treated, unit_rows(block.covariates))
    yield weights
    yield from (weights * column for column in _centred(block))


def _centred(block: Block) -> Iterator[FloatArray]:
    """Columns of the covariates in [-1, 1], without the intercept."""
    for column in block.covariates.T[1:]:
        yield 2.0 * np.clip(column, 0.0, 1.0) - 1.0


def relative_weights(
    model: Propensity, estimand: str, treated: BoolArray, rows: FloatArray
) -> FloatArray:
    """Weights over the largest that any record of the arm could have: within [0, 1]."""
    tops = [float(w.max()) for w in ratios(estimand, np.array([model.low, model.high]))]
    a, b = ratios(estimand, model.scores(rows))
    scaled = np.where(treated, a / max(tops[0], 1e-300), b / max(tops[1], 1e-300))
    return np.clip(scaled, 0.0, 1.0)
