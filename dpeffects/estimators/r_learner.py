"""R-learner with private nuisances: residuals of the outcome on residuals of the treatment.

With propensity p(x) and mean outcome m(x) it fits (a - p(x)) g(x) to y - m(x). By group it weights
records by p (1 - p), which is the mean effect where it does not vary within the group. It is
careful where overlap is poor: records with little of it weigh little.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.estimators._kernel_learner import (
    KernelLearner,
    KernelLearnerOptions,
    shares,
    uses_delta,
)
from dpeffects.estimators.spec import NO_CONFOUNDER, MethodSpec
from dpeffects.estimators.weighting import Propensity

CITATION = (
    "Schröder, Melnychuk and Feuerriegel (2025), Differentially private learners for "
    "heterogeneous treatment effects."
)


@dataclass(frozen=True)
class RLearner(KernelLearner):
    """Slopes are residuals of the treatment, and nothing is divided by a propensity."""

    weighted_residuals = True

    def smallest_divisor(self, propensity: Propensity) -> float:
        """Residuals are not divided."""
        return 1.0

    def widening(self, share: float, propensity: Propensity) -> float:
        """Targets are as wide as outcomes."""
        return 1.0

    def squared_slope(self, propensity: Propensity) -> float:
        """p (1 - p) midway between the limits of the propensity."""
        middle = 0.5 * (propensity.low + propensity.high)
        return middle * (1.0 - middle)

    def pseudo_outcomes(
        self, a: FloatArray, y: FloatArray, score: FloatArray, one: FloatArray, zero: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Residual outcome over residual treatment, weighted by the square of the latter."""
        gap, own = a - score, np.where(a > 0.5, one, zero)
        return (y - own) / gap + one - zero, gap**2


SPEC = MethodSpec(
    name="r_learner",
    title="R-learner with private nuisances",
    about="a function of the covariates from residuals; careful where overlap is poor",
    assumes=f"{NO_CONFOUNDER}; log odds of treatment are linear in its terms",
    estimands=("CATE",),
    levels=("sample",),
    options=KernelLearnerOptions,
    shares=shares,
    uses_delta=uses_delta,
    fit=RLearner().fit,
    citation=CITATION,
    variance_shares=("variance", "spread"),
    needs_intercept=True,
)
