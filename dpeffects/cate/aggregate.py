"""Effects at points by any scikit-learn learners, with an exact guarantee: sample and aggregate.

The whole two-stage learner is fitted in each of K blocks of records; the effects at the
points are clipped to a declared range and averaged over blocks, with noise (claim 38). The noise
grows with the root of the number of points (with a delta), so ask for few.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.cate.points import as_estimates
from dpeffects.errors import OptionError
from dpeffects.estimators._learners import AT_POINTS, BlockLearner, Learner
from dpeffects.estimators.sample_aggregate import SampleAggregateOptions
from dpeffects.estimators.spec import Facts
from dpeffects.inference.estimate import Estimate
from dpeffects.privacy.curator import Curator

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AggregateOptions(SampleAggregateOptions):
    """Options of sample and aggregate at points.

    ``learner``: "dr_learner" (default) or "r_learner". ``second_stage``: the regressor of the last
    stage, by default a copy of ``outcome``. ``outcome``, ``propensity``, ``blocks``,
    ``effect_range``, ``clip``, ``crossfit``: as for ``dp_ate(method="sample_aggregate")``,
    and so is what a model may not carry from one fit to the next.
    """

    estimator: str = field(default="aipw", init=False)
    second_stage: Any = None
    learner: str = "dr_learner"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.learner not in AT_POINTS:
            raise OptionError(f"learner must be one of {AT_POINTS}, got {self.learner!r}")
        if self.second_stage is not None:
            wrapped = Learner.regressor("second_stage", self.second_stage)
            object.__setattr__(self, "second_stage", wrapped)

    def at(self, queries: FloatArray) -> BlockLearner:
        """What is computed in a block."""
        block = self.in_block("ATE")
        return replace(block, estimator=self.learner, queries=queries, final=self.second_stage)

    def resolve(self, facts: Facts) -> AggregateOptions:
        """Choose the blocks from public numbers, and try the models on made-up records."""
        made = super().resolve(facts)
        assert isinstance(made, AggregateOptions)
        return made


def fit_blocks(
    curator: Curator, options: AggregateOptions, queries: FloatArray
) -> tuple[Estimate, ...]:
    """Release the mean over blocks of the effects at encoded query rows."""
    lower, upper = curator.outcome_range
    interval = options.effect_range or (lower - upper, upper - lower)
    noisy = curator.block_answers(
        "effects at points",
        options.at(queries),
        options.blocks or 2,
        interval,
        len(queries),
        "effect",
    )
    return as_estimates(noisy, 0.0, 1.0)
