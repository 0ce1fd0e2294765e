"""The propensity model of inverse probability weighting, as far as its error is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.privacy.bounds import Interval
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.erm import (
    SPREAD,
    Weights,
    default_strength,
    least_strength,
    output_strength,
    unit_norm,
)
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.weighting import Propensity

FloatArray = npt.NDArray[np.float64]

_PUBLIC_STRENGTH = 1e-3
"""At label level the model costs nothing, so the penalty is only a numerical safeguard."""
_UNDO = 1.25
"""Shrinkage of the model is undone up to this factor; beyond, undoing adds more noise than it
removes bias."""
_SHARE_SPREAD = 0.05
"""Variance of the share of treated records over studies: a noisy share is pulled to 1/2 by it."""


@dataclass(frozen=True)
class Model:
    """A known model and the error of its weights.

    The error is diag(scale) times a vector whose entries have standard deviation ``noise_sd``, and
    beside it shrinkage that is left, a vector of the same form of norm ``bias``.
    """

    propensity: Propensity
    noise_sd: float
    scale: FloatArray
    bias: float
    details: dict[str, Any]


def share_treated(curator: Curator, count: Noisy) -> float:
    """Share of treated records: the noisy one, pulled to 1/2 by as much as noise explains."""
    noisy = float(count) / curator.n
    pull = _SHARE_SPREAD / (_SHARE_SPREAD + count.variance / curator.n**2)
    least = max(count.scale, 1.0) / curator.n
    return min(max(0.5 + pull * (noisy - 0.5), min(least, 0.5)), max(1.0 - least, 0.5))


def public_model(curator: Curator, penalty: float | None, clipped: Interval) -> Model:
    """Fit the model where it costs nothing: covariates and treatment are public."""
    strength = curator.n * penalty if penalty else _PUBLIC_STRENGTH
    weights = curator.public_model(strength, 0.0)
    model = Propensity.within(weights.value, 0.0, clipped)
    return Model(model, 0.0, np.ones(curator.width), 0.0, _shown(model))


def private_model(
    curator: Curator, penalty: float | None, clipped: Interval, way: str, noise: str
) -> tuple[Model, Noisy]:
    """Release the number of treated records, and a model shrunk towards their share."""
    n, d = curator.n, curator.width
    epsilon, delta = curator.epsilon("model"), curator.delta("model")
    default, least = default_strength, least_strength(epsilon)
    if way == "output":
        default, least = output_strength, 0.0
    strength = max(n * penalty if penalty else default(n, d, epsilon, delta), least)
    count = curator.treated_count("counts")
    share = share_treated(curator, count)
    offset = math.log(share / (1.0 - share))
    weights = curator.propensity_model(strength, offset, "model", way, noise)
    # a public stand-in for the information about each weight
    each = np.full(d, SPREAD)
    each[0] = 1.0
    information = n * share * (1.0 - share) * each / unit_norm(d) ** 2
    return _undone(weights, information, offset, clipped), count


def _undone(weights: Weights, information: FloatArray, offset: float, clipped: Interval) -> Model:
    """Undo mild shrinkage, and say what noise and the shrinkage that is left can do."""
    shrunk = 1.0 + weights.strength / information
    undo = np.minimum(shrunk, _UNDO)
    scale = undo / (information + weights.strength) if weights.inside else undo
    # weights before shrinkage: as released, or such that logits have variance 1 if that is less
    size = min(
        float(np.linalg.norm(shrunk[1:] * weights.value[1:])), unit_norm(undo.size) / SPREAD**0.5
    )
    left = float((1.0 - undo[-1] / shrunk[-1]) * size / scale[-1])
    model = Propensity.within(undo * weights.value, offset, clipped)
    details = {"strength of the ridge penalty": weights.strength, **_shown(model)}
    return Model(model, weights.noise_sd, scale, left, details)


def _shown(model: Propensity) -> dict[str, Any]:
    return {"propensities within": f"[{model.low:.4g}, {model.high:.4g}]"}
