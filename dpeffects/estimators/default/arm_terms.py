"""Sums of weighted residuals: one for two arms, and one for each of more.

Records of two arms are added to one sum, those of controls with a minus. Whatever the arm of a
record, what it adds lies in one interval, so the sum costs half of what two sums would. More arms
have a sum each: a record is in one of them, so that all of them, and all differences, cost a
tenth more than the one sum of two arms. Squares come with a sum: who moves it far moves them
little.

Everything here is an array over the sums; a difference of two arms is a combination of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import ArmLookup, arm_cells
from dpeffects.estimators.default.arm_summaries import ArmStats, between_arms
from dpeffects.estimators.row_functions import row
from dpeffects.inference.estimate import ErrorPart, Estimate, Influence, SamplingVariance
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.curator import Curator, SumQuery
from dpeffects.privacy.domains import Box
from dpeffects.privacy.rows import Block, RowFunction
from dpeffects.privacy.tight_domains import BoxWithSquares


def noise_between(arms: int) -> float:
    """Noise in a difference of two arms, against that of one sum."""
    return 1.0 if arms == 2 else hand.BY_ARM * math.sqrt(2.0)


def combination(pair: Sequence[int], arms: int) -> FloatArray:
    """A difference of two arms as a combination of the sums."""
    return np.ones(1) if arms == 2 else between_arms(pair, np.ones(arms))


@row()
def scaled(rows: Block, term: RowFunction, middle: ArmLookup, width: ArmLookup) -> FloatArray:
    """Terms less the middle of what a record of its arm can add, over the width of that."""
    return np.asarray((term(rows) - middle(rows)) / width(rows))


@row()
def beside_squares(rows: Block, term: RowFunction, size: float) -> tuple[FloatArray, FloatArray]:
    """Terms, and their squares times a size."""
    value = term(rows)
    return value, size * value * value


@row()
def of_pair(rows: Block, term: RowFunction, signs: ArmLookup) -> FloatArray:
    """Terms with the sign of their arm, 0 for arms that are not compared."""
    return np.asarray(signs(rows) * term(rows))


def _alike(values: FloatArray, sds: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Variances of outcomes by arm, pulled to that of all by as much as their noise explains."""
    start = 1.0 / np.maximum(sds, 1e-300) ** 2
    prior = (hand.VARIANCE_SD * max(float(start @ values / start.sum()), 0.0)) ** 2
    precision = 1.0 / np.maximum(sds**2 + prior, 1e-300)
    mean = float(precision @ values / precision.sum())
    kept = prior / np.maximum(prior + sds**2, 1e-300)
    unknown = kept * sds**2 + (1.0 - kept) ** 2 / precision.sum()
    return mean + kept * (values - mean), np.sqrt(unknown)


@dataclass(frozen=True, eq=False)
class ArmTerms:
    """What records add, within ``low`` and ``high`` by arm, which are the same for two arms.

    The average is over ``centres.n`` records; ``effective_n`` are records of equal weight that
    those of each arm are worth. ``public`` says that nobody changes arm.
    """

    centres: ArmStats
    term: RowFunction
    low: FloatArray
    high: FloatArray
    effective_n: FloatArray
    public: bool = False
    labels: tuple[str, str] = (
        "sum of residuals and squares",
        "sums of residuals and squares by arm",
    )

    @property
    def arms(self) -> int:
        """Number of arms."""
        return len(self.centres.shares)

    @property
    def widths(self) -> FloatArray:
        """Widths of the intervals of the sums."""
        return np.asarray(self.high - self.low)[: 1 if self.arms == 2 else None]

    @property
    def middles(self) -> FloatArray:
        """Middles of the intervals of the arms."""
        return np.asarray((self.low + self.high) / 2.0)

    @property
    def row(self) -> RowFunction:
        """Terms within [-1/2, 1/2]."""
        return scaled(self.term, ArmLookup(self.middles), ArmLookup(self.high - self.low))

    @property
    def squares(self) -> float:
        """Size of the squares: where nobody changes arm, they cost nothing."""
        return 1.0 if self.arms == 2 or self.public else hand.ARM_SQUARES

    def asked(self, curator: Curator) -> SumQuery:
        """What the curator is asked for."""
        label, cells = self.labels[0], None
        if self.arms > 2:
            label, cells = self.labels[1], arm_cells(curator)
        if self.squares == 1.0:
            return SumQuery(label, self.row, BoxWithSquares(1), cells, "estimate")
        box = Box([-0.5, 0.0], [0.5, self.squares / 4.0])
        return SumQuery(label, beside_squares(self.row, self.squares), box, cells, "estimate")

    def read(self, noisy: NoisyValue) -> ArmTotals:
        """The answer."""
        return ArmTotals(self, noisy)


