"""Where a function of one number is zero."""

from __future__ import annotations

from collections.abc import Callable


def root(
    function: Callable[[float], float],
    low: float,
    high: float,
    *,
    xtol: float = 1e-12,
    rtol: float = 4e-16,
) -> float:
    """Return a root between two points where the function has different signs.

    By the method of Chandrupatla (1997, Advances in Engineering Software 28, 145-149): inverse
    quadratic interpolation where that is safe, else bisection. The root is exact to ``xtol`` plus
    ``rtol`` times its size.

    Examples
    --------
    >>> round(root(lambda x: x * x - 2.0, 0.0, 2.0), 10)
    1.4142135624
    """
    new, f_new = float(low), function(low)
    old, f_old = float(high), function(high)
    if not min(f_new, f_old) <= 0.0 <= max(f_new, f_old):
        raise ValueError("the function must have different signs at the two ends")
    part, third, f_third = 0.5, old, f_old
    while True:
        best, f_best = (new, f_new) if abs(f_new) < abs(f_old) else (old, f_old)
        least = (xtol + rtol * abs(best)) / abs(old - new) if old != new else 1.0
        if f_best == 0.0 or least > 0.5:
            return best
        point = new + min(max(part, least), 1.0 - least) * (old - new)
        value = function(point)
        if (value > 0.0) == (f_new > 0.0):
            third, f_third = new, f_new
        else:
            third, f_third, old, f_old = old, f_old, new, f_new
        new, f_new = point, value
        part = 0.5
        if f_new != f_old != f_third != f_new:
            where, height = (new - old) / (third - old), (f_new - f_old) / (f_third - f_old)
            if height * height < where and (1.0 - height) ** 2 < 1.0 - where:
                part = f_new / (f_old - f_new) * f_third / (f_old - f_third)
                part += (
                    (third - new)
                    / (old - new)
                    * f_new
                    / (f_third - f_new)
                    * (f_old / (f_third - f_old))
                )
