"""Least squares in each arm, and how far one record can move it (claims 34, 35).

A row function gives each record s in [0, 1], v in a ball, psi in [-clip, clip] and q in a larger
ball; w = (s, v). In each arm b = (sum ww')^-1 (sum w psi). A contrast of two arms is c'(b_1 - b_0),
c the mean of (1, q) over all records or over one arm. Nothing of it is noisy: noise comes once, at
the end, along a ladder of what a record could do to it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import FloatArray, IntArray, Interval
from dpeffects.errors import OptionError
from dpeffects.privacy.charges import Noisy
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.exact import exact_products
from dpeffects.privacy.ladder import RUNGS
from dpeffects.privacy.rows import MOST_ROWS, Block, RowFunction, Totals, evaluate, rehearse
from dpeffects.privacy.sets import Box, BoxGrid, Sensitivity, Steps, add_up, weigh

_ROOM = 2**20
"""Steps of a room of 1."""
_SMALL = 2.0**-40
"""Largest error of an eigenvalue from LAPACK, over the largest one that public numbers allow."""
_DIGITS = 192
"""Binary digits of solutions after the point."""
_REFINED = 40
"""Times that a solution is improved, at most; each adds ten binary digits or more."""
_SLACK = 2.0**-36
"""Largest relative error of a rung in floats."""
_LEAST_GAP = 2.0**-30
"""Arms differ by at least this part of the bound of residuals, so that errors are relative."""

Whole = npt.NDArray[Any]
"""Python's whole numbers, of any size."""


class State(NamedTuple):
    """What bounds how far one record, and others after it, can move least squares (claim 35).

    ``room`` is how many records it takes, at least, to make an arm singular; ``pull`` bounds
    |c'S^-1 w|, ``residual`` |psi - w'b| and ``gap`` |w'(b_1 - b_0)| over all possible rows, in both
    arms; ``size`` is the number of records that c is a mean of. ``reach`` is public.
    """

    room: float
    pull: float
    residual: float
    gap: float
    size: float
    reach: float

    def contrast(self) -> FloatArray:
        """How far a record can move c'(b_1 - b_0), by the number of records replaced before."""
        k = np.arange(RUNGS)
        with np.errstate(all="ignore"):
            moves = 2.0 * self.reach / (self.size - k)
            pull = (self.pull + moves * k / self.room) * self._grown(k)
            residual = self.residual * self._grown(k + 1)
            gap = self.gap + residual - self.residual
            other = 2.0 * self.reach / (self.size - k - 1) * gap
            return self._while_known(pull * residual * (2.0 - 1.0 / (self.room - k)) + other)

    def leverage(self, n: int) -> FloatArray:
        """How far a record can move the logarithm of a weighted sum of c'S^-1 c."""
        k = np.arange(RUNGS)
        with np.errstate(all="ignore"):
            moves = 2.0 * self.reach / (self.size - k - 1) * np.sqrt(n / (self.room - k - 1))
            return self._while_known(2.0 * np.log1p(moves) + np.log1p(1.0 / (self.room - k - 1)))

    def squares(self, weight: float) -> FloatArray:
        """How far a record can move a weighted sum of squared residuals, of these weights."""
        k = np.arange(RUNGS)
        with np.errstate(all="ignore"):
            one = (self.room - k) / (self.room - k - 1)
            return self._while_known(weight * (self.residual * self._grown(k) * one) ** 2)

    def _grown(self, k: IntArray) -> FloatArray:
        return np.asarray((self.room / (self.room - k)) ** 2)

    def _while_known(self, levels: FloatArray) -> FloatArray:
        """Infinite once an arm could be close to singular, or c a mean of nobody."""
        k = np.arange(RUNGS)
        known = (self.room >= k + 2) & (self.size > k + 1)
        return np.where(known, levels * (1.0 + _SLACK) ** k, np.inf)


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


def _weights(weights: tuple[float, float]) -> list[Fraction]:
    if not (min(weights) >= 0.0 and 0.0 < max(weights) <= 1e100):
        raise OptionError("weights of arms must not be negative, nor all 0")
    return [Fraction(x) for x in weights]


