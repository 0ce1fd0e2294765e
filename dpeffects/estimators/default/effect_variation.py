"""Effects that vary along the score: from those whom the weights stand for to the estimand.

Overlap weights give the effect among records that could well have been in any arm. Averages over
all, over treated or over control records differ from it where the effect varies along the score.
Two more sums, of the terms of the estimate times a line and a U along the score, tell how; slopes
are pulled to 0 by as much as noise explains, and what is not known of them is a line of the
standard error. Two arms have one pair of such sums, along their log odds; more have one each, along
what makes the arm likely.

Terms are cut, and an effect that is largest where weights are loses most by that. How many more
are cut at one end than at the other tells how much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.estimands import AVERAGES, ESTIMANDS
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import ArmLookup, arm_cells
from dpeffects.estimators.default.arm_terms import ArmTerms, ArmTotals
from dpeffects.estimators.default.moment_models import Models
from dpeffects.estimators.default.propensity_score import PropensityScore
from dpeffects.estimators.default.score_curvature import spike_and_slab
from dpeffects.estimators.default.standardisation import Standardiser
from dpeffects.estimators.row_functions import row
from dpeffects.inference.estimate import ErrorPart
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.curator import Curator, SumQuery
from dpeffects.privacy.domains import Box
from dpeffects.privacy.rows import Block, RowFunction


@row("covariates")
def along_score(
    rows: Block,
    term: RowFunction,
    standard: Standardiser,
    directions: FloatArray,
    cuts: FloatArray,
    direction: ArmLookup,
) -> tuple[FloatArray, ...]:
    """Twice the scaled terms, times functions of the position along the slopes of the own sum."""
    own, at = direction(rows), np.zeros(rows.size)
    for k, slopes in enumerate(directions):
        at = np.where(own == k, standard.index(rows, slopes) / cuts[k], at)
    twice = 2.0 * term(rows)
    return tuple(twice * x for x in _functions(at))


def _functions(at: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A line along positions, which are cut, and a U."""
    line = np.clip(at, -1.0, 1.0)
    return line, line * line - 0.5


@row()
def end_of_term(rows: Block, term: RowFunction, most: ArmLookup) -> FloatArray:
    """1 or -1 for terms that are cut at the upper or the lower end, else 0."""
    value, top = term(rows), most(rows)
    return np.asarray((value >= top) * 1.0 - (value <= -top))


@dataclass(frozen=True, eq=False)
class ClippingQuery:
    """How many more terms are cut at their upper than at their lower end, for each sum.

    Where weights and residuals have nothing to do with one another, a cut takes about ``bias`` off
    each sum, by the lengths of residuals and what is not known of them. An effect that is largest
    where weights are takes more, all at one end.
    """

    terms: ArmTerms
    bias: FloatArray

    def asked(self, curator: Curator) -> SumQuery:
        """What the curator is asked for, beside the terms of the estimate."""
        cells = arm_cells(curator) if self.terms.arms > 2 else None
        ends = end_of_term(self.terms.term, ArmLookup(self.terms.high))
        return SumQuery("clipped terms", ends, Box([-1.0], [1.0]), cells, "cut")

    def read(self, noisy: NoisyValue) -> tuple[FloatArray, FloatArray]:
        """What the cut took off each sum, and the variance of what is not known of it."""
        n, (slab, chance, unsure, _) = self.terms.centres.n, hand.ONE_END
        unit = self.terms.widths / 2.0 / n
        usual = np.maximum(self.bias / unit, 1.0)
        likely, mean, square = spike_and_slab(noisy, usual, np.full_like(unit, slab * n), chance)
        found, square = likely * mean, likely * square
        unknown = square * (1.0 + unsure**2) - found**2
        return unit * found, unit**2 * unknown + (1.0 - likely) * self.bias**2


@dataclass(frozen=True, eq=False)
class EffectVariation:
    """How effects vary along the score, and how far estimands are from the weights of the sums.

    All are by sum, and for a line and a U, ``noise`` and ``chance`` covariances of both slopes;
    ``combination`` is the difference of two arms that is asked for. Weights may be ``unbalanced``
    by so much.
    """

    slope: FloatArray
    noise: FloatArray
    chance: FloatArray
    moves: Mapping[str, FloatArray]
    combination: FloatArray
    unbalanced: float = 0.0

    @classmethod
    def nowhere(cls) -> EffectVariation:
        """Treatment was assigned by chance: all estimands are one."""
        none, nothing = np.zeros((1, 2)), np.zeros((1, 2, 2))
        return cls(none, nothing, nothing, dict.fromkeys(AVERAGES, none), np.ones(1))

    def by_sum(self, estimand: str) -> FloatArray:
        """What to add to each sum for the estimand."""
        return np.asarray((self.slope * self.moves[estimand]).sum(axis=1))

    def more(self, estimand: str) -> float:
        """What to add for the estimand."""
        return float(self.combination @ self.by_sum(estimand))

    def errors(self, estimand: str) -> list[tuple[ErrorPart, float]]:
        """Parts of the error, its noise and what it may miss, and signed standard deviations."""
        moves, unknown = self.combination[:, None] * self.moves[estimand], (self.noise, self.chance)
        noise, chance = (float(np.einsum("si,sij,sj", moves, x, moves)) for x in unknown)
        steep = (self.slope**2).sum(axis=1) + sum(x.trace(axis1=1, axis2=2) for x in unknown)
        chance += float(steep @ (self.combination * self.unbalanced) ** 2)
        parts = (
            ErrorPart("the effect along the propensity score", noise, noise=True),
            ErrorPart("effect heterogeneity", chance),
        )
        sign = float(moves[:, 0].sum())
        return [(part, math.copysign(math.sqrt(max(part.variance, 0.0)), sign)) for part in parts]


