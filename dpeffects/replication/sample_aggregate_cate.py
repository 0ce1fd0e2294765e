"""Effects at points by any scikit-learn learners, with an exact guarantee: sample and aggregate.

The whole two-stage learner is fitted in each of K blocks of records; the effects at the
points are clipped to a declared range and averaged over blocks, with noise (claim 10). The noise
grows with the root of the number of points (with a delta), so ask for few.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from dpeffects.arrays import FloatArray
from dpeffects.estimators.learners.r_learner import at_points
from dpeffects.estimators.spec import NO_CONFOUNDER, Options, PublicInfo
from dpeffects.inference.estimate import Effects
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.sample_splits import by_block
from dpeffects.replication import sample_aggregate
from dpeffects.replication.block_learner import BlockLearner, check_at_points

_BIAS = (
    "Learners are fitted in blocks of {} records: what they miss at that size is in the effects. "
    "About {:.0f} of {} blocks have both arms; the others are left out."
)


@dataclass(frozen=True)
class SampleAggregateAtPointsOptions(sample_aggregate.SampleAggregateOptions):
    """Options of sample and aggregate at points.

    ``learner``: "dr_learner" (default) or "r_learner". ``second_stage``: the regressor of the last
    stage, by default a copy of ``outcome``. ``outcome``, ``propensity``, ``blocks``,
    ``effect_range``, ``clip``, ``crossfit``: as for ``dp_ate(method="sample_aggregate")``,
    and so is what a model may not carry from one fit to the next. ``release``: "points".
    """

    estimator: str = field(default="aipw", init=False)
    second_stage: Any = None
    learner: str = "dr_learner"
    release: str = "points"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_points(self, "sample_aggregate")

    def at(self, points: FloatArray) -> BlockLearner:
        """What is computed in a block."""
        block = self.in_block("ATE")
        return replace(block, estimator=self.learner, queries=points, final=self.second_stage)


def budget_split(level: str, options: Options) -> dict[str, float]:
    """Split of the budget."""
    return {"count": 0.1, "effect": 0.9}


def uses_delta(options: Options, facts: PublicInfo) -> dict[str, float | None]:
    """One number for each point."""
    return {"count": 1.0, "effect": float(facts.points)}


def fit(curator: Curator, options: SampleAggregateAtPointsOptions, points: FloatArray) -> Effects:
    """Release the treated count, then the mean over blocks of the effects at encoded points."""
    lower, upper = curator.outcome_range
    interval = options.effect_range or (lower - upper, upper - lower)
    learner, count = options.at(points), len(points)
    treated, smaller = sample_aggregate.released_arms(curator, "count")
    blocks = options.blocks or sample_aggregate.default_blocks(
        curator.n, curator.width, curator.epsilon("effect"), learner.flexible, smaller
    )
    answers = by_block(curator, learner, blocks, count)
    noisy, answered = sample_aggregate.mean_answer(
        answers, "effects at points", interval, "effect", count
    )
    few = sample_aggregate.small_parts(curator, learner.flexible, treated, blocks, "block")
    notes = (f"{few}." if few else "", _BIAS.format(curator.n // blocks, answered, blocks))
    return Effects(at_points(noisy, 0.0, 1.0), tuple(filter(None, notes)))


SPEC = replace(
    sample_aggregate.SPEC,
    about="any scikit-learn learners in disjoint blocks; noise is added to effects at points",
    assumes=f"{NO_CONFOUNDER}; models of one block are correctly specified",
    estimands=("CATE",),
    options=SampleAggregateAtPointsOptions,
    budget_split=budget_split,
    uses_delta=uses_delta,
    fit=fit,
    needs_intercept=True,
)
