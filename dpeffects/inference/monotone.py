"""Numbers and curves that never fall, and numbers that are not negative.

scipy has the first two, and takes a second to load.
"""

from __future__ import annotations

import numpy as np

from dpeffects.arrays import FloatArray


def isotonic(values: FloatArray) -> FloatArray:
    """The nearest numbers that never fall, by least squares: the min-max formula.

    Examples
    --------
    >>> isotonic(np.array([1.0, 3.0, 2.0, 4.0])).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    sums, n = np.append(0.0, np.cumsum(values)), values.size
    count = np.arange(1, n + 1) - np.arange(n)[:, None]
    means = np.where(count > 0, (sums[1:] - sums[:-1, None]) / np.maximum(count, 1), np.inf)
    least = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]  # of all that end there or later
    return np.asarray(np.where(count > 0, least, -np.inf).max(axis=0, initial=-np.inf))


class Rising:
    """A smooth curve through three points or more that rise in both coordinates, never falling.

    It is the cubic interpolation of Fritsch and Butland (1984).
    """

    def __init__(self, x: FloatArray, y: FloatArray) -> None:
        self.x, self.y, h = x, y, np.diff(x)
        slope = np.diff(y) / h
        one, other = 2.0 * h[1:] + h[:-1], h[1:] + 2.0 * h[:-1]
        inner = (one + other) / (one / slope[:-1] + other / slope[1:])
        ends = (
            max(((2.0 * a + b) * near - a * far) / (a + b), 0.0)
            for a, b, near, far in ((*h[:2], *slope[:2]), (*h[:-3:-1], *slope[:-3:-1]))
        )
        self.steep = np.concatenate([[next(ends)], inner, [next(ends)]])

    def __call__(self, x: FloatArray) -> FloatArray:
        """Its values between the first point and the last."""
        k = np.clip(np.searchsorted(self.x, x, side="right") - 1, 0, self.x.size - 2)
        h = self.x[k + 1] - self.x[k]
        t = (x - self.x[k]) / h
        level = self.y[k] * (1.0 + 2.0 * t) + h * self.steep[k] * t
        rest = self.y[k + 1] * (3.0 - 2.0 * t) - h * self.steep[k + 1] * (1.0 - t)
        return np.asarray((1.0 - t) ** 2 * level + t**2 * rest)


def not_negative(values: FloatArray, total: float) -> FloatArray:
    """The closest numbers (least squares) that are not negative and have a known total.

    Examples
    --------
    >>> not_negative(np.array([5.0, -1.0, 2.0]), 5.0).tolist()
    [4.0, 0.0, 1.0]
    """
    falling = np.sort(values)[::-1]
    shifts = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    above = np.flatnonzero(falling > shifts)
    return np.asarray(np.maximum(values - shifts[above[-1] if above.size else 0], 0.0))
