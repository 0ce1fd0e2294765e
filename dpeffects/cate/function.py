"""Release of an effect function: nuisances first, then one regression on features."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpeffects.cate import plan
from dpeffects.cate.nuisance import SHARES, first_stage, threshold_for
from dpeffects.cate.options import CateOptions
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.erm import least_strength
from dpeffects.privacy.features import Features, Fourier
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.kernel import BINS, Learner, Nuisance
from dpeffects.results.effect_function import EffectFunction

FloatArray = npt.NDArray[np.float64]

_LEAST = 0.15
"""Least threshold of Huber's loss for effects, as a share of the outcome's range."""
_SPREAD = 0.2
"""Standard deviation of effects that the penalty is planned for, as a share of the range."""
_CORNER = 8.0
"""A histogram with noise of less than 1/8 of an even bin is taken nearly as it is."""


def shares(variance: bool = True) -> dict[str, float]:
    """Split of the budget."""
    split = {**SHARES, "effect": 0.52}
    return {**split, "spread": 0.03, "variance": 0.05} if variance else split


def fit_function(curator: Curator, options: CateOptions, method: str) -> EffectFunction:
    """Release nuisances and an effect function shrunk towards the average effect."""
    learner, features = second_stage(curator, options, method)
    way = "kernel" if options.noise == "kernel" else "objective"
    return release_function(curator, learner, features, way)


def release_function(
    curator: Curator, learner: Learner, features: Features, way: str
) -> EffectFunction:
    """Release the second stage, and what bands need."""
    strength, _ = planned_strength(curator, learner, features, way)
    weights = curator.effect_function(learner, features, strength, way, "effect")
    information = variation = None
    margins = np.full((curator.width - 1, BINS), 1.0 / BINS)
    if curator.has("variance"):
        margins = _margins(curator.covariate_histograms("spread"), curator.n)
        squares = curator.effect_squares(learner, features, weights.value, strength, "variance")
        least, most = 0.02 * curator.n, learner.steepest**2 * curator.n
        variation, information = (float(np.clip(x, least, most)) for x in squares.value)
    return EffectFunction(
        features=features,
        weights=weights.value,
        average=learner.nuisance.effect,
        unit=learner.threshold,
        strength=strength,
        noise_sd=weights.noise_sd,
        inside=weights.inside,
        information=information,
        variation=variation,
        margins=margins,
        spread=_spread(curator, learner),
        usual=_information(curator, learner),
        n=curator.n,
    )


def second_stage(curator: Curator, options: CateOptions, method: str) -> tuple[Learner, Features]:
    """Release the nuisances; what is left is one regression on the returned features."""
    nuisance = first_stage(curator, options, by_arm=method == "dr_learner")
    learner = Learner(method, nuisance, _threshold(nuisance, options, method))
    made = options.features(curator.width)
    return learner, nuisance.features if isinstance(made, Fourier) else made


def _threshold(nuisance: Nuisance, options: CateOptions, method: str) -> float:
    """Threshold of Huber's loss in units of the outcome.

    A DR-learner's pseudo-outcomes are wider: about twice, and for outcomes at the ends of their
    range up to 1 / propensity times.
    """
    lower, upper = nuisance.outcome_range
    share = options.threshold
    if share is None:
        share = max(threshold_for(nuisance.ends), _LEAST)
    if method == "r_learner":
        return share * (upper - lower)
    widest = 1.0 / min(nuisance.propensity.low, 1.0 - nuisance.propensity.high)
    return share * (upper - lower) * max(2.0, 2.0 + (widest - 2.0) * min(share, 1.0))


def planned_strength(
    curator: Curator, learner: Learner, features: Features, way: str, stretch: float = 1.0
) -> tuple[float, float]:
    """Penalty of the second stage and its expected squared error, from public and released numbers.

    ``stretch`` multiplies the noise on the result, for points that are released together.
    """
    epsilon, delta = curator.epsilon("effect"), curator.delta("effect")
    steepest = learner.steepest
    reach = (steepest * math.sqrt(features.size), steepest)
    inside = way == "objective"
    return plan.strength(
        features,
        curator.width,
        information=_information(curator, learner),
        noise=stretch * plan.gradient_noise(reach, epsilon, delta, features.size),
        spread=_spread(curator, learner),
        least=least_strength(epsilon, steepest**2 * (1.0 + 1e-6)) if inside else 0.0,
    )


def _information(curator: Curator, learner: Learner) -> float:
    model = learner.nuisance.propensity
    middle = 0.5 * (model.low + model.high)
    return curator.n * (middle * (1.0 - middle) if learner.name == "r_learner" else 1.0)


def _spread(curator: Curator, learner: Learner) -> float:
    lower, upper = curator.outcome_range
    return _SPREAD * (upper - lower) / learner.threshold


def _margins(counts: Noisy, n: int) -> FloatArray:
    """Shares of records by bin, pulled to even ones by as much as noise explains."""
    noisy, noise = counts.value / n, counts.variance / n**2
    pull = 1.0 / (1.0 + noise * (_CORNER * BINS) ** 2 / 16.0)
    shares = np.maximum(1.0 / BINS + pull * (noisy - 1.0 / BINS), 0.002)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
