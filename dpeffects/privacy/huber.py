"""Ridge-penalised regression with Huber's loss, on rows of norm at most 1.

The objective is sum_i h(y_i - s_i x_i'w) + (strength/2) |w|^2 with h(r) = r^2 / 2 up to |r| = 1 and
|r| - 1/2 beyond, so that a record's gradient has norm at most |s_i| whatever its target y_i is. A
threshold other than 1 is a matter of units: divide targets by it, multiply the weights.

Rows are multiples of 2^-18 (`features`), a record's factor in the gradient is rounded to one of
2^-44, and that in the Hessian, which only steers the steps, to one of 2^-11: numbers so short that
products of matrices add them up exactly, in floats. So the weights do not depend on the order of
the records, nor on how they are spread over blocks and machines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from dpeffects.errors import EstimationError
from dpeffects.privacy.features import GRID, ROWS, along
from dpeffects.privacy.release import FloatArray, IntArray
from dpeffects.privacy.rows import Block, Source, Totals, exact_products, room, weight_bits
from dpeffects.privacy.sums import Grid, from_limbs, near_limbs, two_limbs

_TIGHT = 1e-12
_ACCOUNTED = 2e-12
"""The solver stops at _TIGHT; the rest is for the rounding of a computed gradient."""
_STEPS = 300
_HIGH, _FINE = 22, 44
"""A factor of the gradient is rounded to a multiple of 2^-44, in two parts of 22 bits."""
_BEND = 11
"""Bits of a second derivative."""

Terms = tuple[FloatArray, FloatArray, FloatArray]
"""Rows of records (multiples of 2^-18), their slopes and their targets.

