"""Ranges by interval arithmetic: what an expression can be, given the bounds of its columns."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.errors import BoundsError, refusal, shorten
from dpeffects.formula import expression as ex


class _OutsideError(Exception):
    """A node leaves its domain; becomes a BoundsError that names the whole term."""

    def __init__(self, node: ex.Expression, reason: str) -> None:
        self.node, self.reason = node, reason


def range_of(factor: ex.Factor, bounds: Mapping[str, ex.Interval]) -> ex.Interval:
    """Smallest and largest value a factor can take when its columns keep to their bounds.

    Interval arithmetic: the true range is never wider, and may be narrower where a column stands
    twice. Sums, products, quotients and roots are rounded correctly, so the ends of their range are
    those of the values; powers and logarithms are not, and get a few units in the last place. Both
    ends are finite. No data is seen: bounds that are missing, or that reach outside the domain of a
    function, are refused before any. Factors of several columns lie in [0, 1].

    Examples
    --------
    >>> range_of(ex.Binary("**", ex.Column("x"), ex.Number(2)), {"x": (-1, 3)})
    (0.0, 9.0)
    >>> range_of(ex.Call("log", ex.Column("x")), {"x": (0, 9)})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    dpeffects.errors.BoundsError: term `log(x)`: the declared lower bound of `x` is 0; ...
    """
    try:
        with np.errstate(all="ignore"):  # overflow is found by the finite check
            return _range(factor, bounds)
    except _OutsideError as error:
        inner = "" if error.node == factor else f"in `{shorten(ex.render(error.node)[0])}`, "
        raise BoundsError(f"term `{ex.shown(factor)}`: {inner}{error.reason}") from None


def _range(factor: ex.Factor, bounds: Mapping[str, ex.Interval]) -> ex.Interval:
    match factor:
        case ex.Column(name):
            ends = _declared(factor, name, bounds)
        case ex.Number(value):
            ends = (value, value)
        case ex.Unary(_, x):
            lower, upper = _range(x, bounds)
            ends = (-upper, -lower)
        case ex.Call(function, x):
            ends = _call_range(factor, ex.FUNCTIONS[function], _range(x, bounds))
        case ex.Clip(x, low, high):
            lower, upper = _range(x, bounds)
            ends = (min(max(lower, low), high), min(max(upper, low), high))
        case ex.Binary():
            ends = _binary_range(factor, bounds)
        case ex.Categorical() | ex.Missing():
            return 0.0, 1.0
        case ex.Survival(time=x):
            if bounds.keys() >= set(ex.number_columns(x)) and (ends := _range(x, bounds))[0] < 0.0:
                raise _OutsideError(factor, f"{_reach(x, ends)}; {refusal('negative_time')}")
            return 0.0, float(max(factor.cells - 1, 1))
        case ex.Ordered(count=count):
            return 0.0, float(max(count - 1, 1))
        case ex.Pair():
            return 0.0, ex.PAIR * ex.PAIR - 1.0
        case ex.Compare(left=x) | ex.Cut(x=x) | ex.Spline(x=x):
            if not isinstance(x, ex.Column):  # in [0, 1] whatever the column holds
                _range(x, bounds)
            return 0.0, 1.0
    if not (math.isfinite(ends[0]) and math.isfinite(ends[1])):
        raise _OutsideError(factor, "the declared bounds give infinite values; narrow them")
    return float(ends[0]), float(ends[1])


def _declared(node: ex.Column, name: str, bounds: Mapping[str, ex.Interval]) -> ex.Interval:
    if name not in bounds:
        raise _OutsideError(node, f"no bounds are declared for `{name}`; declare (lower, upper)")
    lower, upper = bounds[name]
    if not lower <= upper:
        raise _OutsideError(node, refusal("bounds_reversed_numbers", name=name))
    return float(lower), float(upper)


def _call_range(node: ex.Call, function: ex.Function, inner: ex.Interval) -> ex.Interval:
    lower, upper = inner
    if lower < function.lower or (lower == function.lower and not function.closed):
        raise _OutsideError(node, f"{_reach(node.x, inner)}; {function.instead}")
    ends = function.apply(np.array([lower, upper]))
    if not function.even:
        return _ends(ends) if function.rounded else _widened(ends)
    least = function.apply(np.float64(0.0)) if lower < 0 < upper else min(ends)
    return least, max(ends)


def _binary_range(node: ex.Binary, bounds: Mapping[str, ex.Interval]) -> ex.Interval:
    left = _range(node.left, bounds)
    right = _range(node.right, bounds)
    if node.op == "**":
        return _power_range(node, left, right[0])
    if node.op == "*" and node.left == node.right:  # a square, so never negative
        return _power_range(node, left, 2.0)
    if node.op == "/" and right[0] <= 0 <= right[1]:
        reach = _reach(node.right, right, either=True)
        raise _OutsideError(node, f"{reach}, so it divides by 0; declare bounds that exclude 0")
    apply = ex.OPERATORS[node.op]
    corners = [apply(np.float64(a), np.float64(b)) for a in left for b in right]
    return min(corners), max(corners)


def _power_range(node: ex.Binary, base: ex.Interval, power: float) -> ex.Interval:
    lower, upper = base
    whole = power == int(power)
    if not whole and (lower < 0 or (power < 0 and lower == 0)):
        least = "above 0" if power < 0 else "of 0 or more"
        raise _OutsideError(node, f"{_reach(node.left, base)}; declare a lower bound {least}")
    if whole and power < 0 and lower <= 0 <= upper:
        reach = _reach(node.left, base, either=True)
        raise _OutsideError(node, f"{reach}, so it divides by 0; declare bounds that exclude 0")
    ends = np.array([lower, upper]) ** power
    found = _ends(ends) if power in _ROUNDED_POWERS and lower < upper else _widened(ends)
    if whole and power > 0 and power % 2 == 0 and lower < 0 < upper:
        return 0.0, found[1]
    return found


_ROUNDED_POWERS = (-1.0, 0.0, 0.5, 1.0, 2.0)
"""Powers that numpy computes by division, root or product, which are rounded correctly."""
_ULPS = 8.0
"""Units in the last place by which a power or a logarithm may differ from one way of computing it
to another (numpy's vectorised functions promise 4)."""


def _ends(values: FloatArray) -> ex.Interval:
    return float(values.min()), float(values.max())


def _widened(values: FloatArray) -> ex.Interval:
    """Ends moved outwards by the error of the function; 0 and 1 are met exactly where they are."""
    lower, upper = _ends(values)
    lower -= 0.0 if lower in (0.0, 1.0) else _ULPS * float(np.spacing(abs(lower)))
    upper += 0.0 if upper in (0.0, 1.0) else _ULPS * float(np.spacing(abs(upper)))
    return lower, upper


def _reach(x: ex.Expression, ends: ex.Interval, either: bool = False) -> str:
    lower, upper = map(ex.show_number, ends)
    if isinstance(x, ex.Column) and not either:
        return f"the declared lower bound of `{x.name}` is {lower}"
    return f"`{shorten(ex.render(x)[0])}` ranges from {lower} to {upper} under the declared bounds"


def clip(values: FloatArray, interval: ex.Interval, out: FloatArray | None = None) -> FloatArray:
    """Clip to declared bounds; NaN, which no comparison clips, becomes the middle.

    (What a record can do to a release does not rest on this: the curator keeps contributions within
    their sets itself.)

    Examples
    --------
    >>> clip(np.array([-9.0, 0.25, np.inf, np.nan]), (0.0, 1.0))
    array([0.  , 0.25, 1.  , 0.5 ])
    """
    lower, upper = interval
    clipped = np.asarray(values.clip(lower, upper, out))
    if np.isnan(clipped.min(initial=upper)):  # one fast pass; repairs are rare
        clipped[np.isnan(clipped)] = middle(interval)
    return clipped


def middle(interval: ex.Interval) -> float:
    """The middle of an interval; 0 where it has none."""
    lower, upper = interval
    centre = lower + (upper - lower) / 2.0
    return centre if math.isfinite(centre) else 0.0
