"""Counts and sums by arm, for the methods that start with them.

With two arms they are those of (treated, control) records. With more they are in the order of the
arms, the reference first: a record is in one arm, so all of them cost what two do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.design import arms as of_arms
from dpeffects.design.arms import TREATED, Outcome, ScaledSquare
from dpeffects.errors import EstimationError
from dpeffects.estimators import constants as hand
from dpeffects.inference.range_ends import end_warning
from dpeffects.privacy import COUNT, Block, Box, Curator, GroupIndex, NoisyValue


@dataclass(frozen=True, eq=False)
class ArmLookup:
    """The number of a record's arm, of those of (treated, control), or of more arms."""

    numbers: FloatArray

    @property
    def reads(self) -> tuple[str, ...]:
        """Who is treated, or the number of the arm."""
        return ("treated" if len(self.numbers) == 2 else "arm",)

    def arm(self, rows: Block) -> IntArray:
        """Which of the numbers are those of some rows."""
        return 1 - rows.treated if len(self.numbers) == 2 else rows.arm

    def __call__(self, rows: Block) -> FloatArray:
        """Numbers of some rows."""
        return np.asarray(self.numbers[self.arm(rows)])


def arm_cells(curator: Curator) -> GroupIndex:
    """Treated and control records, or one cell for each of more arms."""
    return of_arms.arm_cells(curator.arms)


def treated_count(curator: Curator, share: str) -> NoisyValue:
    """Release the number of treated records; free where treatment is public."""
    count = curator.sums("treated count", None, COUNT, TREATED, share=share)
    return replace(count, value=count.value[0])


@dataclass(frozen=True, eq=False)
class ArmCounts:
    """Released sizes of the arms, which add up to the number of records where that is public.

    ``by_noise`` says how each size moves with each of the independent noises, of variance
    ``release.variance``; the last of them is that of the number of records, ``n``.
    """

    n: int
    sizes: FloatArray
    by_noise: FloatArray
    release: NoisyValue

    @property
    def variance(self) -> float:
        """Variance of the noise in a size."""
        return float((self.by_noise**2).sum(axis=1).max()) * self.release.variance

    def shares(self, least: float | None = None) -> tuple[FloatArray, float]:
        """Shares of the arms, pulled together by as much as noise explains, none below ``least``.

        Also what noise leaves unknown of each, as a standard deviation.
        """
        if not self.variance and not self.sizes.all():  # the arms are public
            raise EstimationError("an arm has no records: there is no effect to estimate")
        n, arms = self.n, len(self.sizes)
        if least is None:
            least = min(max(self.release.scale, 1.0) / n, 0.5 if arms == 2 else 0.5 / arms)
        spread = 4.0 * hand.MEAN_VARIANCE * (1.0 - 1.0 / arms) / arms
        pull = spread / (spread + self.variance / n**2)
        shares = 1.0 / arms + pull * (self.sizes / n - 1.0 / arms)
        shares = np.clip(shares, least, 1.0 - (arms - 1) * least)
        return shares / shares.sum(), math.sqrt((1.0 - pull) * spread)


def arm_counts(curator: Curator, share: str) -> ArmCounts:
    """Release the sizes of the arms; free where treatment is public.

    Of two arms one is counted. Of more all are, and what the counts exceed n by is taken off in
    equal parts; less of it where n is itself noisy.
    """
    n, arms = curator.n, curator.arms
    if arms == 2:
        return counts_of(curator, treated_count(curator, share))
    count = curator.sums("records by arm", None, COUNT, arm_cells(curator), share=share)
    own, of_n = count.variance, curator.size_sd**2
    pull = own / (arms * own + of_n) if own else 1.0 / arms
    by_count = np.eye(arms) - pull
    sizes = by_count @ count.value[:, 0] + pull * n
    by_n = _noise_of_n(curator, count) * np.full(arms, pull)
    return ArmCounts(n, sizes, np.column_stack([by_count, by_n]), count)


def counts_of(curator: Curator, count: NoisyValue) -> ArmCounts:
    """Sizes of two arms, the first of which was counted."""
    sizes = np.array([float(count), curator.n - float(count)])
    return ArmCounts(
        curator.n, sizes, np.array([[1.0, 0.0], [-1.0, _noise_of_n(curator, count)]]), count
    )


def _noise_of_n(curator: Curator, count: NoisyValue) -> float:
    """Noise in the number of records, over that in a count."""
    return curator.size_sd / math.sqrt(count.variance) if curator.size_sd else 0.0


def arm_sums(curator: Curator, share: str) -> NoisyValue:
    """Release the sums of y - middle by arm."""
    within = Box(*curator.outcome_range)
    cells = arm_cells(curator)
    sums = curator.sums("outcome sums by arm", Outcome(), within, cells, share=share)
    return replace(sums, value=sums.value[:, 0])


def at_end(curator: Curator, sums: NoisyValue | None) -> str:
    """A warning where the mean that sums of y - middle by arm make is at an end of its range."""
    if sums is None or curator.values[-1] == 2:
        return ""
    mean = sum(curator.outcome_range) / 2.0 + float(np.sum(sums.value)) / curator.n
    noise = math.sqrt(np.size(sums.value) * sums.variance) / curator.n
    return end_warning("the outcome", mean, noise, *curator.outcome_range)


def arm_squares(curator: Curator, share: str) -> NoisyValue:
    """Release the sums of z^2 - 1/2 by arm, z the outcome scaled to [-1, 1].

    Centring the square halves what one record can do when it moves from one arm to the other.
    """
    square, cells = ScaledSquare(*curator.outcome_range), arm_cells(curator)
    sums = curator.sums("outcome squares by arm", square, Box(0, 1), cells, share=share)
    return replace(sums, value=sums.value[:, 0])