class _Rows:
    """What rows add, in whole numbers; it may travel to other processes."""

    def __init__(
        self,
        function: RowFunction,
        columns: int,
        ends: tuple[float, float, float],
        size: tuple[int, bool],
        arms: int,
        target: int | None,
    ) -> None:
        (radius, clip, reach), (n, weighted) = ends, size
        most, more = (14, 16) if weighted else (18, 0)
        self.bits = min(most, (60 - more - math.ceil(math.log2(max(n, 2)))) // 2)
        if self.bits < 8 or n * (columns + 1) ** 2 > 2**40:
            raise OptionError("too many records or columns for exact least squares")
        self.one = 2 ** (self.bits - math.ceil(math.log2(radius)))
        self.product_bits = 2 * self.bits + more
        self.function, self.columns, self.arms, self.target = function, columns, arms, target
        self.psi = Box(-clip, clip).with_bits(self.bits)
        self.s = BoxGrid(Box(0.0, 1.0, centre=0.0), self.one, 1.0 / self.one)
        self.radius = math.floor(radius * self.one)  # whole, so that rounding stays in the ball
        self.v, self.q = self._ball(self.radius), self._ball(math.floor(self.radius * reach))

    def _ball(self, radius: int) -> BoxGrid:
        ends = np.full(self.columns, radius / self.one)
        return BoxGrid(Box(-ends, ends, radius=radius / self.one), self.one, 1.0 / self.one)

    def __call__(self, block: Block) -> Totals:
        p, z = self.columns, evaluate(self.function, block, 2 * self.columns + 2)
        starts = (0, 1, p + 1, p + 2, 2 * p + 2)
        for k, grid in enumerate((self.s, self.v, self.psi, self.q)):
            grid.project(z[:, starts[k] : starts[k + 1]])
        weight = block.weight if block.weight.size else None
        arm = block.arm if self.arms > 2 else block.treated
        mean = np.full((len(z), p + 1), float(self.one))
        mean[:, 1:], z = z[:, p + 2 :], z[:, : p + 2]
        if self.target is not None:
            mean[arm != self.target] = 0.0
        weighted = weigh(z.copy(), weight)
        products = [
            exact_products(weighted * (arm == a)[:, None], z, self.product_bits)
            for a in range(self.arms)
        ]
        return np.stack(products), add_up(weigh(mean, weight), None, 1)[0]


class LeastSquares:
    """Releases of least squares in each arm of a curator's rows.

    ``rows`` returns s, v (``columns`` of them), psi and q. They are kept within 0 <= s <= 1,
    |v| <= ``radius``, |psi| <= ``clip`` and |q| <= ``reach`` times the radius. ``target`` is the
    arm that c is the mean of, None for all. Pairs are of arms: (1, 0) is treated against control.
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
        if not (columns >= 1 and 1.0 <= radius <= 2**6 and 1.0 <= reach <= 2**6):
            raise OptionError("least squares needs columns, and a radius and a reach from 1 to 64")
        self._releaser, self.n, self._reach = curator._releaser, curator.units, reach
        self._whole = MOST_ROWS if curator.weighted else 1
        size = (self.n, curator.weighted)
        folded = _Rows(rows, columns, (radius, clip, reach), size, curator.arms, target)
        rehearse(rows, 2 * columns + 2, None, curator.width)
        parts = (*rows.reads, "arm") if curator.arms > 2 else rows.reads
        products, mean = curator._source.fold(folded, *dict.fromkeys(parts))
        self._products, self._mean = products.astype(object), mean.astype(object)
        self._one, self._radius = folded.one, folded.radius
        self._clip, self._step = 2**folded.bits, folded.psi.step
        self._solved = cache(self._solve)

    def _room(self, arm: int) -> float:
        """Smallest eigenvalue over the largest |w|^2, rounded down: a record moves it by 1."""
        matrix = self._products[arm, :-1, :-1].astype(np.float64)
        least = float(np.linalg.eigvalsh(matrix)[0])
        most, error = self._whole * (self._one**2 + self._radius**2), _SMALL * self.n
        room = (least / most - error) / (1.0 + 2.0 * error)
        return math.floor(max(room, 0.0) * _ROOM) / _ROOM

    def _solve(self, arm: int) -> tuple[Whole, Whole]:
        """b, and S^-1 of the sum that c is the mean of, in units of 2^-_DIGITS."""
        matrix, r = self._products[arm, :-1, :-1], self._products[arm, :-1, -1]
        return solution(matrix, r), solution(matrix, self._mean * self._whole)

    def _largest(self, x: Whole) -> float:
        """Largest |w'x| over all possible rows w."""
        values = np.array([float(v) for v in x]) * 2.0**-_DIGITS
        return float(self._one * abs(values[0]) + self._radius * np.linalg.norm(values[1:]))

    def _state(self, pair: tuple[int, int]) -> State | None:
        """The private state of two arms; None where they are (nearly) singular."""
        room, total = min(map(self._room, pair)), int(self._mean[0]) // self._one
        if not (room >= 1.0 and total > 0):
            return None
        (b1, u1), (b0, u0) = map(self._solved, pair)
        pull = max(map(self._largest, (u1, u0))) / total
        residual = self._clip + max(map(self._largest, (b1, b0)))
        gap = max(self._largest(b1 - b0), _LEAST_GAP * residual)
        size, step = total / self._whole, self._step
        return State(room, pull, residual * step, gap * step, size, self._reach)

    def room(self, pair: tuple[int, int], *, share: str, part: float = 1.0) -> Noisy:
        """Release how many records it takes, at least, to make an arm singular."""
        room = np.array([round(min(map(self._room, pair)) * _ROOM)])
        steps = Steps(room, Sensitivity.of_number(_ROOM), 1.0 / _ROOM)
        return self._releaser.release("room", steps, share=share, claim=35, part=part)

    def contrast(
        self,
        label: str,
        pair: tuple[int, int],
        most: float,
        *,
        share: str,
        smoothing: float,
        part: float = 1.0,
    ) -> Noisy:
        """Release c'(b_1 - b_0), kept within -``most`` and ``most``."""
        state, value, levels = self._state(pair), Fraction(0), _NOTHING
        if state:
            (b1, _), (b0, _) = map(self._solved, pair)
            value = self._mean @ (b1 - b0) * Fraction(self._step) * self._one
            value, levels = value / (int(self._mean[0]) * 2**_DIGITS), state.contrast()
        return self._along(label, value, levels, (-most, most), share, smoothing, part)

    def leverage(
        self,
        pair: tuple[int, int],
        weights: tuple[float, float],
        *,
        share: str,
        smoothing: float,
        part: float = 1.0,
    ) -> Noisy:
        """Release the logarithm of a sum of c'S^-1 c by arm, with weights."""
        kappa = _weights(weights)
        ends = math.log(sum(kappa) / self.n), math.log(2 * sum(kappa) * Fraction(self._reach) ** 2)
        state, value, levels = self._state(pair), ends[1], _NOTHING
        if state:
            sums = (w * (self._mean @ self._solved(a)[1]) for w, a in zip(kappa, pair, strict=True))
            size = Fraction(int(self._mean[0]), self._one)
            value = math.log(sum(sums) / (size**2 * 2**_DIGITS))
            levels = state.leverage(self.n)
        return self._along("leverage", value, levels, ends, share, smoothing, part)

    def squares(
        self,
        pair: tuple[int, int],
        weights: tuple[float, float],
        most: float,
        *,
        share: str,
        smoothing: float,
        part: float = 1.0,
    ) -> Noisy:
        """Release a sum of squared residuals by arm, with weights, kept within 0 and ``most``."""
        kappa = _weights(weights)
        state, value, levels = self._state(pair), Fraction(0), _NOTHING
        if state:
            for w, a in zip(kappa, pair, strict=True):
                r, total = self._products[a, -1, :-1], self._products[a, -1, -1]
                value += w * (total - Fraction(int(r @ self._solved(a)[0]), 2**_DIGITS))
            value *= Fraction(self._step) ** 2 / self._whole
            levels = state.squares(max(weights))
        return self._along("squares", value, levels, (0.0, most), share, smoothing, part)

    def _along(
        self,
        label: str,
        value: Fraction | float,
        levels: FloatArray,
        ends: Interval,
        share: str,
        smoothing: float,
        part: float,
    ) -> Noisy:
        return self._releaser.along(
            label, value, levels, ends, smoothing, share=share, claim=35, part=part
        )


_NOTHING = np.full(1, np.inf)
"""The ladder where nothing is known."""
