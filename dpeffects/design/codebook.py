"""A codebook: bounds of many columns in a TOML or CSV file, or in a frame.

Reading one gives a `Codebook`, a mapping of column names (or patterns) to what they could be. What
a line does not say, or says in a way that cannot be used, stops nobody who does not need the
column: such lines are `EmptyDeclaration`, and are refused by name where a formula needs them.
"""

from __future__ import annotations

import datetime
import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import narwhals.stable.v2 as nw

from dpeffects.documents import read
from dpeffects.errors import BoundsError, nearest, quoted, refusal
from dpeffects.files import CSV, PARQUET, read_data, read_toml, toml_key
from dpeffects.lazy import pd

_NAMES = ("column", "variable", "name", "field")
_FIELDS = {
    **dict.fromkeys(("lower", "min", "minimum"), "lower"),
    **dict.fromkeys(("upper", "max", "maximum"), "upper"),
    "range": "range",
    "levels": "levels",
    "whole": "whole",
}
_BOOLS = {"true": True, "false": False}
_MOST_BYTES = 10_000_000
"""Size of a file: 200,000 columns are 8.3 megabytes of TOML, which take 18 seconds to read."""
_UNFILLED = "is not filled in; write what it could be, or delete the line"


class RangeOrLevels(tuple[Any, ...]):
    """Two numbers that are a range where a column is a number, and levels where it is a factor."""


@dataclass(frozen=True)
class EmptyDeclaration:
    """A line of a codebook that declares nothing, and what to say where it is needed."""

    why: str


class Codebook(dict[str, Any]):
    """Declarations by column name or pattern; it may describe columns that the data lacks."""


def opened(bounds: Any) -> Any:
    """Return bounds as a mapping, if they are a file or a frame; anything else as it is.

    Examples
    --------
    >>> import pandas as pd
    >>> book = pd.DataFrame({"variable": ["age", "sex"], "min": [18, None], "max": [90, None],
    ...                      "levels": [None, "f; m"], "label": ["Age in years", "Sex"]})
    >>> opened(book)
    {'age': (18.0, 90.0), 'sex': ['f', 'm']}
    """
    if bounds is None or isinstance(bounds, Mapping):
        return bounds
    if isinstance(bounds, str) and bounds == "from_data":
        return bounds
    file = isinstance(bounds, str) and bounds.lower().endswith((".toml", *CSV, *PARQUET))
    if file or isinstance(bounds, os.PathLike):
        return read_bounds(bounds)
    try:
        frame = nw.from_native(bounds)
    except TypeError:
        raise BoundsError(refusal("bounds_shape", kind=quoted(bounds))) from None
    return _of_frame(frame, "the codebook")


def read_bounds(path: str | os.PathLike[str]) -> Codebook:
    """Read a codebook: a TOML file, or a table as a CSV or Parquet file.

    In TOML, ``age = [18, 90]`` is a range where the column is used as a number, and two levels
    where it is a factor or the treatment; ``{range = [18, 90]}`` and ``{levels = ["N", "S"]}``
    leave no choice, and ``{range = [18, 90], whole = true}`` has whole numbers only. A table has a
    line for each column: its name, lower and upper (and whole) or levels.
    """
    path = os.fspath(path)
    text = read(path, _MOST_BYTES, BoundsError)
    if path.lower().endswith((*CSV, *PARQUET)):
        return _of_frame(nw.from_native(read_data(path), eager_only=True), path)
    return _of_toml(text, path)


# --- patterns ---------------------------------------------------------------------------------


def matched(
    bounds: Mapping[str, Any], names: Iterable[Any], needed: Iterable[str] | None = None
) -> Mapping[str, Any]:
    """Return bounds by column: patterns become the columns that match them, in their place.

    A column's own name wins over a pattern. Patterns are looked up among the columns that are
    ``needed`` (default all); one that matches no column of the data is a mistake. A codebook may
    describe columns that the data lacks, but for what looks like a slip in a name that is needed.

    Examples
    --------
    >>> matched({"*_hx": [0, 1], "age": (18, 90)}, ["age", "stroke_hx", "fall_hx"])
    {'stroke_hx': [0, 1], 'fall_hx': [0, 1], 'age': (18, 90)}
    """
    there = dict.fromkeys(map(str, names))
    wanted = there if needed is None else dict.fromkeys(needed)
    book = isinstance(bounds, Codebook)
    own = there.keys() & {name for name, x in bounds.items() if not isinstance(x, EmptyDeclaration)}
    undeclared = [name for name in wanted if name not in bounds] if book else []
    found: dict[str, Any] = {}
    by: dict[str, str] = {}
    for key, entry in bounds.items():
        if is_pattern(key) and key not in there:
            for name in _columns(key, there):
                if name in own or name not in wanted or isinstance(entry, EmptyDeclaration):
                    continue
                if name in by and (type(found[name]), repr(found[name])) != (
                    type(entry),
                    repr(entry),
                ):
                    raise BoundsError(
                        refusal("patterns_differ", one=by[name], other=key, name=name)
                    )
                found[name], by[name] = entry, key
        elif key in there or not isinstance(key, str):
            if key not in by and not (book and key not in wanted):
                found[key] = entry
        elif not book:
            raise BoundsError(_absent(key, there))
        elif near := difflib.get_close_matches(key, undeclared, 1):
            found.setdefault(near[0], EmptyDeclaration(_absent(key, near)))
    return found


def _columns(pattern: str, names: Iterable[str]) -> list[str]:
    """The columns that match a pattern."""
    if columns := [name for name in names if fnmatchcase(name, pattern)]:
        return columns
    hint = nearest(pattern.strip("*?"), names)
    raise BoundsError(f"bounds: no column of the data matches {pattern!r}{hint}")


