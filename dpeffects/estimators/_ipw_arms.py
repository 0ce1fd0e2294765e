"""Inverse probability weighting for each of more than two arms.

The mean outcome if all records were in an arm is that of its records, each weighted by the inverse
of its chance to be there: a propensity model of the arm against all others. A record is in one arm,
so the sums of all arms, and all differences, cost a quarter more than one weighted sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.design.features import logits, unit_rows
from dpeffects.estimators._arm_terms import of_pair
from dpeffects.estimators._centres import Centres, between_arms
from dpeffects.estimators._propensity import PropensityModel
from dpeffects.estimators.arm_sums import OfArm, arm_cells
from dpeffects.estimators.weighting import Propensity
from dpeffects.inference.estimate import Influence, Part, SamplingVariance
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Asked, Curator
from dpeffects.privacy.logistic import sigmoid
from dpeffects.privacy.moments import WithSquares
from dpeffects.privacy.rows import Block, Cells

_POPULATION = "ATC"
"""Records of the other arms: an arm is weighted to them, its own weigh what they do."""
_ROUGH = 0.2
"""Relative error of a sampling variance that takes residuals as independent of weights."""


@dataclass(frozen=True, eq=False)
class InverseChance:
    """(y - centre) / e of a record, less a middle and over a width, all those of its arm."""

    models: tuple[Propensity, ...]
    centres: FloatArray
    middles: FloatArray
    widths: FloatArray
    reads: ClassVar[tuple[str, ...]] = ("arm", "outcome", "covariates")

    def __call__(self, rows: Block) -> FloatArray:
        """Values of some rows, within [-1/2, 1/2]."""
        arm, scores = rows.arm, own_scores(self.models, rows)
        value = (rows.outcome - self.centres[arm]) / scores
        return (value - self.middles[arm]) / self.widths[arm]


def own_scores(models: Sequence[Propensity], rows: Block) -> FloatArray:
    """The chance of each record to be in its arm, clipped."""
    units, found = unit_rows(rows.covariates), np.ones(rows.size)
    for k, model in enumerate(models):
        found = np.where(rows.arm == k, model.scores(units), found)
    return found


@dataclass(frozen=True, eq=False)
class OwnBeyondClip:
    """The arm of a record whose own chance is below the clip; the number of arms for others."""

    models: tuple[Propensity, ...]
    reads: ClassVar[tuple[str, ...]] = ("arm", "covariates")

    def __call__(self, rows: Block) -> IntArray:
        """Cells of some rows."""
        units, cell = unit_rows(rows.covariates), np.full(rows.size, len(self.models), np.int64)
        for k, model in enumerate(self.models):
            e = sigmoid(logits(units, model.weights, model.offset))
            beyond = e < model.low * (1.0 - 1e-9)
            cell = np.where((rows.arm == k) & beyond, k, cell)
        return cell


@dataclass(frozen=True, eq=False)
class ArmWeighting:
    """Models of all arms with their clips, and centres of their outcomes."""

    models: tuple[PropensityModel, ...]
    limits: tuple[tuple[float, float], ...]
    centres: Centres

    @property
    def propensities(self) -> tuple[Propensity, ...]:
        """The models, clipped."""
        return tuple(m.within(x) for m, x in zip(self.models, self.limits, strict=True))

    @property
    def far(self) -> FloatArray:
        """How far each arm is from all records."""
        return np.asarray(1.0 - self.centres.shares)

    def row(self, unit: float) -> InverseChance:
        """What a record adds; ``unit`` is the noise in a sum that a record moves by 1.

        Measured from the middle of what a record of the arm can add, the interval is shortest; but
        then the error of the size of the arm multiplies that middle.
        """
        low, high = self.centres.outcome_range
        models, means = self.propensities, self.centres.means
        inverse = np.array([[1.0 / model.high, 1.0 / model.low] for model in models])
        ends = inverse[:, :, None] * (np.array([low, high]) - means[:, None])[:, None, :]
        least, most = ends.min(axis=(1, 2)), ends.max(axis=(1, 2))
        sd = self.centres.n * self.centres.share_sd
        tried = [part * (least + most) / 2.0 for part in np.linspace(0.0, 1.0, 9)]
        widths = [2.0 * np.maximum(most - at, at - least) for at in tried]
        errors = [
            (unit * width) ** 2 + (sd * at) ** 2 for at, width in zip(tried, widths, strict=True)
        ]
        best, arms = np.argmin(errors, axis=0), np.arange(len(means))
        middles, chosen = (np.stack(each)[best, arms] for each in (tried, widths))
        return InverseChance(models, means, middles, chosen)

    def asked(self, curator: Curator, row: InverseChance) -> list[Asked]:
        """Sums by arm, and how many records of each are beyond the clip."""
        label, cells = "weighted sums and squares by arm", arm_cells(curator)
        beyond = Cells(OwnBeyondClip(self.propensities), curator.arms)
        return [
            Asked(label, row, WithSquares(1), cells, "estimate"),
            Asked("records beyond the clip by arm", None, cells=beyond, share="overlap"),
        ]

    def lost(self, beyond: Noisy) -> tuple[FloatArray, FloatArray]:
        """Shares of the records of each arm beyond the clip, and the weight that they lack."""
        pairs = zip(self.models, self.limits, strict=True)
        expected, lack = np.array([m.beyond(_POPULATION, x) for m, x in pairs]).T
        lack = lack * self.far
        sizes = self.centres.sizes
        noise, prior = (beyond.sd / sizes) ** 2, (0.02 + expected / 2.0) ** 2
        share = (beyond.value[:, 0] / sizes * prior + expected * noise) / (prior + noise)
        share = np.clip(share, 0.0, 1.0)
        relative = np.minimum(lack / np.maximum(expected, 1e-9), 1.0)
        return share, share * np.where(expected > 0.005, relative, 0.5)

    def mean_square_weights(self) -> FloatArray:
        """Mean over all records of the squared weights of each arm."""
        found = []
        for model, (low, high) in zip(self.models, self.limits, strict=True):
            e = np.clip(model.scores, low, high)
            found.append(float(np.mean(model.scores / e**2)))
        return np.array(found)

    def pair(self, arm: int, other: int) -> tuple[PropensityModel, Centres]:
        """What is known of the models and centres of two arms, together."""
        one, two, pair = self.models[arm], self.models[other], [arm, other]
        model = replace(
            one,
            kept_slopes=(one.kept_slopes + two.kept_slopes) / 2.0,
            penalised=(one.penalised + two.penalised) / 2.0,
            level_sd=math.sqrt((one.level_sd**2 + two.level_sd**2) / 2.0),
        )
        centres = self.centres
        return model, replace(
            centres,
            shares=centres.shares[pair],
            means=centres.means[pair],
            mean_sd=centres.mean_sd[pair],
            unknown=centres.unknown[pair],
        )


def clips(models: Sequence[PropensityModel], noise: float) -> tuple[tuple[float, float], ...]:
    """The clip of each arm with the least noise and bias."""
    return tuple(model.limits(_POPULATION, noise) for model in models)


@dataclass(frozen=True, eq=False)
class ArmExtras:
    """Weighted sums by arm over n, which are added to the centres, and their squares."""

    row: InverseChance
    centres: Centres
    release: Noisy

    @property
    def scales(self) -> FloatArray:
        """Scales of the noise in `values`."""
        return np.asarray(self.release.scale * self.row.widths / self.centres.n)

    @property
    def noise_variances(self) -> FloatArray:
        """Variances of that noise."""
        return np.asarray((self.release.sd * self.row.widths / self.centres.n) ** 2)

    def by_size(self, pair: list[int], times: float) -> tuple[Part, ...]:
        """What noise in the sizes of the arms does, where sums are not measured from 0."""
        by_size = times * self.row.middles[pair] * self.centres.share_sd
        variance = float(by_size @ by_size)
        return (Part("sizes of the arms", variance, noise=True),) if variance else ()

    @property
    def values(self) -> FloatArray:
        """Mean residuals, weighted to all records."""
        n = self.centres.n
        own = self.row.widths * self.release.value[:, 0] / n
        return np.asarray(own + self.row.middles * self.centres.sizes / n)

    def sampling(self, rough: FloatArray, rough_sd: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sampling variances of the means, and standard deviations of the noise in them.

        What squares of residuals say of them, ``rough``, takes residuals as independent of weights:
        both count by their precision.
        """
        n, sizes, middles = self.centres.n, self.centres.sizes, self.row.middles
        widths, (first, second) = self.row.widths, self.release.value.T
        squares = widths**2 * (second + sizes / 8.0) + 2.0 * widths * middles * first
        squares = squares + sizes * middles**2
        noise = (self.release.sd * widths / n) ** 2
        own = squares / n**2 - (self.values**2 - noise) / sizes
        own_sd = self.release.sd * widths * np.hypot(widths, 2.0 * middles) / n**2
        own_sd = np.hypot(own_sd, self.centres.share_sd * (widths**2 / 8.0 + middles**2) / n)
        precision = 1.0 / np.maximum(own_sd, 1e-300) ** 2
        other = 1.0 / np.maximum(np.hypot(rough_sd, _ROUGH * rough), 1e-300) ** 2
        both = precision + other
        return (own * precision + rough * other) / both, np.sqrt(1.0 / both)

    def influence(self, pair: list[int], factor: float) -> Influence:
        """What rows add to a difference of two arms, which has ``factor`` times that of values."""
        count = len(self.row.widths)
        plain = replace(self.row, middles=np.zeros(count), widths=np.ones(count))
        signs = between_arms(pair, np.ones(count))
        term, n = of_pair(plain, OfArm(signs)), float(self.centres.n)
        longest = float((np.abs(self.row.middles) + self.row.widths / 2.0)[pair].max())
        mean = float(self.values[pair[0]] - self.values[pair[1]])
        mean, shares = min(max(mean, -longest), longest), tuple(self.centres.shares[pair].tolist())
        return Influence(term, -longest, longest, mean, n / factor, shares)

    def variance(self, pair: list[int], values: FloatArray, sds: FloatArray) -> SamplingVariance:
        """Sampling variance of a difference."""
        scale, largest = math.hypot(*sds[pair]) / math.sqrt(2.0), self.largest[pair]
        return SamplingVariance(float(values[pair].sum()), scale, float(largest.sum()))

    @property
    def largest(self) -> FloatArray:
        """Bounds on the sampling variances of the means."""
        longest = np.abs(self.row.middles) + self.row.widths / 2.0
        return np.asarray(self.centres.sizes * (longest / self.centres.n) ** 2)
