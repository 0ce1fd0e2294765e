"""Commands that spend nothing: methods, sensitivity, bounds-template."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from string import Template
from typing import Any

import dpeffects as dpe
from dpeffects import documents
from dpeffects.cli.arguments import Values, in_a_shell
from dpeffects.cli.commands import Command, one_line
from dpeffects.cli.output import format_of
from dpeffects.errors import DataError
from dpeffects.estimators import conditional_methods, registry, table_methods
from dpeffects.estimators.spec import MethodSpec
from dpeffects.files import column_names, is_parquet, read_schema, toml_key
from dpeffects.results.export import plain

_MOST_BYTES = 100_000_000
"""Of a result on file."""

# --- methods ----------------------------------------------------------------------------------


def methods(method: str | None = None, as_json: bool = False) -> str:
    """List the methods, or describe one with its options and defaults.

    In a shell::

        dpeffects methods
        dpeffects methods private_psm
        dpeffects methods --format json
    """
    described = dpe.methods(method)  # refuses a name that is not there
    if as_json:
        kinds = (registry(), conditional_methods(), table_methods())
        specs = [spec for specs in kinds for spec in specs.values()]
        facts = [_facts(spec) for spec in specs if method in (None, spec.name)]
        return json.dumps(facts[0] if len(facts) == 1 else facts, indent=2)
    if method is None:
        return _method_table()
    return "\n\n\n".join(_wrapped(one) for one in str(described).split("\n\n\n"))


def _method_table() -> str:
    from tabulate import tabulate

    table = tabulate(dpe.methods(), headers="keys", showindex=False)  # type: ignore[arg-type]
    return f"{table}\n\nThe first level is the default. dpeffects methods NAME describes one."


def _wrapped(text: str) -> str:
    """Title, facts and options keep their lines; the paragraphs after them are filled."""
    title, facts, options, *paragraphs = text.split("\n\n")
    lines = [
        *(textwrap.fill(line, 80) for line in title.splitlines()),
        "",
        *(textwrap.fill(line, 80, subsequent_indent=" " * 11) for line in facts.splitlines()),
    ]
    filled = (textwrap.fill(" ".join(paragraph.split()), 80) for paragraph in paragraphs)
    return "\n\n".join(["\n".join(lines), options, *filled])


def _facts(spec: MethodSpec) -> dict[str, Any]:
    names = ("title", "about", "estimands", "levels", "guarantee", "needs_delta", "citation")
    facts, options = {name: plain(getattr(spec, name)) for name in names}, spec.options()
    facts |= {"covariates": spec.uses_covariates}
    facts["budget_split"] = {
        level: plain(spec.budget_split(level, options)) for level in spec.levels
    }
    facts["options"] = {f.name: plain(getattr(options, f.name)) for f in fields(options) if f.init}
    return {"method": spec.name, **facts}


# --- results on file --------------------------------------------------------------------------


def _read_effect(args: argparse.Namespace, values: Values) -> Values:
    path = values["self"]
    text = documents.read(path, _MOST_BYTES)
    try:
        return values | {"self": dpe.Result.from_json(text)}
    except DataError:
        raise DataError(f"{path} is not the JSON of a dpeffects result") from None


# --- the beginning of a study -------------------------------------------------------------------

_ENTRIES = {
    "number": "{range = []}  # number: a range",
    "text": "{levels = []}  # text: levels",
    "date": "{range = []}  # dates: the first and the last",
    "": "{}  # a range or levels",
}


def bounds_template(data: str) -> str:
    """Start a file of bounds from a data file's column names and declared types.

    In a shell::

        dpeffects bounds-template patients.csv > bounds.toml
        dpeffects bounds-template patients.parquet --out bounds.toml
    """
    what = "names and declared types" if is_parquet(data) else "header"
    return template(Path(__file__).with_name("bounds.toml"), data, what=what)


def template(file: Path, data: str, **said: str) -> str:
    """Return the template of a file, with an entry for each column of a data file."""
    text = Template(file.read_text(encoding="utf-8"))
    head = text.substitute(path=one_line(data), **said)
    return head + "\n".join(_entries(data))


def _entries(path: str) -> Iterator[str]:
    """An entry for each column.

    A Parquet file declares types in its schema. A CSV file declares none, and working them out
    would read every row (one cell can turn a column to text), so its template has names only.
    """
    types = {f.name: _kind(f.type) for f in read_schema(path)} if is_parquet(path) else {}
    names = [name for name in column_names(path) if name and name != "__index_level_0__"]
    for name in names:
        key, kind = toml_key(name), types.get(name, "")
        yield f"{key} = {_ENTRIES[kind]}" if kind in _ENTRIES else f"# {key}: {kind}"


def _kind(declared: Any) -> str:
    from pyarrow import types

    if types.is_boolean(declared):
        return "boolean, needs no entry"
    if types.is_integer(declared) or types.is_floating(declared) or types.is_decimal(declared):
        return "number"
    if types.is_date(declared) or types.is_timestamp(declared):
        return "date"
    if types.is_string(declared) or types.is_large_string(declared):
        return "text"
    return "text" if types.is_dictionary(declared) else f"{declared}, not for formulas"


# --- the commands -----------------------------------------------------------------------------

COMMANDS = (
    Command(
        "methods",
        methods,
        prepare=lambda args, values: values | {"as_json": format_of(args) == "json"},
        **in_a_shell("methods"),
    ),
    Command(
        "sensitivity", dpe.Result.sensitivity, prepare=_read_effect, **in_a_shell("sensitivity")
    ),
    Command("bounds-template", bounds_template, **in_a_shell("bounds-template")),
)
