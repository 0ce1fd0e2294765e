"""Effects that vary with the score: from those whom overlap weights stand for to the estimand.

Overlap weights give the effect among records that could well have been in either arm. Averages over
all, over treated or over control records differ from it where the effect varies with the score. One
more sum, of the terms of the estimate times the score's index, tells how; it is pulled to 0 by as
much as noise explains, and what is not known of it is a line of the standard error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.estimands import AVERAGES, ESTIMANDS
from dpeffects.estimators._moments import Models
from dpeffects.inference.estimate import Part
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Asked
from dpeffects.privacy.rows import Block, RowFunction
from dpeffects.privacy.sets import Box

VARYING = 0.5
"""Variance of slopes of the effect over studies, against that of slopes of the outcome."""
_CUT = 2.5
"""The index is cut at this many of its standard deviations."""


@dataclass(frozen=True, eq=False)
class _Along:
    """Terms of the estimate, over the largest, times the position along the score."""

    term: RowFunction
    top: float
    models: Models
    slopes: FloatArray
    cut: float
    reads: ClassVar[tuple[str, ...]] = ("treated", "outcome", "covariates")

    def __call__(self, rows: Block) -> FloatArray:
        """Products of some rows."""
        index = self.models.standard.index(rows, self.slopes)
        product: FloatArray = self.term(rows) / self.top * np.clip(index / self.cut, -1.0, 1.0)
        return product


@dataclass(frozen=True)
class Varying:
    """How steep the effect is along the score, and how far estimands are from overlap weights.

    ``noise`` and ``chance`` are variances of the slope.
    """

    slope: float
    noise: float
    chance: float
    moves: Mapping[str, float]

    @classmethod
    def nowhere(cls) -> Varying:
        """Treatment was assigned by chance: all estimands are one."""
        return cls(0.0, 0.0, 0.0, dict.fromkeys(AVERAGES, 0.0))

    def more(self, estimand: str) -> float:
        """What to add for the estimand."""
        return self.slope * self.moves[estimand]

    def errors(self, estimand: str) -> list[tuple[Part, float]]:
        """Parts of the error, its noise and what it may miss, and signed standard deviations."""
        move = self.moves[estimand]
        noise, chance = (x * move**2 for x in (self.noise, self.chance))
        parts = Part("effect along the score", noise, noise=True), Part("effects that vary", chance)
        return [(part, math.copysign(math.sqrt(max(part.variance, 0.0)), move)) for part in parts]


@dataclass(frozen=True, eq=False)
class VariationAsked:
    """Terms within [-top, top], and the score along which the effect may vary."""

    term: RowFunction
    top: float
    models: Models
    score: Any

    @property
    def _cut(self) -> float:
        return _CUT * max(self.score.sd, 0.1)

    @property
    def asked(self) -> Asked:
        """What the curator is asked for."""
        along = _Along(self.term, self.top, self.models, self.score.slopes, self._cut)
        return Asked("effect along the score", along, Box(-1.0, 1.0), None, "variation")

    def read(self, noisy: Noisy, mean: float, spread: float) -> Varying:
        """The answer; ``mean`` and ``spread`` are mean and variance of the terms."""
        score, models = self.score, self.models
        n, at = models.n, np.clip(score.index / self._cut, -1.0, 1.0)
        own = score.weights * score.values * (1.0 - score.values) / score.overlap
        centre = float((own * at).sum())
        width = max(float((own * (at - centre) ** 2).sum()), 1e-6)
        seen = (self.top * float(noisy.value[0]) / n - mean * centre) / width
        noise = noisy.variance * (self.top / (n * width)) ** 2
        error = noise + max(spread, 0.0) / (n * width)
        # slopes of the effect are as strange to the score as slopes of the outcome could be
        steep = models.covariance @ score.slopes
        along = float(steep @ steep) / max(float(score.slopes @ steep), 1e-12) ** 2
        prior = VARYING * models.clip**2 * models.slopes.prior[0] * along * self._cut**2
        kept = prior / (prior + error) if prior + error > 0.0 else 0.0
        moves = {name: float((self._weights(name) * at).sum()) - centre for name in AVERAGES}
        return Varying(kept * seen, kept**2 * noise, kept * error - kept**2 * noise, moves)

    def _weights(self, estimand: str) -> FloatArray:
        """Weights of the nodes in the population of the estimand."""
        weights = np.asarray(self.score.weights)
        none = np.zeros_like(weights[0])
        members = ESTIMANDS[estimand].population(
            np.stack([weights[0], none]), np.stack([none, weights[1]])
        )
        return np.asarray(members / members.sum())
