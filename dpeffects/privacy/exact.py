"""Arithmetic that is exact in floats, so that no sum depends on the order of the records."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from dpeffects.arrays import FloatArray, IntArray

_BUFFERS = threading.local()
PRODUCT = 2**18
"""Multiplications that BLAS does in one thread; blocks have threads already."""


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
    most, shape = 2 ** (53 - bits), (left.shape[1], right.shape[1])
    rows, total = max(64, PRODUCT // math.prod(shape)), np.zeros(shape, dtype=np.int64)
    for first in range(0, len(left), most):
        added, product, stop = np.zeros(shape), np.empty(shape), min(first + most, len(left))
        for start in range(first, stop, rows):
            part = slice(start, min(start + rows, stop))
            added += np.matmul(left[part].T, right[part], out=product)
        total += added.astype(np.int64)
    return total


def row_norms_squared(values: FloatArray) -> FloatArray:
    """Squared norms of rows, column by column: `einsum` gives a row bits that depend on others."""
    total = np.zeros(len(values))
    for column in values.T:
        total += column * column
    return total
