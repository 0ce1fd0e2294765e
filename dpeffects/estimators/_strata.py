"""What both kinds of private exact matching share: options, the variance, the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import FloatArray
from dpeffects.errors import OptionError
from dpeffects.estimators._checks import check_choice
from dpeffects.estimators.spec import Options
from dpeffects.inference.estimate import SamplingVariance
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.strata import MatchedStrata

WEIGHTS = ("means", "round_robin")
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

    matching: str = "means"

    def __post_init__(self) -> None:
        check_choice("matching", self.matching, WEIGHTS)

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


def reference(
    outcome: FloatArray, treated: npt.NDArray[np.bool_], rows: FloatArray, **options: Any
) -> tuple[float, float]:
    """Non-private exact matching by differences in means within strata (pandas).

    The standard error is conditional on covariates and treatments; an arm of one record is given
    the average variance within arms.
    """
    import pandas as pd

    if not np.isin(rows, (0.0, 1.0)).all():
        raise OptionError("matching on strata needs discrete covariates; write cut(x, [...])")
    packed = np.packbits(rows.astype(np.bool_), axis=1)
    _, stratum = np.unique(packed, axis=0, return_inverse=True)
    frame = pd.DataFrame({"stratum": stratum.reshape(-1), "y": outcome})
    arms = [
        frame[arm].groupby("stratum")["y"].agg(["mean", "var", "size"])
        for arm in (treated, ~treated)
    ]
    both = arms[0].merge(arms[1], on="stratum", suffixes=("_t", "_c"))
    size = both["size_t"] + both["size_c"]
    known = both[["var_t", "var_c"]].to_numpy()
    known = known[np.isfinite(known)]  # an arm of one record has none
    typical = float(known.mean()) if known.size else 0.0
    spread = both["var_t"].fillna(typical) / both["size_t"]
    spread += both["var_c"].fillna(typical) / both["size_c"]
    effect = float((size * (both["mean_t"] - both["mean_c"])).sum()) / outcome.size
    return effect, math.sqrt(float((size**2 * spread).sum())) / outcome.size
