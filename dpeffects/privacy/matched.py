"""What matching needs: scores and treatments, contrasts under known weights, matched squares."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from dpeffects.errors import PrivacyError
from dpeffects.privacy.erm import fit_logistic, logistic_sensitivity, logits, sigmoid
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.release import BoolArray, FloatArray, Holder, IntArray
from dpeffects.privacy.rows import Block, Records, Rows
from dpeffects.privacy.sums import WEIGHT_BITS, Grid, weights_to_grid

IndexArray = npt.NDArray[np.int32]


class MatchedReleases(Holder):
    """Releases about single records' scores and treatments, and sums weighted by matches.

    Scores, treatments and outcomes of the records come from one look at the rows: an engine may
    hand them out in another order the next time.
    """

    _known: _Records | None = None

    def treatment(self) -> BoolArray:
        """Hand out the treatment column where it is declared public."""
        self._require_public("treatment")
        return self._records().treated

    def public_scores(self, penalty: float) -> FloatArray:
        """Propensity scores where covariates and treatment are declared public: no charge."""
        self._require_public("treatment")
        self._require_public("covariates")
        return self._records(fit_logistic(self._source, penalty)).score

    def propensity_weights(self, penalty: float, share: str) -> Noisy:
        """Release the weights of the penalised logistic regression (claim 9)."""
        d = self.width
        bound = logistic_sensitivity(self.n, d, penalty)
        unit = 2.0 ** (math.floor(math.log2(bound)) - 20)
        weights = fit_logistic(self._source, penalty)
        steps = np.rint(weights / unit).astype(np.int64)
        sensitivity = math.ceil(bound / unit) + 1 + d
        return self._releaser.release(
            "propensity model", steps, sensitivity, unit, share=share, claim=9
        )

    def noisy_scores(self, weights: FloatArray, share: str) -> Noisy:
        """Release every record's propensity score under released weights (claim 11)."""
        grid = Grid.for_sum((0.0, 1.0), 1.0, self.epsilon(share))
        steps = grid.encode(self._records(weights).score)
        noisy = self._releaser.release(
            "propensity scores", steps, grid.span, grid.unit, share=share, claim=11
        )
        return Noisy(noisy.value + grid.middle, noisy.scale, noisy.spend)

    def flipped_treatment(self, share: str) -> BoolArray:
        """Release every record's treatment by randomised response (claim 3)."""
        return self._releaser.flip("treatment", self._records().treated, share=share, claim=3)

    def contrast(self, label: str, weights: FloatArray, share: str) -> Noisy:
        """Release sum_j weights_j (y_j - middle) for public or released weights (claim 8)."""
        steps = weights_to_grid(weights)
        size = np.abs(steps)
        grid = Grid.for_sum(
            self.outcome_range, float(size.sum()), self.epsilon(share), float(size.max())
        )
        total = np.array([steps @ grid.encode(self._records().outcome)], dtype=np.int64)
        sensitivity = int(size.max()) * grid.span
        unit = grid.unit / 2.0**WEIGHT_BITS
        return self._releaser.release(label, total, sensitivity, unit, share=share, claim=8)

    def matched_squares(
        self,
        neighbours: IndexArray,
        found: IndexArray,
        partner: IndexArray,
        pair_weight: FloatArray,
        share: str,
    ) -> Noisy:
        """Release sum_i d_i^2 + sum over pairs of pair_weight (y_a - y_b)^2 / 2 (claim 10).

        d_i is record i's outcome minus the mean outcome of its matches. Matches, pairs and weights
        are public or released; the weight of a pair is the one given at its first member.
        """
        used = np.bincount(neighbours[neighbours >= 0], minlength=self.n)
        # how much record j moves the terms it enters with coefficient a: the sum of a (2 - a)
        load = np.ones(self.n)
        move = 1.0 / np.maximum(found, 1)
        move = move * (2.0 - move)
        for k in range(neighbours.shape[1]):
            ok = neighbours[:, k] >= 0
            load += np.bincount(neighbours[ok, k], weights=move[ok], minlength=self.n)
        first = np.flatnonzero(partner > np.arange(self.n))
        steps = np.zeros(self.n, dtype=np.int64)
        steps[first] = steps[partner[first]] = np.abs(weights_to_grid(pair_weight[first], bits=8))
        grid = _square_grid(self, float(256 * self.n + steps.sum()), share)
        z = grid.encode(self._records().outcome)
        own = _squared_gaps(z, neighbours, found)
        gaps = z[first] - z[partner[first]]
        # pair terms count (y_a - y_b)^2 / 2, so the whole release is in half units
        total = np.array([512 * own.sum() + steps[first] @ (gaps * gaps)], dtype=np.int64)
        span = grid.span
        each = 512 * (np.ceil(span * span * load * (1 + 1e-12)) + 1 + used)
        sensitivity = int((each + steps * (span * span)).max())
        return self._releaser.release(
            "matching variance", total, sensitivity, grid.unit**2 / 512.0, share=share, claim=10
        )

    def _records(self, weights: FloatArray | None = None) -> _Records:
        """Records with scores by these weights, or as they are known."""
        if self._known is not None and weights is None:
            return self._known
        if self._known is not None and not isinstance(self._source, Rows):
            raise PrivacyError("rows on an engine are looked at once: ask for scores first")
        if weights is None:
            treated, outcome = self._gather(_plain, "outcome")
            self._known = _Records(treated, outcome)
        else:
            scored = partial(_scored, weights=weights)
            self._known = _Records(*self._gather(scored, "outcome", "covariates"))
        return self._known


@dataclass(frozen=True)
class _Records:
    """What matching knows of each record; ``score`` is empty where nobody asked for it."""

    treated: BoolArray
    outcome: FloatArray
    score: FloatArray = field(default_factory=lambda: np.zeros(0))


def _plain(block: Block) -> Records:
    return block.treated, block.outcome


def _scored(block: Block, weights: FloatArray) -> Records:
    return block.treated, block.outcome, sigmoid(logits(block.covariates, weights))


def _square_grid(holder: Holder, total_weight: float, share: str) -> Grid:
    """Grid for squared differences: twice the bits must fit where a sum has them once."""
    fine = Grid.for_sum(holder.outcome_range, total_weight, holder.epsilon(share))
    return Grid(fine.lower, fine.upper, max(2, (fine.bits - 4) // 2))


def _squared_gaps(z: IntArray, neighbours: IndexArray, found: IndexArray) -> IntArray:
    """d_i^2 in squared grid units, rounded record by record."""
    total = np.zeros(z.size, dtype=np.int64)
    for k in range(neighbours.shape[1]):
        index = neighbours[:, k]
        total += np.where(index >= 0, z[index], 0)
    matched = np.maximum(found, 1).astype(np.int64)
    gap = found * z - total
    return np.rint((gap * gap) / (matched * matched)).astype(np.int64)
