"""What both kinds of private exact matching share: options, the variance, the reference."""

from __future__ import annotations

from dataclasses import dataclass

from dpeffects.estimators._checks import choice
from dpeffects.estimators.spec import Options
from dpeffects.inference.estimate import SamplingVariance
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.strata import MatchedStrata

CITATION = (
    "Koga, Chaudhuri and Page, Differentially private multi-site treatment effect estimation."
)
ONE_ARM = (
    "The effect is that of the strata with both arms: a stratum with one arm counts as no effect."
)
GIVEN = "Standard error and interval are for the covariates and treatments at hand."


@dataclass(frozen=True)
class StrataOptions(Options):
    """``matching``: "means" (differences in means by stratum) or "round_robin" (the paper's)."""

    matching: str = choice("means", "round_robin")

    def needs_memory(self) -> str:
        """Round robin deals records in their order."""
        return (
            'matching="round_robin" goes by the order of rows' if self.matching != "means" else ""
        )


def capped_variance(curator: Curator, strata: MatchedStrata, cap: float) -> SamplingVariance:
    """Release the sampling variance, given covariates and treatments, with capped weights.

    The weights of all records sum to 2n at most, so their squares to at most 2n times the cap.
    """
    n = curator.n
    lower, upper = curator.outcome_range
    released = strata.variance("variance", cap)
    largest = cap * (upper - lower) ** 2 / (2.0 * n)
    return SamplingVariance(float(released) / n**2, released.scale / n**2, largest)
