"""What commands are given: data in the form that a method takes, NAME=VALUE options."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from importlib.util import find_spec
from typing import Any

from dpeffects.errors import OptionError
from dpeffects.estimators import get
from dpeffects.files import column_names, is_parquet, read_data


def data_for(method: str, wanted: Mapping[str, Any], path: str, estimand: str = "ATE") -> Any:
    """Data of an estimate: a Parquet file's path where the method reads batches, else a frame."""
    if not is_parquet(path):
        return read_data(path, wanted.get("bounds"))
    spec = get(method, estimand)
    options = {field.name for field in fields(spec.options) if field.init}
    made = spec.make_options({name: x for name, x in wanted.items() if name in options})
    return path_or_rows(path, wanted.get("bounds"), batches=not made.needs_memory())


def path_or_rows(path: str, bounds: Mapping[str, Any] | None, *, batches: bool) -> Any:
    """The path of a Parquet file where it is read in batches and something can, else its rows."""
    able = any(find_spec(engine) for engine in ("duckdb", "polars"))
    if batches and able and is_parquet(path) and column_names(path):
        return path
    return read_data(path, bounds)


def require_files(paths: Iterable[str]) -> None:
    """Refuse what is there and is no file: a pipe would wait, and a device may never end."""
    for path in paths:
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError):  # whoever reads it says what is wrong
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise OptionError(f"{path} cannot be read: it is not a file")


def settings(pairs: Sequence[str], what: str, taken: Iterable[str] = ()) -> dict[str, Any]:
    """Read NAME=VALUE pairs; values are written as in TOML, or as plain words.

    Names in ``taken`` have an argument of their own and are refused.

    Examples
    --------
    >>> settings(["neighbors=3", "weights=round_robin", "limit=[1, 2]"], "option")
    {'neighbors': 3, 'weights': 'round_robin', 'limit': [1, 2]}
    """
    made: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not name:
            raise OptionError(f"--{what} takes NAME=VALUE, got {pair!r}")
        if name in taken:
            raise OptionError(f"--{what} {name}: it is an argument of its own, see --help")
        if name in made:
            raise OptionError(f"--{what} {name} is given twice")
        made[name] = _value(text)
    return made


def _value(text: str) -> Any:
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return found["value"] if len(found) == 1 else text
