"""What matching needs of single records: scores and treatments, contrasts, matched squares."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.errors import PrivacyError
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.rows import Block, Records, RowFunction, evaluate, reads
from dpeffects.privacy.sets import Box, Sensitivity, Steps, bits_for

IndexArray = npt.NDArray[np.int32]
WEIGHT_BITS = 16
"""Bits after the point of weights of single records."""


class MatchedRecords:
    """Scores, treatments and outcomes of a curator's records, in one secret order.

    They come from one look at the rows, because an engine may hand them out in another order the
    next time. ``score`` is a row function to [0, 1].
    """

    def __init__(self, curator: Curator, score: RowFunction) -> None:
        self._curator, self.n = curator, curator.n
        look = reads("treated", "outcome", *score.reads)(partial(_look, score=score))
        self._treated, self._outcome, self._score = curator.by_record(look)

    def public(self) -> tuple[FloatArray, BoolArray]:
        """Hand out scores and treatments where covariates and treatment are declared public."""
        self._curator.require_public("treatment", "covariates")
        return self._score, self._treated

    def noisy_scores(self, share: str) -> Noisy:
        """Release every record's score: the vector moves in one entry (claim 9)."""
        grid = Box(0, 1).on(1, self._curator._releaser.rate(share))
        steps = Steps(grid.whole(self._score), grid.reach.sensitivity(None, False), grid.unit)
        noisy = self._curator._releaser.release("propensity scores", steps, share=share, claim=9)
        return replace(noisy, value=noisy.value + grid.offset(1))

    def flipped_treatment(self, share: str) -> BoolArray:
        """Release every record's treatment by randomised response (claim 3)."""
        return self._curator._releaser.flip("treatment", self._treated, share=share, claim=3)

    def contrast(self, label: str, weights: FloatArray, share: str) -> Noisy:
        """Release sum_j weights_j (y_j - middle) for public or released weights (claim 9)."""
        whole = whole_weights(weights)
        largest = max(int(np.abs(whole).max()), 1)
        count, rate = max(1, int(np.abs(whole).sum())), self._curator._releaser.rate(share)
        grid = Box(*self._curator.outcome_range).on(count, rate / largest)
        total = np.array([whole @ grid.whole(self._outcome)], np.int64)
        moves = Sensitivity.of_number(largest * grid.reach.same.l1)
        steps = Steps(total, moves, grid.unit / 2.0**WEIGHT_BITS)
        return self._curator._releaser.release(label, steps, share=share, claim=9)

    def matched_squares(
        self,
        neighbours: IndexArray,
        matches: IndexArray,
        partner: IndexArray,
        pair_weight: FloatArray,
        share: str,
    ) -> Noisy:
        """Release sum_i d_i^2 + sum over pairs of pair_weight (y_a - y_b)^2 / 2 (claim 12).

        d_i is record i's outcome minus the mean outcome of its matches. Matches, pairs and weights
        are public or released; the weight of a pair is the one given at its first member.
        """
        used = np.bincount(neighbours[neighbours >= 0], minlength=self.n)
        # how much record j moves the terms it enters with coefficient a: the sum of a (2 - a)
        load = np.ones(self.n)
        move = 1.0 / np.maximum(matches, 1)
        move = move * (2.0 - move)
        for k in range(neighbours.shape[1]):
            ok = neighbours[:, k] >= 0
            load += np.bincount(neighbours[ok, k], weights=move[ok], minlength=self.n)
        first = np.flatnonzero(partner > np.arange(self.n))
        steps = np.zeros(self.n, dtype=np.int64)
        steps[first] = steps[partner[first]] = np.abs(whole_weights(pair_weight[first], bits=8))
        # twice the bits must fit where a sum has them once
        bits = bits_for(256 * self.n + int(steps.sum()), self._curator.epsilon(share))
        grid = Box(*self._curator.outcome_range).with_bits(max(2, (bits - 4) // 2))
        z = grid.whole(self._outcome)
        own = _squared_gaps(z, neighbours, matches)
        gaps = z[first] - z[partner[first]]
        # pair terms count (y_a - y_b)^2 / 2, so the whole release is in half units
        total = np.array([512 * own.sum() + steps[first] @ (gaps * gaps)], dtype=np.int64)
        span = grid.reach.same.l1
        each = 512 * (np.ceil(span * span * load * (1 + 1e-12)) + 1 + used)
        most = int((each + steps * (span * span)).max())
        squares = Steps(total, Sensitivity.of_number(most), grid.unit**2 / 512.0)
        return self._curator._releaser.release("matching variance", squares, share=share, claim=12)


def _look(block: Block, score: RowFunction) -> Records:
    """Treatment, outcome and score of each record of a block."""
    return block.treated, block.outcome, evaluate(score, block, 1)[:, 0].copy()


def _squared_gaps(z: IntArray, neighbours: IndexArray, matches: IndexArray) -> IntArray:
    """d_i^2 in squared grid units, rounded record by record."""
    total = np.zeros(z.size, dtype=np.int64)
    for k in range(neighbours.shape[1]):
        index = neighbours[:, k]
        total += np.where(index >= 0, z[index], 0)
    count = np.maximum(matches, 1).astype(np.int64)
    gap = matches * z - total
    return np.rint((gap * gap) / (count * count)).astype(np.int64)


def whole_weights(weights: FloatArray, bits: int = WEIGHT_BITS) -> IntArray:
    """Round known weights to multiples of 2^-bits, so that products are whole numbers."""
    if not (np.abs(weights) < 2.0**30).all():
        raise PrivacyError("weights must be finite and below 2^30; nothing drawn")
    return np.rint(weights * 2.0**bits).astype(np.int64)
