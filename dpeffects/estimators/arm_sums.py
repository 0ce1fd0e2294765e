"""Counts and sums by arm, for the methods that start with them."""

from __future__ import annotations

from dataclasses import replace

from dpeffects.design.arms import ARMS, TREATED, Outcome, ScaledSquare
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.sets import COUNT, Box


def treated_count(curator: Curator, share: str) -> Noisy:
    """Release the number of treated records; free where treatment is public."""
    count = curator.sums("treated count", None, COUNT, TREATED, share=share)
    return replace(count, value=count.value[0])


def arm_sums(curator: Curator, share: str) -> Noisy:
    """Release the sums of y - middle over (treated, control)."""
    within = Box(*curator.outcome_range)
    sums = curator.sums("outcome sums by arm", Outcome(), within, ARMS, share=share)
    return replace(sums, value=sums.value[:, 0])


def arm_squares(curator: Curator, share: str) -> Noisy:
    """Release the sums of z^2 - 1/2 over (treated, control), z the outcome scaled to [-1, 1].

    Centring the square halves what one record can do when it moves from one arm to the other.
    """
    square = ScaledSquare(*curator.outcome_range)
    sums = curator.sums("outcome squares by arm", square, Box(0, 1), ARMS, share=share)
    return replace(sums, value=sums.value[:, 0])
