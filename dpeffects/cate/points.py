"""Effects at chosen points.

A function answers at points too, and with noise in its objective it mostly has the least error.
Noise on the answers themselves (``noise="kernel"``) can do better for few points, above all without
a delta; ``noise="auto"`` compares what both promise, from public numbers. One record moves the
weights of the second stage, a Huber regression on features of norm at most 1, by at most
2 steepest / strength, and so the answers at query features Q by that times the largest singular
value of Q (claim 33).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.cate.asymptotic import PaperLearner
from dpeffects.cate.function import planned_strength, release_function, second_stage
from dpeffects.cate.nuisance import SHARES
from dpeffects.cate.options import CateOptions
from dpeffects.estimate import Estimate, Unavailable
from dpeffects.methods import _boosting, dp_ebm
from dpeffects.methods.dp_ebm import DPEBMOptions
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
    stretch = float(np.linalg.norm(features(queries), 2))
    planned = {
        "kernel": planned_strength(curator, learner, features, "kernel", stretch),
        "objective": planned_strength(curator, learner, features, "objective"),
    }
    way = options.noise if options.noise != "auto" else min(planned, key=lambda w: planned[w][1])
    if way == "objective":
        function = release_function(curator, learner, features, way)
        values = zip(function(queries), function.sd(queries, "noise"), strict=True)
        return tuple(Estimate(float(x), _NO_VARIANCE, gaussian=float(sd) ** 2) for x, sd in values)
    noisy = curator.effects_at(learner, features, queries, planned[way][0], "effect")
    return as_estimates(noisy, learner.nuisance.effect, learner.threshold)


def fit_claimed(
    curator: Curator, method: str, second_stage: Any, queries: FloatArray
) -> tuple[Estimate, ...]:
    """Release effects by the paper's finite release, whose guarantee is a claim."""
    learner = PaperLearner(method, second_stage, queries, curator.outcome_range)
    return as_estimates(curator.claimed_effects(learner, "effect"), 0.0, 1.0)


def fit_boosted(
    curator: Curator, options: DPEBMOptions, queries: FloatArray
) -> tuple[tuple[Estimate, ...], tuple[str, ...]]:
    """Release additive models, and read effects off them; also what to note."""
    effect = _boosting.released(curator, options.learner, options.clip)
    lower, upper = curator.outcome_range
    values = np.clip(effect(queries), lower - upper, upper - lower)
    note = dp_ebm.warning(effect)
    made = (Estimate(float(x), _NO_VARIANCE, gaussian=math.nan, caution=note) for x in values)
    return tuple(made), (f"{note}.",) if note else ()


def as_estimates(noisy: Noisy, average: float, unit: float) -> tuple[Estimate, ...]:
    """One estimate for each released value; its interval covers noise only."""
    scale = noisy.scale * unit
    laplace, gaussian = ((), scale**2) if noisy.gaussian else ((scale,), 0.0)
    return tuple(
        Estimate(average + unit * float(value), _NO_VARIANCE, laplace, gaussian)
        for value in noisy.value
    )
