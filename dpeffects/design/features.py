"""Public maps from covariates in [0, 1]^d to features of norm at most 1.

`Fourier` features make a linear function of them a function in the space of a Gaussian kernel
(Rahimi and Recht 2007): cosines and sines at frequencies that follow the kernel's spectrum. The
frequencies are a fixed low-discrepancy sequence, so they are public and the same for everybody.
`Linear` features are the covariates themselves, centred.

Features are rounded to multiples of 2^-18, the grid of `dpeffects.privacy.huber`, and are made by
sums and products of single numbers: a row has the same features alone, in a batch, and on another
machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import FloatArray
from dpeffects.privacy.exact import scratch_buffer
from dpeffects.privacy.huber import on_grid, widened
from dpeffects.privacy.logistic import unit_norm

_PER_COLUMN = 3
"""Frequencies for each covariate in the additive kernel."""
_ROWS = 2**11
"""Rows at a time: what is made of them stays close to the processor."""
_SINE = (6.283164044, -41.337142306, 81.34076697, -70.993416573)
"""sin(2 pi z) for |z| <= 1/4 as a polynomial z (c_0 + c_1 z^2 + ...), off by less than 1e-6."""


@dataclass(frozen=True)
class Fourier:
    """A constant, and cosines and sines of ``frequencies`` (one row each) times the covariates.

    The squared norm of a feature vector is ``constant`` + (1 - constant) = 1, whatever the row, and
    never more by rounding. The first covariate is the intercept and is left out.

    Examples
    --------
    >>> features = Fourier.gaussian(2, 0.35)
    >>> rows = features(np.array([[1.0, 0.2, 0.9]]))
    >>> rows.shape, round(float(np.linalg.norm(rows)), 3)
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

    def __call__(self, covariates: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Features of encoded rows, the intercept first, in ``out`` where it is given."""
        if out is None:
            out = np.empty((len(covariates), self.size), order="F")
        for start in range(0, len(covariates), _ROWS):
            part = slice(start, start + _ROWS)
            self._write(covariates[part].T, out[part].T)
        return out

    def _write(self, columns: FloatArray, out: FloatArray) -> None:
        pairs, n = len(self.frequencies), columns.shape[1]
        turns, work = (scratch_buffer(f"features {k}", n, pairs).T for k in range(2))
        centred = np.fmax(np.fmin(columns[1:], 1.0), 0.0)
        centred -= 0.5
        turns[:] = 0.0
        for column, each in zip(centred, self.frequencies.T / (2.0 * math.pi), strict=True):
            used = np.flatnonzero(each)
            if used.size:  # an additive kernel has few frequencies for each covariate
                part = slice(used[0], used[-1] + 1)
                turns[part] += np.multiply.outer(each[part], column, out=work[part])
        turns -= np.rint(turns, out=work)
        wider = widened(self.size) + 2e-6
        out[0] = on_grid(np.array([math.sqrt(self.constant) / wider]))
        out[1:] = _cosines_and_sines(turns, math.sqrt((1.0 - self.constant) / pairs) / wider)

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

    def __call__(self, covariates: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Features of encoded rows, in ``out`` where it is given."""
        rows = unit_rows(covariates)
        rows /= widened(self.columns)
        if out is None:
            out = np.empty(rows.shape, order="F")
        out[:] = on_grid(rows)
        return out


Features = Fourier | Linear


def unit_rows(matrix: FloatArray) -> FloatArray:
    """Rows of norm at most 1: columns in [0, 1] centred at 1/2, the intercept as it is.

    It is what a propensity model is fitted on, but for rounding (`dpeffects.privacy.logistic`).
    """
    rows = np.fmax(np.fmin(matrix, 1.0), 0.0)
    rows[:, 1:] -= 0.5
    rows /= unit_norm(matrix.shape[1])
    return rows


def logits(rows: FloatArray, weights: FloatArray, offset: float = 0.0) -> FloatArray:
    """offset + rows'weights, column by column, so that a row's value is its own."""
    total = np.full(len(rows), offset)
    work = np.empty(len(rows))
    for column, weight in zip(rows.T, weights, strict=True):
        np.multiply(column, weight, out=work)
        total += work
    return total


def _cosines_and_sines(turns: FloatArray, size: float) -> npt.NDArray[np.float32]:
    """Cosines, then sines, of angles in [-1/2, 1/2] turns, times ``size`` and on the grid.

    Single precision has six bits more than the grid, and takes half the time.
    """
    pairs, n = turns.shape
    z, square, total = (scratch_buffer(f"waves {k}", n, 2 * pairs, np.float32).T for k in range(3))
    cosine, sine = z[:pairs], z[pairs:]
    sine[:] = turns
    np.abs(sine, out=cosine)
    np.subtract(0.25, cosine, out=cosine)  # cos(2 pi u) is sin(2 pi (1/4 - |u|))
    near = np.clip(sine, -0.25, 0.25, out=square[:pairs])
    near *= 2.0
    np.subtract(near, sine, out=sine)  # u, or beyond a quarter turn its mirror image
    np.multiply(z, z, out=square)
    np.multiply(square, np.float32(_SINE[-1]), out=total)
    for coefficient in _SINE[-2:0:-1]:
        total += coefficient
        total *= square
    total += _SINE[0]
    z *= np.float32(size)
    total *= z
    return on_grid(total)


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
