"""Numbers for people: six significant digits, no exponent for ordinary sizes, aligned columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any


def number(value: Any) -> str:
    """Format one value for people: six significant digits, no exponent for ordinary sizes.

    Examples
    --------
    >>> number(1234567.891), number(0.1 + 0.2), number(2.5e-7), number(True), number(-0.0)
    ('1234568', '0.3', '2.5e-07', 'yes', '0')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Integral) and abs(int(value)) < 10**12:
        return str(int(value))
    if not isinstance(value, Real):
        return str(value)
    x = float(value)
    if not math.isfinite(x) or x == 0.0:
        return f"{abs(x) if x == 0.0 else x:g}"
    if not 1e-4 <= abs(x) < 1e10:
        digits, exponent = f"{x:.5e}".split("e")
        return f"{digits.rstrip('0').rstrip('.')}e{exponent}"
    text = f"{x:.{max(0, 5 - math.floor(math.log10(abs(x))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def numbers(values: Sequence[float]) -> tuple[str, ...]:
    """Format numbers with as many decimals as each other, so that a column lines up.

    Falls back to `number` when sizes differ too much for that.

    Examples
    --------
    >>> numbers([1794.3123, 812.1, -0.5])
    ('1794.31', '812.10', '-0.50')
    >>> numbers([1794.3123, 0.0123])
    ('1794.31', '0.0123')
    """
    values = [x + 0.0 for x in values]  # no negative zero
    sizes = [abs(x) for x in values if x != 0.0]
    if not sizes or not all(1e-4 <= size < 1e10 for size in sizes):
        return tuple(number(x) for x in values)
    decimals = max(0, 5 - math.floor(math.log10(max(sizes))))
    while decimals and all(f"{x:.{decimals}f}".endswith("0") for x in values):
        decimals -= 1
    texts = tuple(f"{x:.{decimals}f}" for x in values)
    if any(abs(float(text) - x) > 5e-4 * abs(x) for text, x in zip(texts, values, strict=True)):
        return tuple(number(x) for x in values)
    return texts


def to_error(values: Sequence[float], error: float, digits: int = 2) -> tuple[str, ...]:
    """Format numbers up to the place of so many digits of their error.

    Examples
    --------
    >>> to_error([0.048812, -0.0004], 0.00664), to_error([2461.4, -0.2], 13.0, 1)
    (('0.0488', '-0.0004'), ('2460', '0'))
    """
    if not (math.isfinite(error) and error > 0.0 and all(map(math.isfinite, values))):
        return tuple(number(x) for x in values)
    if not 1e-6 < error < 1e9:
        return tuple(f"{x:.{digits + 2}g}" for x in values)
    decimals = digits - 1 - math.floor(math.log10(error))
    return tuple(f"{round(x, decimals) + 0.0:.{max(decimals, 0)}f}" for x in values)


def joined(values: Sequence[float]) -> str:
    """Return a few numbers side by side; of many, the range."""
    if len(values) > 4 and min(values) == max(values):
        return f"{number(values[0])} ({len(values)} values)"
    if len(values) > 4:
        return f"{number(min(values))} to {number(max(values))} ({len(values)} values)"
    return ", ".join(number(x) for x in values) or "-"


def text_of(value: Any) -> str:
    """Format any value worth showing; the entries of a collection stand side by side."""
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return number(value)
    entries = value.items() if hasattr(value, "items") else ((None, entry) for entry in value)
    return ", ".join(number(x) if name is None else f"{name}: {number(x)}" for name, x in entries)
