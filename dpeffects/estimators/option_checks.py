"""Checks of options, and fields of options that declare them. They set nothing right: they raise.

@dataclass(frozen=True)
class MyOptions(Options):
    design: str = choice("observational", "randomised")
    blocks: int | None = whole(None, 2)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import pairwise
from numbers import Integral
from typing import Any

from dpeffects.errors import OptionError, not_among, quoted


def is_number(value: Any) -> bool:
    """True for a number, which a bool is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_clip(name: str, value: Any, least: float = 0.0) -> None:
    """Refuse what propensities cannot be clipped at.

    Examples
    --------
    >>> check_clip("clip", 0.1)
    """
    if not (is_number(value) and max(least, math.ulp(0.0)) <= value < 0.5):
        raise OptionError(f"{name} must be between {least:g} and 0.5, got {quoted(value)}")


def check_between(name: str, value: Any, least: float, most: float) -> None:
    """Refuse what is not a number in a range, its ends included."""
    if not (is_number(value) and least <= value <= most):
        raise OptionError(f"{name} must be between {least:g} and {most:g}, got {quoted(value)}")


def check_flag(name: str, value: Any, known: str = "True or False") -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise OptionError(f"{name} must be {known}, got {quoted(value)}")


def check_positive(name: str, value: Any, least: float = 0.0, most: float = math.inf) -> None:
    """Refuse what is not a positive number, between two that are not in the range."""
    if not (is_number(value) and least < value < most):
        raise OptionError(f"{name} must be a positive number, got {quoted(value)}")


def check_column(name: str, value: Any) -> None:
    """Refuse what is no name of a column."""
    if not isinstance(value, str):
        raise OptionError(f"{name} must be the name of a column, got {quoted(value)}")


def check_bins(name: str, value: Any, least: int, most: int) -> None:
    """Refuse what is neither a number of bins in a range nor their ends."""
    if is_number(value):
        return check_whole(name, value, least, most)
    ends = value if isinstance(value, tuple | list) and all(map(is_number, value)) else ()
    if not 2 <= len(ends) <= most or not all(a < b < math.inf for a, b in pairwise(ends)):
        raise OptionError(f"{name} must be a number of bins, or their ends in increasing order")


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Refuse what is not a whole number in a range."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not (whole and least <= value and (most is None or value <= most)):
        end = "on" if most is None else f"to {most}"
        raise OptionError(f"{name} must be a whole number from {least} {end}, got {quoted(value)}")


def check_choice(name: str, value: Any, known: Sequence[str]) -> None:
    """Refuse what is not among a few names."""
    if not (isinstance(value, str) and value in known):
        raise OptionError(not_among(name, value, known))


def checked(default: Any, check: Callable[..., None], *limits: Any) -> Any:
    """A field of options with its check, which None passes where it is the default."""
    return field(default=default, metadata={"check": check, "limits": limits})


def choice(*known: str | None) -> Any:
    """One of a few names, by default the first."""
    return checked(known[0], check_choice, tuple(x for x in known if x is not None))


def between(default: float | None, least: float, most: float) -> Any:
    """A number in a range, its ends included."""
    return checked(default, check_between, least, most)


def whole(default: int | None, least: int, most: int | None = None) -> Any:
    """A whole number in a range."""
    return checked(default, check_whole, least, most)


def flag(default: bool | None) -> Any:
    """True or False, or None where that is the default."""
    return checked(default, check_flag, *(["True, False or None"] if default is None else []))