They are for one look: the next block's may take their place in memory.
"""


@dataclass(frozen=True)
class Huber:
    """The problem: how a block's records enter it, number of features, strength, largest slope.

    ``by_arm`` has weights for treated records and others, after them, for controls.
    """

    source: Source
    terms: Callable[[Block], Terms]
    size: int
    strength: float
    steepest: float = 1.0
    by_arm: bool = False

    @property
    def width(self) -> int:
        """Number of weights."""
        return self.size * self.arms

    @property
    def arms(self) -> int:
        """Number of regressions side by side."""
        return 2 if self.by_arm else 1

    @property
    def reach(self) -> tuple[float, float]:
        """Largest L1 and L2 norm of one record's gradient."""
        return self.steepest * math.sqrt(self.size), self.steepest

    @property
    def bend(self) -> float:
        """Largest second derivative of one record's loss along its row."""
        return self.steepest**2

    @property
    def corners(self) -> int:
        """A gradient is its row times a number of either sign: four corners (claim 31)."""
        return 4

    @property
    def claim(self) -> int:
        """The claim that proves noise in the objective."""
        return 31

    def slack(self, noise: float = 0.0) -> float:
        """L2 distance of a returned vector from the exact minimiser, at most (claim 31).

        ``noise`` bounds the norm of noise in the objective, and with it that of the weights, which
        the rounding error of residuals is proportional to.
        """
        n = self.source.n
        largest = (n * self.steepest + noise) / self.strength
        off = 2.0**-50 + math.sqrt(self.size) * 2.0 ** (1 - 2 * weight_bits(self.size, GRID))
        return (n * (_ACCOUNTED + off * (2.0 + largest)) + 2e-15 * noise) / self.strength

    def solve(self, noise: FloatArray | None = None) -> FloatArray:
        """Minimise the objective plus noise'w by Newton steps with a line search.

        The objective is piecewise quadratic and strongly convex, so the steps end at the minimiser.
        A step is taken where the objective still falls at its end, or where the gradient is much
        smaller than any before; else a shorter one is tried, by the slopes at both ends.
        """
        tilt = np.zeros(self.width) if noise is None else noise
        weights = np.zeros(self.width)
        stop = self.source.n * _TIGHT + 1e-15 * float(np.linalg.norm(tilt))
        gradient, hessian = self._at(weights, tilt)
        best = float(np.linalg.norm(gradient))
        for _ in range(_STEPS):
            if float(np.linalg.norm(gradient)) <= stop:
                return weights
            pieces = gradient.reshape(self.arms, self.size, 1)
            step = np.linalg.solve(hessian, pieces).reshape(-1)
            falls, shrink = float(gradient @ step), 1.0
            while True:
                candidate = weights - shrink * step
                found = self._at(candidate, tilt)
                rises, size = -float(found[0] @ step), float(np.linalg.norm(found[0]))
                if rises <= 0.0 or size < 0.9 * best or shrink < 1e-10:
                    break
                shrink *= min(max(falls / (falls + rises), 0.1), 0.9)
            weights, (gradient, hessian), best = candidate, found, min(best, size)
        raise EstimationError("the Huber regression did not converge; nothing of it was released")

    def _at(self, weights: FloatArray, tilt: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Gradient, and the Hessian of each regression."""
        pieces = weights.reshape(self.arms, self.size)
        add = partial(_derivatives, terms=self.terms, weights=pieces)
        limbs = self.source.fold(add, "covariates", "outcome")[0]
        high, low = np.moveaxis(from_limbs(limbs[..., self.size :], GRID), -1, 0)
        slopes = high * 2.0**-_HIGH + low * 2.0**-_FINE
        bends = near_limbs(limbs[..., : self.size], _BEND + 2 * GRID)
        gradient = self.strength * weights + tilt - slopes.reshape(-1)
        return gradient, bends + self.strength * np.eye(self.size)

    def sum_squares(self, weights: FloatArray, grid: Grid) -> IntArray:
        """Sums over the records of what `squares` returns, on a grid."""
        add = partial(_square_sums, terms=self.terms, weights=weights, grid=grid)
        return self.source.fold(add, "covariates", "outcome")[0]

    # --- all records at once, for an audit --------------------------------------------------------

    @cached_property
    def _held(self) -> Terms:
        held = self.source.held("an audit looks at all rows at once")
        block = Block(held.treated, held.outcome, held.covariates())
        rows, slopes, targets = (np.array(part) for part in self.terms(block))
        if self.by_arm:
            own = held.treated[:, None]
            rows = np.concatenate([rows * own, rows * ~own], axis=1)
        return rows, slopes, targets

    @property
    def rows(self) -> FloatArray:
        """Rows, in memory."""
        return self._held[0]

    @property
    def slopes(self) -> FloatArray:
        """Slopes, in memory."""
        return self._held[1]

    @property
    def targets(self) -> FloatArray:
        """Targets, in memory."""
        return self._held[2]

    def gradient(self, weights: FloatArray) -> FloatArray:
        """Sum of the gradients of the losses: what one record moves by at most 2 steepest."""
        psi = np.clip(self.targets - self.slopes * (self.rows @ weights), -1.0, 1.0)
        return np.asarray(-(self.slopes * psi) @ self.rows)

    def squares(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Squared size of each record's gradient, and its second derivative, along its row."""
        return _squares(self._held, weights)


def chunks(block: Block, size: int) -> Iterator[Block]:
    """Few records at a time: their features take far more room than their covariates."""
    rows = min(ROWS, max(64, 2**17 // size))  # a product with two vectors stays in one thread
    for start in range(0, block.treated.size, rows):
        yield block.some(slice(start, start + rows))


def _derivatives(block: Block, terms: Callable[[Block], Terms], weights: FloatArray) -> Totals:
    """What a block adds, for each regression: Hessian, high and low part of the gradient."""
    arms, size = weights.shape
    treated = block.treated
    pieces = [block] if arms == 1 else [block.some(treated), block.some(~treated)]
    total = np.zeros((arms, size, size + 2), dtype=np.int64)
    for sums, piece, own in zip(total, pieces, weights, strict=True):
        for chunk in chunks(piece, size):
            rows, slopes, targets = terms(chunk)
            residual = targets - slopes * along(rows, own)
            inside = np.abs(residual) <= 1.0
            made = room("terms", len(rows), size + 2)
            bend = np.floor(slopes**2 * 2.0**_BEND + 0.5) * inside
            np.multiply(rows, (bend * 2.0 ** (2 * GRID))[:, None], out=made[:, :size])
            factor = slopes * np.clip(residual, -1.0, 1.0)
            high = np.floor(factor * 2.0**_HIGH + 0.5)
            factor -= high * 2.0**-_HIGH
            made[:, size] = high * 2.0**GRID
            made[:, size + 1] = np.floor(factor * 2.0**_FINE + 0.5) * 2.0**GRID
            sums += exact_products(rows, made, 2 * GRID + _BEND)
    return (two_limbs(total),)


def _square_sums(
    block: Block, terms: Callable[[Block], Terms], weights: FloatArray, grid: Grid
) -> Totals:
    total = np.zeros(2, dtype=np.int64)
    for chunk in chunks(block, weights.size):
        total += [grid.encode(part).sum() for part in _squares(terms(chunk), weights)]
    return (total,)


def _squares(terms: Terms, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    rows, slopes, targets = terms
    residual = targets - slopes * along(rows, weights)
    inside = np.abs(residual) <= 1.0
    return slopes**2 * np.clip(residual, -1.0, 1.0) ** 2, slopes**2 * inside
