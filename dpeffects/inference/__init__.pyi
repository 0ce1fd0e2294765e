"""What is known of released numbers, and what is not; intervals and their levels."""

from dpeffects.inference.estimate import (
    Effects,
    Estimate,
    Influence,
    Means,
    Part,
    SamplingVariance,
    Unavailable,
    with_another,
)
from dpeffects.inference.hypotheses import Hypothesis
from dpeffects.inference.intervals import Interval, check_conf_level
from dpeffects.inference.noisy import COUNTED, noise_ratio, ratio_of

__all__ = [
    "COUNTED",
    "Effects",
    "Estimate",
    "Hypothesis",
    "Influence",
    "Interval",
    "Means",
    "Part",
    "SamplingVariance",
    "Unavailable",
    "check_conf_level",
    "noise_ratio",
    "ratio_of",
    "with_another",
]
