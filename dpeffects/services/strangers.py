"""Checks of what others send: texts, words, whole numbers and arrays, as they may stand there."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.typed import LONGEST, Check, FieldError, kind, many, number, quoted


def text(value: Any, name: str) -> str:
    """A printable text of one line; control characters could forge what a reader sees."""
    if type(value) is str and 0 < len(value) <= LONGEST and value.isprintable():
        return sys.intern(value)  # many releases hold the same texts
    if not text_or_none(value, name):
        raise FieldError(f"{name} is empty")
    return str(value)


def text_or_none(value: Any, name: str) -> str:
    """The same, or an empty text."""
    if not isinstance(value, str):
        raise FieldError(f"{name} must be text, not {kind(value)}")
    if len(value) > LONGEST:
        raise FieldError(f"{name} is longer than {LONGEST} characters")
    if not value.isprintable():
        raise FieldError(f"{name} holds characters that cannot be printed")
    return str(value)


def one_of(*allowed: str) -> Check:
    """One of a few words."""

    def check(value: Any, name: str) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise FieldError(f"{name} must be {' or '.join(allowed)}, got {quoted(value)}")
        return value

    return check


def at_least(least: int) -> Check:
    """A whole number that floats hold exactly."""

    def check(value: Any, name: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 2**53:
            told = f"must be a whole number from {least} to 2^53"
            raise FieldError(f"{name} {told}, got {quoted(value)}")
        return value

    return check


def flag(value: Any, name: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise FieldError(f"{name} must be true or false")
    return value


def array(value: Any, name: str) -> FloatArray:
    """Numbers in lists of lists of the same lengths."""
    found = many(_numbers)(value, name)
    try:
        return np.array(found, dtype=np.float64)
    except ValueError:
        raise FieldError(f"{name} must have lists of the same lengths") from None


def _numbers(value: Any, name: str) -> Any:
    return many(_numbers)(value, name) if isinstance(value, list) else number(value, name)
