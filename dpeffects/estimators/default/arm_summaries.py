"""What a clipped sum starts with: shares and mean outcomes of the arms, and a clip.

Residuals from the mean of their arm are much shorter than the range of the outcome, and a clip
makes them shorter still. All three are released; what noise leaves unknown of them is said beside
them, for the interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpeffects.arrays import FloatArray, Interval
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import ArmLookup, arm_counts, arm_sums
from dpeffects.estimators.row_functions import RowPartial, row
from dpeffects.inference.estimate import ErrorPart
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.rows import Block, RowFunction

RARE_ARM = "Small arm: an arm has few records, and privacy noise makes its mean imprecise"


@dataclass(frozen=True)
class ArmStats:
    """Shares and mean outcomes of (treated, control) records, or of more arms, as released.

    ``share_sd`` and ``unknown`` are what noise leaves unknown of them, as standard deviations;
    ``two_valued`` says that the outcome has two values by its declared type; ``size_sd`` is the
    standard deviation of the noise in n, where that is released; ``sums`` are the released sums of
    outcomes less the middle of their range.
    """

    n: int
    shares: FloatArray
    share_sd: float
    means: FloatArray
    unknown: FloatArray
    outcome_range: Interval
    two_valued: bool
    size_sd: float = 0.0
    sums: NoisyValue | None = None

    @property
    def range(self) -> float:
        """Length of the outcome's range."""
        return self.outcome_range[1] - self.outcome_range[0]

    @property
    def share(self) -> float:
        """Share of treated records, where there are two arms."""
        return float(self.shares[0])

    @property
    def sizes(self) -> FloatArray:
        """Records in each arm."""
        return self.n * self.shares

    @property
    def longest(self) -> float:
        """The longest residual that a record can have."""
        low, high = self.outcome_range
        return float(max((high - self.means).max(), (self.means - low).max()))

    @property
    def most_variance(self) -> float:
        """The largest variance that outcomes with these means can have."""
        low, high = self.outcome_range
        at_ends = (self.means - low) * (high - self.means)
        return max((0.05 * self.range) ** 2, float(at_ends.max()))

    def with_warnings(self, warnings: str = "") -> str:
        """Add to a warning that an arm is rare, and its mean hardly known."""
        rare = self.shares < hand.RARE
        hardly = bool((self.unknown[rare] > hand.WORTH_A_WORD * self.range).any())
        return "; ".join(filter(None, (warnings, RARE_ARM if hardly else "")))

    def missed(self, beyond: FloatArray | float) -> FloatArray:
        """What is not known of the means, times the part of residuals that do not correct it.

        Those are ``beyond`` a clip, by arm: of its records, or of their weight.
        """
        return np.asarray(self.unknown * np.minimum(1.0, beyond))

    def size_part(self, distance: float) -> ErrorPart:
        """Error by noise in n of a mean that is ``distance`` from where its sum is measured."""
        return ErrorPart(
            "the number of records analysed", (distance * self.size_sd / self.n) ** 2, noise=True
        )

    def noise_part(
        self,
        pair: Sequence[int],
        corrections: FloatArray,
        relative: float = 0.0,
        moves: FloatArray | None = None,
        beyond: FloatArray | float = 0.0,
    ) -> ErrorPart:
        """Error by noise in the shares and the means, of a difference of two arms.

        An error of a share multiplies what the means miss, and the ``corrections`` that sums of
        residuals made: one of two arms, or one for each of more. So does the ``relative`` error of
        the weights of an arm. Residuals ``beyond`` the clip, a part of those of their arm or of
        its weight, do not correct the means.
        ``moves`` are those of centres that are not the means.
        """
        two, by_share = list(pair), np.minimum(1.0, self.share_sd / self.shares)
        variance = float(((self.unknown * np.hypot(by_share, relative))[two] ** 2).sum())
        variance += float((self.missed(beyond)[two] ** 2).sum())
        moved = np.zeros(len(corrections)) if moves is None else self.by_moves(moves)
        if len(self.shares) > 2:
            variance += float(((by_share * corrections) ** 2 + moved)[two].sum())
            return ErrorPart("the arm sizes and means", variance, noise=True)
        pi = self.share
        slope = max(0.25, abs(1.0 - 2.0 * pi)) / (pi * (1.0 - pi))
        variance += float(((corrections * self.share_sd * slope) ** 2 + moved)[0])
        return ErrorPart("the treated share and the arm means", variance, noise=True)

    def by_moves(self, moves: FloatArray) -> FloatArray:
        """Variance of what errors of the shares do to moves of centres: of two arms, or of each."""
        if len(moves) == 2:  # who is not in one is in the other
            return np.array([(self.share_sd * float((moves / self.shares).sum())) ** 2])
        return np.asarray((np.minimum(1.0, self.share_sd / self.shares) * moves) ** 2)


