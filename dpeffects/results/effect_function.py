"""An effect function as released numbers: it needs no data, and answers any number of queries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.design.features import Features, Fourier, Linear, spread_points
from dpeffects.privacy.huber import along
from dpeffects.results.export import READERS, JsonRecord, fields_of, plain, record, require

BINS = 8
"""Bins of the histograms that show how covariates spread over their declared ranges."""
_ALLOWANCE = 1.25
"""Bands allow for this much more shrinkage than planned, and so for noise in the nuisances."""
_BLOCK = 20_000
_POINTS = 2048


@dataclass(frozen=True, eq=False)
class EffectFunction(JsonRecord):
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

    @property
    def details(self) -> dict[str, Any]:
        """Public or released values worth showing."""
        return {
            "features": self.features.size,
            "strength of the penalty": self.strength,
            "threshold of Huber's loss": self.unit,
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` gave; ValueError where numbers do not fit together."""
        function = super().from_dict(document)
        function.check()
        return function

    def check(self) -> None:
        """Raise ValueError where numbers do not fit together."""
        columns = self.margins.shape[0]
        own = self.features.frequencies.shape[1] if isinstance(self.features, Fourier) else columns
        ok = (
            self.weights.shape == (self.features.size,)
            and own == columns
            and (isinstance(self.features, Fourier) or self.features.size == columns + 1)
            and self.margins.shape[1] == BINS
            and bool((self.margins >= 0).all() and (self.margins.sum(axis=1) > 0.5).all())
            and min(self.unit, self.strength, self.usual) > 0.0
            and min(self.noise_sd, self.spread, self.variation or 0.0) >= 0.0
            and (self.information or 0.0) >= 0.0
        )
        require(ok, "numbers do not fit together")


def _spread_by(margins: FloatArray) -> FloatArray:
    """Rows that spread by the margins, independently, the intercept first."""
    uniform = spread_points(_POINTS, len(margins))
    edges = np.linspace(0.0, 1.0, margins.shape[1] + 1)
    running = np.concatenate([np.zeros((len(margins), 1)), np.cumsum(margins, axis=1)], axis=1)
    columns = [np.interp(u, c / c[-1], edges) for u, c in zip(uniform.T, running, strict=True)]
    return np.column_stack([np.ones(_POINTS), *columns])


def _blocks(n: int) -> list[slice]:
    return [slice(start, start + _BLOCK) for start in range(0, n, _BLOCK)]


@plain.register
def _(features: Fourier) -> dict[str, Any]:
    return {"kind": "fourier", **features.to_dict()}


@plain.register
def _(features: Linear) -> dict[str, Any]:
    return {"kind": "linear", **fields_of(features)}


def _read_features(value: Any) -> Features:
    if value["kind"] == "linear":
        linear = record(Linear, value)
        require(1 <= linear.columns <= 10_000, "columns")
        return linear
    fourier = record(Fourier, value)
    require(value["kind"] == "fourier" and 0.0 <= fourier.constant < 1.0, "features")
    require(fourier.frequencies.ndim == 2, "frequencies")
    return fourier


READERS[Features] = _read_features
