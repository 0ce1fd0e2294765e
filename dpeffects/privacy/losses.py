"""The two losses of private minimisation, which `descent` solves.

*Logistic regression of the treatment*, and how far it ends from its minimiser. The loss is
log(1 + exp(-s_i (offset + x_i'w))) with s_i = +1 for treated and -1 for control, for rows in
[0, 1]^d; the intercept is a column like any other and is penalised. Centred rows have norm at most
1: columns are centred at 1/2, the intercept stays as it is, and all is divided by `unit_norm`.
Centring is a public map that makes the intercept nearly uncorrelated with the rest and halves the
norm of the rest: without it weights carry up to twice the noise. Rows are rounded to multiples of
2^-16 before they are fitted.

*Regression with Huber's loss*, on rows of norm at most 1. The objective is
sum_i h(y_i - s_i x_i'w) + (strength/2) |w|^2 with h(r) = r^2 / 2 up to |r| = 1 and |r| - 1/2
beyond, so that a record's gradient has norm at most |s_i| whatever its target y_i is. A threshold
other than 1 is a matter of units: divide targets by it, multiply the weights. Rows, slopes and
targets come from a row function that nobody trusts. Rows are put on the grid of multiples of 2^-18,
and a row that is longer than 1 there becomes 0; slopes are clipped (`bounded_terms`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray
from dpeffects.errors import OptionError
from dpeffects.privacy.convex_solver import (
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
from dpeffects.privacy.exact import scratch_buffer
from dpeffects.privacy.rows import Block, RowFunction, evaluate

_LOGISTIC_STOP = {True: 4e-12, False: 5e-10}
"""Norm of a computed mean gradient at which the solver stops, on centred rows and on others."""
LOGISTIC_GRID = 16
"""Rows are fitted as multiples of 2^-16."""


@dataclass(frozen=True)
class Logistic(Penalised):
    """On centred rows, the sum of losses + (strength/2) |w|^2 (claims 20 to 22).

    On rows as they are, the mean of losses with that penalty (claim 20). Proofs have both as means,
    with the `penalty` that this makes, and noise over n.
    """

    width: int
    strength: float
    offset: float = 0.0
    centred: bool = True
    arm: int | None = None
    """Where the treatment has several levels: the one against all others."""
    rows: int = 1
    """Rows of a unit, at most: each is rounded by itself."""
    gradient_shifts = 3
    claims = (21, 20)
    grid, looks, bend = LOGISTIC_GRID, 40, 1.0 / 20.0
    quick = Precision((13,), 2 * LOGISTIC_GRID + 11)
    careful = Precision((13, 28, 43), 2 * LOGISTIC_GRID + 14)  # a second derivative is at most 1/4

    @property
    def norms(self) -> tuple[float, float]:
        """What whole rows are divided by beside the grid, and their largest norm."""
        return (unit_norm(self.width), 1.0) if self.centred else (1.0, math.sqrt(self.width))

    @property
    def gradient_bound(self) -> tuple[float, float]:
        """Largest L1 and L2 norm of one record's gradient, which are those of a row."""
        return unit_l1(self.width) if self.centred else float(self.width), self.norms[1]

    @property
    def hessian_bound(self) -> float:
        """Largest second derivative of one record's loss."""
        return 0.25 * (1.0 if self.centred else self.width)

    def penalty(self, n: int) -> float:
        """The penalty of the mean; raises where it is too small to be fitted."""
        penalty = self.strength / n if self.centred else self.strength
        least = least_penalty(self.width, self.centred)
        if not least <= penalty < math.inf:
            raise OptionError(f"penalty must be at least {least:g}, got {penalty!r}")
        return penalty

    def largest_weights(self, n: int, noise: float = 0.0) -> float:
        """Norm that no minimiser exceeds, for noise of at most this norm (claim 20).

        The objective there is no larger than at 0, and the gradient of the penalty is no larger
        than the rest.
        """
        penalty, tilt = self.penalty(n), noise / n
        loss = 2.0 * penalty * (math.log(2.0) + abs(self.offset))
        steep = min(tilt + math.sqrt(tilt**2 + loss), self.norms[1] + tilt)
        return 1.001 * steep / penalty

    def rounding(self, size: float) -> float:
        """Distance of a computed mean gradient from the true one, at weights of this norm."""
        l1, row = self.gradient_bound
        left_out = l1 * 2.0 ** -kept_bits(self.width, LOGISTIC_GRID) * size
        each = (
            left_out / 4.0 + 2.0**-48 + 2.0**-53 * abs(self.offset) + self.rows * 2.0 ** -(FINE + 1)
        )
        return 1.01 * row * each

    def gradient_left(self, n: int, noise: float = 0.0) -> float:
        """Norm of the true mean gradient where the solver ends, at most; from public numbers.

        Parts that are proportional to the noise are left out: `minimise` has room for them.
        """
        stop = _LOGISTIC_STOP[self.centred]
        far = self.rounding(2.0 * self.largest_weights(n, noise))
        return max(2.0 * stop, stop + far, 5.0 * far)

    def solver_error(self, n: int, noise: float = 0.0) -> float:
        """L2 distance of weights on centred rows from the exact minimiser, at most (claim 20)."""
        return n * self.gradient_left(n, noise) / self.strength

    def enough(self, largest: float) -> float:
        """The mean gradient at which the solver stops."""
        return max(_LOGISTIC_STOP[self.centred], 4.0 * self.rounding(2.0 * largest))

    def pieces(self, block: Block) -> Iterator[Piece]:
        """The losses of a block, all at once."""
        out = scratch_buffer("logistic.rows", block.size, self.width)

        def slopes(along: FloatArray) -> tuple[FloatArray, FloatArray]:
            chance = sigmoid(along + self.offset)
            return chance - self.cases(block), (1.0 - chance) * chance

        yield 0, block, whole_rows(block.covariates, self.centred, out), slopes

    def cases(self, block: Block) -> BoolArray:
        """Who is treated, or in the arm that is held against all others."""
        return block.treated if self.arm is None else block.arm == self.arm

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts of a row that it gets, beside who is treated."""
        return ("covariates",) if self.arm is None else ("covariates", "arm")


def least_penalty(d: int, centred: bool = False) -> float:
    """Smallest penalty that can be fitted with d columns: 1e-12 for any number that fits in memory.

    Below, rounding of the largest weights could outweigh the penalty (claim 20).
    """
    problem = Logistic(d, 1.0, centred=centred)
    return max(1e-12, 16.0 * (problem.rounding(1.0) - problem.rounding(0.0)))


def whole_rows(matrix: FloatArray, centred: bool, out: FloatArray | None = None) -> FloatArray:
    """Rows as whole multiples of 2^-16: as they are in [-1, 1], or centred but for `unit_norm`."""
    rows = np.fmin(matrix, 1.0, out=out)  # a clip that has a number for what is none
    np.fmax(rows, 0.0 if centred else -1.0, out=rows)
    rounded(rows, LOGISTIC_GRID, out=rows)
    if centred:
        rows[:, 1:] -= 2.0 ** (LOGISTIC_GRID - 1)
    return rows


def sigmoid(x: FloatArray) -> FloatArray:
    """1 / (1 + exp(-x)) without overflow."""
    positive = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, positive) / (1.0 + positive)


def unit_norm(d: int) -> float:
    """The largest norm of a row whose columns are centred, rounded up."""
    return math.sqrt(1.0 + (d - 1) / 4.0) * (1.0 + 1e-9)


def unit_l1(d: int) -> float:
    """Largest L1 norm of a centred row, a little more than sqrt(d) / sqrt(2) to sqrt(d)."""
    return (1.0 + (d - 1) / 2.0) / unit_norm(d) * (1.0 + 1e-9)


HUBER_GRID = 18
"""Rows are multiples of 2^-18."""
_HUBER_STOP = 1e-12
_ACCOUNTED = 2e-12
"""The solver stops at _HUBER_STOP; the rest is for the rounding of a computed gradient."""
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
    grid, looks, norms = HUBER_GRID, 100, (1.0, 1.0)
    quick = Precision((11,), 2 * HUBER_GRID + 11)
    careful = Precision((11, 22, 33), 2 * HUBER_GRID + 11)

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
        off = 2.0**-50 + math.sqrt(self.size) * 2.0 ** (1 - kept_bits(self.size, HUBER_GRID))
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
        return _HUBER_STOP

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
        np.rint(np.multiply(rows, 2.0**HUBER_GRID, out=rows), out=rows)
        squares = np.einsum("ij,ij->i", rows, rows)  # of whole numbers: exact in every order
        rows[~(squares <= 4.0**HUBER_GRID)] = 0.0
    slopes = np.clip(np.nan_to_num(values[:, -2]), -steepest, steepest)
    return rows, slopes, np.nan_to_num(values[:, -1], posinf=0.0, neginf=0.0)


def widened(size: int) -> float:
    """Return what rows of norm at most 1 are divided by, so that they are so on the grid too."""
    return 1.0 + math.sqrt(size) * 2.0**-HUBER_GRID


def on_grid(values: Values) -> Values:
    """Round to multiples of 2^-18, in place."""
    rounded(values, HUBER_GRID, out=values)
    values *= 2.0**-HUBER_GRID
    return values


def along(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """rows'weights for rows on the grid, such that a row's value is its own."""
    return exact_dots(rows, weights, HUBER_GRID)


def along_error(size: int) -> float:
    """How far `along` is off at most, for rows of norm 1 and weights of norm 1 of this size."""
    return dot_error(size, HUBER_GRID)
