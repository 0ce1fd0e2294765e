"""Public maps from covariates in [0, 1]^d to features of norm at most 1.

`Fourier` features make a linear function of them a function in the space of a Gaussian kernel
(Rahimi and Recht 2007): cosines and sines at frequencies that follow the kernel's spectrum. The
frequencies are a fixed low-discrepancy sequence, so they are public and the same for everybody.
`AdditiveWaves` are the features of a kernel for each covariate. `Linear` features are the
covariates themselves, centred.

Features are rounded to multiples of 2^-18, the grid of `dpeffects.privacy.losses`, and are made by
sums and products of single numbers: a row has the same features alone, in a batch, and on another
machine.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import FloatArray
from dpeffects.privacy.exact import scratch_buffer
from dpeffects.privacy.losses import on_grid, unit_norm, widened

_ROWS, _ENTRIES = 2**11, 2**20
"""Rows and features at a time: what is made of them stays close to the processor."""
_SINE = (6.283164044, -41.337142306, 81.34076697, -70.993416573)
"""sin(2 pi z) for |z| <= 1/4 as a polynomial z (c_0 + c_1 z^2 + ...), off by less than 1e-6."""


class Waves(ABC):
    """A constant, then cosines, then sines of the covariates' turns, on the grid.

    The squared norm of a feature vector is ``constant`` + (1 - constant) = 1, whatever the row, and
    never more by rounding. The first covariate is the intercept and is left out.
    """

    constant: float

    @property
    @abstractmethod
    def pairs(self) -> int:
        """Number of frequencies."""

    @abstractmethod
    def _turn(self, centred: FloatArray, turns: FloatArray, work: FloatArray) -> None:
        """Write the turns of centred covariates, a row each, sum by sum; ``work`` is memory."""

    @property
    def size(self) -> int:
        """Number of features."""
        return 1 + 2 * self.pairs

    def __call__(self, covariates: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Features of encoded rows, the intercept first, in ``out`` where it is given."""
        if out is None:
            out = np.empty((len(covariates), self.size), order="F")
        rows = max(64, min(_ROWS, _ENTRIES // self.size))
        for start in range(0, len(covariates), rows):
            part = slice(start, start + rows)
            self._write(covariates[part].T, out[part].T)
        return out

    def _write(self, columns: FloatArray, out: FloatArray) -> None:
        pairs, n = self.pairs, columns.shape[1]
        turns, work = (scratch_buffer(f"features {k}", n, pairs).T for k in range(2))
        centred = np.fmax(np.fmin(columns[1:], 1.0), 0.0)
        centred -= 0.5
        self._turn(centred, turns, work)
        turns -= np.rint(turns, out=work)
        wider = widened(self.size) + 2e-6
        out[0] = on_grid(np.array([math.sqrt(self.constant) / wider]))
        out[1:] = _cosines_and_sines(turns, math.sqrt((1.0 - self.constant) / pairs) / wider)

    def kernel(self, one: FloatArray, other: FloatArray) -> FloatArray:
        """Inner products of features: the kernel that they stand for."""
        return np.asarray(self(one) @ self(other).T)


@dataclass(frozen=True)
class Fourier(Waves):
    """`Waves` of ``frequencies`` (one row each) times the covariates.

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
        from scipy.special import ndtri

        normal = np.asarray(ndtri(spread_points(pairs, covariates)))
        return cls(normal / (bandwidth * math.sqrt(covariates / 2.0)))

    @property
    def pairs(self) -> int:
        """Number of frequencies."""
        return len(self.frequencies)

    @property
    def covariates(self) -> int:
        """Number of covariates, without the intercept."""
        return int(self.frequencies.shape[1])

    @property
    def bandwidths(self) -> FloatArray:
        """Bandwidth along each covariate: one over the standard deviation of its frequencies."""
        used = [column[column != 0.0] for column in self.frequencies.T]
        return np.array([1.0 / math.sqrt(float(np.mean(f**2))) if f.size else 0.0 for f in used])

    def _turn(self, centred: FloatArray, turns: FloatArray, work: FloatArray) -> None:
        turns[:] = 0.0
        for column, each in zip(centred, self.frequencies.T / (2.0 * math.pi), strict=True):
            turns += np.multiply.outer(each, column, out=work)


@dataclass(frozen=True)
class AdditiveWaves(Waves):
    """`Waves` of the frequencies ``line`` times each covariate, one covariate after another.

    They are features of the mean over covariates of exp(-(x_j - x_j')^2 / (2 bandwidth^2)).

    Examples
    --------
    >>> features = AdditiveWaves.gaussian(400, 0.35)
    >>> features(np.full((1, 401), 0.3)).shape
    (1, 2401)
    """

    line: FloatArray
    covariates: int
    constant: float = 0.15

    @classmethod
    def gaussian(cls, covariates: int, bandwidth: float, each: int = 3) -> AdditiveWaves:
        """Features of a Gaussian kernel along each covariate, ``each`` frequencies for one."""
        from scipy.special import ndtri

        steps = (np.arange(each) + 0.5) / each
        return cls(np.asarray(ndtri(0.5 + 0.5 * steps) / bandwidth), covariates)

    @property
    def pairs(self) -> int:
        """Number of frequencies of all covariates."""
        return self.line.size * self.covariates

    @property
    def bandwidths(self) -> FloatArray:
        """Bandwidth along each covariate: one over the standard deviation of its frequencies."""
        return np.full(self.covariates, 1.0 / math.sqrt(float(np.mean(self.line**2))))

    @property
    def first(self) -> float:
        """The constant feature."""
        return math.sqrt(self.constant)

    def own(self, values: FloatArray) -> FloatArray:
        """Features that a covariate has to itself, at these values of it; one row each."""
        angles = np.multiply.outer(values - 0.5, self.line)
        waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
        return np.asarray(waves * math.sqrt((1.0 - self.constant) / self.pairs))

    def by_column(self, rows: FloatArray) -> FloatArray:
        """Entries of vectors of features by covariate, in the order of `own`."""
        cut = rows[..., 1:].reshape(*rows.shape[:-1], 2, self.covariates, self.line.size)
        cut = np.moveaxis(cut, -3, -2)
        return cut.reshape(*cut.shape[:-2], 2 * self.line.size)

    def together(self, first: FloatArray, columns: FloatArray) -> FloatArray:
        """Vectors of features from the constant's entry and what `by_column` gave."""
        cut = columns.reshape(*columns.shape[:-1], 2, self.line.size)
        cut = np.moveaxis(cut, -2, -3)
        return np.concatenate([first[..., None], cut.reshape(*cut.shape[:-3], -1)], axis=-1)

    def _turn(self, centred: FloatArray, turns: FloatArray, work: FloatArray) -> None:
        line = self.line / (2.0 * math.pi)
        for k, frequency in enumerate(line):
            np.multiply(centred, frequency, out=turns[k :: line.size])


@dataclass(frozen=True)
class Linear:
    """The covariates centred at 1/2 and divided by their largest norm, the intercept as it is."""

    columns: int

    @property
    def size(self) -> int:
        """Number of features."""
        return self.columns

    @property
    def covariates(self) -> int:
        """Number of covariates, without the intercept."""
        return self.columns - 1

    @property
    def first(self) -> float:
        """The constant feature."""
        return 1.0 / unit_norm(self.columns)

    def own(self, values: FloatArray) -> FloatArray:
        """The feature of a covariate at these values of it."""
        return (values[:, None] - 0.5) / unit_norm(self.columns)

    def by_column(self, rows: FloatArray) -> FloatArray:
        """Entries of vectors of features by covariate."""
        return rows[..., 1:, None]

    def together(self, first: FloatArray, columns: FloatArray) -> FloatArray:
        """Vectors of features from the constant's entry and what `by_column` gave."""
        return np.concatenate([first[..., None], columns[..., 0]], axis=-1)

    def __call__(self, covariates: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Features of encoded rows, in ``out`` where it is given."""
        rows = unit_rows(covariates)
        rows /= widened(self.columns)
        if out is None:
            out = np.empty(rows.shape, order="F")
        out[:] = on_grid(rows)
        return out


Separable = AdditiveWaves | Linear
"""Features that each depend on one covariate."""
Features = Fourier | Separable


def unit_rows(matrix: FloatArray) -> FloatArray:
    """Rows of norm at most 1: columns in [0, 1] centred at 1/2, the intercept as it is.

    It is what a propensity model is fitted on, but for rounding (`dpeffects.privacy.losses`).
    """
    rows = np.fmin(matrix, 1.0)
    np.fmax(rows, 0.0, out=rows)[:, 1:] -= 0.5
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
