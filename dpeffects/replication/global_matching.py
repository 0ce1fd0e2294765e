"""Exact matching on strata with global sensitivity: GlobalDPMatching (papers 002 and 003).

The baseline of the papers: the same estimate as `smooth_matching`, with noise for the worst
dataset there could be. One record can move the estimate by (1 + 1/n) B, where B is the range of the
outcome (claim 13), so the noise is as large as the range whatever n is. It is pure epsilon, and of
use for comparison only.
"""

from __future__ import annotations

import math

from dpeffects.estimators.spec import MethodSpec
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.exact_matching import MatchedStrata
from dpeffects.replication.smooth_matching import (
    CITATION,
    GIVEN,
    ONE_ARM,
    StrataOptions,
    capped_variance,
)


class GlobalMatchingOptions(StrataOptions):
    """``matching``: "means" (differences in means by stratum) or "round_robin" (the paper's)."""


def budget_split(level: str, options: GlobalMatchingOptions) -> dict[str, float]:
    """Split of the budget: the noise of the estimate dwarfs the sampling error."""
    return {"estimate": 0.9, "variance": 0.1}


def fit(curator: Curator, options: GlobalMatchingOptions, estimand: str) -> Estimate:
    """Release the estimate, then its variance with weights up to the square root of n."""
    n = curator.n
    strata = MatchedStrata(curator, options.matching)
    difference = strata.difference_globally("estimate")
    sampling: SamplingVariance | Unavailable = Unavailable("variance=False was asked for")
    if curator.has("variance"):
        sampling = capped_variance(curator, strata, max(math.sqrt(n), 2.0))
    return Estimate(
        value=float(difference) / n,
        sampling=sampling,
        laplace=(difference.scale / n,),
        notes=(ONE_ARM, GIVEN, "The noise does not shrink with n; see smooth_matching."),
        details={"strata declared": curator.n_strata},
    )


SPEC = MethodSpec(
    name="global_matching",
    title="exact matching on strata, global sensitivity",
    about="exact matching on strata, with noise by global sensitivity: a baseline, pure epsilon",
    assumes="treatment was as good as random within each stratum",
    estimands=("ATE",),
    levels=("sample",),
    options=GlobalMatchingOptions,
    budget_split=budget_split,
    fit=fit,
    citation=CITATION,
    needs_strata=True,
)
