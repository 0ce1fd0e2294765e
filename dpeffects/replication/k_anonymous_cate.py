"""Effects at points from a k-anonymised table: the baseline of paper 001, figure 13.

Covariates are averaged in groups of at least k near records, as for an average effect
(`k_anonymous`), and any two-stage learner is fitted to the anonymised table, without noise. This is
**not differential privacy**, for any k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray
from dpeffects.inference.estimate import Effects, Estimate, Unavailable
from dpeffects.privacy.curator import Curator
from dpeffects.replication import k_anonymous
from dpeffects.replication.block_learner import BlockLearner, check_at_points, models_of
from dpeffects.replication.k_anonymous import KAnonymousOptions, anonymised
from dpeffects.replication.unproved.unproved_releases import unprotected

_NO_INTERVAL = Unavailable("no sampling variance is computed for effects at points")


@dataclass(frozen=True)
class KAnonymousAtPointsOptions(KAnonymousOptions):
    """Options of k-anonymisation at points.

    ``learner``: "dr_learner" (default) or "r_learner". ``second_stage``: the regressor of the last
    stage, by default a copy of ``outcome``. ``k``, ``outcome``, ``propensity``, ``clip``: as for
    ``dp_ate(method="k_anonymous")``. ``release``: "points".
    """

    estimator: str = field(default="aipw", init=False)
    second_stage: Any = None
    learner: str = "dr_learner"
    release: str = "points"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_points(self, "k_anonymous")


def fit(curator: Curator, options: KAnonymousAtPointsOptions, points: FloatArray) -> Effects:
    """Fit the learner to the anonymised table and answer at encoded points, without noise."""
    learner = BlockLearner(
        *models_of(options),
        estimator=options.learner,
        clip=options.clip,
        queries=points,
        final=options.second_stage,
    )

    def answer(rows: FloatArray, treated: BoolArray, outcome: FloatArray) -> FloatArray:
        return learner(anonymised(rows, options.k), treated, outcome)

    lower, upper = curator.outcome_range
    values = np.clip(unprotected(curator, answer), lower - upper, upper - lower)
    estimates = (Estimate(float(x), _NO_INTERVAL, gaussian=math.nan) for x in values)
    return Effects(tuple(estimates), (k_anonymous.NONE.format(k=options.k),))


SPEC = replace(
    k_anonymous.SPEC,
    about="any learner on microaggregated covariates (groups of k); no differential privacy",
    estimands=("CATE",),
    options=KAnonymousAtPointsOptions,
    fit=fit,
    needs_intercept=True,
)