def _absent(name: str, near: Iterable[str]) -> str:
    return f"bounds names a column {name!r} that the data does not have{nearest(name, near)}"


def is_pattern(key: Any) -> bool:
    """Whether a name may stand for several columns."""
    return isinstance(key, str) and any(letter in key for letter in "*?[")


# --- TOML -------------------------------------------------------------------------------------


def _of_toml(text: bytes, path: str) -> Codebook:
    document = read_toml(text, path, BoundsError)
    table = document.get("bounds")
    if not isinstance(table, dict):
        table = document
    elif len(document) > 1:
        raise BoundsError(refusal("contain_one_table", path=path))
    return declarations(table, path)


def declarations(table: Mapping[str, Any], where: str) -> Codebook:
    """What a table of TOML declares; ``where`` is the file, for messages."""
    return Codebook({name: _entry(name, entry, where) for name, entry in table.items()})


def _entry(name: str, entry: Any, where: str) -> Any:
    """One line of TOML: a list, or a table with a range or levels and whatever else."""
    if isinstance(entry, list):
        return _listed(name, entry, where)
    if isinstance(entry, dict):
        nested = [k for k, x in entry.items() if isinstance(x, dict | list)]
        if nested and not any(k.lower() in _FIELDS for k in entry):
            raise BoundsError(refusal("nested_name", where=where, name=name, key=nested[0]))
        return _line(name, entry, where)
    key = toml_key(name)
    raise BoundsError(refusal("codebook_entry", where=where, name=name, key=key))


def _listed(name: str, values: list[Any], where: str) -> Any:
    """Two numbers are a range or levels, as the column is used; two dates a range; else levels."""
    if not values:
        return EmptyDeclaration(f"{where}: {name!r} {_UNFILLED}")
    if len(values) == 2 and all(isinstance(v, datetime.date) for v in values):
        return tuple(values)
    numbers = [isinstance(v, int | float) and not isinstance(v, bool) for v in values]
    return RangeOrLevels(values) if len(values) == 2 and all(numbers) else values


# --- tables -----------------------------------------------------------------------------------


def _of_frame(frame: Any, where: str) -> Codebook:
    frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    columns = {str(name).strip().lower(): name for name in frame.columns}
    named = next((columns[name] for name in _NAMES if name in columns), None)
    fields = {key: columns[key] for key in _FIELDS if key in columns and key != "range"}
    if named is None or not fields:
        raise BoundsError(refusal("codebook_columns", where=where, names=", ".join(_NAMES)))
    book = Codebook()
    for row in frame.select([named, *fields.values()]).iter_rows(named=True):
        name = row[named]
        if _is_empty(name):
            continue
        name = str(name).strip()
        if name in book:
            raise BoundsError(f"{where} has two lines for {name!r}")
        given = {key: row[column] for key, column in fields.items()}
        book[name] = _line(name, {k: _from_text(k, x) for k, x in given.items()}, where)
    return book


def _line(name: str, fields: Mapping[str, Any], where: str) -> Any:
    """What a line declares by its fields; others, such as labels and units, are not read."""
    given = {_FIELDS[k.lower()]: x for k, x in fields.items() if k.lower() in _FIELDS}
    given = {field: x for field, x in given.items() if not _is_empty(x)}
    ends = given.get("range", [given[k] for k in ("lower", "upper") if k in given])
    levels = given.get("levels")
    if levels is not None:
        if isinstance(levels, str) or not isinstance(levels, Iterable):
            return EmptyDeclaration(f"{where}: {name!r}: levels are a list of at least two")
        return list(levels)
    if not given:
        return EmptyDeclaration(f"{where}: {name!r} {_UNFILLED}")
    if not isinstance(ends, Sequence) or isinstance(ends, str) or len(ends) != 2:
        return EmptyDeclaration(f"{where}: {name!r}: a range has a lower and an upper end")
    ints = [int(x) for x in ends if isinstance(x, int | float) and x == x // 1]
    if str(given.get("whole", "")).lower() not in ("true", "1") or len(ints) < 2:
        return tuple(ends)
    return range(ints[0], ints[1] + 1)


def _is_empty(value: Any) -> bool:
    if isinstance(value, str | bytes) or not pd.api.types.is_scalar(value):
        return hasattr(value, "__len__") and len(value) == 0
    return bool(pd.isna(value))


def _from_text(field: str, value: Any) -> Any:
    """A cell of a table: numbers and levels may stand there as text."""
    if hasattr(value, "to_list"):
        value = value.to_list()
    if not isinstance(value, str):
        return value
    text = value.strip()
    if field != "levels":
        return _number(text)
    mark = next((mark for mark in "|;" if mark in text), ",")
    parts = [part.strip() for part in text.split(mark) if part.strip()]
    if all("=" in part for part in parts):  # 1=Male; 2=Female
        parts = [part.partition("=")[0].strip() for part in parts]
    if parts and all(part.lower() in _BOOLS for part in parts):
        return [_BOOLS[part.lower()] for part in parts]
    numbers = [_number(part) for part in parts]
    return parts if any(isinstance(number, str) for number in numbers) else numbers


def _number(text: str) -> Any:
    """A number as it is usually written; codes such as 007 stay text."""
    if re.fullmatch(r"[+-]?(?:0|[1-9][0-9]*)", text):
        return int(text)
    return text if re.match(r"[+-]?0[0-9]", text) else number_or_text(text)


def number_or_text(text: str) -> float | str:
    """What is written as a number, as that; anything else as it is."""
    try:
        return float(text)
    except ValueError:
        return text
