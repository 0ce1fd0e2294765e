"""An effect function as released numbers: it needs no data, and answers any number of queries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.cate import plan
from dpeffects.cate.nuisance import SHARES, first_stage, threshold_for
from dpeffects.cate.options import CateOptions
from dpeffects.errors import DataError
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.erm import least_strength
from dpeffects.privacy.features import Features, Fourier, Linear, along, spread_points
from dpeffects.privacy.guarantee import Noisy
from dpeffects.privacy.kernel import BINS, Learner, Nuisance

FloatArray = npt.NDArray[np.float64]

_LEAST = 0.15
"""Least threshold of Huber's loss for effects, as a share of the outcome's range."""
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
    each covariate, ``spread`` the standard deviation of effects that the penalty is meant for, in
    units, and ``usual`` the information that is expected where it is not released.
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
    usual: float
    n: int

    def __call__(self, covariates: FloatArray) -> FloatArray:
        """Effects at encoded rows."""
        out = np.empty(len(covariates))
        for part in _blocks(len(covariates)):
            rows = self.features(covariates[part])
            out[part] = self.average + self.unit * along(rows, self.weights)
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
        information = self.information if self.information is not None else self.usual
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
            "usual": self.usual,
            "n": self.n,
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> EffectFunction:
        """Read what `to_dict` wrote; anything else is an error."""
        try:
            function = cls(
                features=_features(found["features"]),
                weights=_array(found["weights"], 1),
                margins=_array(found["margins"], 2),
                inside=found["inside"] is True,
                n=int(finite(found["n"])),
                information=_maybe(found["information"]),
                variation=_maybe(found["variation"]),
                **{name: finite(found[name]) for name in _NUMBERS},
            )
            function.check()
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"not a saved effect function: {error!r}") from None
        return function

    def check(self) -> None:
        """Raise ValueError where numbers do not fit together."""
        columns = self.margins.shape[0]
        own = self.features.frequencies.shape[1] if isinstance(self.features, Fourier) else columns
        ok = (
            self.weights.size == self.features.size
            and own == columns
            and (isinstance(self.features, Fourier) or self.features.size == columns + 1)
            and self.margins.shape[1] == BINS
            and bool((self.margins >= 0).all() and (self.margins.sum(axis=1) > 0.5).all())
            and min(self.unit, self.strength, self.usual) > 0.0
            and min(self.noise_sd, self.spread, self.variation or 0.0) >= 0.0
            and (self.information or 0.0) >= 0.0
        )
        if not ok:
            raise ValueError("numbers do not fit together")


_NUMBERS = ("average", "unit", "strength", "noise_sd", "spread", "usual")


def finite(value: Any) -> float:
    """Return a finite number, or raise ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)


def _maybe(value: Any) -> float | None:
    return None if value is None else finite(value)


def _features(found: dict[str, Any]) -> Features:
    if found["kind"] == "linear":
        columns = int(finite(found["columns"]))
        if not 1 <= columns <= 10_000:
            raise ValueError("columns")
        return Linear(columns)
    constant = finite(found["constant"])
    if found["kind"] != "fourier" or not 0.0 <= constant < 1.0:
        raise ValueError("features")
    return Fourier(_array(found["frequencies"], 2), constant)


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
    if found.ndim != dimensions or not found.size or not np.isfinite(found).all():
        raise ValueError("numbers are missing")
    return found
