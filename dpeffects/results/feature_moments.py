"""What a function of some features looks like where the records are: second moments, inverted.

Covariates spread by their margins, independently. With G and m the means of f f' and of f over
them, and A = information * G + strength, whatever moves the sum of the records' gradients moves the
weights by A^-1 times it. Where each feature depends on one covariate (`Separable`), G is m m' and a
block C_j for each covariate, so that A^-1 takes time and memory in proportion to their number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.design.features import Features, Fourier, Separable, spread_points

BINS = 8
"""Bins of the histograms that show how covariates spread over their declared ranges."""
_POINTS, _FEW_POINTS, _IN_A_BIN = 2048, 128, 32


@dataclass(frozen=True)
class JointFeatureMoments:
    """Features that depend on several covariates: means over a fixed set of points.

    ``response`` is how weights answer to one more unit in all targets.
    """

    gram: FloatArray
    mean: FloatArray
    inverse: FloatArray
    response: FloatArray

    def solved(self, rows: FloatArray) -> FloatArray:
        """Rows times A^-1."""
        return np.asarray(rows @ self.inverse)

    def squares(self, rows: FloatArray) -> FloatArray:
        """r'G r for each row r."""
        return np.einsum("ij,ij->i", rows @ self.gram, rows)


@dataclass(frozen=True)
class SeparableFeatureMoments:
    """Features of single covariates: A is a block for each, and information * m m'.

    `JointFeatureMoments` says what these are.
    """

    features: Separable
    mean: FloatArray
    blocks: FloatArray
    inverses: FloatArray
    strength: float
    response: FloatArray

    def solved(self, rows: FloatArray) -> FloatArray:
        """Rows times A^-1, by the formula of Sherman and Morrison."""
        apart = _apart(self.features, self.inverses, self.strength, rows)
        return np.asarray(apart - np.outer(apart @ self.mean, self.response))

    def squares(self, rows: FloatArray) -> FloatArray:
        """r'G r for each row r."""
        own = self.features.by_column(rows)
        blocks = np.einsum("ijk,ijk->i", _times(own, self.blocks), own)
        return np.asarray((rows @ self.mean) ** 2 + blocks)


Shape = JointFeatureMoments | SeparableFeatureMoments


def shape_of(features: Features, margins: FloatArray, information: float, strength: float) -> Shape:
    """Second moments of features of covariates that spread by their margins, and A^-1."""
    if isinstance(features, Fourier):
        at = features(spread_by(margins))
        gram, mean = at.T @ at / len(at), np.asarray(at.mean(axis=0))
        penalty = strength * np.eye(features.size)
        inverse = np.asarray(np.linalg.inv(information * gram + penalty), dtype=np.float64)
        return JointFeatureMoments(gram, mean, inverse, information * (inverse @ mean))
    means, blocks = moments(features, margins)
    mean = features.together(np.array(features.first), means)
    curves = information * blocks + strength * np.eye(blocks.shape[-1])
    inverses = np.asarray(np.linalg.inv(curves), dtype=np.float64)
    apart = _apart(features, inverses, strength, mean[None, :])[0]
    response = information * apart / (1.0 + information * float(mean @ apart))
    return SeparableFeatureMoments(features, mean, blocks, inverses, strength, response)


def moments(features: Separable, margins: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means and covariances of the features of each covariate."""
    own = features.own((np.arange(BINS * _IN_A_BIN) + 0.5) / (BINS * _IN_A_BIN))
    shares = np.repeat(margins / margins.sum(axis=1, keepdims=True), _IN_A_BIN, axis=1) / _IN_A_BIN
    means, size = shares @ own, own.shape[1]
    squares = (own[:, :, None] * own[:, None, :]).reshape(len(own), -1)
    blocks = (shares @ squares).reshape(-1, size, size) - means[:, :, None] * means[:, None, :]
    return means, blocks


def spectrum(features: Features) -> FloatArray:
    """Eigenvalues of G for covariates that spread evenly over their declared ranges.

    Of single covariates: the deviations of all columns from their mean have the eigenvalues of one
    block; the constant and the sums over columns have those of a small matrix.
    """
    columns = features.covariates
    if isinstance(features, Fourier) or columns == 0:
        rows = np.column_stack([np.ones(_POINTS), spread_points(_POINTS, columns)])
        at = features(rows)
        return np.maximum(np.linalg.eigvalsh(at.T @ at / _POINTS), 0.0)
    (mean,), (block,) = moments(features, np.full((1, BINS), 1.0 / BINS))
    ends = np.concatenate([[features.first], np.sqrt(columns) * mean])
    together = np.outer(ends, ends)
    together[1:, 1:] += block
    apart = np.tile(np.linalg.eigvalsh(block), columns - 1)
    return np.maximum(np.concatenate([np.linalg.eigvalsh(together), apart]), 0.0)


def effects_by_bin(features: Features, margins: FloatArray, weights: FloatArray) -> FloatArray:
    """Mean of a function with one covariate, a row each, in one bin after another.

    Each row may be off by a number of its own.
    """
    middles = (np.arange(BINS) + 0.5) / BINS
    if not isinstance(features, Fourier):
        return np.asarray(features.by_column(weights) @ features.own(middles).T)
    at = np.tile(spread_by(margins, _FEW_POINTS), (BINS, 1))
    bins, found = np.repeat(middles, _FEW_POINTS), np.empty((len(margins), BINS))
    for column, kept in enumerate(at.T[1:].copy()):
        at[:, column + 1] = bins
        found[column] = (features(at) @ weights).reshape(BINS, -1).mean(axis=1)
        at[:, column + 1] = kept
    return found


def spread_by(margins: FloatArray, points: int = _POINTS) -> FloatArray:
    """Rows that spread by the margins, independently, the intercept first."""
    uniform = spread_points(points, len(margins))
    columns = [inverted(own, u) for own, u in zip(margins, uniform.T, strict=True)]
    return np.column_stack([np.ones(points), *columns])


def inverted(margin: FloatArray, shares: FloatArray) -> FloatArray:
    """Quantiles of a histogram of equal bins."""
    running = np.concatenate([[0.0], np.cumsum(margin)])
    return np.interp(shares, running / running[-1], np.linspace(0.0, 1.0, margin.size + 1))


def _apart(
    features: Separable, inverses: FloatArray, strength: float, rows: FloatArray
) -> FloatArray:
    """Rows times the inverse of A without its part m m'."""
    own = _times(features.by_column(rows), inverses)
    return features.together(rows[:, 0] / strength, own)


def _times(own: FloatArray, blocks: FloatArray) -> FloatArray:
    """Each covariate's entries times its block."""
    return np.asarray(np.matmul(own.swapaxes(0, 1), blocks).swapaxes(0, 1))