@dataclass(frozen=True, eq=False)
class EffectVariationQuery:
    """The score along which effects may vary, and models of two arms."""

    models: Models
    score: PropensityScore

    @property
    def _turn(self) -> FloatArray:
        """What makes directions of the slopes: those of treated records, or by arm."""
        shares = self.score.shares
        return np.eye(1, 2) if len(shares) == 2 else np.eye(len(shares)) - shares

    @property
    def _directions(self) -> FloatArray:
        return np.asarray(self._turn @ self.score.slopes)

    @property
    def _cuts(self) -> FloatArray:
        return hand.CUT * np.maximum(self.score.sd_along(self._directions), hand.LEAST_SD)

    def asked(self, curator: Curator, terms: ArmTerms) -> SumQuery:
        """What the curator is asked for, beside the terms of the estimate."""
        label, cells, sums = "effect along the propensity score", None, np.zeros(2)
        if terms.arms > 2:
            label, cells = "effects along the score by arm", arm_cells(curator)
            sums = np.arange(float(terms.arms))
        standard = self.models.standard
        term = along_score(terms.row, standard, self._directions, self._cuts, ArmLookup(sums))
        return SumQuery(label, term, Box([-1.0, -0.5], [1.0, 0.5]), cells, "variation")

    @property
    def _at(self) -> FloatArray:
        """A line and a U at typical records, (sum, arm, record, function)."""
        along = np.moveaxis(self.score.index @ self._turn.T, -1, 0) / self._cuts[:, None, None]
        return np.stack(_functions(along), axis=-1)

    @property
    def _moves(self) -> dict[str, FloatArray]:
        """How far estimands are from what the sums stand for."""
        own = self._mean(self._own)
        return {x: self._mean(self._weights(x)) - own for x in AVERAGES}

    def _mean(self, weights: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("ar,sarf->sf", weights, self._at))

    @property
    def _prior(self) -> FloatArray:
        """Variance of slopes of each sum, before they are seen.

        Slopes of the effect are as strange to the score as slopes of the outcome could be.
        """
        slopes, models = self._directions, self.models
        steep = slopes @ models.covariance
        strange = (steep**2).sum(axis=1) / np.maximum((steep * slopes).sum(axis=1), 1e-12) ** 2
        prior = hand.VARYING * models.clip**2 * models.slopes.along_lines * strange * self._cuts**2
        return np.maximum(prior, 1e-300) / min(len(slopes), 2)  # two arms share the effect

    def may_move(self, estimand: str) -> float:
        """Variance of how far an estimand is from what the sums stand for, before they are seen."""
        return float((self._prior[:, None] * self._moves[estimand] ** 2).sum(axis=1).max())

    def read(self, noisy: NoisyValue, found: ArmTotals) -> EffectVariation:
        """The answer; ``found`` are the sums of the terms."""
        reach, centre = found.asked.widths / 2.0 / self.models.n, self._mean(self._own)
        off = self._at - centre[:, None, None]
        width = np.einsum("ar,sarf,sarg->sfg", self._own, off, off) + 1e-6 * np.eye(2)
        inverse = np.linalg.inv(width)
        sums = reach[:, None] * noisy.value.reshape(-1, 2) - found.means[:, None] * centre
        noise = (noisy.variance * reach**2)[:, None, None] * inverse @ inverse
        error = noise + np.maximum(found.sampling, 0.0)[:, None, None] * inverse
        prior = self._prior[:, None, None] * np.eye(2)
        kept = prior @ np.linalg.inv(prior + error)
        slope = np.einsum("sfg,sgh,sh->sf", kept, inverse, sums)
        noise = kept @ noise @ kept.transpose(0, 2, 1)
        unbalanced = 0.0 if self.score.tilt == "overlap" else hand.WEIGHTS_OFF / hand.CUT
        return EffectVariation(
            slope, noise, prior - kept @ prior - noise, self._moves, np.ones(1), unbalanced
        )

    @property
    def _own(self) -> FloatArray:
        """Weights of typical records in the sums."""
        score = self.score
        return np.asarray(score.weights * score.tilted(score.chances) / score.mass)

    def _weights(self, estimand: str) -> FloatArray:
        """Weights of typical records in the population of the estimand: its own, if it has any."""
        if estimand == self.score.tilt:
            return self._own
        own, weights = ESTIMANDS[estimand], self.score.weights
        if len(self.score.shares) == 2:
            weights = weights * np.array([[own.of_treated], [own.of_control]])
        return np.asarray(weights / weights.sum())
