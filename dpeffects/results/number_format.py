"""Numbers for people: as many digits as their error carries, one format a row."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

NOT_AVAILABLE = "n/a"
_LARGE, _FINE = 1e10, 7
"""Numbers from here on, or with more decimals than this, are written with an exponent."""
_NOTHING = 1e-6
"""Part of an error that counts as zero."""


def number(value: Any, digits: int = 6) -> str:
    """Format one value for people: so many significant digits, no exponent for ordinary sizes.

    Examples
    --------
    >>> number(1234567.891), number(0.1 + 0.2), number(2.5e-7), number(True), number(-0.0)
    ('1234568', '0.3', '2.5e-07', 'yes', '0')
    >>> number(1.81818, 3), number(1234.6, 2)
    ('1.82', '1235')
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
    if not 1e-4 <= abs(x) < _LARGE:
        mantissa, exponent = f"{x:.{digits - 1}e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{exponent}"
    text = f"{x:.{max(0, digits - 1 - math.floor(math.log10(abs(x))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def numbers(values: Sequence[float], digits: int = 6) -> tuple[str, ...]:
    """Format numbers with as many decimals as each other, so that a column lines up.

    The largest has so many digits. Falls back to `number` when sizes differ too much for that.

    Examples
    --------
    >>> numbers([1794.3123, 812.1, -0.5])
    ('1794.31', '812.10', '-0.50')
    >>> numbers([1794.3123, 0.0123]), numbers([0.579494, 0.017779, 1.0], 4)
    (('1794.31', '0.0123'), ('0.579', '0.018', '1.000'))
    """
    values = [x + 0.0 for x in values]  # no negative zero
    sizes = [abs(x) for x in values if x != 0.0]
    if not sizes or not all(1e-4 <= size < _LARGE for size in sizes):
        return tuple(number(x, digits) for x in values)
    decimals = max(0, digits - 1 - math.floor(math.log10(max(sizes))))
    while decimals and all(f"{x:.{decimals}f}".endswith("0") for x in values):
        decimals -= 1
    texts = tuple(f"{x:.{decimals}f}" for x in values)
    off = 0.5 * 10.0 ** (3 - digits)
    if any(abs(float(text) - x) > off * abs(x) for text, x in zip(texts, values, strict=True)):
        return tuple(number(x, digits) for x in values)
    return texts


def to_error(
    values: Sequence[float], error: float, digits: int = 2, ends: Sequence[float] = ()
) -> tuple[str, ...]:
    """Format numbers, and the ends of their interval, to so many digits of their error.

    All have one format. An end that is not zero is not shown as zero: all get more decimals. What
    is not a number is n/a; where there is no error, the interval stands in for it. Beside an
    infinite end, the other is a limit on its own: it has one digit more, and is rounded towards
    that end, so that it never claims more than the number.

    Examples
    --------
    >>> to_error([0.048812, -0.0004], 0.00664), to_error([2461.4, -0.2], 13.0, 1)
    (('0.0488', '-0.0004'), ('2460', '0'))
    >>> to_error([0.02612], 0.0131, ends=[0.0004, 0.0518])
    ('0.0261', '0.0004', '0.0518')
    >>> to_error([2.0, math.nan], math.nan, ends=[0.5, math.inf])
    ('2.000', 'n/a', '0.500', 'inf')
    >>> to_error([-0.0094], 0.0021, ends=[-math.inf, -0.0061537])
    ('-0.00940', '-inf', '-0.00615')
    >>> to_error([1.23456e-9], 2.34e-11, ends=[0.0, 1.3e-9])
    ('1.235e-09', '0', '1.300e-09')
    """
    known = [x for x in (*values, *ends) if math.isfinite(x)]
    one_sided = any(map(math.isinf, ends))
    place = _place(_error(values, error, ends), digits + one_sided)
    if place is None:
        return _formatted((*values, *ends), dict(zip(known, numbers(known, 4), strict=True)))
    sides: tuple[bool | None, ...] = (False, True) if one_sided else (None,)
    up = dict(zip(ends, itertools.cycle(sides), strict=False))  # a limit goes to its own side
    nothing = _NOTHING * 10.0**place
    for end in ends:
        while math.isfinite(end) and abs(end) > nothing and _moved(end, place, up[end]) == 0.0:
            place -= 1
    if -place > _FINE or any(abs(x) >= _LARGE for x in known):
        texts = {x: _scientific(_moved(x, place, up.get(x)), place) for x in known}
        return _formatted((*values, *ends), texts)
    texts = {x: f"{_moved(x, place, up.get(x)) + 0.0:.{max(-place, 0)}f}" for x in known}
    return _formatted((*values, *ends), texts)


