"""An effect function as released numbers: it needs no data, and answers any number of queries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.design.features import AdditiveWaves, Features, Fourier, Linear
from dpeffects.privacy.losses import along
from dpeffects.results.export import READERS, JsonDocument, fields_of, plain, record, require
from dpeffects.results.feature_moments import BINS, Shape, effects_by_bin, inverted, shape_of
from dpeffects.type_checks import NotNegative, Positive

_ALLOWANCE = 1.25
"""Bands allow for this much more shrinkage than planned."""
_ENTRIES = 2**21
"""Features of query rows at a time."""
_MOST_COLUMNS = 10_000


@dataclass(frozen=True, eq=False)
class EffectFunction(JsonDocument):
    """average + unit * features(x)'weights, and how far noise and sampling can move it.

    ``noise_sd`` is the standard deviation of each entry of the noise: in the gradient of the
    objective where ``inside`` is true, else in the weights. ``information`` and ``variation`` are
    released sums of second derivatives and of squared gradients along the records' rows; they are
    None without a share for the variance. ``margins`` holds the shares of records in equal bins of
    each covariate, ``spread`` the standard deviation of effects that the penalty is meant for, in
    units, and ``usual`` the information that is expected where it is not released. ``undone`` and
    ``average_sd`` are what `recentred` leaves to bands. ``nuisance_sd`` is the standard deviation
    of the noise that comes in by the models of treatment and outcome, ``confounding`` that of the
    confounding which they may leave because they are shrunk, and ``warnings`` warnings
    to be shown first. ``margin_sd`` is the standard deviation of what noise leaves unknown of a
    margin's share of records.
    """

    features: Features
    weights: FloatArray
    average: float
    unit: Positive
    strength: Positive
    noise_sd: NotNegative
    inside: bool
    information: NotNegative | None
    variation: NotNegative | None
    margins: FloatArray
    spread: NotNegative
    usual: Positive
    n: int
    undone: NotNegative = 0.0
    average_sd: NotNegative = 0.0
    nuisance_sd: NotNegative = 0.0
    confounding: NotNegative = 0.0
    warnings: str = ""
    margin_sd: NotNegative = 0.0

    def __call__(self, covariates: FloatArray) -> FloatArray:
        """Effects at encoded rows."""
        rows = self._blocks(covariates)
        parts = [self.average + self.unit * along(x, self.weights) for x in rows]
        return np.concatenate([np.empty(0), *parts])

    def sd(self, covariates: FloatArray, covers: str) -> FloatArray:
        """Pointwise standard deviation of the noise, or of the whole error ("effect")."""
        parts = [self._sd(x, covers) for x in self._blocks(covariates)]
        return np.concatenate([np.empty(0), *parts])

    def over_records(self, covers: str) -> tuple[float, float]:
        """Average of the effects over covariates that spread by their margins, and its sd."""
        mean = self._shape.mean
        value = self.average + self.unit * float(mean @ self.weights)
        return value, math.hypot(float(self._sd(mean[None, :], covers)[0]), self._by_margins)

    def recentred(self, difference_sd: float, confounding: float) -> Self:
        """Shrink towards the function's own average in place of a difference of means.

        ``average`` came as that difference, with noise and confounding of these standard
        deviations. At x it carries c(x) = 1 - features(x)'response to the function, the more the
        stronger the penalty. Where the average over the records carries c of it, and has noise of
        standard deviation s, the average without it has s / (1 - c); both are weighted by their
        precision.
        """
        shape = self._shape
        kept = max(float(shape.mean @ shape.response), 1e-9)
        value, noise = self.over_records("noise")
        wrong = difference_sd**2 + confounding**2
        trust = wrong / (wrong + (noise / kept) ** 2) if noise else 1.0
        undone = trust / kept
        step = undone * (value - self.average)
        return replace(
            self,
            average=self.average + step,
            weights=self.weights - step / self.unit * shape.response,
            undone=undone,
            average_sd=(1.0 - trust) * difference_sd,
        )

    def _sd(self, rows: FloatArray, covers: str) -> FloatArray:
        """Of features: what noise and sampling move at x, and by `recentred` in the average."""
        shape = self._shape
        carried = 1.0 - rows @ shape.response
        moved = rows + self.undone * np.outer(carried, shape.mean)
        solved = shape.solved(moved)
        by_noise = np.sum((solved if self.inside else moved) ** 2, axis=1)
        squares = (self.unit * self.noise_sd) ** 2 * by_noise + self.nuisance_sd**2
        squares += (carried * self.average_sd) ** 2
        if covers == "effect":
            assert self.variation is not None
            squares += self.unit**2 * self.variation * np.maximum(shape.squares(solved), 0.0)
            pull = _ALLOWANCE * self.strength * self.spread * self.unit
            squares += pull**2 * np.sum(shape.solved(rows) ** 2, axis=1) + self.confounding**2
        return np.sqrt(squares)

    @cached_property
    def _by_margins(self) -> float:
        """Standard deviation of the average by what is not known of the margins.

        Records that are in another bin than the margins say have the effects of that bin.
        """
        if not self.margin_sd:
            return 0.0
        by_bin = effects_by_bin(self.features, self.margins, self.weights)
        squares = float(np.sum((by_bin - by_bin.mean(axis=1, keepdims=True)) ** 2))
        return self.unit * self.margin_sd * math.sqrt(squares)

    @cached_property
    def _shape(self) -> Shape:
        information = self.information if self.information is not None else self.usual
        return shape_of(self.features, self.margins, information, self.strength)

    def _blocks(self, covariates: FloatArray) -> Iterator[FloatArray]:
        """Features of encoded rows, some at a time."""
        step = max(256, _ENTRIES // self.features.size)
        starts = range(0, len(covariates), step)
        return (self.features(covariates[start : start + step]) for start in starts)

    @property
    def bandwidths(self) -> FloatArray:
        """Bandwidth along each encoded column, in units of its range; empty for a linear function.

        The frequencies of a Gaussian kernel have a standard deviation of one over its bandwidth.
        """
        return np.zeros(0) if isinstance(self.features, Linear) else self.features.bandwidths

    def quantiles(self, column: int, shares: FloatArray) -> FloatArray:
        """Where these shares of the records lie below, in an encoded column within [0, 1]."""
        return inverted(self.margins[column], shares)

    @property
    def details(self) -> dict[str, Any]:
        """Public or released values worth showing."""
        return {
            "features": self.features.size,
            "penalty": self.strength,
            "threshold of the Huber loss": self.unit,
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` gave; ValueError where numbers do not fit together."""
        self = super().from_dict(document)
        ok = (
            self.weights.shape == (self.features.size,)
            and self.features.covariates == self.margins.shape[0]
            and self.margins.shape[1] == BINS
            and bool((self.margins >= 0).all() and (self.margins.sum(axis=1) > 0.5).all())
        )
        require(ok, "numbers do not fit together")
        return self


_KINDS = {"linear": Linear, "fourier": Fourier, "additive": AdditiveWaves}


@plain.register(Linear)
@plain.register(Fourier)
@plain.register(AdditiveWaves)
def _(features: Features) -> dict[str, Any]:
    kind = next(name for name, kind in _KINDS.items() if type(features) is kind)
    return {"kind": kind, **fields_of(features)}


def _read_features(value: Any) -> Features:
    require(value["kind"] in _KINDS, "features")
    features: Features = record(_KINDS[value["kind"]], value)
    if isinstance(features, Fourier):
        require(features.frequencies.ndim == 2, "frequencies")
    if isinstance(features, AdditiveWaves):
        require(features.line.ndim == 1 and features.line.size > 0, "line")
    require(0 <= features.covariates < _MOST_COLUMNS, "columns")
    require(isinstance(features, Linear) or 0.0 <= features.constant < 1.0, "features")
    return features


READERS[Features] = _read_features
