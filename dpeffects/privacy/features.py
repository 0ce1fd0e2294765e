"""Public maps from covariates in [0, 1]^d to features of norm at most 1.

`Fourier` features make a linear function of them a function in the space of a Gaussian kernel
(Rahimi and Recht 2007): cosines and sines at frequencies that follow the kernel's spectrum. The
frequencies are a fixed low-discrepancy sequence, so they are public and the same for everybody.
`Linear` features are the covariates themselves, centred.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.privacy.erm import unit_norm, unit_rows

FloatArray = npt.NDArray[np.float64]

_PER_COLUMN = 3
"""Frequencies for each covariate in the additive kernel."""
_WIDER = 1.0 + 1e-9


@dataclass(frozen=True)
class Fourier:
    """A constant, and cosines and sines of ``frequencies`` (one row each) times the covariates.

    The squared norm of a feature vector is ``constant`` + (1 - constant) = 1, whatever the row. The
    first covariate is the intercept and is left out.

    Examples
    --------
    >>> features = Fourier.gaussian(2, 0.35)
    >>> rows = features(np.array([[1.0, 0.2, 0.9]]))
    >>> rows.shape, round(float(np.linalg.norm(rows)), 6)
    ((1, 65), 1.0)
    """

    frequencies: FloatArray
    constant: float = 0.15

    @classmethod
    def gaussian(cls, covariates: int, bandwidth: float, pairs: int = 32) -> Fourier:
        """Features of exp(-|x - x'|^2 / (2 h^2)) with h = bandwidth sqrt(covariates / 2).

        Distances in the unit cube grow like the root of the dimension, and so does h.
        """
        return cls(_spread(pairs, covariates) / (bandwidth * math.sqrt(covariates / 2.0)))

    @classmethod
    def additive(cls, covariates: int, bandwidth: float) -> Fourier:
        """Features of the mean over covariates of exp(-(x_j - x_j')^2 / (2 bandwidth^2))."""
        from scipy.special import ndtri

        steps = (np.arange(_PER_COLUMN) + 0.5) / _PER_COLUMN
        line = ndtri(0.5 + 0.5 * steps) / bandwidth
        return cls(np.concatenate([np.outer(line, unit) for unit in np.eye(covariates)]))

    @property
    def size(self) -> int:
        """Number of features."""
        return 1 + 2 * len(self.frequencies)

    def __call__(self, covariates: FloatArray) -> FloatArray:
        """Features of encoded rows, the intercept first."""
        centred = np.clip(covariates[:, 1:], 0.0, 1.0) - 0.5
        phase = np.einsum("ij,kj->ik", centred, self.frequencies)  # a row's value is its own
        pairs = len(self.frequencies)
        out = np.empty((len(covariates), self.size))
        out[:, 0] = math.sqrt(self.constant)
        np.cos(phase, out=out[:, 1 : pairs + 1])
        np.sin(phase, out=out[:, pairs + 1 :])
        out[:, 1:] *= math.sqrt((1.0 - self.constant) / pairs)
        out /= _WIDER
        return out

    def kernel(self, one: FloatArray, other: FloatArray) -> FloatArray:
        """Inner products of features: the kernel that they stand for."""
        return np.asarray(self(one) @ self(other).T)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"constant": self.constant, "frequencies": self.frequencies.tolist()}


@dataclass(frozen=True)
class Linear:
    """The covariates centred at 1/2 and divided by their largest norm, the intercept as it is."""

    columns: int

    @property
    def size(self) -> int:
        """Number of features."""
        return self.columns

    def __call__(self, covariates: FloatArray) -> FloatArray:
        """Features of encoded rows."""
        assert unit_norm(self.columns) >= 1.0
        return unit_rows(covariates)


Features = Fourier | Linear


def _spread(count: int, dimension: int) -> FloatArray:
    """Normal quantiles of `spread_points`."""
    from scipy.special import ndtri

    return np.asarray(ndtri(spread_points(count, dimension)))


def spread_points(count: int, dimension: int) -> FloatArray:
    """Points that fill the unit cube evenly: multiples of a generalised golden mean, modulo 1.

    Examples
    --------
    >>> spread_points(3, 1).round(3).ravel().tolist()
    [0.118, 0.736, 0.354]
    """
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (dimension + 1))
    steps = root ** -np.arange(1.0, dimension + 1.0)
    return np.asarray((0.5 + np.outer(np.arange(1.0, count + 1.0), steps)) % 1.0)
