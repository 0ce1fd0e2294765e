"""Types that the package speaks of."""

from __future__ import annotations

from typing import Any

import numpy as np

# What `numpy.typing.NDArray` stands for. From numpy 2.5 on that is a name of its own, and fields of
# records that have it would not be known as arrays when they are read from JSON.
FloatArray = np.ndarray[tuple[Any, ...], np.dtype[np.float64]]
IntArray = np.ndarray[tuple[Any, ...], np.dtype[np.int64]]
BoolArray = np.ndarray[tuple[Any, ...], np.dtype[np.bool_]]
Interval = tuple[float, float]
