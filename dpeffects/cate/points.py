"""Effects at chosen points, with independent noise for each.

The second stage is a Huber regression on features of norm at most 1, so one record moves its
weights by at most 2 steepest / strength, and the effects at query features Q by that times the
largest singular value of Q (claim 33). A function release with ``noise="kernel"`` is never noisier
at any point, because its noise is correlated as its values are; what points give is independent
noise, and less of it for few points without a delta.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.cate.asymptotic import PaperLearner
from dpeffects.cate.function import planned_strength, second_stage
from dpeffects.cate.nuisance import SHARES
from dpeffects.cate.options import CateOptions
from dpeffects.estimate import Estimate, Unavailable
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.guarantee import Noisy

FloatArray = npt.NDArray[np.float64]

_NO_VARIANCE = Unavailable("no sampling variance is released for effects at points")


def shares() -> dict[str, float]:
    """Split of the budget."""
    return {**SHARES, "effect": 0.6}


def fit_points(
    curator: Curator, options: CateOptions, method: str, queries: FloatArray
) -> tuple[Estimate, ...]:
    """Release nuisances, then effects at encoded query rows."""
    learner, features = second_stage(curator, options, method)
    strength = planned_strength(curator, options, learner, features)
    noisy = curator.effects_at(learner, features, queries, strength, "effect")
    return as_estimates(noisy, learner.nuisance.effect, learner.threshold)


def fit_claimed(
    curator: Curator, method: str, second_stage: Any, queries: FloatArray
) -> tuple[Estimate, ...]:
    """Release effects by the paper's finite release, whose guarantee is a claim."""
    learner = PaperLearner(method, second_stage, queries, curator.outcome_range)
    return as_estimates(curator.claimed_effects(learner, "effect"), 0.0, 1.0)


def as_estimates(noisy: Noisy, average: float, unit: float) -> tuple[Estimate, ...]:
    """One estimate for each released value; its interval covers noise only."""
    scale = noisy.scale * unit
    laplace, gaussian = ((), scale**2) if noisy.gaussian else ((scale,), 0.0)
    return tuple(
        Estimate(average + unit * float(value), _NO_VARIANCE, laplace, gaussian)
        for value in noisy.value
    )
