"""Effects by group, for disjoint groups by declared cut points or levels.

With slopes s and targets r of the learner (`privacy.kernel.Learner`), the effect in a group is the
least-squares one, sum of s r / sum of s^2 over its records. Both sums are released for all groups
at once; a record is in one group, so they cost no more than one sum of each (claim 36). For an
R-learner a group's effect weights records by p (1 - p), which is the mean effect where it does not
vary within the group; for a DR-learner it is the mean effect.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpeffects.cate.nuisance import SHARES, first_stage
from dpeffects.cate.options import CateOptions
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.kernel import Learner, Nuisance

FloatArray = npt.NDArray[np.float64]

_FEW = 3.0
"""A group whose weight is below this many noise scales has no usable effect."""


def shares() -> dict[str, float]:
    """Split of the budget."""
    return {**SHARES, "effect": 0.42, "variance": 0.18}


def fit_groups(curator: Curator, options: CateOptions, method: str) -> tuple[Estimate, ...]:
    """Release nuisances, then sums by group; the rest is post-processing."""
    nuisance = first_stage(curator, options, by_arm=method == "dr_learner")
    learner = Learner(method, nuisance, _unit(nuisance, method))
    tops, weights = curator.group_sums(learner, "effect")
    size = np.maximum(weights.value, weights.scale)
    ratio = np.clip(tops.value / size, -1.0, 1.0)
    squares = curator.group_squares(learner, ratio, "variance") if curator.has("variance") else None
    return tuple(
        _estimate(g, learner, ratio, size, tops, weights, squares) for g in range(ratio.size)
    )


def _unit(nuisance: Nuisance, method: str) -> float:
    """What residuals are clipped at: the outcome's range, or half of it where none is at its ends.

    A DR-learner divides residuals by propensities.
    """
    lower, upper = nuisance.outcome_range
    unit = (upper - lower) * max(0.5, min(1.25 * nuisance.ends, 1.0))
    if method == "r_learner":
        return unit
    return unit / min(nuisance.propensity.low, 1.0 - nuisance.propensity.high)


def _estimate(
    g: int,
    learner: Learner,
    ratio: FloatArray,
    size: FloatArray,
    tops: Noisy,
    weights: Noisy,
    squares: Noisy | None,
) -> Estimate:
    """The effect in one group: its noise by linearisation, its variance from squares."""
    unit = learner.threshold
    scales = unit * np.array([tops.scale, weights.scale * abs(ratio[g])]) / size[g]
    gaussian = float(sum(s**2 for s, x in zip(scales, (tops, weights), strict=True) if x.gaussian))
    laplace = tuple(
        float(s) for s, x in zip(scales, (tops, weights), strict=True) if not x.gaussian and s > 0
    )
    value = learner.nuisance.effect + unit * float(ratio[g])
    sampling: SamplingVariance | Unavailable
    if weights.value[g] < _FEW * weights.scale:
        sampling = Unavailable("too few records in the group for its noise")
    elif squares is None:
        sampling = Unavailable("variance=False was asked for")
    else:
        factor = unit**2 / size[g] ** 2
        largest = factor * learner.steepest**2 * max(float(size[g]), 1.0) * 4.0
        scale = squares.scale / np.sqrt(2.0) if squares.gaussian else squares.scale
        sampling = SamplingVariance(
            factor * float(squares.value[g]), factor * float(scale), float(largest)
        )
    return Estimate(value, sampling, laplace, gaussian)
