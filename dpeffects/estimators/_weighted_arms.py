"""Weighted sums of residuals for each of more than two arms, and how they vary along the score.

A record is in one arm, so all sums cost what those of two arms do. Overlap weights give means over
the records that could have been in any arm. Means over all records differ from them where the
effect of an arm varies with its chance: a second sum tells how (`_variation`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.estimators._arm_models import ArmModels, ArmScore, harmonic
from dpeffects.estimators._centres import Centres, Contrast, between_arms
from dpeffects.estimators._variation import VARYING
from dpeffects.estimators.arm_sums import arm_cells
from dpeffects.inference.estimate import Influence, Part, SamplingVariance
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Asked, Curator
from dpeffects.privacy.moments import WithSquares
from dpeffects.privacy.rows import Block, RowFunction
from dpeffects.privacy.sets import Box


@dataclass(frozen=True, eq=False)
class ArmTerm:
    """Clipped residuals with overlap weights, over twice the longest of the arm."""

    residual: RowFunction
    score: ArmScore
    largest: FloatArray
    clip: float
    reads: ClassVar[tuple[str, ...]] = ("arm", "outcome", "covariates")

    def __call__(self, rows: Block) -> FloatArray:
        """Terms of some rows, within [-1/2, 1/2]."""
        chances = self.score.of(rows)
        own = np.take_along_axis(chances, rows.arm[:, None], axis=1)[:, 0]
        weight = np.minimum(harmonic(chances) / own / self.largest[rows.arm], 1.0)
        return weight * np.clip(self.residual(rows) / (2.0 * self.clip), -0.5, 0.5)


@dataclass(frozen=True, eq=False)
class AlongScore:
    """Twice the terms, times the position along the slopes of the own arm."""

    term: ArmTerm
    cuts: FloatArray
    reads: ClassVar[tuple[str, ...]] = ArmTerm.reads

    def __call__(self, rows: Block) -> FloatArray:
        """Products of some rows, within [-1, 1]."""
        standard, at = self.term.score.standard, np.zeros(rows.size)
        for k, slopes in enumerate(self.term.score.from_mean):
            at = np.where(rows.arm == k, standard.index(rows, slopes) / self.cuts[k], at)
        return 2.0 * self.term(rows) * np.clip(at, -1.0, 1.0)


@dataclass(frozen=True, eq=False)
class WeightedArms:
    """What is asked for: residuals clipped at ``clip``, and a score."""

    centres: Centres
    models: ArmModels
    score: ArmScore
    residual: RowFunction
    clip: float

    @property
    def _term(self) -> ArmTerm:
        return ArmTerm(self.residual, self.score, self.score.largest, self.clip)

    def asked(self, curator: Curator, varying: bool) -> list[Asked]:
        """Sums by arm with their squares; and along the score, where effects may vary with it."""
        term, cells = self._term, arm_cells(curator)
        label = "sums of residuals and squares by arm"
        found = [Asked(label, term, WithSquares(1), cells, "estimate")]
        if varying:
            row = AlongScore(term, self.score.positions[1])
            name = "effects along the score by arm"
            found.append(Asked(name, row, Box(-1.0, 1.0), cells, "variation"))
        return found

    def read(self, noisy: Noisy, *along: Noisy) -> ArmResiduals:
        """The answer."""
        n, reach = self.models.n, 2.0 * self.clip * self.score.largest / self.score.overlap
        first = noisy.value[:, 0] * reach / n
        noise, sizes = noisy.sd * reach / n, self.centres.sizes
        # squares are measured from 1/8; the arms have the sizes that they have
        squares = (noisy.value[:, 1] + sizes / 8.0) * (reach / n) ** 2
        by_size = sizes * np.minimum(self.centres.share_sd / self.centres.shares, 1.0) / 8.0
        sampling = squares - (first**2 - noise**2) / sizes
        sampling_sd = np.hypot(noisy.sd, by_size) * (reach / n) ** 2
        more, parts = np.zeros(len(first)), np.zeros((2, len(first)))
        if along:
            more, parts = self._varying(along[0], first, sampling, reach)
        scales = noisy.scale * reach / n
        largest = sizes * (reach / 2.0 / n) ** 2
        return ArmResiduals(
            first, more, sampling, sampling_sd, largest, scales, noisy.gaussian, parts, self
        )

    def influence(self, pair: list[int], mean: float) -> Influence:
        """What rows add to a difference of two arms."""
        reach = 2.0 * self.clip * self.score.largest / self.score.overlap
        top = float(reach[pair].max()) / 2.0
        term = Contrast(self._term, between_arms(pair, reach), 0.5)
        shares = tuple(self.centres.shares[pair].tolist())
        return Influence(term, -top, top, mean, float(self.models.n), shares)

    def _varying(
        self, noisy: Noisy, means: FloatArray, sampling: FloatArray, reach: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """What to add to the means over overlap weights, and variances by noise and by chance."""
        score, models, n = self.score, self.models, self.models.n
        at, cuts = score.positions
        own = score.weights * harmonic(score.chances) / score.overlap
        centre = (own * at).sum(axis=(1, 2))
        width = np.maximum((own * (at - centre[:, None, None]) ** 2).sum(axis=(1, 2)), 1e-6)
        move = (score.weights * at).sum(axis=(1, 2)) - centre
        seen = (noisy.value[:, 0] * reach / 2.0 / n - means * centre) / width
        noise = noisy.variance * (reach / 2.0 / n / width) ** 2
        error = noise + np.maximum(sampling, 0.0) / width
        # slopes of an effect are as strange to the score as slopes of the outcome could be
        slopes, prior = score.from_mean, models.pair(1, 0).slopes.prior[0]
        steep = slopes @ models.covariance
        along = (steep**2).sum(axis=1) / np.maximum((steep * slopes).sum(axis=1), 1e-12) ** 2
        varies = 0.5 * VARYING * models.clip**2 * prior * along * cuts**2
        kept = varies / np.maximum(varies + error, 1e-300)
        by_noise = (kept * move) ** 2 * noise
        return kept * seen * move, np.stack([by_noise, kept * error * move**2 - by_noise])


@dataclass(frozen=True, eq=False)
class ArmResiduals:
    """Weighted means of residuals by arm, and what is to be added for effects that vary.

    ``varying`` are variances of the latter by noise and by chance, ``scales`` those of the noise in
    the means.
    """

    means: FloatArray
    more: FloatArray
    sampling: FloatArray
    sampling_sd: FloatArray
    largest: FloatArray
    scales: FloatArray
    gaussian: bool
    varying: FloatArray
    asked: WeightedArms

    def influence(self, pair: list[int]) -> Influence:
        """What rows add to a difference of two arms."""
        return self.asked.influence(pair, float(self.means[pair[0]] - self.means[pair[1]]))

    def variance(self, pair: list[int]) -> SamplingVariance:
        """Sampling variance of a difference."""
        scale = math.hypot(*self.sampling_sd[pair]) / math.sqrt(2.0)
        return SamplingVariance(
            float(self.sampling[pair].sum()), scale, float(self.largest[pair].sum())
        )

    def parts(self, pair: list[int]) -> list[Part]:
        """Errors of a difference by effects that vary."""
        by_noise, by_chance = self.varying[:, pair].sum(axis=1).tolist()
        return [
            Part("effect along the score", by_noise, noise=True),
            Part("effects that vary", by_chance),
        ]
