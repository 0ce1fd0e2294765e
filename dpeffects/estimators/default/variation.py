"""Effects that vary with the score: from those whom overlap weights stand for to the estimand.

Overlap weights give the effect among records that could well have been in any arm. Averages over
all, over treated or over control records differ from it where the effect varies with the score. One
more sum, of the terms of the estimate times the position along the score, tells how; it is pulled
to 0 by as much as noise explains, and what is not known of it is a line of the standard error. Two
arms have one such sum, along their log odds; more have one each, along what makes the arm likely.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.estimands import AVERAGES, ESTIMANDS
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import OfArm, arm_cells
from dpeffects.estimators.default.arm_terms import ArmTerms, ArmTotals
from dpeffects.estimators.default.moment_models import Models
from dpeffects.estimators.default.score import Score
from dpeffects.estimators.default.standard import Standard
from dpeffects.estimators.row import row
from dpeffects.inference.estimate import Part
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Asked, Curator
from dpeffects.privacy.rows import Block, RowFunction
from dpeffects.privacy.sets import Box


@row("covariates")
def along_score(
    rows: Block,
    term: RowFunction,
    standard: Standard,
    directions: FloatArray,
    cuts: FloatArray,
    direction: OfArm,
) -> FloatArray:
    """Twice the scaled terms, times the position along the slopes of the own sum."""
    own, at = direction(rows), np.zeros(rows.size)
    for k, slopes in enumerate(directions):
        at = np.where(own == k, standard.index(rows, slopes) / cuts[k], at)
    return np.asarray(2.0 * term(rows) * np.clip(at, -1.0, 1.0))


@dataclass(frozen=True, eq=False)
class Varying:
    """How steep effects are along the score, and how far estimands are from overlap weights.

    All are by sum, ``noise`` and ``chance`` variances of the slope; ``combination`` is the
    difference of two arms that is asked for. Weights may be ``unbalanced`` by so much.
    """

    slope: FloatArray
    noise: FloatArray
    chance: FloatArray
    moves: Mapping[str, FloatArray]
    combination: FloatArray
    unbalanced: float = 0.0

    @classmethod
    def nowhere(cls) -> Varying:
        """Treatment was assigned by chance: all estimands are one."""
        none = np.zeros(1)
        return cls(none, none, none, dict.fromkeys(AVERAGES, none), np.ones(1))

    def more(self, estimand: str) -> float:
        """What to add for the estimand."""
        return float(self.combination @ (self.slope * self.moves[estimand]))

    def errors(self, estimand: str) -> list[tuple[Part, float]]:
        """Parts of the error, its noise and what it may miss, and signed standard deviations."""
        moves = self.combination * self.moves[estimand]
        noise, chance = (float(x @ moves**2) for x in (self.noise, self.chance))
        steep = self.slope**2 + self.noise + self.chance
        chance += float(steep @ (self.combination * self.unbalanced) ** 2)
        parts = Part("effect along the score", noise, noise=True), Part("effects that vary", chance)
        sign = float(moves.sum())
        return [(part, math.copysign(math.sqrt(max(part.variance, 0.0)), sign)) for part in parts]


@dataclass(frozen=True, eq=False)
class VariationAsked:
    """Terms of the estimate, the score along which they may vary, and models of two arms."""

    terms: ArmTerms
    models: Models
    score: Score

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

    def asked(self, curator: Curator) -> Asked:
        """What the curator is asked for."""
        label, cells, sums = "effect along the score", None, np.zeros(2)
        if self.terms.arms > 2:
            label, cells = "effects along the score by arm", arm_cells(curator)
            sums = np.arange(float(self.terms.arms))
        term = along_score(
            self.terms.row, self.models.standard, self._directions, self._cuts, OfArm(sums)
        )
        return Asked(label, term, Box(-1.0, 1.0), cells, "variation")

    def read(self, noisy: Noisy, found: ArmTotals) -> Varying:
        """The answer; ``found`` are the sums of the terms."""
        score, models, reach = self.score, self.models, self.terms.widths / 2.0 / self.models.n
        along = np.moveaxis(score.index @ self._turn.T, -1, 0) / self._cuts[:, None, None]
        at = np.clip(along, -1.0, 1.0)
        own = self._own
        centre = (own * at).sum(axis=(1, 2))
        width = np.maximum((own * (at - centre[:, None, None]) ** 2).sum(axis=(1, 2)), 1e-6)
        seen = (reach * noisy.value.ravel() - found.means * centre) / width
        noise = noisy.variance * (reach / width) ** 2
        error = noise + np.maximum(found.sampling, 0.0) / width
        # slopes of the effect are as strange to the score as slopes of the outcome could be
        slopes = self._directions
        steep = slopes @ models.covariance
        strange = (steep**2).sum(axis=1) / np.maximum((steep * slopes).sum(axis=1), 1e-12) ** 2
        prior = hand.VARYING * models.clip**2 * models.slopes.along_lines * strange * self._cuts**2
        prior = prior / min(len(slopes), 2)  # two arms share the effect
        kept = prior / np.maximum(prior + error, 1e-300)
        moves = {x: (self._weights(x) * at).sum(axis=(1, 2)) - centre for x in AVERAGES}
        noise, chance = kept**2 * noise, kept * error - kept**2 * noise
        off = 0.0 if score.tilt == "overlap" else hand.WEIGHTS_OFF / hand.CUT
        return Varying(kept * seen, noise, chance, moves, np.ones(1), off)

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
        if self.terms.arms == 2:
            weights = weights * np.array([[own.of_treated], [own.of_control]])
        return np.asarray(weights / weights.sum())
