"""One minimiser of convex losses with a penalty, by exact sums over rows, whatever the rows are.

`logistic` and `huber` are its losses. Rows are whole numbers. A record's factor in the gradient is
rounded to a multiple of 2^-44, and its second derivative, which only steers the steps, to a few
bits: numbers so short that products of matrices add them up exactly, in floats. So weights do not
depend on the order of the records, nor on how they are spread over blocks and machines.

`newton` takes steps by a coarse Hessian; beyond `DENSE` weights by products of the Hessian with
vectors, which are sums over rows like a gradient, and conjugate gradients, as long as these take
few products. What it does not solve in a few looks at the rows is solved by `descend` (claim 20):
every step either halves the smallest gradient so far, or lowers the objective by an amount that is
certain in spite of rounding; so there are finitely many of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.privacy.exact import PRODUCT, exact_products, scratch_buffer
from dpeffects.privacy.rows import Block, Source, Totals

_HIGH = 22
FINE = 44
"""A factor of the gradient is rounded to a multiple of 2^-44, in two parts of 22 bits."""
ABOVE = 1.1
"""A gradient is followed while it is this many times what rounding could have made of nothing."""
_LIMB = 32
_SURE = 0.004
_TRIES = 40

Values = TypeVar("Values", npt.NDArray[np.float64], npt.NDArray[np.float32])
Product = Callable[[FloatArray], FloatArray]
"""A Hessian times a vector."""
Derivatives = tuple[FloatArray, FloatArray | Product]
"""A gradient, and a Hessian, or several Hessians for pieces of the gradient of the same size."""
After = Callable[[FloatArray, FloatArray, FloatArray | Product], float]
"""A step, the gradient and the Hessian before it -> the largest norm of the gradient after it."""
DENSE = 512
"""Weights of a piece, at most, for which a Hessian is made."""
_RESIDUAL = 1e-3
"""Conjugate gradients stop at this part of the gradient."""
_LEAST_PRODUCTS, _PER_PRODUCT = 40, 20
"""They give up after so many products, or one for so many weights: a Hessian costs less then."""


class Precision(NamedTuple):
    """Second derivatives are rounded to the first of ``bits``, what is left to the next.

    No product of two entries that are added up has more than ``product`` bits.
    """

    bits: tuple[int, ...]
    product: int


Slopes = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""Products x'w of rows -> first and second derivatives of their losses."""
Piece = tuple[int, Block, FloatArray, Slopes]
"""Which weights some records have, the records, their whole rows, their losses."""


