"""Effects at points by DP-EBM: read off the released additive models, at no further cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.estimators.learners.r_learner import NO_VARIANCE
from dpeffects.inference.estimate import Effects, Estimate
from dpeffects.privacy.curator import Curator
from dpeffects.replication import dp_ebm
from dpeffects.replication.block_learner import require_points


@dataclass(frozen=True)
class DPEBMAtPointsOptions(dp_ebm.DPEBMOptions):
    """Options of DP-EBM at points: ``learner`` and ``clip`` as for an average effect.

    ``learner``: "s" (default), "t", "dr" or "r". ``clip``: propensities are kept within
    [clip, 1 - clip]. ``release``: "points".
    """

    release: str = "points"

    def __post_init__(self) -> None:
        require_points("dp_ebm", self.release)
        super().__post_init__()


def fit(curator: Curator, options: DPEBMAtPointsOptions, points: FloatArray) -> Effects:
    """Release additive models, and read effects off them."""
    effect = dp_ebm.released(curator, options.learner, options.clip)
    lower, upper = curator.outcome_range
    values = np.clip(effect(points), lower - upper, upper - lower)
    note = dp_ebm.method_warnings(effect)
    estimates = (Estimate(float(x), NO_VARIANCE, gaussian=math.nan, warnings=note) for x in values)
    return Effects(tuple(estimates), (f"{note}.",) if note else ())


SPEC = replace(
    dp_ebm.SPEC,
    about="explainable boosting machines (interpret), evaluated at points",
    estimands=("CATE",),
    options=DPEBMAtPointsOptions,
    fit=fit,
    needs_intercept=True,
)
