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
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.errors import OptionError
from dpeffects.privacy import descent
from dpeffects.privacy.descent import Derivatives, Precision, Values, exact_dots, kept_bits, norm
from dpeffects.privacy.rows import Block, RowFunction, Source, Totals, evaluate

GRID = 18
"""Rows are multiples of 2^-18."""
_STOP = 1e-12
_ACCOUNTED = 2e-12
"""The solver stops at _STOP; the rest is for the rounding of a computed gradient."""
_LOOKS = 100
"""A problem that takes more looks at the rows is a hard one."""
_QUICK = Precision((11,), 2 * GRID + 11)
_CAREFUL = Precision((11, 22, 33), 2 * GRID + 11)
_SLOPES = Precision((), GRID + 23)
"""For a gradient without a Hessian."""
_STEEPEST = 1.0 + 1e-6
"""Products have as many bits as `_QUICK` says up to here."""


@dataclass(frozen=True)
class Huber:
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

    def __post_init__(self) -> None:
        if not (0.0 < self.steepest <= _STEEPEST and 0.0 < self.strength < math.inf):
            raise OptionError("slopes must be at most 1, and the penalty positive")

    @property
    def width(self) -> int:
        """Number of weights."""
        return self.size * (2 if self.by_arm else 1)

    @property
    def gradient_bound(self) -> tuple[float, float]:
        """Largest L1 and L2 norm of one record's gradient."""
        return self.steepest * math.sqrt(self.size), self.steepest

    @property
    def hessian_bound(self) -> float:
        """Largest second derivative of one record's loss along its row."""
        return self.steepest**2

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
        each = _ACCOUNTED + 3.0 * (self.rows - 1) * 2.0 ** -(descent.FINE + 1)
        most = n * (each + off * (2.0 + largest)) + 2e-15 * noise
        return most / self.strength

    def solve(self, source: Source, noise: FloatArray | None = None) -> FloatArray:
        """Minimise the objective plus noise'w, whatever the rows are, to within `solver_error`."""
        n, noise = source.n, np.zeros(self.width) if noise is None else noise
        push, at = norm(noise), partial(self._at, source, noise)
        stop = n * _STOP + 1e-15 * push
        weights = None
        for precision in (_SLOPES, _QUICK)[self.size <= descent.DENSE :]:
            if weights is None:
                weights = descent.newton(partial(at, precision), self.width, stop, _LOOKS)
        if weights is None:

            def rounding(size: float) -> float:
                """Distance of a computed gradient from the true one, at weights of this norm."""
                each = (
                    self.rows * 2.0 ** -(descent.FINE + 1)
                    + 2.0**-50
                    + (along_error(self.size) + 2.0**-52) * size
                )
                return n * each + 2.0**-52 * (self.strength * size + push)

            curve = 1.01 * (self.strength + n * self.hessian_bound)
            weights = descent.descend(partial(at, _CAREFUL), self.width, stop, rounding, curve)
        return descent.shortened(weights, 1.001 * self.largest_weights(n, push))

    def _at(
        self,
        source: Source,
        tilt: FloatArray,
        precision: Precision,
        weights: FloatArray,
        tail: FloatArray,
    ) -> Derivatives:
        """Gradient, and the Hessian of each arm; ``tail`` is what weights leave out."""
        parts = np.stack([weights, tail]).reshape(2, -1, self.size) / 2.0**GRID
        add = partial(_block_sums, problem=self, parts=parts, precision=precision)
        limbs = source.fold(add, *self.terms.reads)[0]
        falls, hessian = descent.derivatives(limbs, 2.0**GRID, 1, self.strength, precision)
        gradient = self.strength * weights + tilt - falls.reshape(-1)
        return gradient, hessian if precision.bits else partial(self._times, source, parts)

    def _times(self, source: Source, parts: FloatArray, vector: FloatArray) -> FloatArray:
        """The Hessian of all arms times a vector of norm 1."""
        vectors = vector.reshape(-1, self.size) / 2.0**GRID
        add = partial(_block_sums, problem=self, parts=parts, precision=_SLOPES, vectors=vectors)
        limbs = source.fold(add, *self.terms.reads)[0]
        image, _ = descent.derivatives(limbs, 2.0**GRID, 1, self.strength, _SLOPES)
        return self.strength * vector + image.reshape(-1)


def _block_sums(
    block: Block,
    problem: Huber,
    parts: FloatArray,
    precision: Precision,
    vectors: FloatArray | None = None,
) -> Totals:
    """What a block adds, for each arm; ``parts`` are weights of whole rows, and their tails.

    With ``vectors``, one for each arm, it is what the block adds to the Hessians times these.
    """
    _, arms, size = parts.shape
    pieces = [block] if arms == 1 else [block.some(block.treated), block.some(~block.treated)]
    limbs = np.zeros((2, arms, size, len(precision.bits) * size + 2), dtype=np.int64)
    step = min(2**11, max(64, 2**17 // size))  # features take far more memory than covariates
    for arm, (piece, weights, tail) in enumerate(zip(pieces, *parts, strict=True)):
        for start in range(0, piece.size, step):
            some = piece.some(slice(start, start + step))
            rows, slopes, targets = bounded_terms(problem, some)
            residual = targets - slopes * exact_dots(rows, weights, GRID, tail)
            curvatures = slopes**2 * (np.abs(residual) <= 1.0)
            if vectors is None:
                factors = slopes * np.clip(residual, -1.0, 1.0)
            else:
                factors = curvatures * exact_dots(rows, vectors[arm], GRID)
            if some.weight.size:
                factors, curvatures = factors * some.weight, curvatures * some.weight
            limbs[:, arm] += descent.derivative_sums(rows, factors, curvatures, precision)
    return (limbs,)


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
    descent.rounded(values, GRID, out=values)
    values *= 2.0**-GRID
    return values


def along(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """rows'weights for rows on the grid, such that a row's value is its own."""
    return exact_dots(rows, weights, GRID)


def along_error(size: int) -> float:
    """How far `along` is off at most, for rows of norm 1 and weights of norm 1 of this size."""
    return descent.dot_error(size, GRID)
