"""Ridge-penalised logistic regression of the treatment, and how far it ends from its minimiser.

The loss is log(1 + exp(-s_i (offset + x_i'w))) with s_i = +1 for treated and -1 for control, for
rows in [0, 1]^d; the intercept is a column like any other and is penalised. Centred rows have norm
at most 1: columns are centred at 1/2, the intercept stays as it is, and all is divided by
`unit_norm`. Centring is a public map that makes the intercept nearly uncorrelated with the rest and
halves the norm of the rest: without it weights carry up to twice the noise.

Rows are rounded to multiples of 2^-16 before they are fitted (`descent` has the rest).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray
from dpeffects.errors import OptionError
from dpeffects.privacy import descent
from dpeffects.privacy.descent import (
    FINE,
    Derivatives,
    Precision,
    Product,
    exact_dots,
    kept_bits,
    norm,
)
from dpeffects.privacy.exact import scratch_buffer
from dpeffects.privacy.rows import Block, Source, Totals

_LOOKS = 40
"""A problem that takes more looks at the rows is a hard one."""
STOP = {True: 4e-12, False: 5e-10}
"""Norm of a computed mean gradient at which the solver stops, on centred rows and on others."""
GRID = 16
"""Rows are fitted as multiples of 2^-16."""
_QUICK = Precision((13,), 2 * GRID + 11)
_CAREFUL = Precision((13, 28, 43), 2 * GRID + 14)
"""A second derivative is at most 1/4."""
_SLOPES = Precision((), GRID + 23)
"""For a gradient without a Hessian."""


@dataclass(frozen=True)
class Logistic:
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
    hessian_bound = 0.25
    gradient_shifts = 3
    claims = (21, 20)

    @property
    def gradient_bound(self) -> tuple[float, float]:
        """Largest L1 and L2 norm of one record's gradient."""
        return self._norms[::-1][:2]

    @property
    def _norms(self) -> tuple[float, float, float]:
        """What whole rows are divided by beside the grid, and their largest L2 and L1 norm."""
        d = self.width
        return (unit_norm(d), 1.0, unit_l1(d)) if self.centred else (1.0, math.sqrt(d), float(d))

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
        steep = min(tilt + math.sqrt(tilt**2 + loss), self._norms[1] + tilt)
        return 1.001 * steep / penalty

    def rounding(self, size: float) -> float:
        """Distance of a computed mean gradient from the true one, at weights of this norm."""
        _, row, l1 = self._norms
        left_out = l1 * 2.0 ** -kept_bits(self.width, GRID) * size
        each = (
            left_out / 4.0 + 2.0**-48 + 2.0**-53 * abs(self.offset) + self.rows * 2.0 ** -(FINE + 1)
        )
        return 1.01 * row * each

    def gradient_left(self, n: int, noise: float = 0.0) -> float:
        """Norm of the true mean gradient where the solver ends, at most; from public numbers.

        Parts that are proportional to the noise are left out: `minimise` has room for them.
        """
        stop, far = STOP[self.centred], self.rounding(2.0 * self.largest_weights(n, noise))
        return max(2.0 * stop, stop + far, 5.0 * far)

    def solver_error(self, n: int, noise: float = 0.0) -> float:
        """L2 distance of weights on centred rows from the exact minimiser, at most (claim 20)."""
        return n * self.gradient_left(n, noise) / self.strength

    def solve(self, source: Source, noise: FloatArray | None = None) -> FloatArray:
        """Minimise the objective plus noise'w, whatever the rows are, to within `solver_error`."""
        n, noise = source.n, np.zeros(self.width) if noise is None else noise
        tilt, top = noise / n, self.largest_weights(n, norm(noise))
        stop = max(STOP[self.centred], 4.0 * self.rounding(2.0 * top)) + 1e-15 * norm(tilt)
        weights = None
        for precision in (_SLOPES, _QUICK)[self.width <= descent.DENSE :]:
            if weights is None:
                at = partial(self._at, source, tilt, precision)
                weights = descent.newton(at, self.width, stop, _LOOKS, self._after)
        if weights is None or not norm(weights) <= 2.0 * top:
            weights = self._carefully(source, tilt, stop)
        return descent.shortened(weights, top)

    def _carefully(self, source: Source, tilt: FloatArray, stop: float) -> FloatArray:
        """Solve a hard problem, on the rows before they are divided by their norm.

        So weights are those that multiply whole numbers, but for a power of two, in all their bits.
        """
        (divisor, row, _), penalty, push = self._norms, self.penalty(source.n), norm(tilt)

        def rounding(size: float) -> float:
            by_penalty = 2.0**-52 * (penalty * divisor * size + push)
            return divisor * (self.rounding(divisor * size) + by_penalty)

        curve = 1.01 * divisor**2 * (row**2 / 4.0 + penalty)
        at = partial(self._at, source, tilt, _CAREFUL)
        return divisor * descent.descend(at, self.width, divisor * stop, rounding, curve)

    def _at(
        self,
        source: Source,
        tilt: FloatArray,
        precision: Precision,
        weights: FloatArray,
        tail: FloatArray,
    ) -> Derivatives:
        """Gradient and Hessian; if `_CAREFUL`, for weights of rows that are not yet divided.

        ``tail`` is what floats leave out of the weights.
        """
        careful = precision is _CAREFUL
        left, divisor = (self._norms[0], 1.0) if careful else (1.0, self._norms[0])
        scale = 2.0**GRID * divisor
        parts = np.stack([weights, tail]) / scale
        add = partial(_block_sums, problem=self, parts=parts, precision=precision)
        penalty, limbs = self.penalty(source.n) * left**2, source.fold(add, *self.reads)[0]
        gradient, hessian = descent.derivatives(limbs, scale, source.n, penalty, precision)
        product = partial(self._times, source, parts, scale, penalty)
        gradient = gradient + penalty * weights + tilt * left
        return gradient, hessian if precision.bits else product

    def cases(self, block: Block) -> BoolArray:
        """Who is treated, or in the arm that is held against all others."""
        return block.treated if self.arm is None else block.arm == self.arm

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts of a row that it gets, beside who is treated."""
        return ("covariates",) if self.arm is None else ("covariates", "arm")

    def _times(
        self, source: Source, parts: FloatArray, scale: float, penalty: float, vector: FloatArray
    ) -> FloatArray:
        """The Hessian times a vector of norm 1, made shorter so that all factors are below 1."""
        fewer = 2.0 ** -math.ceil(math.log2(self._norms[0] * self._norms[1]))
        add = partial(
            _block_sums,
            problem=self,
            parts=parts,
            precision=_SLOPES,
            vector=fewer * vector / scale,
        )
        limbs = source.fold(add, *self.reads)[0]
        image, _ = descent.derivatives(limbs, scale, source.n, penalty, _SLOPES)
        return image / fewer + penalty * vector

    def _after(
        self, step: FloatArray, gradient: FloatArray, hessian: FloatArray | Product
    ) -> float:
        """Largest norm of the gradient after a step, by Taylor's theorem (claim 20)."""
        row = self._norms[1]
        image = descent.times(hessian, step) if callable(hessian) else hessian @ step
        size, missed = row * norm(step), norm(gradient - image)
        coarse = self.rows * 2.0 ** -(_QUICK.bits[0] + 1)
        return 1.01 * (missed + row * (coarse * size + size**2 / 20.0))


