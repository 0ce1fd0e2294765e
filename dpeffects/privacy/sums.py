"""Sums with exact sensitivity: numbers become integers on a public grid, integers are summed.

Float sums depend on order and rounding, so they have no exact sensitivity; integer sums do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpeffects.errors import DataError
from dpeffects.privacy.bounds import Interval, clip, middle

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_TOP = 56
"""Sums stay below 2^56 in grid units: no partial sum overflows, and the noise has room."""
WEIGHT_BITS = 16


@dataclass(frozen=True)
class Grid:
    """Numbers in [lower, upper] as integers in [-2^bits, 2^bits], centred (claim 4)."""

    lower: float
    upper: float
    bits: int

    @classmethod
    def for_sum(
        cls, interval: Interval, total_weight: float, epsilon: float, largest: float = 1.0
    ) -> Grid:
        """Choose the finest grid on which sums and noise fit; uses public numbers only.

        ``total_weight`` and ``largest`` are the sum and the largest of the sizes of the weights.
        """
        room = _TOP - math.ceil(math.log2(max(total_weight, 1.0)))
        noise = _TOP - 1 - math.ceil(math.log2(max(largest, 1.0)) + max(0.0, -math.log2(epsilon)))
        bits = min(30, room, noise)
        if bits < 6:
            raise DataError("too many records, or an epsilon too small, for exact sums")
        return cls(interval[0], interval[1], bits)

    @property
    def unit(self) -> float:
        """Value of one grid step."""
        return (self.upper - self.lower) / 2.0 ** (self.bits + 1)

    @property
    def middle(self) -> float:
        """The value that is zero on the grid."""
        return middle((self.lower, self.upper))

    @property
    def span(self) -> int:
        """Grid steps from the lowest to the highest value: what one record can move a sum by."""
        return int(2 ** (self.bits + 1))

    def encode(self, values: FloatArray) -> IntArray:
        """Clip, centre and round to the grid. Every result lies within [-2^bits, 2^bits].

        Halves are rounded up, as every engine can (`dpeffects.engines` has the same steps).
        """
        top = 2**self.bits
        scaled = np.asarray(clip(values, (self.lower, self.upper)) - self.middle)
        scaled *= self.steps
        scaled += 0.5
        np.floor(scaled, out=scaled)
        scaled[np.isnan(scaled)] = 0.0  # a range too narrow for floats; NaN has no integer
        return np.clip(scaled, -top, top, out=scaled).astype(np.int64)

    @property
    def steps(self) -> float:
        """Grid steps in one unit of the values."""
        return 2**self.bits / ((self.upper - self.lower) / 2.0)


def weights_to_grid(weights: FloatArray, bits: int = WEIGHT_BITS) -> IntArray:
    """Round public weights to multiples of 2^-bits, so that products are integers."""
    if not (np.abs(weights) < 2.0**30).all():
        raise DataError("weights must be finite and below 2^30")
    return np.rint(weights * 2.0**bits).astype(np.int64)


_LIMB = 32


def two_limbs(values: IntArray) -> IntArray:
    """Integers as high and low parts, whose sums over many blocks stay within 64 bits."""
    return np.stack([values >> _LIMB, values & (2**_LIMB - 1)])


def near_limbs(limbs: IntArray, bits: int) -> FloatArray:
    """`from_limbs` with a few roundings, for many entries."""
    high, low = limbs
    return np.asarray((high * 2.0**_LIMB + low) * 2.0**-bits)


def from_limbs(limbs: IntArray, bits: int) -> FloatArray:
    """Sums of `two_limbs` as floats, in units of 2^-bits: exact but for one rounding."""
    high, low = (part.reshape(-1).tolist() for part in limbs)
    whole = [((up << _LIMB) + down) / 2**bits for up, down in zip(high, low, strict=True)]
    return np.array(whole, dtype=np.float64).reshape(limbs.shape[1:])
