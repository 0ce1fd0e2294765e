"""Arithmetic that is exact in floats, so that no sum depends on the order of the records."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_BUFFERS = threading.local()
_PRODUCT = 2**18
"""Multiplications that BLAS does in one thread; blocks have threads already."""
_LIMB = 32


def scratch_buffer(name: str, rows: int, columns: int, dtype: Any = np.float64) -> npt.NDArray[Any]:
    """Memory for work on a block, column by column, used again by this thread's next block.

    (Pages that are given back and asked for again cost as much as the arithmetic on them.) Its
    values are anything; nothing that outlives the block may be in it.
    """
    kept: npt.NDArray[Any] | None = getattr(_BUFFERS, name, None)
    if kept is None or kept.size < rows * columns:
        kept = np.empty(rows * columns, dtype)
        setattr(_BUFFERS, name, kept)
    return kept[: rows * columns].reshape((rows, columns), order="F")


def exact_products(left: FloatArray, right: FloatArray, bits: int) -> IntArray:
    """left'right for floats that are whole numbers: exact, as no product has more than these bits.

    It is made of as many rows at a time as floats add up exactly.
    """
    rows = min(2 ** (53 - bits), max(64, _PRODUCT // (left.shape[1] * right.shape[1])))
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.int64)
    for start in range(0, len(left), rows):
        part = slice(start, start + rows)
        total += (left[part].T @ right[part]).astype(np.int64)
    return total


def exact_dots(
    rows: FloatArray, weights: FloatArray, bits: int, tail: FloatArray | float = 0.0
) -> FloatArray:
    """rows'weights for rows of this many bits, such that a row's value is its own.

    (A product of matrices may add up a row in another order when its neighbours change.) Weights
    are cut into two parts of `weight_bits`, which leave room for exact sums. ``tail`` is what
    floats leave out of the weights.
    """
    size, own = weights.size, weight_bits(weights.size, bits)
    top = max(float(np.abs(weights).max(initial=0.0)), 1e-200)
    scale = 2.0 ** (own - math.frexp(top)[1])
    high = np.rint(weights * scale)
    low = np.rint((weights * scale - high + tail * scale) * 2.0**own) * 2.0**-own
    both, out = np.stack([high, low], axis=1), np.empty(len(rows))
    for start in range(0, len(rows), step := max(64, _PRODUCT // (2 * max(size, 1)))):
        parts = rows[start : start + step] @ both
        np.add(parts[:, 0], parts[:, 1], out=out[start : start + step])
    out /= scale
    return out


def weight_bits(size: int, bits: int) -> int:
    """Bits of a weight that leave room for exact sums over this many entries of a row."""
    return 53 - bits - math.ceil(math.log2(max(size, 2)))


def sums_by_cell(values: IntArray, cell: IntArray, size: int) -> IntArray:
    """Exact sums by cell of integers below 2^31 in size: floats add up their halves exactly."""
    high, low = values >> 15, values & (2**15 - 1)
    parts = [np.bincount(cell, part, size) for part in (high, low)]
    return np.asarray((parts[0].astype(np.int64) << 15) + parts[1].astype(np.int64))


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


def row_norms_squared(values: FloatArray) -> FloatArray:
    """Squared norms of rows, column by column: `einsum` gives a row bits that depend on others."""
    total = np.zeros(len(values))
    for column in values.T:
        total += column * column
    return total
