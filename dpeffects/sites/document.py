"""Reading documents of others strictly: files, JSON, and a check for each kind of field.

Numbers and texts are checked and kept as they are, never converted, so that a document that was
read gives the same canonical text, and the same checksum and signature, when it is written again.
"""

from __future__ import annotations

import json
import marshal
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from dpeffects import documents, writing
from dpeffects.arrays import FloatArray
from dpeffects.documents import kind, quoted
from dpeffects.errors import OptionError, ReleaseError

MOST = 1e60
"""No number in a release is larger in size, so that squares and their sums stay finite."""
_LONGEST = 10_000

T = TypeVar("T")
Check = Callable[[Any, str], Any]


def read_file(path: str | os.PathLike[str], most: int) -> bytes:
    """Read a regular file of bounded size: a device or a pipe might never end."""
    try:
        return documents.content(path, most)
    except documents.UnreadableError as reason:
        raise ReleaseError(f"it cannot be read: {reason}") from None


class Sent:
    """What a site sends: a document that is written with a checksum, and read with every check."""

    __slots__ = ()
    FORMAT: ClassVar[str]
    MOST_BYTES: ClassVar[int]

    def to_dict(self) -> dict[str, Any]:
        """Return the document as plain values."""
        raise NotImplementedError

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Check a document and read it; anything wrong with it is a ReleaseError."""
        raise NotImplementedError

    @staticmethod
    def _finished(values: dict[str, Any], signature: Any) -> dict[str, Any]:
        """A document with its checksum, and its signature where there is one."""
        try:
            values["checksum"] = documents.checksum(values)
        except (TypeError, ValueError) as error:
            raise ReleaseError(f"this cannot be written as JSON: {error}") from None
        return values if signature is None else values | {"signature": asdict(signature)}

    def to_json(self, indent: int | None = None) -> str:
        """Return the document as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the document to a file; a release that is there is replaced, nothing else is."""
        ours = documents.holds(path, "format", self.FORMAT)
        try:
            writing.write(path, self.to_json() + "\n", overwrite=ours)
        except OptionError as error:
            raise ReleaseError(str(error)) from None

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read JSON text."""
        return cls.from_dict(parse(text))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file; errors name it."""
        try:
            return cls.from_json(read_file(path, cls.MOST_BYTES).decode("utf-8"))
        except UnicodeDecodeError:
            raise ReleaseError(f"{path}: it cannot be read as text") from None
        except ReleaseError as error:
            raise ReleaseError(f"{path}: {error}") from None

    @classmethod
    def read(cls, source: Any) -> Self:
        """Read a release from whatever holds it: the object itself, a dict, or a path."""
        if isinstance(source, cls):
            return source
        if isinstance(source, Mapping):
            return cls.from_dict(source)
        if isinstance(source, str | os.PathLike):
            return cls.load(source)
        kinds = f"a {cls.__name__}, a dict or a path"
        raise ReleaseError(f"a release is {kinds}, not {type(source).__name__}")


def parse(text: str | bytes) -> Any:
    """Read JSON strictly: no key twice, no NaN or infinity."""
    if isinstance(text, str) and text.startswith("\ufeff"):
        raise ReleaseError("this is not JSON: a byte order mark stands before it")
    try:
        return documents.parse_json(text)
    except documents.FieldError as error:
        raise ReleaseError(str(error)) from None


# Checks: each takes a value and the name of its field, and returns what is kept of the value, or
# raises an error that begins with this name; `record` puts the names of what is around it before.
# `release_fields` describes a release by them.


def record(value: Any, name: str, *, fields: Mapping[str, Check], make: Callable[..., T]) -> T:
    """Make something of an object with exactly these fields, each of which passes its check."""
    what = name or "the release"
    if type(value) is not dict and not isinstance(value, Mapping):
        raise ReleaseError(f"{what} must be an object, not {kind(value)}")
    if value.keys() != fields.keys():
        missing = [field for field in fields if field not in value]
        extra = [str(field)[:40] for field in value if field not in fields]
        wrong = f"lacks the field{_s(missing)}" if missing else f"has the unknown field{_s(extra)}"
        raise ReleaseError(f"{what} {wrong} {', '.join(missing or extra)}")
    try:
        found = {field: check(value[field], field) for field, check in fields.items()}
    except ReleaseError as error:
        raise ReleaseError(f"{name}.{error}" if name else str(error)) from None
    return make(**found)


def shared(value: Any, name: str, *, check: Callable[[Any, str], T], known: dict[bytes, T]) -> T:
    """What passes a check, kept once for all the releases that have the same there.

    ``known`` has what passed, by bytes that tell apart all that a check does (1, 1.0 and true).
    """
    try:
        written = marshal.dumps(value, 2)
    except ValueError:  # it was not read from JSON
        return check(value, name)
    found = known.get(written)
    if found is None:
        if len(known) >= _MOST_SHARED:
            known.clear()  # perhaps while another thread reads
        found = known[written] = check(value, name)
    return found


_MOST_SHARED = 10_000


def many(value: Any, name: str, *, check: Callable[[Any, str], T]) -> tuple[T, ...]:
    """A list whose entries all pass a check."""
    if type(value) is not list and not isinstance(value, list | tuple):
        raise ReleaseError(f"{name} must be a list, not {kind(value)}")
    if len(value) > _LONGEST:
        raise ReleaseError(f"{name} has more than {_LONGEST} entries")
    return tuple([check(entry, name) for entry in value])


def text(value: Any, name: str, *, empty: bool = False) -> str:
    """A printable text of one line; control characters could forge what a reader sees."""
    if type(value) is str and 0 < len(value) <= _LONGEST and value.isprintable():
        return sys.intern(value)  # many releases hold the same texts
    if not isinstance(value, str):
        raise ReleaseError(f"{name} must be text, not {kind(value)}")
    if len(value) > _LONGEST:
        raise ReleaseError(f"{name} is longer than {_LONGEST} characters")
    if not value.isprintable():
        raise ReleaseError(f"{name} holds characters that cannot be printed")
    if not value and not empty:
        raise ReleaseError(f"{name} is empty")
    return str(value)


def one_of(value: Any, name: str, *, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in allowed:
        raise ReleaseError(f"{name} must be {' or '.join(allowed)}, got {quoted(value)}")
    return value


def number(value: Any, name: str, *, least: float = -MOST, most: float = MOST) -> float:
    """A finite number in a range that begins at 0 or is not bounded below."""
    if type(value) is float and least <= value <= most:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ReleaseError(f"{name} must be a number, not {kind(value)}")
    if not abs(value) <= MOST:
        raise ReleaseError(f"{name} must be finite and at most {MOST:g} in size")
    if value < least:
        raise ReleaseError(f"{name} must not be negative, got {value!r}")
    if value > most:
        raise ReleaseError(f"{name} must be at most {most:g}, got {value!r}")
    return value


def whole(value: Any, name: str, *, least: int = 0) -> int:
    """A whole number that floats hold exactly."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ReleaseError(f"{name} must be a whole number, not {kind(value)}")
    if not least <= value <= 2**53:
        raise ReleaseError(f"{name} must lie between {least} and 2^53")
    return value


