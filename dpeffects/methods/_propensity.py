"""The propensity model of inverse probability weighting: its price, and what its error does.

With r the centred outcome, x the row and z the error of the weights, the error of the model moves
the estimate by the mean of r x'z, to first order. The norm of the mean of r x is released; z is
noise of known variance, and shrinkage, up to the information matrix of the model. For that a public
stand-in is used: covariates spread evenly over their declared ranges. Where they crowd in a corner
of them, intervals can be too narrow; declare ranges that fit.

COVERAGE
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.privacy.bounds import Interval
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.erm import SPREAD, Weights, least_strength, unit_l1, unit_norm
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.noise import gaussian_scale
from dpeffects.privacy.weighting import Propensity

FloatArray = npt.NDArray[np.float64]

_PUBLIC_STRENGTH = 1e-3
"""At label level the model costs nothing, so the penalty is only a numerical safeguard."""
_UNDO = 1.25
"""Shrinkage of the model is undone up to this factor; beyond, undoing adds more noise than it
removes bias."""
_VARIED = 0.85
"""Mean of e(1 - e) against that of a flat model: propensities that vary tell less."""
_ALIGNED = 0.7
"""Cosine between what drives treatment and what drives outcomes, where nothing is known of it."""
_LOGIT_VARIANCE = 0.5
"""Variance of true logits, where the released ones are mostly noise."""
_SLOPE, _CONFOUNDED = 0.3, 0.035
"""Slope of outcomes along covariates and bias without adjustment, in ranges of the outcome: what
`plan` expects."""
_SHARE_SPREAD = 0.05
"""Variance of the share of treated records over studies: a noisy share is pulled to 1/2 by it."""


@dataclass(frozen=True)
class Model:
    """A known model and the error of its weights.

    The error is diag(scale) times a vector whose entries have standard deviation ``noise_sd``, and
    beside it shrinkage that is left, a vector of the same form of norm ``bias``; ``kept`` is the
    part of the slopes that shrinkage leaves.
    """

    propensity: Propensity
    noise_sd: float
    scale: FloatArray
    bias: float
    kept: float
    details: dict[str, Any]

    @property
    def notes(self) -> tuple[str, ...]:
        """Say it where the model is too weak to adjust for much."""
        if self.kept > 0.5:
            return ()
        return (
            f"At this size and budget the propensity model keeps about {100 * self.kept:.0f} % of "
            "its slopes, so little is adjusted for; the interval allows for confounding that is "
            "left.",
        )


def plan(
    records: tuple[int, int],
    d: int,
    prices: Mapping[float, tuple[float, float]],
    delta: float,
    clip: float,
    way: str,
) -> tuple[float, float]:
    """Choose a price of the model and a strength by the error they lead to; public numbers only.

    ``records`` are those of the model and of the estimate; ``prices`` gives, for each part that the
    model may have, epsilon of the model and of the estimate. A model that cannot be learnt at this
    price is best left flat: noise in it moves the estimate, and its reach asks for more noise.
    """
    (m, n), norm = records, unit_norm(d)
    information = float(_information(m, d, 0.2)[-1])
    best = (math.inf, 0.0, 0.0)
    for part, (model, estimate) in prices.items():
        sd = 2.0 * math.sqrt(2.0) * (unit_l1(d) if way == "objective" else math.sqrt(d)) / model
        if delta > 0:
            sd = min(sd, gaussian_scale(2.0, 0.9 * model, delta * part / 3.0, d))
        strength = least_strength(model) * np.geomspace(1.0, 3e4, 120)
        kept = information / (information + strength)
        undo = np.minimum(1.0 / kept, _UNDO)
        noise = undo * sd / (strength + (information if way == "objective" else 0.0))
        signal = undo * kept * norm / math.sqrt(max(d - 1, 1) * SPREAD)
        reach = 0.4 * max(d - 1, 1) * np.hypot(noise, signal) / norm
        low = np.maximum(clip, 1.0 / (1.0 + np.exp(reach)))
        errors = (
            1.15 * math.sqrt(2.0) / (low * estimate * n),  # noise in the weighted sum
            _SLOPE * SPREAD / norm * noise,
            _CONFOUNDED * np.maximum(0.0, 1.0 - undo * kept),
        )
        total = np.sum([np.broadcast_to(error, low.shape) ** 2 for error in errors], axis=0)
        at = int(np.argmin(total))
        best = min(best, (float(total[at]), part, float(strength[at])))
    return best[1], best[2] / m


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
    return Model(model, 0.0, np.ones(curator.width), 0.0, 1.0, _shown(model))


def private_model(
    curator: Curator, penalty: float, clipped: Interval, way: str, noise: str
) -> tuple[Model, Noisy]:
    """Release the number of treated records, and a model shrunk towards their share."""
    n, d = curator.n, curator.width
    least = least_strength(curator.epsilon("model")) if way == "objective" else 0.0
    count = curator.treated_count("counts")
    share = share_treated(curator, count)
    offset = math.log(share / (1.0 - share))
    weights = curator.propensity_model(max(n * penalty, least), offset, "model", way, noise)
    information = _information(n, d, _VARIED * share * (1.0 - share))
    return _undone(weights, information, offset, clipped), count


def _information(n: int, d: int, each: float) -> FloatArray:
    """A public stand-in for the information about each weight."""
    of_column = np.full(d, SPREAD)
    of_column[0] = 1.0
    return n * each * of_column / unit_norm(d) ** 2


def _undone(weights: Weights, information: FloatArray, offset: float, clipped: Interval) -> Model:
    """Undo mild shrinkage, and say what noise and the shrinkage that is left can do."""
    shrunk = 1.0 + weights.strength / information
    undo = np.minimum(shrunk, _UNDO)
    scale = undo / (information + weights.strength) if weights.inside else undo
    # size of the weights before shrinkage: as released less its noise, as far as that is reliable
    expected = unit_norm(undo.size) ** 2 * _LOGIT_VARIANCE / SPREAD
    noise = (undo.size - 1) * float(shrunk[-1] * scale[-1] / undo[-1] * weights.noise_sd) ** 2
    seen = max(float(np.sum((shrunk * weights.value)[1:] ** 2)) - noise, 0.0)
    size = math.sqrt((seen * expected + expected * noise) / (expected + noise))
    kept = float(undo[-1] / shrunk[-1])
    left = _ALIGNED * (1.0 - kept) * size / float(scale[-1])
    model = Propensity.within(undo * weights.value, offset, clipped)
    details = {"strength of the ridge penalty": weights.strength, **_shown(model)}
    return Model(model, weights.noise_sd, scale, left, kept, details)


def _shown(model: Propensity) -> dict[str, Any]:
    return {"propensities within": f"[{model.low:.4g}, {model.high:.4g}]"}
