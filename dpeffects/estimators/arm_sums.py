"""Counts and sums by arm, for the methods that start with them.

With two arms they are those of (treated, control) records. With more they are in the order of the
arms, the reference first: a record is in one arm, so all of them cost what two do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.design.arms import ARMS, TREATED, EachArm, Outcome, ScaledSquare
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.rows import Cells
from dpeffects.privacy.sets import COUNT, Box


def arm_cells(curator: Curator) -> Cells:
    """Treated and control records, or one cell for each of more arms."""
    return ARMS if curator.arms == 2 else EachArm(curator.arms).cells


def treated_count(curator: Curator, share: str) -> Noisy:
    """Release the number of treated records; free where treatment is public."""
    count = curator.sums("treated count", None, COUNT, TREATED, share=share)
    return replace(count, value=count.value[0])


@dataclass(frozen=True, eq=False)
class Counts:
    """Released sizes of the arms, which add up to the public number of records.

    ``by_noise`` says how each size moves with each of the independent noises, of variance
    ``release.variance``.
    """

    sizes: FloatArray
    by_noise: FloatArray
    release: Noisy

    @property
    def variance(self) -> float:
        """Variance of the noise in a size."""
        return float((self.by_noise[0] ** 2).sum()) * self.release.variance


def arm_counts(curator: Curator, share: str) -> Counts:
    """Release the sizes of the arms; free where treatment is public.

    Of two arms one is counted. Of more all are, and what the counts exceed n by is taken off in
    equal parts.
    """
    n, arms = curator.n, curator.arms
    if arms == 2:
        count = treated_count(curator, share)
        treated = float(count)
        return Counts(np.array([treated, n - treated]), np.array([[1.0], [-1.0]]), count)
    release = curator.sums("records by arm", None, COUNT, arm_cells(curator), share=share)
    by_noise = np.eye(arms) - 1.0 / arms
    return Counts(by_noise @ release.value[:, 0] + n / arms, by_noise, release)


def arm_sums(curator: Curator, share: str) -> Noisy:
    """Release the sums of y - middle by arm."""
    within = Box(*curator.outcome_range)
    cells = arm_cells(curator)
    sums = curator.sums("outcome sums by arm", Outcome(), within, cells, share=share)
    return replace(sums, value=sums.value[:, 0])


def arm_squares(curator: Curator, share: str) -> Noisy:
    """Release the sums of z^2 - 1/2 by arm, z the outcome scaled to [-1, 1].

    Centring the square halves what one record can do when it moves from one arm to the other.
    """
    square, cells = ScaledSquare(*curator.outcome_range), arm_cells(curator)
    sums = curator.sums("outcome squares by arm", square, Box(0, 1), cells, share=share)
    return replace(sums, value=sums.value[:, 0])
