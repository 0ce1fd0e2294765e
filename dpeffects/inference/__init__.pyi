"""What is known of released numbers, and what is not; intervals and their levels."""

from dpeffects.inference.estimate import (
    ArmMeans,
    Effects,
    ErrorPart,
    Estimate,
    Influence,
    SamplingVariance,
    Unavailable,
    with_another,
)
from dpeffects.inference.hypotheses import Hypothesis
from dpeffects.inference.intervals import Interval, check_conf_level
from dpeffects.inference.noisy import COUNTED, noise_ratio, ratio_of

__all__ = [
    "COUNTED",
    "ArmMeans",
    "Effects",
    "ErrorPart",
    "Estimate",
    "Hypothesis",
    "Influence",
    "Interval",
    "SamplingVariance",
    "Unavailable",
    "check_conf_level",
    "noise_ratio",
    "ratio_of",
    "with_another",
]
