"""Values of others, read by the types that they should have: one check for a type, made once.

A check takes a value and the name of its field, and returns what is kept of the value, or raises a
`FieldError` that begins with this name; a record puts the names of what is around it before.
Numbers and texts are checked and kept as they are, so that a document that was read gives the same
canonical text, and the same checksum and signature, when it is written again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Check = Callable[[Any, str], Any]

MOST = 1e60
"""No number in a release is larger in size, so that squares and their sums stay finite."""
WHOLE = "the release"
"""What a document is called in messages."""
LONGEST = 10_000
"""Most characters of a text, and entries of a list."""
_NAMED = 20
"""Most fields that a message names."""
_KINDS = {bool: "true or false", str: "text", int: "a whole number", float: "a number"}
_KINDS |= {NoneType: "null", Path: "a path", list: "a list", tuple: "a list"}
_KINDS |= {dict: "an object", Mapping: "an object"}


class FieldError(ValueError):
    """What is wrong with a document, in a sentence; whoever reads it raises an error of its own."""


def kind(value: Any) -> str:
    """Name the type of a value in the words of JSON."""
    return _KINDS.get(type(value), type(value).__name__)


def quoted(value: Any) -> str:
    """Return a value for an error message: short and printable."""
    return repr(value)[:60] if isinstance(value, str | int | float | None) else kind(value)


# --- single values ----------------------------------------------------------------------------


def number_in(least: float = -MOST, most: float = MOST) -> Check:
    """A finite number in a range that begins at 0 or is not bounded below."""

    def check(value: Any, name: str) -> float:
        if type(value) is float and least <= value <= most:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise FieldError(f"{name} must be a number, not {kind(value)}")
        if not abs(value) <= MOST:
            raise FieldError(f"{name} must be finite and at most {MOST:g} in size")
        if value < least:
            raise FieldError(f"{name} must not be negative, got {value!r}")
        if value > most:
            raise FieldError(f"{name} must be at most {most:g}, got {value!r}")
        return value

    return check


number, not_negative = number_in(), number_in(0.0)


def positive(value: Any, name: str) -> float:
    """A number above 0."""
    if not_negative(value, name) == 0:
        raise FieldError(f"{name} must be positive")
    return value


NotNegative = Annotated[float, not_negative]
Positive = Annotated[float, positive]


def _of(*kinds: type) -> Check:
    """A value of these types, whatever it is; a number that is not finite is none."""
    words = _KINDS[kinds[-1]]

    def check(value: Any, name: str) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise FieldError(f"{name} must be {words}, got {quoted(value)}")
        if isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
            raise FieldError(f"{name} must be finite")
        return value

    return check


PLAIN: dict[Any, Check] = {kind: _of(kind) for kind in (str, int, bool, Path)}
PLAIN |= {float: _of(int, float), Any: lambda value, _: value}
"""Checks of single values, by type."""


# --- several values ---------------------------------------------------------------------------


def record(
    make: Callable[..., T],
    checks: Mapping[str, Check],
    may_lack: Collection[str] = (),
    *,
    exact: bool = True,
) -> Callable[[Any, str], T]:
    """What is made of an object with these fields; others are refused where it is ``exact``."""
    names, reads = checks.keys(), tuple(checks.items())

    def check(value: Any, name: str) -> T:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise FieldError(f"{name or WHOLE} must be an object, not {kind(value)}")
        if value.keys() != names:
            needed = [field for field in names if field not in may_lack]
            check_names(value, needed, names if exact else value, name or WHOLE)
        try:
            own = {x: read(value[x], x) for x, read in reads if exact or x in value}
        except FieldError as error:
            raise FieldError(f"{name}.{error}" if name else str(error)) from None
        try:
            return make(**own)
        except FieldError:
            raise
        except (ValueError, TypeError, IndexError) as error:
            own_words = not exact and isinstance(error, ValueError)
            wrong = str(error) if own_words else "its numbers do not fit together"
            raise FieldError(f"{name or WHOLE}: {wrong}") from None

    return check


def check_names(given: Any, needed: Iterable[str], known: Collection[str], what: str) -> None:
    """Refuse what is no object, or lacks a field, or has one that is not known."""
    if not isinstance(given, Mapping):
        raise FieldError(f"{what} is an object, not {kind(given)}")
    missing = [name for name in needed if name not in given]
    extra = [str(name)[:40] for name in given if name not in known]
    if missing or extra:
        wrong = "lacks the field" if missing else "has the unknown field"
        names = missing or extra
        shown = [name if name.isprintable() else repr(name) for name in names[:_NAMED]]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        plural = "s" if len(names) > 1 else ""
        raise FieldError(f"{what} {wrong}{plural} {', '.join(shown)}{more}")


def many(
    check: Callable[[Any, str], T], longest: float = LONGEST
) -> Callable[[Any, str], tuple[T, ...]]:
    """A list whose entries all pass a check."""

    def checked(value: Any, name: str) -> tuple[T, ...]:
        if type(value) is not list and not isinstance(value, list | tuple):
            raise FieldError(f"{name} must be a list, not {kind(value)}")
        if len(value) > longest:
            raise FieldError(f"{name} has more than {longest} entries")
        return tuple([check(entry, name) for entry in value])

    return checked


def each(*checks: Check) -> Check:
    """A list of as many entries as there are checks."""

    def checked(value: Any, name: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) != len(checks):
            raise FieldError(f"{name} must be a list of {len(checks)} entries")
        return tuple([check(entry, name) for check, entry in zip(checks, value, strict=True)])

    return checked


def if_there(check: Check) -> Check:
    """What passes a check, or null."""
    return lambda value, name: None if value is None else check(value, name)


def mapping(key: Check, check: Check) -> Check:
    """An object of any names, whose entries all pass a check."""

    def checked(value: Any, name: str) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise FieldError(f"{name} must be an object, not {kind(value)}")
        return {key(own, name): check(entry, f"{name}.{own}") for own, entry in value.items()}

    return checked


def any_of(checks: Iterable[Check], words: str) -> Check:
    """What passes one of several checks."""

    def checked(value: Any, name: str) -> Any:
        for check in checks:
            with suppress(FieldError):
                return check(value, name)
        raise FieldError(f"{name} must be {words}, got {quoted(value)}")

    return checked


# --- by type ----------------------------------------------------------------------------------


class Types:
    """The checks of values by their types, made when they are first needed.

    Parameters
    ----------
    plain
        Checks of single values, by type.
    exact
        Whether objects must have all the fields of their dataclass, and no others.
    longest
        Most entries of a list.

    Examples
    --------
    >>> Types({float: number}).of(tuple[float, ...])([1, 2.5], "ends")
    (1, 2.5)
    """

    def __init__(
        self, plain: Mapping[Any, Check], *, exact: bool = True, longest: float = LONGEST
    ) -> None:
        self._plain, self._exact, self._longest = plain, exact, longest
        self._made: dict[Any, Check] = {}

    def of(self, hint: Any) -> Check:
        """The check for values of a type, which ``Annotated`` may give itself."""
        if hint not in self._made:
            before = dict(self._made)
            self._made[hint] = lambda value, name: self._made[hint](
                value, name
            )  # it may be in itself
            try:
                self._made[hint] = self.make(hint)
            except Exception:
                self._made = before  # nor is anything kept that it is in
                raise
        return self._made[hint]

    def make(self, hint: Any) -> Check:
        """Make the check for a type."""
        outer, inner = get_origin(hint) or hint, get_args(hint)
        if outer is Annotated:
            return inner[1]
        if is_dataclass(hint):
            return self.record(hint)
        if outer in (Union, UnionType):
            return self.either(inner)
        if outer is tuple and inner[-1] is ...:
            return many(self.of(inner[0]), self._longest)
        if outer is tuple:
            return each(*map(self.of, inner))
        if hasattr(outer, "_fields"):  # a named tuple
            entries = each(*map(self.of, get_type_hints(hint).values()))
            return lambda value, name: hint(*entries(value, name))
        if outer is Mapping:
            return mapping(*map(self.of, inner))
        return self._plain[outer]

    def record(self, kind: Any) -> Check:
        """Make the check for a dataclass."""
        lacking = () if self._exact else [f.name for f in fields(kind) if has_default(f)]
        return record(kind, self.fields(kind), lacking, exact=self._exact)

    def either(self, kinds: tuple[Any, ...]) -> Check:
        """Make the check for values of one of several types."""
        choices = [self.of(kind) for kind in kinds if kind is not NoneType]
        if len(choices) < len(kinds):
            choices = [if_there(check) for check in choices]
        return choices[0] if len(choices) == 1 else any_of(choices, words_of(kinds))

    def fields(self, record: Any) -> dict[str, Check]:
        """The checks of the fields of a dataclass, by their types."""
        hints = get_type_hints(record, include_extras=True)
        return {f.name: self.of(hints[f.name]) for f in fields(record)}


def words_of(kinds: Iterable[Any]) -> str:
    """Name types in the words of JSON."""
    return " or ".join(_KINDS.get(get_origin(kind) or kind, "a value") for kind in kinds)


def has_default(field: Field[Any]) -> bool:
    """Whether a field of a dataclass may be left out."""
    return field.default is not MISSING or field.default_factory is not MISSING
