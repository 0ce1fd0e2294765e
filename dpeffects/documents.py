"""JSON documents that are checked when they are read: canonical text, checksum, files."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from typing import Any

from dpeffects.errors import DataError

MOST_BYTES = 100_000_000


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return the one text of a document: keys sorted, no spaces, ASCII.

    Examples
    --------
    >>> canonical({"b": [1.0, "é"], "a": None})
    b'{"a":null,"b":[1.0,"\\\\u00e9"]}'
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def checksum(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document without its checksum and signature."""
    body = {k: v for k, v in document.items() if k not in ("checksum", "signature")}
    return "sha256:" + hashlib.sha256(canonical(body)).hexdigest()


def fits(document: Mapping[str, Any]) -> bool:
    """True if a document that was read has the checksum of what it holds."""
    try:
        return document.get("checksum") == checksum(document)
    except (TypeError, ValueError, RecursionError):  # such as 1e999, which no document holds
        return False


class UnreadableError(Exception):
    """Why a file cannot be read, in words that a sentence about the file can end with."""


def content(path: str | os.PathLike[str], most: int) -> bytes:
    """Read a regular file of at most ``most`` bytes: a device or a pipe might never end."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnreadableError("it is not a regular file")
            found = file.read(most + 1)
    except OSError as error:
        raise UnreadableError(error.strerror) from None
    except (TypeError, ValueError):
        raise UnreadableError("this is no path of a file") from None
    if len(found) > most:
        raise UnreadableError(f"it is larger than {most} bytes")
    return found


def read(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Read a file for the person who named it; whatever is wrong with it is one sentence."""
    try:
        return content(path, most)
    except UnreadableError as reason:
        raise DataError(f"cannot read {str(path)!r}: {reason}") from None


def parse(content: bytes, path: str | os.PathLike[str]) -> Any:
    """Read JSON without NaN, infinities and names that stand twice."""
    try:
        return json.loads(content, object_pairs_hook=_once, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise DataError(f"{str(path)!r} is not a JSON file") from None


def holds(path: str | os.PathLike[str], name: str, value: str) -> bool:
    """True if a file is a document with this entry: an earlier one of the same kind."""
    try:
        found = parse(read(path), path)
    except DataError:
        return False
    return isinstance(found, dict) and found.get(name) == value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError
    return made


def _refuse(name: str) -> Any:
    raise ValueError(name)
