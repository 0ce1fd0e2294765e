"""Numbers and curves that never fall; scipy has both, and takes a second to load."""

from __future__ import annotations

import numpy as np

from dpeffects.arrays import FloatArray


def isotonic(values: FloatArray) -> FloatArray:
    """The nearest numbers that never fall, by least squares: those that do are pooled.

    Examples
    --------
    >>> isotonic(np.array([1.0, 3.0, 2.0, 4.0])).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    means: list[float] = []
    sizes: list[int] = []
    for mean in values.tolist():
        size = 1
        while means and means[-1] >= mean:
            many = sizes.pop()
            mean = (mean * size + means.pop() * many) / (size + many)
            size += many
        means.append(mean)
        sizes.append(size)
    return np.repeat(np.array(means), sizes)


class Rising:
    """A smooth curve through three points or more that rise in both coordinates, and never falls.

    It is the cubic interpolation of Fritsch and Butland (1984).
    """

    def __init__(self, x: FloatArray, y: FloatArray) -> None:
        self.x, self.y, h = x, y, np.diff(x)
        slope = np.diff(y) / h
        one, other = 2.0 * h[1:] + h[:-1], h[1:] + 2.0 * h[:-1]
        inner = (one + other) / (one / slope[:-1] + other / slope[1:])
        ends = (
            ((2.0 * a + b) * first - a * second) / (a + b)
            for a, b, first, second in ((*h[:2], *slope[:2]), (*h[:-3:-1], *slope[:-3:-1]))
        )
        first, last = (max(float(end), 0.0) for end in ends)
        self.steep = np.concatenate([[first], inner, [last]])

    def __call__(self, x: FloatArray) -> FloatArray:
        """Its values between the first point and the last."""
        k = np.clip(np.searchsorted(self.x, x, side="right") - 1, 0, self.x.size - 2)
        h = self.x[k + 1] - self.x[k]
        t = (x - self.x[k]) / h
        level = self.y[k] * (1.0 + 2.0 * t) + h * self.steep[k] * t
        rest = self.y[k + 1] * (3.0 - 2.0 * t) - h * self.steep[k + 1] * (1.0 - t)
        return np.asarray((1.0 - t) ** 2 * level + t**2 * rest)
