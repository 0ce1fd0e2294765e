"""Least squares in each arm, and how far one record can move it (claims 34 to 36).

A row function gives each record s in [0, 1], v in a ball, psi in [-clip, clip] and q in a larger
ball; w = (s, v). In each arm S = sum ww' and b = S^-1 (sum w psi). A contrast of two arms is
c'(b_1 - b_0), c the mean of (1, q) over all records or over one arm. None of it is noisy: noise
comes once, at the end, along a ladder of what a record could do to it. What the contrast is worth
is released before, as least squares with bounded b, which a record moves by little on all data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.errors import OptionError
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.domains import Box, BoxGrid, IntTotals, Sensitivity, add_up, weigh
from dpeffects.privacy.exact import exact_products
from dpeffects.privacy.ladder import RUNGS
from dpeffects.privacy.rows import (
    MOST_ROWS,
    WEIGHT_BITS,
    Block,
    RowFunction,
    Totals,
    evaluate,
    rehearse,
)

_FIRST = 0.25
"""Part of the square of the bound on |w'b| that is left to the constant, where b is bounded."""
MOST_PRODUCTS, _MOST_COLUMNS = 2**40, 500
"""Products of columns that exact sums over all records may have, and columns."""
_STEPS = 2**20
"""Steps by which a record moves a release with Laplace noise."""
_SMALL = 2.0**-40
"""Largest error of LAPACK that is allowed for: of an eigenvalue over the largest possible one."""
_HALVED = 50
"""Times that the interval of a bound's multiplier is halved: what is missed is far below _SMALL."""
_DIGITS = 192
"""Binary digits of solutions after the point."""
_REFINED = 40
"""Times that a solution is improved, at most; each adds eight binary digits or more."""
_SLACK = 2.0**-36
"""More than the relative error of a rung in floats."""
_LEAST_GAP = 2.0**-10
"""Arms differ by at least this part of the bound of residuals, so that errors are relative."""

Pair = tuple[int, int]
Whole = npt.NDArray[Any]
"""Python's whole numbers, of any size."""


class StepBounds(NamedTuple):
    """What bounds how far one record, and others before it, can move least squares (claim 35).

    ``room`` is how many records it takes, at least, to make an arm singular; ``pull`` bounds
    |c'S^-1 w|, ``residual`` |psi - w'b| and ``gap`` |w'(b_1 - b_0)| over all possible rows, in both
    arms; ``size`` is the number of records that c is a mean of, ``reach`` public.
    """

    room: float
    pull: float
    residual: float
    gap: float
    size: float
    reach: float

    def contrast(self) -> FloatArray:
        """How far a record can move c'(b_1 - b_0), by the number of records replaced before.

        It is infinite once an arm could be close to singular, or c a mean of nobody.
        """
        k = np.arange(RUNGS)
        k = k[(self.room >= k + 2) & (self.size > k + 1)]
        pull = (self.pull + self._mean_moves(k) * k / self.room) * self._grown(k)
        residual = self.residual * self._grown(k + 1)
        moves = pull * residual * (2.0 - 1.0 / (self.room - k))
        moves += self._mean_moves(k + 1) * (self.gap + residual - self.residual)
        return np.append(moves * (1.0 + _SLACK) ** (k + 1), np.inf)

    def _mean_moves(self, k: IntArray) -> FloatArray:
        """How far the k-th record can move c, in radii."""
        return np.asarray(2.0 * self.reach / (self.size - k))

    def _grown(self, k: IntArray) -> FloatArray:
        """How much k records can multiply what bounds a row's part."""
        return np.asarray((self.room / (self.room - k)) ** 2)


def solution(matrix: Whole, right: Whole) -> Whole:
    """matrix^-1 right in units of 2^-_DIGITS: floats propose, whole numbers say what is left."""
    inverse, left = np.linalg.inv(matrix.astype(np.float64)), right * 2**_DIGITS
    found = left * 0
    for _ in range(_REFINED):
        step = np.array([int(x) for x in np.rint(inverse @ left.astype(np.float64))], dtype=object)
        found, left = found + step, left - matrix @ step
        if not step.any():
            break
    return found


