"""Ridge-penalised regression with Huber's loss, on rows of norm at most 1.

The objective is sum_i h(y_i - s_i x_i'w) + (strength/2) |w|^2 with h(r) = r^2 / 2 up to |r| = 1 and
|r| - 1/2 beyond, so that a record's gradient has norm at most |s_i| whatever its target y_i is. A
threshold other than 1 is a matter of units: divide targets by it, multiply the weights.

Rows, slopes and targets come from a row function that nobody trusts. Rows are put on the grid of
multiples of 2^-18, and a row that is longer than 1 there becomes 0; slopes are clipped
(`bounded_terms`). `descent` has the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.errors import OptionError
from dpeffects.privacy.descent import (
    FINE,
    Penalised,
    Piece,
    Precision,
    Values,
    dot_error,
    exact_dots,
    kept_bits,
    rounded,
)
from dpeffects.privacy.rows import Block, RowFunction, evaluate

GRID = 18
"""Rows are multiples of 2^-18."""
_STOP = 1e-12
_ACCOUNTED = 2e-12
"""The solver stops at _STOP; the rest is for the rounding of a computed gradient."""
_STEEPEST = 1.0 + 1e-6
"""Products have as many bits as `Huber.quick` says up to here."""


@dataclass(frozen=True)
class Huber(Penalised):
    """The problem: a row function to ``size`` features, a slope and a target; the penalty.

    Slopes are at most ``steepest``. ``by_arm`` has weights for treated records and others, after
    them, for controls.
    """

    terms: RowFunction
    size: int
    strength: float
    steepest: float = 1.0
    by_arm: bool = False
    rows: int = 1
    """Rows of a unit, at most: each is rounded by itself."""
    gradient_shifts = 4  # a gradient is its row times a number of either sign (claim 23)
    claims = (23, 24)
    grid, looks, norms = GRID, 100, (1.0, 1.0)
    quick = Precision((11,), 2 * GRID + 11)
    careful = Precision((11, 22, 33), 2 * GRID + 11)

    width: int = field(init=False)
    """Number of weights."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", self.size * (2 if self.by_arm else 1))
        if not (0.0 < self.steepest <= _STEEPEST and 0.0 < self.strength < math.inf):
            raise OptionError("slopes must be at most 1, and the penalty positive")

    @property
    def columns(self) -> int:
        """Weights that one record has."""
        return self.size

    @property
    def gradient_bound(self) -> tuple[float, float]:
        """Largest L1 and L2 norm of one record's gradient."""
        return self.steepest * math.sqrt(self.size), self.steepest

    @property
    def hessian_bound(self) -> float:
        """Largest second derivative of one record's loss along its row."""
        return self.steepest**2

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts of a row that it gets, beside who is treated."""
        return self.terms.reads

    def penalty(self, n: int) -> float:
        """The penalty of the mean."""
        return self.strength / n

    def largest_weights(self, n: int, noise: float = 0.0) -> float:
        """Norm that no minimiser exceeds, for noise of at most this norm (claim 23)."""
        return (n * self.steepest + noise) / self.strength

    def solver_error(self, n: int, noise: float = 0.0) -> float:
        """L2 distance of a returned vector from the exact minimiser, at most (claim 23).

        ``noise`` bounds the norm of noise in the objective, and with it that of the weights, which
        the rounding error of residuals is proportional to.
        """
        largest = self.largest_weights(n, noise)
        off = 2.0**-50 + math.sqrt(self.size) * 2.0 ** (1 - kept_bits(self.size, GRID))
        off *= 1.0 if self.size <= 256 else 1.05
        each = _ACCOUNTED + 3.0 * (self.rows - 1) * 2.0 ** -(FINE + 1)
        most = n * (each + off * (2.0 + largest)) + 2e-15 * noise
        return most / self.strength

    def rounding(self, size: float) -> float:
        """How far a record's computed gradient is off, at weights of this norm."""
        by_weights = (along_error(self.size) + 2.0**-52) * size
        return self.rows * 2.0 ** -(FINE + 1) + 2.0**-50 + by_weights

    def enough(self, largest: float) -> float:
        """The gradient for each record at which the solver stops."""
        return _STOP

    def pieces(self, block: Block) -> Iterator[Piece]:
        """A few records of one arm at a time: features take far more memory than covariates."""
        step = min(2**11, max(64, 2**17 // self.size))
        arms = [block]
        if self.by_arm:
            arms = [block.some(block.treated), block.some(~block.treated)]
        for k, arm in enumerate(arms):
            for start in range(0, arm.size, step):
                some = arm.some(slice(start, start + step))
                rows, slopes, targets = bounded_terms(self, some)
                yield k, some, rows, partial(_slopes, slopes, targets)


def _slopes(
    slopes: FloatArray, targets: FloatArray, along: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Derivatives of the losses by x'w."""
    residual = targets - slopes * along
    factors = -slopes * np.clip(residual, -1.0, 1.0)
    return factors, slopes**2 * (np.abs(residual) <= 1.0)


def bounded_terms(problem: Huber, block: Block) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows in steps of the grid, slopes and targets, within bounds whatever the function returns.

    They are for one look: the next block's take their place in memory.
    """
    values = evaluate(problem.terms, block, problem.size + 2, "huber.terms")
    rows, steepest = values[:, :-2], problem.steepest
    with np.errstate(all="ignore"):
        np.rint(np.multiply(rows, 2.0**GRID, out=rows), out=rows)
        squares = np.einsum("ij,ij->i", rows, rows)  # of whole numbers: exact in every order
        rows[~(squares <= 4.0**GRID)] = 0.0
    slopes = np.clip(np.nan_to_num(values[:, -2]), -steepest, steepest)
    return rows, slopes, np.nan_to_num(values[:, -1], posinf=0.0, neginf=0.0)


def widened(size: int) -> float:
    """Return what rows of norm at most 1 are divided by, so that they are so on the grid too."""
    return 1.0 + math.sqrt(size) * 2.0**-GRID


def on_grid(values: Values) -> Values:
    """Round to multiples of 2^-18, in place."""
    rounded(values, GRID, out=values)
    values *= 2.0**-GRID
    return values


def along(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """rows'weights for rows on the grid, such that a row's value is its own."""
    return exact_dots(rows, weights, GRID)


def along_error(size: int) -> float:
    """How far `along` is off at most, for rows of norm 1 and weights of norm 1 of this size."""
    return dot_error(size, GRID)
