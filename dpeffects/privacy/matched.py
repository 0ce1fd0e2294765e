"""What matching needs of single records: scores and treatments, contrasts, matched squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.errors import PrivacyError
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.domains import Box, IntTotals, Sensitivity, bits_for
from dpeffects.privacy.rows import Block, Records, RowFunction, evaluate, reads

IndexArray = npt.NDArray[np.int32]
WEIGHT_BITS = 16
"""Bits after the point of weights of single records."""


class MatchedRecords:
    """Scores, treatments and outcomes of a curator's records, in one secret order.

    They come from one look at the rows, because an engine may hand them out in another order the
    next time. ``score`` is a row function to [0, 1]: one score, or one for each of more than two
    arms. Treatments are then numbers of arms.
    """

    def __init__(self, curator: Curator, score: RowFunction) -> None:
        self._curator, self.n, self.arms = curator, curator.n, curator.arms
        several = curator.arms > 2
        self._columns, part = (curator.arms, "arm") if several else (1, "treated")
        look = partial(_look, score=score, columns=self._columns, part=part)
        read = reads(part, "outcome", *score.reads)(look)
        self._treatment, self._outcome, self._score = curator.by_record(read)

    def public(self) -> tuple[FloatArray, Any]:
        """Hand out scores and treatments where covariates and treatment are declared public."""
        self._curator.require_public("treatment", "covariates")
        return self._score, self._treatment

    def noisy_scores(self, share: str) -> NoisyValue:
        """Release every record's scores: one row moves (claim 9)."""
        box = Box(np.zeros(self._columns), 1.0)
        grid = box.on(1, self._curator._releaser.rate(share))
        scores = grid.project(self._score.copy()).astype(np.int64)
        steps = IntTotals(scores, grid.reach.sensitivity(None, False), grid.unit)
        noisy = self._curator._releaser.release("propensity scores", steps, share=share, claim=9)
        return replace(noisy, value=noisy.value + grid.offset(1))

    def mixed_arms(self, share: str) -> Any:
        """Release every record's treatment, or arm, by randomised response (claim 3)."""
        releaser = self._curator._releaser
        return releaser.respond("treatment", self._treatment, self.arms, share=share, claim=3)

    def contrast(
        self, label: str, weights: FloatArray, share: str, arm: IntArray | None = None
    ) -> NoisyValue:
        """Release sum_j weights_j (y_j - middle) for public or released weights (claim 9).

        Where public or released numbers of arms are given, one sum for each arm.
        """
        whole = whole_weights(weights)
        largest = max(int(np.abs(whole).max()), 1)
        count, rate = max(1, int(np.abs(whole).sum())), self._curator._releaser.rate(share)
        grid = Box(*self._curator.outcome_range).on(count, rate / largest)
        z = grid.whole(self._outcome)
        inside = [slice(None)] if arm is None else [arm == k for k in range(self.arms)]
        total = np.array([whole[some] @ z[some] for some in inside], np.int64)
        moves = Sensitivity.of_number(largest * grid.reach.same.l1)
        steps = IntTotals(total, moves, grid.unit / 2.0**WEIGHT_BITS)
        return self._curator._releaser.release(label, steps, share=share, claim=9)

    def imputed_squares(
        self,
        matches: Sequence[IndexArray],
        contrasts: FloatArray,
        partner: IndexArray,
        pair_weights: FloatArray,
        share: str,
    ) -> NoisyValue:
        """Release for each contrast u sums of squares of matched differences (claim 12).

        They are sum_i (sum_a u_a m_ia)^2 + sum over pairs of pair_weights (y_b - y_c)^2 / 2. m_ia
        is the mean outcome of i's matches in arm a, of which there is a table for each arm; a
        record of arm a is its own match. Contrasts (one row each) have entries of at most 1 in
        size, which add up to at most 2 in size; pair_weights have a row for each contrast. Matches,
        pairs and weights are public or released; the weight of a pair is that at its first member.
        """
        counts = [np.maximum(np.count_nonzero(table >= 0, axis=1), 1) for table in matches]
        whole = np.trunc(contrasts * 2.0**WEIGHT_BITS)
        sizes = np.abs(whole)
        if not (
            (sizes <= 2**WEIGHT_BITS).all() and (sizes.sum(axis=1) <= 2 * 2**WEIGHT_BITS).all()
        ):
            raise PrivacyError("contrasts must be differences of two averages; nothing drawn")
        first = np.flatnonzero(partner > np.arange(self.n))
        steps = np.zeros(pair_weights.shape, np.int64)
        given = np.abs(whole_weights(pair_weights[:, first], bits=8))
        steps[:, first] = steps[:, partner[first]] = given
        room = len(whole) * (256 * self.n + int(steps.sum(axis=1).max()))
        bits = bits_for(room, self._curator.epsilon(share))
        grid = Box(*self._curator.outcome_range).with_bits(max(2, (bits - 4) // 2))
        z, span = grid.whole(self._outcome), grid.reach.same.l1
        gaps = (z[first] - z[partner[first]]) ** 2
        means = [_sums(z, table) / count for table, count in zip(matches, counts, strict=True)]
        totals, moved = [], np.zeros(self.n, np.int64)
        for u, weights in zip(whole / 2.0**WEIGHT_BITS, steps, strict=True):
            value, load, used = np.zeros((3, self.n))
            for coefficient, mean, table, count in zip(u, means, matches, counts, strict=True):
                value += coefficient * mean
                _add_load(load, used, table, abs(coefficient) / count)
            own = np.rint(value * value).astype(np.int64)
            # pair terms count (y_a - y_b)^2 / 2, so the whole release is in half units
            totals.append(512 * int(own.sum()) + int(weights[first] @ gaps))
            floats = used * (len(u) + 1) * 2.0**-21  # errors of squares before they are rounded
            squared = np.ceil(span * span * load * (1 + 1e-12) + floats) + used
            moved += 512 * squared.astype(np.int64) + weights * (span * span)
        most = Sensitivity.of_number(int(moved.max()))
        squares = IntTotals(np.array(totals, np.int64), most, grid.unit**2 / 512.0)
        return self._curator._releaser.release("matching variance", squares, share=share, claim=12)


def _look(block: Block, score: RowFunction, columns: int, part: str) -> Records:
    """Treatment, outcome and scores of each record of a block."""
    return getattr(block, part), block.outcome, evaluate(score, block, columns).copy()


def _add_load(
    load: FloatArray, used: FloatArray, neighbours: IndexArray, coefficient: FloatArray
) -> None:
    """Add to ``load`` how much each record moves the squares that it enters, to ``used`` how many.

    With a coefficient a it moves a square by a (2 - a), in squares of the outcome's range.
    """
    move = coefficient * (2.0 - coefficient)
    for column in neighbours.T:
        ok = (column >= 0) & (coefficient > 0.0)
        load += np.bincount(column[ok], weights=move[ok], minlength=load.size)
        used += np.bincount(column[ok], minlength=load.size)


def _sums(z: IntArray, neighbours: IndexArray) -> IntArray:
    """Sum of the matches' outcomes in grid units."""
    total = np.zeros(z.size, dtype=np.int64)
    for column in neighbours.T:
        total += np.where(column >= 0, z[column], 0)
    return total


def whole_weights(weights: FloatArray, bits: int = WEIGHT_BITS) -> IntArray:
    """Round known weights to multiples of 2^-bits, so that products are whole numbers."""
    if not (np.abs(weights) < 2.0**30).all():
        raise PrivacyError("weights must be finite and below 2^30; nothing drawn")
    return np.rint(weights * 2.0**bits).astype(np.int64)