@dataclass(frozen=True)
class RowProducts:
    """What rows add, in whole numbers; it may travel to other processes.

    Rows (s, v, psi) add their products by arm; (1, q) adds to a sum, of one arm if there is a
    target. All have their weights.
    """

    function: RowFunction
    columns: int
    radius: float
    clip: float
    reach: float
    target: int | None
    n: int
    weighted: bool
    arms: int

    def __post_init__(self) -> None:
        if not (1.0 <= self.radius <= 2**6 and 1.0 <= self.reach <= 2**6 and self.columns >= 1):
            raise OptionError("least squares needs columns, and a radius and a reach from 1 to 64")
        many = self.n * (self.columns + 1) ** 2 > MOST_PRODUCTS
        if self.bits < 8 or many or self.columns > _MOST_COLUMNS:
            raise OptionError("too many records or columns for exact least squares")

    @cached_property
    def bits(self) -> int:
        """Steps of the largest psi, and about those of the largest v, are 2^bits."""
        most, more = (14, WEIGHT_BITS) if self.weighted else (18, 0)
        return min(most, (60 - more - self.n.bit_length()) // 2)

    @cached_property
    def one(self) -> int:
        """Steps of s = 1, and of each unit of v and q."""
        return int(2 ** (self.bits - math.ceil(math.log2(self.radius))))

    @cached_property
    def whole_radius(self) -> int:
        """Steps of the largest |v|: whole, so that rounding stays within the ball."""
        return math.floor(self.radius * self.one)

    @cached_property
    def grids(self) -> tuple[BoxGrid, ...]:
        """Of s, v, psi and q."""
        boxes = [Box(0.0, 1.0, centre=0.0)]
        for radius in (self.whole_radius, math.floor(self.whole_radius * self.reach)):
            ends = np.full(self.columns, radius / self.one)
            boxes.append(Box(-ends, ends, radius=radius / self.one))
        s, v, q = (BoxGrid(box, self.one, 1.0 / self.one) for box in boxes)
        return s, v, Box(-self.clip, self.clip).with_bits(self.bits), q

    def __call__(self, block: Block) -> Totals:
        """Products by arm, and the sum that c is the mean of."""
        p, z = self.columns, evaluate(self.function, block, 2 * self.columns + 2)
        starts = (0, 1, p + 1, p + 2, 2 * p + 2)
        for k, grid in enumerate(self.grids):
            grid.project(z[:, starts[k] : starts[k + 1]])
        weight = block.weight if self.weighted else None
        arm = block.arm if self.arms > 2 else block.treated
        mean = np.full((len(z), p + 1), float(self.one))
        mean[:, 1:], z = z[:, p + 2 :], z[:, : p + 2]
        if self.target is not None:
            mean[arm != self.target] = 0.0
        bits, heavy = 2 * self.bits, z
        if weight is not None:
            bits, heavy = bits + WEIGHT_BITS, weigh(z.copy(), weight)
        products = []
        for own in (np.flatnonzero(arm == a) for a in range(self.arms)):
            right = z.T.take(own, axis=1).T  # along columns, as they are in memory
            left = right if heavy is z else heavy[own]
            products.append(exact_products(left, right, bits))
        return np.stack(products), add_up(weigh(mean, weight), None, 1)[0]


class LeastSquares:
    """Releases of least squares in each arm of a curator's rows.

    ``rows`` returns s, v (``columns`` of them), psi and q. They are kept within 0 <= s <= 1,
    |v| <= ``radius``, |psi| <= ``clip`` and |q| <= ``reach`` times the radius. ``target`` is the
    arm that c is the mean of, None for all. A pair of arms is (1, 0) for treated against control;
    ``smoothing`` is the part of the price that pays for the ladder's widening (`LadderPace`).
    """

    def __init__(
        self,
        curator: Curator,
        rows: RowFunction,
        *,
        columns: int,
        radius: float,
        clip: float,
        reach: float = 1.0,
        target: int | None = None,
    ) -> None:
        known = curator.units, curator.weighted, curator.arms
        self._rows = add = RowProducts(rows, columns, radius, clip, reach, target, *known)
        self._releaser, self._units = curator._releaser, MOST_ROWS if curator.weighted else 1
        self._step = Fraction(add.grids[2].step)
        rehearse(rows, 2 * columns + 2, None, curator.width)
        parts = dict.fromkeys((*rows.reads, "arm") if curator.arms > 2 else rows.reads)
        products, mean = (x.astype(object) for x in curator._source.fold(add, *parts))
        self._matrices, self._right = products[:, :-1, :-1], products[:, :-1, -1]
        self._squares, self._mean, self._size = products[:, -1, -1], mean, int(mean[0]) // add.one
        self._room, self._solved = cache(self._find_room), cache(self._solve)

    def _find_room(self, arm: int) -> float:
        """Smallest eigenvalue over the largest |w|^2, rounded down: a record moves it by 1."""
        least = float(np.linalg.eigvalsh(self._matrices[arm].astype(np.float64))[0])
        most = self._units * (self._rows.one**2 + self._rows.whole_radius**2)
        error = _SMALL * self._rows.n
        return math.floor(max((least / most - error) / (1.0 + 2.0 * error), 0.0) * _STEPS) / _STEPS

    def _solve(self, arm: int) -> tuple[Whole, Whole]:
        """b, and S^-1 times the sum that c is the mean of, in units of 2^-_DIGITS."""
        matrix = self._matrices[arm]
        return solution(matrix, self._right[arm]), solution(matrix, self._mean * self._units)

    def _largest(self, x: Whole) -> float:
        """Largest |w'x| over all possible rows w."""
        first, *others = (float(v) * 2.0**-_DIGITS for v in x)
        return self._rows.one * abs(first) + self._rows.whole_radius * math.hypot(*others)

    def _leeway(self, pair: Pair) -> StepBounds | None:
        """What a record can do to two arms; None where they are close to singular."""
        room = min(map(self._room, pair))
        if not (room >= 1.0 and self._size > 0):
            return None
        (b1, u1), (b0, u0) = map(self._solved, pair)
        pull = max(map(self._largest, (u1, u0))) / self._size
        residual = 2**self._rows.bits + max(map(self._largest, (b1, b0)))
        gap, step = max(self._largest(b1 - b0), _LEAST_GAP * residual), float(self._step)
        size = self._size / self._units
        return StepBounds(room, pull, residual * step, gap * step, size, self._rows.reach)

    def contrast(
        self,
        label: str,
        pair: Pair,
        most: float,
        *,
        share: str,
        smoothing: float,
        part: float = 1.0,
    ) -> NoisyValue:
        """Release c'(b_1 - b_0), kept within -``most`` and ``most``."""
        leeway, value, levels = self._leeway(pair), Fraction(0), np.array([np.inf])
        if leeway is not None:
            (b1, _), (b0, _) = map(self._solved, pair)
            value = Fraction(self._mean @ (b1 - b0), self._size * 2**_DIGITS) * self._step
            levels = leeway.contrast()
        ends = (-most, most)
        return self._releaser.along(
            label, value, levels, ends, smoothing, share=share, claim=35, part=part
        )

    def room(self, pair: Pair, *, share: str, part: float = 1.0) -> NoisyValue:
        """Release how many records it takes, at least, to make an arm singular."""
        return self._bounded("room", min(map(self._room, pair)), 1.0, share, part)

    def leverage(
        self, pair: Pair, size: float, longest: float, *, share: str, part: float = 1.0
    ) -> NoisyValue:
        """Release the sum of c'S^-1 c over both arms, c a sum over a public ``size``.

        It is the largest of 2 c'b - b'Sb over all b with |w'b| <= ``longest`` for every w.
        """
        _require_positive(longest, size)
        c = self._mean.astype(np.float64) / (self._rows.one * self._units * size)
        value = sum(self._largest_value(arm, c, longest) for arm in pair)
        moved = longest**2 + 8.0 * self._rows.reach * longest / size
        return self._bounded("leverage", value, moved, share, part)

    def squares(
        self, pair: Pair, weights: FloatArray, longest: float, *, share: str, part: float = 1.0
    ) -> NoisyValue:
        """Release the sum of squared residuals over both arms, with weights.

        It is the least that b with |w'b| <= ``longest``, for every possible w, leave of them.
        """
        _require_positive(longest, *weights)
        value, step, one = 0.0, float(self._step), self._rows.one * self._units
        for weight, arm in zip(weights, pair, strict=True):
            right = self._right[arm].astype(np.float64) * (step / one)
            whole = float(self._squares[arm]) * step**2 / self._units
            value += weight * (whole - self._largest_value(arm, right, longest))
        moved = max(weights) * (self._rows.clip + longest) ** 2
        return self._bounded("squares", value, moved, share, part)

    def _largest_value(self, arm: int, right: FloatArray, longest: float) -> float:
        """Largest 2 r'b - b'Sb over b with b_0^2 / a + R^2 |b_x|^2 / (1 - a) <= longest^2."""
        rows = self._rows
        scale = np.full(rows.columns + 1, math.sqrt(1.0 - _FIRST) * rows.one / rows.whole_radius)
        scale[0] = math.sqrt(_FIRST)
        matrix = self._matrices[arm].astype(np.float64) / (rows.one**2 * self._units)
        values, vectors = np.linalg.eigh(matrix * np.outer(scale, scale))
        values, right = np.maximum(values, 0.0), vectors.T @ (right * scale)
        low, high = 0.0, float(np.linalg.norm(right)) / longest
        for _ in range(_HALVED):  # the multiplier of the bound, 0 where it does not bind
            middle = (low + high) / 2.0
            b = right / np.maximum(values + middle, 1e-300)
            low, high = (middle, high) if b @ b > longest**2 else (low, middle)
        b = right / np.maximum(values + high, 1e-300)
        return float(2.0 * right @ b - values @ b**2)

    def _bounded(self, label: str, value: float, by: float, share: str, part: float) -> NoisyValue:
        """Release a number that one record changes ``by`` so much at most, with Laplace noise."""
        unit, slack = by / _STEPS, 2 + math.ceil(4.0 * _SMALL * self._rows.n * _STEPS)
        moves = Sensitivity.of_number(_STEPS + slack)
        steps = IntTotals(np.array([math.floor(value / unit)]), moves, unit)
        return self._releaser.release(label, steps, share=share, claim=36, part=part)


def _require_positive(longest: float, *others: float) -> None:
    if not (1e-100 <= longest <= 1e100 and all(1e-50 <= x <= 1e50 for x in others)):
        raise OptionError("bounds, sizes and weights must be positive, neither tiny nor huge")
