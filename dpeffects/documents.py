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


def read(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """Read a regular file of at most ``most`` bytes; whatever is wrong with it is one sentence."""
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe would wait
        with open(file, "rb") as opened:
            regular = stat.S_ISREG(os.fstat(file).st_mode)
            content = opened.read(most + 1) if regular else b""
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except (TypeError, ValueError):
        raise DataError(f"{path!r} is not the path of a file") from None
    if not regular:
        raise DataError(f"cannot read {str(path)!r}: it is not a file")
    if len(content) > most:
        raise DataError(f"cannot read {str(path)!r}: it has more than {most} bytes")
    return content


def parse(content: bytes, path: str | os.PathLike[str]) -> Any:
    """Read JSON without NaN, infinities and names that stand twice."""
    try:
        return json.loads(content, object_pairs_hook=_once, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise DataError(f"{str(path)!r} is not a JSON file") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError
    return made


def _refuse(name: str) -> Any:
    raise ValueError(name)