def flag(value: Any, name: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ReleaseError(f"{name} must be true or false")
    return value


def array(value: Any, name: str) -> FloatArray:
    """Numbers in lists of lists of the same lengths."""
    found = many(value, name, check=_numbers)
    try:
        return np.array(found, dtype=np.float64)
    except ValueError:
        raise ReleaseError(f"{name} must have lists of the same lengths") from None


def _numbers(value: Any, name: str) -> Any:
    return many(value, name, check=_numbers) if isinstance(value, list) else number(value, name)


@cache
def typed(hint: Any, without: tuple[str, ...] = ()) -> Check:
    """The check for values of a type; of a dataclass all fields but some, each by its own type.

    Examples
    --------
    >>> typed(tuple[float, ...])([1, 2.5], "ends")
    (1, 2.5)
    """
    outer, inner = get_origin(hint) or hint, get_args(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        named = [f.name for f in fields(hint) if f.name not in without]
        return partial(_made, kind=hint, checks={name: typed(hints[name]) for name in named})
    if outer is UnionType:
        (only,) = (choice for choice in inner if choice is not NoneType)
        return partial(if_there, check=typed(only))
    if outer is tuple and inner[-1] is ...:
        return partial(many, check=typed(inner[0]))
    if outer is tuple:
        return partial(_each, checks=tuple(map(typed, inner)))
    return _PLAIN[outer]


def _made(value: Any, name: str, *, kind: Callable[..., Any], checks: Mapping[str, Check]) -> Any:
    found: dict[str, Any] = record(value, name, fields=checks, make=dict)
    try:
        return kind(**found)
    except (ValueError, TypeError, IndexError):
        raise ReleaseError(f"{name}: its numbers do not fit together") from None


def if_there(value: Any, name: str, *, check: Check) -> Any:
    """What passes a check, or null."""
    return None if value is None else check(value, name)


def _each(value: Any, name: str, *, checks: tuple[Check, ...]) -> tuple[Any, ...]:
    entries = many(value, name, check=lambda entry, _: entry)
    if len(entries) != len(checks):
        raise ReleaseError(f"{name} must have {len(checks)} entries")
    return tuple(check(entry, name) for check, entry in zip(checks, entries, strict=True))


_PLAIN: dict[Any, Check] = {
    np.ndarray: array,
    str: partial(text, empty=True),
    float: number,
    int: partial(whole, least=-1),
    bool: flag,
}


def printable(value: str) -> str:
    """One line of text that any terminal can show.

    Examples
    --------
    >>> printable("no\\nanswer\\x1b[31m")
    'no answer?[31m'
    """
    return "".join(c if c.isprintable() else "?" for c in " ".join(value.split()))


def _s(names: list[str]) -> str:
    return "s" if len(names) > 1 else ""
