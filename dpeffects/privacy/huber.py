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

from dpeffects.privacy.descent import descend, direction
from dpeffects.privacy.features import GRID, ROWS, along, along_error
from dpeffects.privacy.release import FloatArray, IntArray
from dpeffects.privacy.rows import Block, Source, Totals, exact_products, room, weight_bits
from dpeffects.privacy.sums import Grid, from_limbs, near_limbs, two_limbs

_TIGHT = 1e-12
_ACCOUNTED = 2e-12
"""The solver stops at _TIGHT; the rest is for the rounding of a computed gradient."""
_LOOKS = 100
"""A problem that takes more looks at the rows is a hard one."""
_HIGH, _FINE = 22, 44
"""A factor of the gradient is rounded to a multiple of 2^-44, in two parts of 22 bits."""
_BEND = 11
_FINE_BENDS = (_BEND, 22, 33)
"""Bits of a second derivative, and for hard problems those of what is left, twice."""

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

    def largest_weights(self, noise: float = 0.0) -> float:
        """Norm that no minimiser exceeds, for noise of at most this norm (claim 31)."""
        return (self.source.n * self.steepest + noise) / self.strength

    def slack(self, noise: float = 0.0) -> float:
        """L2 distance of a returned vector from the exact minimiser, at most (claim 31).

        ``noise`` bounds the norm of noise in the objective, and with it that of the weights, which
        the rounding error of residuals is proportional to.
        """
        largest = self.largest_weights(noise)
        off = 2.0**-50 + math.sqrt(self.size) * 2.0 ** (1 - 2 * weight_bits(self.size, GRID))
        off *= 1.0 if self.size <= 256 else 1.05
        most = self.source.n * (_ACCOUNTED + off * (2.0 + largest)) + 2e-15 * noise
        return most / self.strength

    def _rounding(self, size: float, noise: float) -> float:
        """Distance of a computed gradient from the true one, at weights of this norm."""
        off = along_error(self.size) + 2.0**-52
        each = 2.0 ** -(_FINE + 1) + 2.0**-50 + off * size
        return self.source.n * each + 2.0**-52 * (self.strength * size + noise)

    def solve(self, noise: FloatArray | None = None) -> FloatArray:
        """Minimise the objective plus noise'w, whatever the rows are, to within `slack`."""
        tilt = np.zeros(self.width) if noise is None else noise
        push = float(np.linalg.norm(tilt))
        enough = self.source.n * _TIGHT + 1e-15 * push
        weights = self._quickly(tilt, enough)
        if weights is None:

            def carefully(weights: FloatArray, tail: FloatArray) -> tuple[FloatArray, FloatArray]:
                gradient, hessian = self._at(weights, tilt, _FINE_BENDS, tail)
                return gradient, direction(hessian, gradient)

            curve = 1.01 * (self.strength + self.source.n * self.bend)
            weights = descend(
                carefully, self.width, enough, lambda size: self._rounding(size, push), curve
            )
        size, top = float(np.linalg.norm(weights)), 1.001 * self.largest_weights(push)
        return weights if size <= top else weights * (top / size)

    def _quickly(self, tilt: FloatArray, enough: float) -> FloatArray | None:
        """Newton steps by a coarse Hessian, which do for all but hard problems; None for these.

        A step is taken where the objective still falls at its end, or where the gradient is much
        smaller than any before; else a shorter one is tried, by the slopes at both ends.
        """
        weights = np.zeros(self.width)
        gradient, hessian = self._at(weights, tilt)
        best, looks = float(np.linalg.norm(gradient)), 1
        while looks < _LOOKS:
            if float(np.linalg.norm(gradient)) <= enough:
                return weights
            step = direction(hessian, gradient)
            falls, shrink = float(gradient @ step), 1.0
            while looks < _LOOKS:
                candidate = weights - shrink * step
                found = self._at(candidate, tilt)
                looks += 1
                rises, size = -float(found[0] @ step), float(np.linalg.norm(found[0]))
                if rises <= 0.0 or size < 0.9 * best or shrink < 1e-10:
                    break
                shrink *= min(max(falls / (falls + rises), 0.1), 0.9)
            weights, (gradient, hessian), best = candidate, found, min(best, size)
        return None

    def _at(
        self,
        weights: FloatArray,
        tilt: FloatArray,
        bends: tuple[int, ...] = (_BEND,),
        tail: FloatArray | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Gradient, and the Hessian of each regression; ``tail`` is what weights leave out."""
        rest = np.zeros(self.width) if tail is None else tail
        own, left_out = (part.reshape(self.arms, self.size) for part in (weights, rest))
        add = partial(_derivatives, terms=self.terms, weights=own, tails=left_out, bends=bends)
        limbs = self.source.fold(add, "covariates", "outcome")[0]
        high, low = np.moveaxis(from_limbs(limbs[..., -2:], GRID), -1, 0)
        slopes = high * 2.0**-_HIGH + low * 2.0**-_FINE
        gradient = self.strength * weights + tilt - slopes.reshape(-1)
        hessian = self.strength * np.eye(self.size)
        for k, bits in enumerate(bends):
            part = limbs[..., k * self.size : (k + 1) * self.size]
            hessian = near_limbs(part, bits + 2 * GRID) + hessian
        return gradient, hessian

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


def _derivatives(
    block: Block,
    terms: Callable[[Block], Terms],
    weights: FloatArray,
    tails: FloatArray,
    bends: tuple[int, ...],
) -> Totals:
    """What a block adds, for each regression: Hessian, high and low part of the gradient.

    Squared slopes are rounded to the first of ``bends`` bits, what is left to the next.
    """
    arms, size = weights.shape
    treated = block.treated
    pieces = [block] if arms == 1 else [block.some(treated), block.some(~treated)]
    total = np.zeros((arms, size, len(bends) * size + 2), dtype=np.int64)
    for sums, piece, own, tail in zip(total, pieces, weights, tails, strict=True):
        for chunk in chunks(piece, size):
            rows, slopes, targets = terms(chunk)
            residual = np.nan_to_num(targets - slopes * along(rows, own, tail))
            made = room("terms", len(rows), len(bends) * size + 2)
            left = slopes**2 * (np.abs(residual) <= 1.0)
            for k, bits in enumerate(bends):
                part = np.floor(left * 2.0**bits + 0.5)
                left = left - part * 2.0**-bits
                columns = made[:, k * size : (k + 1) * size]
                np.multiply(rows, (part * 2.0 ** (2 * GRID))[:, None], out=columns)
            factor = slopes * np.clip(residual, -1.0, 1.0)
            high = np.floor(factor * 2.0**_HIGH + 0.5)
            factor -= high * 2.0**-_HIGH
            made[:, -2] = high * 2.0**GRID
            made[:, -1] = np.floor(factor * 2.0**_FINE + 0.5) * 2.0**GRID
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
