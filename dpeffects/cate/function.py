"""An effect function as released numbers: it needs no data, and answers any number of queries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.cate import plan
from dpeffects.cate.nuisance import SHARES, first_stage
from dpeffects.cate.options import CateOptions
from dpeffects.errors import DataError
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.erm import least_strength
from dpeffects.privacy.features import Features, Fourier, Linear, spread_points
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.kernel import BINS, Learner

FloatArray = npt.NDArray[np.float64]

_SPREAD = 0.2
"""Standard deviation of effects that the penalty is planned for, as a share of the range."""
_ALLOWANCE = 1.25
"""Bands allow for this much more shrinkage than planned, and so for noise in the nuisances."""
_BLOCK = 20_000
_POINTS = 2048
_CORNER = 8.0
"""A histogram with noise of less than 1/8 of an even bin is taken nearly as it is."""


@dataclass(frozen=True)
class EffectFunction:
    """average + unit * features(x)'weights, and how far noise and sampling can move it.

    ``noise_sd`` is the standard deviation of each entry of the noise: in the gradient of the
    objective where ``inside`` is true, else in the weights. ``information`` and ``variation`` are
    released sums of second derivatives and of squared gradients along the records' rows; they are
    None without a share for the variance. ``margins`` holds the shares of records in equal bins of
    each covariate, and ``spread`` the standard deviation of effects that the penalty is meant for,
    in units.
    """

    features: Features
    weights: FloatArray
    average: float
    unit: float
    strength: float
    noise_sd: float
    inside: bool
    information: float | None
    variation: float | None
    margins: FloatArray
    spread: float
    n: int

    def __call__(self, covariates: FloatArray) -> FloatArray:
        """Effects at encoded rows."""
        out = np.empty(len(covariates))
        for part in _blocks(len(covariates)):
            out[part] = self.average + self.unit * (self.features(covariates[part]) @ self.weights)
        return out

    def sd(self, covariates: FloatArray, covers: str) -> FloatArray:
        """Pointwise standard deviation of the noise, or of the whole error ("effect")."""
        root = self._roots[covers]
        out = np.empty(len(covariates))
        for part in _blocks(len(covariates)):
            out[part] = self.unit * np.linalg.norm(self.features(covariates[part]) @ root, axis=1)
        return out

    @cached_property
    def _roots(self) -> dict[str, FloatArray]:
        """Square roots of the covariance of the weights, by what they cover.

        With A = information * G + strength, G the mean of f f' over covariates that spread by
        their margins, independently: noise in the objective moves the weights by A^-1 times it, and
        so do the sum of the records' gradients, of covariance variation * G, and the penalty, which
        pulls weights of standard deviation ``spread`` by strength times themselves.
        """
        size = self.features.size
        at = self.features(_spread_by(self.margins))
        gram = at.T @ at / len(at)
        information = self.information if self.information is not None else self.n / 4.0
        inverse = np.linalg.inv(information * gram + self.strength * np.eye(size))
        noise = self.noise_sd * (inverse if self.inside else np.eye(size))
        roots: dict[str, FloatArray] = {"noise": np.asarray(noise)}
        if self.variation is not None:
            values, vectors = np.linalg.eigh(gram)
            root = vectors * np.sqrt(np.maximum(values, 0.0) * self.variation)
            pulled = _ALLOWANCE * self.strength * self.spread * inverse
            roots["effect"] = np.concatenate([noise, inverse @ root, pulled], axis=1)
        return roots

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        features = {"kind": "linear", "columns": self.features.size}
        if isinstance(self.features, Fourier):
            features = {"kind": "fourier", **self.features.to_dict()}
        return {
            "features": features,
            "weights": self.weights.tolist(),
            "average": self.average,
            "unit": self.unit,
            "strength": self.strength,
            "noise_sd": self.noise_sd,
            "inside": self.inside,
            "information": self.information,
            "variation": self.variation,
            "margins": self.margins.tolist(),
            "spread": self.spread,
            "n": self.n,
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> EffectFunction:
        """Read what `to_dict` wrote; anything else is an error."""
        try:
            features = dict(found["features"])
            made: Features
            if features["kind"] == "linear":
                made = Linear(int(features["columns"]))
            else:
                made = Fourier(_array(features["frequencies"], 2), float(features["constant"]))
            rest = {name: found[name] for name in ("information", "variation")}
            function = cls(
                features=made,
                weights=_array(found["weights"], 1),
                average=float(found["average"]),
                unit=float(found["unit"]),
                strength=float(found["strength"]),
                noise_sd=float(found["noise_sd"]),
                inside=bool(found["inside"]),
                information=None if rest["information"] is None else float(rest["information"]),
                variation=None if rest["variation"] is None else float(rest["variation"]),
                margins=_array(found["margins"], 2),
                spread=float(found["spread"]),
                n=int(found["n"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"not a saved effect function: {error!r}") from None
        if function.weights.size != made.size or not np.isfinite(function.weights).all():
            raise DataError("not a saved effect function: weights do not fit the features")
        return function


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
        n=curator.n,
    )


def second_stage(curator: Curator, options: CateOptions, method: str) -> tuple[Learner, Features]:
    """Release the nuisances; what is left is one regression on the returned features."""
    nuisance = first_stage(curator, options, by_arm=method == "dr_learner")
    lower, upper = curator.outcome_range
    wide = 2.0 if method == "dr_learner" else 1.0
    learner = Learner(method, nuisance, wide * options.threshold * (upper - lower))
    made = options.features(curator.width)
    return learner, nuisance.features if isinstance(made, Fourier) else made


def planned_strength(
    curator: Curator, learner: Learner, features: Features, way: str, stretch: float = 1.0
) -> tuple[float, float]:
    """Penalty of the second stage and its expected squared error, from public and released numbers.

    ``stretch`` multiplies the noise on the result, for points that are released together.
    """
    epsilon, delta = curator.epsilon("effect"), curator.delta("effect")
    steepest, model = learner.steepest, learner.nuisance.propensity
    reach = (steepest * math.sqrt(features.size), steepest)
    inside = way == "objective"
    middle = 0.5 * (model.low + model.high)
    return plan.strength(
        features,
        curator.width,
        information=curator.n * (middle * (1.0 - middle) if steepest < 1.0 else 1.0),
        noise=stretch * plan.gradient_noise(reach, epsilon, delta, features.size),
        spread=_spread(curator, learner),
        least=least_strength(epsilon, steepest**2 * (1.0 + 1e-6)) if inside else 0.0,
    )


def _spread(curator: Curator, learner: Learner) -> float:
    lower, upper = curator.outcome_range
    return _SPREAD * (upper - lower) / learner.threshold


def _margins(counts: Noisy, n: int) -> FloatArray:
    """Shares of records by bin, pulled to even ones by as much as noise explains."""
    noisy, noise = counts.value / n, counts.variance / n**2
    pull = 1.0 / (1.0 + noise * (_CORNER * BINS) ** 2 / 16.0)
    shares = np.maximum(1.0 / BINS + pull * (noisy - 1.0 / BINS), 0.002)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _spread_by(margins: FloatArray) -> FloatArray:
    """Rows that spread by the margins, independently, the intercept first."""
    uniform = spread_points(_POINTS, len(margins))
    edges = np.linspace(0.0, 1.0, margins.shape[1] + 1)
    running = np.concatenate([np.zeros((len(margins), 1)), np.cumsum(margins, axis=1)], axis=1)
    columns = [np.interp(u, c / c[-1], edges) for u, c in zip(uniform.T, running, strict=True)]
    return np.column_stack([np.ones(_POINTS), *columns])


def _blocks(n: int) -> list[slice]:
    return [slice(start, start + _BLOCK) for start in range(0, n, _BLOCK)]


def _array(values: Any, dimensions: int) -> FloatArray:
    found = np.array(values, dtype=np.float64)
    if found.ndim != dimensions or not np.isfinite(found).all():
        raise ValueError("numbers are missing")
    return found
