"""What a reader can get out of a result: every number in it, and every text."""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

_NUMBER = re.compile(r"-?\d+\.?\d*(?:[eE][-+]?\d+)?")


def leaves(value: Any) -> tuple[tuple[str, ...], list[float]]:
    """Return names and numbers of everything inside a value; a text is a number too, by its hash.

    Examples
    --------
    >>> leaves({"estimate": 1.5, "arms": (3, 4)})
    (('estimate', 'arms[0]', 'arms[1]'), [1.5, 3.0, 4.0])
    """
    names: list[str] = []
    numbers: list[float] = []
    _walk("", value, names, numbers)
    return tuple(names), numbers


def _walk(name: str, value: Any, names: list[str], numbers: list[float]) -> None:
    if isinstance(value, int | float | np.number | np.bool_):
        names.append(name or "value")
        numbers.append(float(value))
    elif isinstance(value, str):
        hashed = _text(value)
        names += [name or "text", *(f"{name}, number {k}" for k in range(1, len(hashed)))]
        numbers += hashed
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            _walk(f"{name}.{key}" if name else str(key), entry, names, numbers)
    elif isinstance(value, list | tuple):
        for k, entry in enumerate(value):
            _walk(f"{name}[{k}]", entry, names, numbers)
    elif isinstance(value, np.ndarray):
        _walk(name, value.reshape(-1).tolist(), names, numbers)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            inner = f"{name}.{field.name}" if name else field.name
            _walk(inner, getattr(value, field.name), names, numbers)


@lru_cache(maxsize=4096)
def _text(text: str) -> list[float]:
    """A hash of the text, and the numbers in it."""
    return [float(zlib.crc32(text.encode())), *(float(x) for x in _NUMBER.findall(text))]
