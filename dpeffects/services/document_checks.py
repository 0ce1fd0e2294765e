"""Checks of what strangers send, and of settings and questions that somebody wrote by hand."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from types import UnionType
from typing import Any, Self, Union, get_args, get_origin

import numpy as np

from dpeffects import documents
from dpeffects.arrays import FloatArray
from dpeffects.errors import DPEffectsError
from dpeffects.files import toml_key, toml_text
from dpeffects.type_checks import (
    LONGEST,
    PLAIN,
    Check,
    FieldError,
    Types,
    any_of,
    check_names,
    has_default,
    kind,
    many,
    number,
    quoted,
    words_of,
)


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


class _Settings(Types):
    """Checks of what somebody wrote by hand."""

    def make(self, hint: Any) -> Check:
        """Make the check for a type; what is wrong is said of the whole value."""
        check, outer, inner = super().make(hint), get_origin(hint), get_args(hint)
        if outer is tuple:
            return any_of([check], f"a list of {words_of(inner[:1])}")
        return any_of([check], words_of(inner)) if outer in (Union, UnionType) else check

    def names(self, record: Any, given: Any, what: str) -> None:
        """Refuse what lacks a field of a dataclass that has no default, or has others."""
        needed = [f.name for f in fields(record) if not has_default(f)]
        check_names(given, needed, [f.name for f in fields(record)], what)

    def check(self, made: Any) -> None:
        """Refuse a dataclass whose fields are not of the types that it declares.

        Lists in them become tuples.
        """
        for name, check in self.fields(type(made)).items():
            if (found := check(value := getattr(made, name), name)) != value:
                object.__setattr__(made, name, found)


SETTINGS = _Settings(PLAIN, longest=math.inf)
"""Checks of settings that somebody wrote by hand, and not of what strangers sent."""


@contextmanager
def refused(
    raised: type[DPEffectsError], words: str = "", *also: type[Exception]
) -> Iterator[None]:
    """Whatever is wrong with a document is this error, and begins with some words."""
    wrong: tuple[type[Exception], ...] = (FieldError, *also)
    try:
        yield
    except wrong as error:
        raise raised(f"{words}{error}") from None


class ValidatedDocument(documents.Document):
    """A document that somebody wrote, read with every check."""

    __slots__ = ()

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Check plain values and read them; anything wrong with them is an error."""
        with refused(cls.ERROR, cls.CALLED):
            return cls._checked(values)

    @classmethod
    def _checked(cls, values: Any, text: str = "") -> Self:
        """Read plain values, perhaps of a text."""
        raise NotImplementedError

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read JSON text strictly: no name twice, no NaN or infinity."""
        with refused(cls.ERROR, cls.CALLED):
            return cls._checked(documents.parse_json(text), text if isinstance(text, str) else "")


def toml_document(values: Mapping[str, Any]) -> str:
    """Return values by name as a TOML file has them, with a table for each mapping."""
    tables = {name: x for name, x in values.items() if isinstance(x, Mapping)}
    text = _toml_lines({name: x for name, x in values.items() if name not in tables})
    text += "".join(f"\n[{toml_key(name)}]\n{_toml_lines(x)}" for name, x in tables.items())
    return text.lstrip("\n")


def _toml_lines(values: Mapping[str, Any]) -> str:
    return "".join(f"{toml_key(name)} = {_toml_value(x)}\n" for name, x in values.items())


def _toml_value(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(k)} = {_toml_value(x)}" for k, x in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return toml_text(value) if isinstance(value, str) else repr(value)