def release_centres(curator: Curator, count: str = "count", means: str = "means") -> ArmStats:
    """Release the sizes of the arms and their sums of outcomes."""
    counts = arm_counts(curator, count)
    least = min(hand.RARE, 2.0 * math.sqrt(counts.variance) / curator.n) / curator.arms
    return centres_of(curator, counts.shares(least), arm_sums(curator, means))


def centres_of(curator: Curator, known: tuple[FloatArray, float], sums: NoisyValue) -> ArmStats:
    """Centres by released shares of the arms, and their sd, and released sums of their outcomes."""
    shares, share_sd = known
    n, (low, high) = curator.n, curator.outcome_range
    width, sizes = high - low, n * shares
    mean_sd = math.sqrt(sums.variance) / sizes
    own = np.clip(sums.value / sizes, -width / 2.0, width / 2.0)
    together = float(np.clip(sums.value.sum() / n, -width / 2.0, width / 2.0))
    prior = (hand.MEAN_SD * width) ** 2
    pull = mean_sd**2 / (prior + mean_sd**2)
    lost = np.minimum(2.0 * mean_sd / width, 1.0) ** 4
    pulled = together + (own - together) * (1.0 - pull)
    return ArmStats(
        n=n,
        shares=shares,
        share_sd=share_sd,
        means=low + width / 2.0 + pulled,
        unknown=np.sqrt(
            mean_sd**2 * (1.0 - pull)
            + (pull * (own - together)) ** 2
            + hand.EVENLY * (width * lost) ** 2
        ),
        outcome_range=(low, high),
        two_valued=curator.values[-1] == 2,
        size_sd=curator.size_sd,
        sums=sums,
    )


@row("outcome")
def from_level(rows: Block, level: RowFunction) -> FloatArray:
    """The outcome less a level of the record."""
    return np.asarray(rows.outcome - level(rows))


def residual(means: FloatArray) -> RowPartial:
    """The outcome less the mean of its arm."""
    return from_level(ArmLookup(means))


@row()
def clipped_term(
    rows: Block,
    residual: RowFunction,
    weight: RowFunction,
    clip: float,
    most: ArmLookup | None = None,
) -> FloatArray:
    """Clipped residuals times a weight, which has the sign of the arm where arms are compared.

    Terms are within what those of their arm may be at ``most``.
    """
    term = np.asarray(weight(rows) * np.clip(residual(rows), -clip, clip))
    top = np.inf if most is None else most(rows)
    return np.clip(term, -top, top)


@row()
def squared(rows: Block, term: RowFunction) -> FloatArray:
    """Squares of a row function."""
    value = term(rows)
    return np.asarray(value * value)


def between_arms(pair: Sequence[int], weights: FloatArray) -> FloatArray:
    """Weights of the arms with their signs: an arm less another, and 0 for all others."""
    signs = np.zeros(len(weights))
    signs[list(pair)] = np.array([1.0, -1.0]) * weights[list(pair)]
    return signs
