"""An effect function as released numbers: it needs no data, and answers any number of queries."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.design.features import Features, Fourier, Linear, spread_points
from dpeffects.privacy.huber import along
from dpeffects.results.export import READERS, JsonRecord, fields_of, plain, record, require

BINS = 8
"""Bins of the histograms that show how covariates spread over their declared ranges."""
_ALLOWANCE = 1.25
"""Bands allow for this much more shrinkage than planned."""
_EARLIER = (
    "WRITTEN BY AN EARLIER VERSION: intervals and bands leave out the noise of the models of "
    "treatment and outcome, and confounding that these may leave"
)
_BLOCK = 20_000
_POINTS, _FEW_POINTS = 2048, 128


@dataclass(frozen=True, eq=False)
class EffectFunction(JsonRecord):
    """average + unit * features(x)'weights, and how far noise and sampling can move it.

    ``noise_sd`` is the standard deviation of each entry of the noise: in the gradient of the
    objective where ``inside`` is true, else in the weights. ``information`` and ``variation`` are
    released sums of second derivatives and of squared gradients along the records' rows; they are
    None without a share for the variance. ``margins`` holds the shares of records in equal bins of
    each covariate, ``spread`` the standard deviation of effects that the penalty is meant for, in
    units, and ``usual`` the information that is expected where it is not released. ``undone`` and
    ``average_sd`` are what `recentred` leaves to bands. ``nuisance_sd`` is the standard deviation
    of the noise that comes in by the models of treatment and outcome, ``confounding`` that of the
    confounding which they may leave because they are shrunk, and ``caution`` what nobody should
    overlook. ``margin_sd`` is the standard deviation of what noise leaves unknown of a margin's
    share of records.
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
    undone: float = 0.0
    average_sd: float = 0.0
    nuisance_sd: float = 0.0
    confounding: float = 0.0
    caution: str = ""
    margin_sd: float = 0.0

    def __call__(self, covariates: FloatArray) -> FloatArray:
        """Effects at encoded rows."""
        out = np.empty(len(covariates))
        for part in _blocks(len(covariates)):
            rows = self.features(covariates[part])
            out[part] = self.average + self.unit * along(rows, self.weights)
        return out

    def sd(self, covariates: FloatArray, covers: str) -> FloatArray:
        """Pointwise standard deviation of the noise, or of the whole error ("effect")."""
        out = np.empty(len(covariates))
        for part in _blocks(len(covariates)):
            out[part] = self._sd(self.features(covariates[part]), covers)
        return out

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
        errors = [self.unit * (moved @ root) for root in self._moving[covers]]
        errors.append((carried * self.average_sd)[:, None])
        errors.append(np.full((len(rows), 1), self.nuisance_sd))
        if covers == "effect":
            pull = _ALLOWANCE * self.strength * self.spread * self.unit
            errors += [pull * (rows @ shape.inverse), np.full((len(rows), 1), self.confounding)]
        return np.asarray(np.linalg.norm(np.concatenate(errors, axis=1), axis=1))

    @cached_property
    def _by_margins(self) -> float:
        """Standard deviation of the average by what is not known of the margins.

        Records that are in another bin than the margins say have the effects of that bin.
        """
        if not self.margin_sd:
            return 0.0
        at = np.tile(_spread_by(self.margins, _FEW_POINTS), (BINS, 1))
        middles = np.repeat((np.arange(BINS) + 0.5) / BINS, _FEW_POINTS)
        squares = 0.0
        for column in range(1, at.shape[1]):
            rows = at.copy()
            rows[:, column] = middles
            by_bin = (self.features(rows) @ self.weights).reshape(BINS, -1).mean(axis=1)
            squares += float(np.sum((by_bin - by_bin.mean()) ** 2))
        return self.unit * self.margin_sd * math.sqrt(squares)

    @cached_property
    def _shape(self) -> Shape:
        information = self.information if self.information is not None else self.usual
        return Shape.of(self.features, self.margins, information, self.strength)

    @cached_property
    def _moving(self) -> dict[str, list[FloatArray]]:
        """Square roots of the covariance of the weights by noise, and by sampling too.

        The sum of the records' gradients has the covariance variation * G. The penalty pulls
        weights of standard deviation ``spread`` by strength times themselves (`_sd`).
        """
        shape = self._shape
        noise = self.noise_sd * (shape.inverse if self.inside else np.eye(self.features.size))
        if self.variation is None:
            return {"noise": [noise]}
        values, vectors = np.linalg.eigh(shape.gram)
        root = vectors * np.sqrt(np.maximum(values, 0.0) * self.variation)
        return {"noise": [noise], "effect": [noise, shape.inverse @ root]}

    @property
    def bandwidths(self) -> FloatArray:
        """Bandwidth along each encoded column, in units of its range; empty for a linear function.

        The frequencies of a Gaussian kernel have a standard deviation of one over its bandwidth.
        """
        if not isinstance(self.features, Fourier):
            return np.zeros(0)
        used = [column[column != 0.0] for column in self.features.frequencies.T]
        return np.array([1.0 / math.sqrt(float(np.mean(f**2))) if f.size else 0.0 for f in used])

    def quantiles(self, column: int, shares: FloatArray) -> FloatArray:
        """Where these shares of the records lie below, in an encoded column within [0, 1]."""
        return _inverted(self.margins[column], shares)

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
        function = super().from_dict({"caution": _EARLIER} | document)
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
            and min(self.undone, self.average_sd, self.nuisance_sd, self.confounding) >= 0.0
            and self.margin_sd >= 0.0
        )
        require(ok, "numbers do not fit together")


class Shape(NamedTuple):
    """What a function of some features looks like on the records.

    With A = information * ``gram`` + strength, ``gram`` and ``mean`` the means of f f' and of f
    over covariates that spread by their margins, independently: whatever moves the sum of gradients
    moves the weights by ``inverse`` = A^-1 times it, and one more unit in all targets by
    ``response``.
    """

    gram: FloatArray
    mean: FloatArray
    inverse: FloatArray
    response: FloatArray

    @classmethod
    def of(
        cls, features: Features, margins: FloatArray, information: float, strength: float
    ) -> Shape:
        """Means over a fixed set of points in the place of the records."""
        at = features(_spread_by(margins))
        gram, mean = at.T @ at / len(at), np.asarray(at.mean(axis=0))
        penalty = strength * np.eye(features.size)
        inverse = np.asarray(np.linalg.inv(information * gram + penalty), dtype=np.float64)
        return cls(gram, mean, inverse, information * (inverse @ mean))


def _spread_by(margins: FloatArray, points: int = _POINTS) -> FloatArray:
    """Rows that spread by the margins, independently, the intercept first."""
    uniform = spread_points(points, len(margins))
    columns = [_inverted(own, u) for own, u in zip(margins, uniform.T, strict=True)]
    return np.column_stack([np.ones(points), *columns])


def _inverted(margin: FloatArray, shares: FloatArray) -> FloatArray:
    """Quantiles of a histogram of equal bins."""
    running = np.concatenate([[0.0], np.cumsum(margin)])
    return np.interp(shares, running / running[-1], np.linspace(0.0, 1.0, margin.size + 1))


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
