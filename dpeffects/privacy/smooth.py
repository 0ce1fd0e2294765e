"""Noise whose scale is private: how much a smooth sensitivity needs, and how it is drawn.

A value f gets noise (S / rate) X, where S is private, bounds what one record can do to f, and
ln S itself moves by at most beta between neighbours (Nissim, Raskhodnikova and Smith 2007); X is a
Laplace variable of scale 1. `excess` is the exact price of that (claim 15). X is drawn on a lattice
far finer than the public grid to which the sum is rounded, so that the private spacing of the
lattice cannot be seen (claim 16).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.privacy.budget import Share

LATTICE = 2**56
"""The Laplace variable of scale 1 is drawn in steps of 1 / LATTICE."""
LEAST_BETA = 1e-5
_MOST_BETA = 5.0
_TAIL = math.exp(-120.0)
"""More than the chance that a draw leaves 64 bits, which is exp(-128)."""
_BLOCK = 512
_TIGHT = 1.0 - 2.0**-20
"""Bounds are smoothed a little less than beta, so that rounding cannot exceed beta (claim 14)."""


@dataclass(frozen=True)
class Smoothing:
    """Noise of scale S / ``rate`` for an S whose logarithm moves by at most ``beta``."""

    rate: float
    beta: float

    def certified(self, price: Share) -> bool:
        """True when the noise is (epsilon, delta)-private at this price (claim 15)."""
        fits = self.rate > 0 and self.beta >= LEAST_BETA and self.rate + self.beta <= price.epsilon
        return fits and excess(price.epsilon, self) <= price.delta


def excess(epsilon: float, smoothing: Smoothing) -> float:
    """Smallest delta for which the noise is (epsilon, delta)-private, if rate + beta <= epsilon.

    Examples
    --------
    The printed choice rate = epsilon / 2, beta = epsilon / (2 ln(2 / delta)) needs far less than
    the delta it is made for:

    >>> excess(1.0, Smoothing(0.5, 0.5 / math.log(2e5))) < 1e-7
    True
    """
    rate, beta = smoothing.rate, smoothing.beta
    growth = math.expm1(beta)
    near = math.exp(-(epsilon - rate + beta) / growth)
    far = math.exp(-(epsilon + rate + beta) / growth)
    return -math.expm1(-beta) / 2.0 * (near + far) * (1.0 + 1e-9)


@lru_cache(maxsize=256)
def widest(price: Share, rate: float) -> Smoothing | None:
    """Return the largest beta that a price allows beside a rate; None where there is none.

    Examples
    --------
    >>> widest(Share(1.0, 1e-5), 0.5).beta > 1.5 * 0.5 / math.log(2e5)
    True
    """
    low, high = LEAST_BETA, min(price.epsilon - rate, _MOST_BETA)
    if not Smoothing(rate, low).certified(price):
        return None
    for _ in range(60):  # excess() grows with beta
        middle = (low + high) / 2.0
        low, high = (middle, high) if Smoothing(rate, middle).certified(price) else (low, middle)
    return Smoothing(rate, low)


def smooth_bound(levels: Callable[[FloatArray], FloatArray], beta: float, most: float) -> float:
    """max over k of exp(-k beta) levels(k), for levels that never exceed ``most`` (claim 14).

    ``levels`` takes an array of numbers of replaced records; it is asked in blocks, and no more
    than about log(most) / beta of them matter.
    """
    best, k, beta = 0.0, 0, beta * _TIGHT
    while math.exp(-k * beta) * most > best:
        steps = np.arange(k, k + _BLOCK, dtype=np.float64)
        shrunk = np.exp(-steps * beta) * np.minimum(levels(steps), most)
        best, k = max(best, float(shrunk.max())), k + _BLOCK
    return best * (1.0 + 2.0**-40)


@dataclass(frozen=True)
class Lattice:
    """The public grid of a value with private noise, for S between ``least`` and ``most``."""

    least: float
    most: float

    @property
    def blur(self) -> float:
        """Relative gap between the chances of a grid cell under the lattice and under Laplace."""
        return 2.0 ** (4 + self._bits) * (self.most / self.least) / LATTICE

    @property
    def _bits(self) -> int:
        """Steps of the grid are this many powers of two below the least noise scale."""
        return 4 if self.most / self.least < 2.0**32 else 1

    def usable(self, price: Share) -> Share:
        """What is left of a price once the blur is paid for (claim 16)."""
        blur = self.blur
        return Share(price.epsilon - 3.0 * blur, price.delta * (1.0 - blur) - _TAIL)

    def times(self, factor: float) -> Lattice:
        """The same for a value in steps, ``factor`` of them to one."""
        return Lattice(self.least * factor, self.most * factor)

    def release(self, value: int, smooth: float, rate: float, draw: int) -> Fraction:
        """Round value + (smooth / rate) (draw / LATTICE) to the public grid, exactly."""
        step = Fraction(2) ** (math.frexp(self.least / rate)[1] - 1 - self._bits)
        scale = Fraction(min(max(smooth, self.least), self.most)) / Fraction(rate)
        exact = value + scale * Fraction(draw, LATTICE)
        return math.floor(exact / step + Fraction(1, 2)) * step


@dataclass(frozen=True)
class SmoothlyNoisy:
    """A private value and its private smooth sensitivity, both in steps of size ``unit``."""

    value: int
    smooth: float
    unit: float
    lattice: Lattice
    smoothing: Smoothing
    steps: ClassVar[int] = LATTICE

    @property
    def rate(self) -> float:
        """The scale of the noise is the sensitivity divided by this."""
        return self.smoothing.rate

    def affordable(self, price: Share) -> bool:
        """True when the noise is private at this price (claims 15, 16)."""
        return self.smoothing.certified(self.lattice.usable(price))

    def with_noise(self, draw: int) -> float:
        """The value with noise, on the public grid."""
        return float(self.lattice.release(self.value, self.smooth, self.rate, draw)) * self.unit