@dataclass(frozen=True, eq=False)
class ArmTotals:
    """Released sums of terms and of their squares."""

    asked: ArmTerms
    release: NoisyValue

    @property
    def _n(self) -> int:
        return self.asked.centres.n

    @property
    def _unit(self) -> FloatArray:
        """What one unit of a released sum is worth in the mean."""
        return self.asked.widths / self._n

    @property
    def records(self) -> FloatArray:
        """Records of each sum."""
        return self.asked.centres.sizes if self.asked.arms > 2 else np.array([float(self._n)])

    @cached_property
    def _sums(self) -> tuple[FloatArray, FloatArray]:
        first, second = np.reshape(self.release.value, (-1, 2)).T
        if self.asked.arms > 2:  # squares are measured from 1/8
            second = second / self.asked.squares + self.records / 8.0
        return first, second

    @property
    def means(self) -> FloatArray:
        """Means of the terms over all records."""
        known = self.asked.middles * self.asked.centres.shares
        if self.asked.arms == 2:
            known = known.sum(keepdims=True)
        return np.asarray(known + self._unit * self._sums[0])

    @property
    def scales(self) -> FloatArray:
        """Scales of the noise in the means."""
        return np.asarray(self.release.scale * self._unit)

    @property
    def sampling(self) -> FloatArray:
        """Sampling variances of the means, as released: they can come out negative.

        The arms have the sizes that they have.
        """
        return self._sampling[0]

    @property
    def sampling_sd(self) -> FloatArray:
        """Standard deviations of what is not known of the sampling variances."""
        return self._sampling[1]

    @cached_property
    def _sampling(self) -> tuple[FloatArray, FloatArray]:
        (first, second), centres, squared = self._sums, self.asked.centres, self._unit**2
        value = squared * (second - (first**2 - self.release.variance) / self.records)
        slope = np.minimum(2.0 * np.abs(first) / self.records, 1.0)
        sd = self.release.sd * np.hypot(1.0 / self.asked.squares, slope)
        if self.asked.arms == 2:
            return value, squared * sd
        relative = np.minimum(centres.share_sd / centres.shares, 1.0)
        sd = squared * np.hypot(sd, self.records * relative / 8.0)
        if centres.two_valued:
            return value, sd
        effective_n = self.asked.effective_n
        value, sd = _alike(effective_n * value, effective_n * sd)
        return value / effective_n, sd / effective_n

    @property
    def largest(self) -> FloatArray:
        """Bounds on the sampling variances."""
        return np.asarray(self.records * (self._unit / 2.0) ** 2)

    def influence(self, pair: Sequence[int]) -> Influence:
        """What rows add to a difference of two arms."""
        asked, mean = self.asked, float(combination(pair, self.asked.arms) @ self.means)
        low, high, term = float(asked.low.min()), float(asked.high.max()), asked.term
        if asked.arms > 2:
            high = float(np.maximum(-asked.low, asked.high)[list(pair)].max())
            low, term = -high, of_pair(term, ArmLookup(between_arms(pair, np.ones(asked.arms))))
        shares = tuple(asked.centres.shares[list(pair)].tolist())
        return Influence(term, low, high, mean, float(self._n), shares)

    def estimate(
        self,
        pair: Sequence[int],
        value: float,
        parts: list[ErrorPart],
        sampling: SamplingVariance | None = None,
        **about: Any,
    ) -> Estimate:
        """An estimate whose noise is that of a difference of these means, and of further parts."""
        centres, gaussian = self.asked.centres, self.release.gaussian
        scales = self.scales if self.asked.arms == 2 else self.scales[list(pair)]
        most = centres.range
        if self.asked.arms == 2:
            parts = [*parts, centres.size_part(float(self.asked.middles[0] - self.means[0]))]
        return Estimate(
            value=min(max(value, -most), most),
            sampling=sampling or self.variance(pair),
            laplace=() if gaussian else tuple(scales.tolist()),
            gaussian=float(scales @ scales) if gaussian else 0.0,
            parts=tuple(part for part in parts if part.variance > 0.0),
            possible=(-most, most),
            **about,
        )

    def variance(
        self, pair: Sequence[int], between: float = 0.0, between_sd: float = 0.0
    ) -> SamplingVariance:
        """Sampling variance of a difference, less what is known to be ``between`` arms."""
        c2 = combination(pair, self.asked.arms) ** 2
        sd = math.hypot(math.sqrt(float(c2 @ self.sampling_sd**2)), between_sd)
        value, largest = float(c2 @ self.sampling) - between, float(c2 @ self.largest)
        return SamplingVariance(value, sd / math.sqrt(2.0), largest)