def with_ends(value: float, low: float, high: float, error: float = math.nan) -> tuple[str, ...]:
    """Format a number and the ends of its interval, to two digits of its error.

    Whole numbers stay whole.

    Examples
    --------
    >>> with_ends(0.174193, 0.130486, 0.2179, 0.0223), with_ends(3.0, 2.0, 5.0, 0.71)
    (('0.174', '0.130', '0.218'), ('3', '2', '5'))
    """
    if all(float(x).is_integer() and abs(x) < _LARGE for x in (value, low, high)):
        return tuple(number(x) for x in (value, low, high))
    return to_error((value,), error, ends=(low, high))


def with_error(value: float, error: Any) -> str:
    """Format a number and its standard error, or say that there is none.

    Examples
    --------
    >>> with_error(0.174193, 0.0223)
    '0.174 (se 0.022)'
    """
    if not isinstance(error, Real):
        return f"{number(value, 4)} (se not available)"
    value_text, error_text = to_error((value, float(error)), float(error))
    return f"{value_text} (se {error_text})"


def _error(values: Sequence[float], error: float, ends: Sequence[float]) -> float:
    """The error, or what the interval says of it where it is short, or there is no error."""
    known = [x for x in (*values[:1], *ends) if math.isfinite(x)] if ends else []
    width = max(known) - min(known) if known else 0.0
    cut = all(map(math.isfinite, ends)) and 0.0 < width < error
    return error if math.isfinite(error) and error > 0.0 and not cut else width / 4.0


def _place(error: float, digits: int) -> int | None:
    """The power of ten of the last digit that an error carries; None where there is no error."""
    if not (math.isfinite(error) and error > 0.0):
        return None
    return int(f"{error:.{digits - 1}e}".partition("e")[2]) - digits + 1


def _moved(x: float, place: int, up: bool | None) -> float:
    """A number up to a place: the nearest, or none below it, or none above it."""
    units = x / 10.0**place
    if up is None or abs(units) > _LARGE:
        return round(x, -place)
    return (math.ceil(units - _NOTHING) if up else math.floor(units + _NOTHING)) * 10.0**place


def _scientific(value: float, place: int) -> str:
    """A number with an exponent, up to a place."""
    if value == 0.0:
        return "0"
    return f"{value:.{min(max(math.floor(math.log10(abs(value))) - place, 0), 15)}e}"


def _formatted(values: Sequence[float], texts: dict[float, str]) -> tuple[str, ...]:
    """The texts of numbers; others are infinite, or not available."""
    return tuple(
        NOT_AVAILABLE if math.isnan(x) else texts.get(x, f"{x:g}") for x in map(float, values)
    )


def figure(value: float, form: str) -> str:
    """Return a number in a format, or that it is not available."""
    return f"{value:{form}}" if math.isfinite(value) else NOT_AVAILABLE


def joined(values: Sequence[float]) -> str:
    """Return a few numbers side by side; of many, the range."""
    if len(values) > 4 and min(values) == max(values):
        return f"{number(values[0], 4)} ({len(values)} values)"
    if len(values) > 4:
        return f"{number(min(values), 4)} to {number(max(values), 4)} ({len(values)} values)"
    return ", ".join(number(x, 4) for x in values) or "-"


def text_of(value: Any, digits: int = 6) -> str:
    """Format any value worth showing; the entries of a collection stand side by side."""
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return number(value, digits)
    entries = value.items() if hasattr(value, "items") else ((None, entry) for entry in value)
    pairs = ((name, number(entry, digits)) for name, entry in entries)
    return ", ".join(text if name is None else f"{name}: {text}" for name, text in pairs)
