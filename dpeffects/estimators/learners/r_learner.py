"""R-learner with private nuisances: residuals of the outcome on residuals of the treatment.

With propensity p(x) and mean outcome m(x) it fits (a - p(x)) g(x) to y - m(x). By group it weights
records by p (1 - p), which is the mean effect where it does not vary within the group. It is
careful where overlap is poor: records with little of it weigh little.
"""

from __future__ import annotations

from dpeffects.estimators.learners.kernel_learner import (
    KernelLearnerOptions,
    RLearner,
    shares,
    uses_delta,
)
from dpeffects.estimators.spec import NO_CONFOUNDER, MethodSpec

CITATION: str = (
    "Schröder, Melnychuk and Feuerriegel (2025), Differentially private learners for "
    "heterogeneous treatment effects."
)


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