class Penalised(Protocol):
    """The mean of convex losses of x'w over the records, and (penalty / 2) |w|^2.

    Rows x are whole numbers over 2^``grid`` and over the first of `norms`; the second is how long
    they are then at most. A problem that takes more ``looks`` at the rows is a hard one. ``bend``
    bounds third derivatives of the losses, over 2, where there are any.
    """

    grid: ClassVar[int]
    looks: ClassVar[int]
    quick: ClassVar[Precision]
    careful: ClassVar[Precision]
    bend: ClassVar[float | None] = None

    width: int
    rows: int
    """Rows of a unit, at most."""

    @property
    def columns(self) -> int:
        """Weights that one record has."""
        return self.width

    @property
    def norms(self) -> tuple[float, float]:
        """What whole rows are divided by beside the grid, and their largest norm."""

    @property
    def hessian_bound(self) -> float:
        """Largest second derivative of one record's loss."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts of a row that it gets, beside who is treated."""

    def penalty(self, n: int) -> float:
        """The penalty of the mean."""

    def largest_weights(self, n: int, noise: float = 0.0) -> float:
        """Norm that no minimiser exceeds, for noise of at most this norm."""

    def rounding(self, size: float) -> float:
        """Distance of a computed mean gradient from the true one, at weights of this norm."""

    def enough(self, largest: float) -> float:
        """The mean gradient at which the solver stops, for weights of this norm."""

    def pieces(self, block: Block) -> Iterator[Piece]:
        """The losses of a block, of a few records at a time."""

    def solve(self, source: Source, noise: FloatArray | None = None) -> FloatArray:
        """Minimise n times the objective plus noise'w, whatever the rows are (claims 20, 23)."""
        n = source.about.n
        tilt = np.zeros(self.width) if noise is None else noise / n
        top = self.largest_weights(n, norm(tilt) * n)
        stop, weights = self.enough(top) + 1e-15 * norm(tilt), None
        after = self._after if self.bend else None
        for precision in (Precision((), self.grid + 23), self.quick)[self.columns <= DENSE :]:
            if weights is None:
                at = partial(self.at, source, tilt, precision)
                weights = newton(at, self.width, stop, self.looks, after)
        if weights is None or not norm(weights) <= 2.0 * top:
            weights = self._carefully(source, tilt, stop)
        return shortened(weights, 1.001 * top)

    def _after(
        self, step: FloatArray, gradient: FloatArray, hessian: FloatArray | Product
    ) -> float:
        """Largest norm of the gradient after a step, by Taylor's theorem (claim 20)."""
        row, bend = self.norms[1], self.bend or 0.0
        image = times(hessian, step) if callable(hessian) else (hessian @ step).reshape(-1)
        size, missed = row * norm(step), norm(gradient - image)
        coarse = self.rows * 2.0 ** -(self.quick.bits[0] + 1)
        return 1.01 * (missed + row * (coarse * size + bend * size**2))

    def _carefully(self, source: Source, tilt: FloatArray, stop: float) -> FloatArray:
        """Solve a hard problem, on the rows before they are divided by their norm.

        So weights are those that multiply whole numbers, but for a power of two, in all their bits.
        """
        divisor, penalty, push = self.norms[0], self.penalty(source.about.n), norm(tilt)

        def rounding(size: float) -> float:
            by_penalty = 2.0**-52 * (penalty * divisor * size + push)
            return divisor * (self.rounding(divisor * size) + by_penalty)

        curve = 1.01 * divisor**2 * (self.hessian_bound + penalty)
        at = partial(self.at, source, tilt, self.careful)
        return divisor * descend(at, self.width, divisor * stop, rounding, curve)

    def at(
        self,
        source: Source,
        tilt: FloatArray,
        precision: Precision,
        weights: FloatArray,
        tail: FloatArray,
    ) -> Derivatives:
        """Gradient and Hessians; if `careful`, for weights of rows that are not yet divided.

        ``tail`` is what floats leave out of the weights.
        """
        left = self.norms[0] if precision is self.careful else 1.0
        n, scale = source.about.n, 2.0**self.grid * self.norms[0] / left
        penalty = self.penalty(n) * left**2
        parts = np.stack([weights, tail]).reshape(2, -1, self.columns) / scale
        fewer = 2.0 ** -math.ceil(math.log2(self.norms[0] * self.norms[1]))

        def sums(precision: Precision, vectors: FloatArray | None = None) -> Derivatives:
            add = partial(block_sums, self, parts, precision, vectors)
            limbs = source.fold(add, *self.reads)[0]
            return derivatives(limbs, scale, n, penalty, precision)

        def product(vector: FloatArray) -> FloatArray:
            """The Hessian times a vector of norm 1, made shorter: all factors are below 1."""
            vectors = fewer * vector.reshape(-1, self.columns) / scale
            image, _ = sums(Precision((), self.grid + 23), vectors)
            return image / fewer + penalty * vector

        gradient, hessian = sums(precision)
        gradient = gradient + penalty * weights + tilt * left
        return gradient, hessian if precision.bits else product


def block_sums(
    problem: Penalised,
    parts: FloatArray,
    precision: Precision,
    vectors: FloatArray | None,
    block: Block,
) -> Totals:
    """What a block adds, by piece; ``parts`` are the weights of whole rows, and their tails.

    With ``vectors``, one for each piece, it is what the block adds to the Hessians times these.
    """
    (_, pieces, size), grid = parts.shape, problem.grid
    limbs = np.zeros((2, pieces, size, len(precision.bits) * size + 2), dtype=np.int64)
    for k, some, rows, slopes in problem.pieces(block):
        factors, curvatures = slopes(exact_dots(rows, parts[0, k], grid, parts[1, k]))
        if vectors is not None:
            factors = curvatures * exact_dots(rows, vectors[k], grid)
        if some.weight.size:
            factors, curvatures = factors * some.weight, curvatures * some.weight
        limbs[:, k] += derivative_sums(rows, factors, curvatures, precision)
    return (limbs,)


def rounded(values: Values, bits: int, out: Values | None = None) -> Values:
    """Multiples of 2^-bits as whole numbers."""
    whole = np.multiply(values, 2.0**bits, out=out)
    whole += 0.5
    return np.floor(whole, out=whole)