def least_penalty(d: int, centred: bool = False) -> float:
    """Smallest penalty that can be fitted with d columns: 1e-12 for any number that fits in memory.

    Below, rounding of the largest weights could outweigh the penalty (claim 20).
    """
    problem = Logistic(d, 1.0, centred=centred)
    return max(1e-12, 16.0 * (problem.rounding(1.0) - problem.rounding(0.0)))


def _block_sums(
    block: Block,
    problem: Logistic,
    parts: FloatArray,
    precision: Precision,
    vector: FloatArray | None = None,
) -> Totals:
    """What a block adds; ``parts`` are the weights of whole rows, and what they leave out.

    With a ``vector`` it is what the block adds to the Hessian times that.
    """
    out = scratch_buffer("logistic.rows", block.size, problem.width)
    rows = whole_rows(block.covariates, problem.centred, out)
    chance = sigmoid(exact_dots(rows, parts[0], GRID, parts[1]) + problem.offset)
    factors, curvatures = chance - problem.cases(block), (1.0 - chance) * chance
    if block.weight.size:
        factors, curvatures = factors * block.weight, curvatures * block.weight
    if vector is not None:
        factors = curvatures * exact_dots(rows, vector, GRID)
    return (descent.derivative_sums(rows, factors, curvatures, precision),)


def whole_rows(matrix: FloatArray, centred: bool, out: FloatArray | None = None) -> FloatArray:
    """Rows as whole multiples of 2^-16: as they are in [-1, 1], or centred but for `unit_norm`."""
    rows = np.fmin(matrix, 1.0, out=out)  # a clip that has a number for what is none
    np.fmax(rows, 0.0 if centred else -1.0, out=rows)
    descent.rounded(rows, GRID, out=rows)
    if centred:
        rows[:, 1:] -= 2.0 ** (GRID - 1)
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
