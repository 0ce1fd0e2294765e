"""Documents as files and texts: bounded, strict JSON, with a checksum of one canonical text."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dpeffects.errors import DataError, ReleaseError
from dpeffects.typed import FieldError, quoted

MOST_BYTES = 100_000_000


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return the one text of a document: keys sorted, no spaces, ASCII.

    Examples
    --------
    >>> canonical({"b": [1.0, "é"], "a": None})
    b'{"a":null,"b":[1.0,"\\\\u00e9"]}'
    """
    return written(document).encode("ascii")


written = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False
).encode
"""The one text of a value: keys sorted, no spaces, ASCII."""


_ASIDE = ("checksum", "signature")
"""Fields that are no part of what a checksum is of."""


def checksum(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document without its checksum and signature."""
    return _digest(canonical({k: v for k, v in document.items() if k not in _ASIDE}))


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def fits(document: Mapping[str, Any], text: str = "") -> bool:
    """True if a document that was read has the checksum of what it holds.

    It may be that of the ``text`` itself that was read, which is canonical as it was written.
    """
    told = document.get("checksum")
    try:
        for name in _ASIDE:
            if name in document:
                text = text.replace(f'"{name}":{written(document[name])},', "", 1)
        return told == _digest(text.strip().encode()) or told == checksum(document)
    except (TypeError, ValueError, RecursionError):  # such as 1e999, which no document holds
        return False


def refuse_twins(sent: Mapping[str, Iterable[float]]) -> None:
    """Refuse one release that came from two sites, by its noisy numbers, whoever signed it.

    Noise does not come out the same twice. Only a few counts may: fewer than four whole numbers
    are not compared.
    """
    first: dict[tuple[float, ...], str] = {}
    for site, numbers in sent.items():
        own = tuple(map(float, numbers))
        if len(own) < 4 and all(map(float.is_integer, own)):
            continue
        if first.setdefault(own, site) != site:
            raise ReleaseError(
                f"the sites {first[own]!r} and {site!r} sent one and the same release"
            )


class UnreadableError(Exception):
    """Why a file cannot be read, in words that a sentence about the file can end with."""


def content(path: str | os.PathLike[str], most: int) -> bytes:
    """Read a regular file of at most ``most`` bytes: a device or a pipe might never end."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        file = os.open(path, flags)
        try:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode):
                raise UnreadableError("it is not a regular file")
            text = os.read(file, min(about.st_size, most) + 1)
            while len(text) <= most and (more := os.read(file, 2**16)):
                text += more
        finally:
            os.close(file)
    except OSError as error:
        raise UnreadableError(error.strerror) from None
    except (TypeError, ValueError):
        raise UnreadableError("this is no path of a file") from None
    if len(text) > most:
        raise UnreadableError(f"it is larger than {most} bytes")
    return text


def read(
    path: str | os.PathLike[str], most: int = MOST_BYTES, error: type[Exception] = DataError
) -> bytes:
    """Read a file for the person who named it; whatever is wrong with it is one sentence."""
    try:
        return content(path, most)
    except UnreadableError as reason:
        raise error(f"{path} cannot be read: {reason}") from None


def parse(content: bytes, path: str | os.PathLike[str]) -> Any:
    """Read the JSON of a file strictly; the error names the file."""
    try:
        return parse_json(content)
    except FieldError:
        raise DataError(f"{str(path)!r} is not a JSON file") from None


def holds(path: str | os.PathLike[str], name: str, value: str) -> bool:
    """True if a file is a document with this entry: an earlier one of the same kind."""
    try:
        document = parse(read(path), path)
    except DataError:
        return False
    return isinstance(document, dict) and document.get(name) == value


def parse_json(text: str | bytes) -> Any:
    """Read JSON strictly: no name twice, no NaN or infinity."""
    try:
        return _strictly.decode(text) if isinstance(text, str) else json.loads(text, **_HOOKS)
    except FieldError:
        raise
    except RecursionError:
        raise FieldError("it is nested too deeply") from None
    except (ValueError, TypeError) as error:
        raise FieldError(f"this is not JSON: {str(error).splitlines()[0]}") from None


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise FieldError(f"the field {quoted(name)} stands twice")
    return found


def _no_constant(name: str) -> Any:
    raise FieldError(f"{name} is not a finite number")


_HOOKS: dict[str, Any] = {"object_pairs_hook": _no_name_twice, "parse_constant": _no_constant}
_strictly = json.JSONDecoder(**_HOOKS)
