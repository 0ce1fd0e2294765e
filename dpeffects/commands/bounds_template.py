"""``dpeffects bounds-template``: a TOML file to fill in, from names and declared types.

A Parquet file declares types in its schema. A CSV file declares none, and working them out would
read every row (one cell can turn a column to text), so its template has names only.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from dpeffects.commands.shared import Command, check_files, one_line, put
from dpeffects.files import column_names, is_parquet, read_schema, toml_key

_HEAD = """\
# Bounds: what each variable could be, from what it means, never from the data.
# Made from the {what} of {path}; no row was read.
#
#     age = {{range = [18, 90]}}          a number: smallest and largest possible
#     region = {{levels = ["N", "S"]}}    a category: possible values, reference first
#
# Fill in the columns of your formula and delete the other lines. A treatment of
# 0 and 1, or true and false, needs no entry; other columns of true and false
# have the range [0, 1] in a CSV file. A treatment in words has two levels,
# control first.

[bounds]"""
_ENTRIES = {"number": "{range = []}", "text": "{levels = []}", "": "{}"}
_HINTS = {"number": "number: a range", "text": "text: levels", "": "a range or levels"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("data", help="a .csv, .csv.gz or .parquet file; no row of it is read")
    parser.add_argument("--out", metavar="FILE", help="write there instead of printing")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")


def run(given: argparse.Namespace) -> None:
    """Write an entry for each column."""
    check_files(given, given.out)
    what = "names and declared types" if is_parquet(given.data) else "header"
    head = _HEAD.format(what=what, path=one_line(given.data))
    put(given, "\n".join([head, *_lines(given.data)]), "template")


def _lines(path: str) -> Iterator[str]:
    types = _declared_types(path) if is_parquet(path) else {}
    names = [name for name in column_names(path) if name and name != "__index_level_0__"]
    for name in names:
        key, kind = toml_key(name), types.get(name, "")
        if kind in _ENTRIES:
            yield f"{key} = {_ENTRIES[kind]}  # {_HINTS[kind]}"
        else:
            yield f"# {key}: {kind}"


def _declared_types(path: str) -> dict[str, str]:
    return {field.name: _kind(field.type) for field in read_schema(path)}


def _kind(declared: Any) -> str:
    from pyarrow import types

    if types.is_boolean(declared):
        return "boolean, needs no entry"
    if types.is_integer(declared) or types.is_floating(declared) or types.is_decimal(declared):
        return "number"
    if types.is_string(declared) or types.is_large_string(declared):
        return "text"
    return "text" if types.is_dictionary(declared) else f"{declared}, not for formulas"


COMMAND = Command(
    "bounds-template",
    "start a file of bounds from a data file's column names and declared types",
    arguments,
    run,
    """\
  dpeffects bounds-template patients.csv > bounds.toml
  dpeffects bounds-template patients.parquet --out bounds.toml
""",
)
