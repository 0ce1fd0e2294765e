"""Types that the package speaks of."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

# What `numpy.typing.NDArray` stands for. From numpy 2.5 on that is a name of its own, and fields of
# records that have it would not be known as arrays when they are read from JSON.
FloatArray = np.ndarray[tuple[Any, ...], np.dtype[np.float64]]
IntArray = np.ndarray[tuple[Any, ...], np.dtype[np.int64]]
Int8Array = np.ndarray[tuple[Any, ...], np.dtype[np.int8]]
BoolArray = np.ndarray[tuple[Any, ...], np.dtype[np.bool_]]
Interval = tuple[float, float]


def symmetric(entries: FloatArray, size: int) -> FloatArray:
    """Symmetric matrices from the entries of their upper triangles, row by row."""
    found, (first, second) = np.zeros((*entries.shape[:-1], size, size)), np.triu_indices(size)
    found[..., first, second] = found[..., second, first] = entries
    return found


class OfArrays:
    """A dataclass with arrays among its fields: equal to another where all of their fields are."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = self.__dataclass_fields__
        return all(_same(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]


def _same(one: Any, other: Any) -> bool:
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)