def exact_dots(
    rows: FloatArray, weights: FloatArray, bits: int, tail: FloatArray | float = 0.0
) -> FloatArray:
    """rows'weights for rows of this many bits, such that a row's value is its own.

    (A product of matrices may add up a row in another order when its neighbours change.) Weights
    are cut into parts that leave room for exact sums, two of them, or three where these are short
    (`kept_bits`). ``tail`` is what floats leave out of the weights.
    """
    size, own = weights.size, _part_bits(weights.size, bits)
    top = max(float(np.abs(weights).max(initial=0.0)), 1e-200)
    scale = 2.0 ** (own - math.frexp(top)[1])
    parts, rest = [np.rint(weights * scale)], weights * scale
    for k in range(1, _parts(size)):
        rest = rest - parts[-1] + (tail * scale if k == 1 else 0.0)
        parts.append(np.rint(rest * 2.0 ** (k * own)) * 2.0 ** (-k * own))
    stacked, out = np.stack(parts, axis=1), np.empty(len(rows))
    for start in range(0, len(rows), step := max(64, PRODUCT // (2 * max(size, 1)))):
        sums = rows[start : start + step] @ stacked
        low = sums[:, 1] if len(parts) == 2 else sums[:, 1] + sums[:, 2]
        np.add(sums[:, 0], low, out=out[start : start + step])
    out /= scale
    return out


def kept_bits(size: int, bits: int) -> int:
    """Bits of this many weights that `exact_dots` keeps, below the largest of them."""
    return _parts(size) * _part_bits(size, bits)


def dot_error(size: int, bits: int) -> float:
    """How far `exact_dots` is off at most, for rows of norm 1 and weights of norm 1."""
    return math.sqrt(size) * 2.0 ** -kept_bits(size, bits) + (_parts(size) - 1) * 2.0**-53


def _parts(size: int) -> int:
    return 2 if size <= DENSE else 3


def _part_bits(size: int, bits: int) -> int:
    """Bits of a weight that leave room for exact sums over this many entries of a row."""
    return 53 - bits - math.ceil(math.log2(max(size, 2)))


def two_limbs(values: IntArray) -> IntArray:
    """Integers as high and low parts, whose sums over many blocks stay within 64 bits."""
    return np.stack([values >> _LIMB, values & (2**_LIMB - 1)])


def near_limbs(limbs: IntArray) -> FloatArray:
    """Sums of `two_limbs` as floats, with a few roundings."""
    high, low = limbs
    return np.asarray(high * 2.0**_LIMB + low)


def derivative_sums(
    rows: FloatArray, factors: FloatArray, curvatures: FloatArray, precision: Precision
) -> IntArray:
    """Sums over whole rows, in two limbs: d columns for each of the bits, two for the gradient.

    A record's gradient is its factor times its row, its Hessian the curvature times row row'.
    """
    size, d = rows.shape
    terms = scratch_buffer("descent.terms", size, len(precision.bits) * d + 2)
    for k, bits in enumerate(precision.bits):
        part = rounded(curvatures, bits)
        np.multiply(rows, part[:, None], out=terms[:, k * d : (k + 1) * d])
        curvatures = curvatures - part * 2.0**-bits
    terms[:, -2] = rounded(factors, _HIGH)
    terms[:, -1] = rounded(factors - terms[:, -2] * 2.0**-_HIGH, FINE)
    return two_limbs(exact_products(rows, terms, precision.product))


def times(product: Product, vector: FloatArray) -> FloatArray:
    """A vector times a Hessian whose product rounds to multiples of 2^-44: norm 1 loses least."""
    size = norm(vector)
    return size * product(vector / size) if size > 0.0 else vector


def derivatives(
    limbs: IntArray, scale: float, n: int, penalty: float, precision: Precision
) -> Derivatives:
    """Gradient of the losses and penalised Hessian over n, of rows that are ``scale`` too large."""
    sums, d = near_limbs(limbs), limbs.shape[-2]
    gradient = (sums[..., -2] * 2.0**-_HIGH + sums[..., -1] * 2.0**-FINE) / (n * scale)
    hessian = penalty * np.eye(d) if precision.bits else np.zeros(0)
    for k, bits in enumerate(precision.bits):
        hessian = sums[..., k * d : (k + 1) * d] * 2.0**-bits / (n * scale**2) + hessian
    return gradient.reshape(-1), hessian


def newton(
    at: Callable[[FloatArray, FloatArray], Derivatives],
    width: int,
    stop: float,
    looks: int,
    after: After | None = None,
) -> FloatArray | None:
    """Newton steps to a gradient norm of ``stop``; None where that takes more looks at the rows.

    ``at`` returns what is known at some weights, given in two parts (`descend`).
    A step is taken where the objective still falls at its end, or where the gradient is much
    smaller than any before; else a shorter one is tried, by the slopes at both ends. Smooth losses
    have an ``after`` that bounds the gradient after a step from what is known before it, so that
    the last one needs no look; then a step must lower the gradient, and is halved until it does.
    """
    weights, no_tail, best, looked = np.zeros(width), np.zeros(width), math.inf, 1
    gradient, hessian = at(weights, no_tail)
    while looked < looks:
        best = min(best, size := norm(gradient))
        if size <= stop:
            return weights
        if (step := direction(hessian, gradient)) is None:
            return None
        if after is not None and after(step, gradient, hessian) <= stop:
            return weights - step
        falls, shrink = float(gradient @ step), 1.0
        while looked < looks:
            candidate = weights - shrink * step
            gradient, hessian = at(candidate, no_tail)
            looked += 1
            rises, size = -float(gradient @ step), norm(gradient)
            if after is not None:
                if size < best:
                    break
                shrink /= 2.0
            else:
                if rises <= 0.0 or size < 0.9 * best or shrink < 1e-10:
                    break
                shrink *= min(max(falls / (falls + rises), 0.1), 0.9)
        weights = candidate
    return None


def descend(
    at: Callable[[FloatArray, FloatArray], Derivatives],
    width: int,
    stop: float,
    noise: Callable[[float], float],
    curve: float,
) -> FloatArray:
    """Minimise a convex function to a gradient norm of ``stop``, or of `ABOVE` times ``noise``.

    ``at`` is given the weights in two parts, as large weights need more bits than a float has.
    ``noise`` says how far a computed gradient can be off at weights of a norm; no second derivative
    exceeds ``curve``. Hessians are not trusted.
    """
    weights, tail = np.zeros(width), np.zeros(width)
    gradient, hessian = at(weights, tail)
    least = size = norm(gradient)
    while size > stop and size > ABOVE * (off := noise(norm(weights))):
        step, shrink = direction(hessian, gradient), 1.0
        step = gradient if step is None else step
        length, falls = norm(step), float(gradient @ step)
        for _ in range(_TRIES):
            candidate = _minus(weights, tail, shrink * step)
            new, hessian = at(*candidate)
            slope, after = float(new @ step), norm(new)
            doubt = noise(norm(candidate[0])) + width * 2.0**-52 * after
            sure = shrink * (slope - doubt * length)  # the objective has fallen by more
            if after <= least / 2.0 or sure >= _SURE * size**2 / curve:
                break
            shrink *= min(max(falls / max(falls + max(-slope, 0.0), 1e-300), 0.1), 0.5)
        else:
            candidate = _minus(weights, tail, (1.0 - off / size) / curve * gradient)
            new, hessian = at(*candidate)
        (weights, tail), gradient, size = candidate, new, norm(new)
        least = min(least, size)
    return weights


def _minus(
    weights: FloatArray, tail: FloatArray, step: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """weights + tail - step in two parts again: a float, and what it leaves out."""
    first = weights - step
    back = first - weights
    rest = (weights - (first - back)) - (step + back) + tail
    total = first + rest
    return total, rest - (total - first)


def direction(hessian: FloatArray | Product, gradient: FloatArray) -> FloatArray | None:
    """Newton's step, or the gradient where rounding leaves no step along which it falls.

    None where conjugate gradients would take too many products.
    """
    if callable(hessian):
        return _conjugate_gradients(hessian, gradient)
    pieces = gradient.reshape(*hessian.shape[:-2], hessian.shape[-1], 1)
    try:
        step = np.asarray(np.linalg.solve(hessian, pieces), np.float64).reshape(-1)
    except np.linalg.LinAlgError:
        return gradient
    return step if np.isfinite(step).all() and float(gradient @ step) > 0.0 else gradient


def _conjugate_gradients(product: Product, gradient: FloatArray) -> FloatArray | None:
    """About the solution s of H s = gradient, from products with H alone."""
    step, rest, along = np.zeros(gradient.size), gradient, gradient
    square = float(rest @ rest)
    enough = _RESIDUAL**2 * square
    for _ in range(max(_LEAST_PRODUCTS, gradient.size // _PER_PRODUCT)):
        image = times(product, along)
        curve = float(along @ image)
        if not curve > 0.0:
            return None
        step, rest = step + square / curve * along, rest - square / curve * image
        before, square = square, float(rest @ rest)
        if square <= enough:
            return step
        along = rest + square / before * along
    return None


def norm(values: FloatArray) -> float:
    """L2 norm."""
    return float(np.linalg.norm(values))


def shortened(weights: FloatArray, longest: float) -> FloatArray:
    """Weights of at most this norm."""
    size = norm(weights)
    return weights if size <= longest else weights * (longest / size)
