"""Commands that spend nothing: methods, sensitivity, bounds-template.

``dpeffects demo``: a whole study on bundled data, command by command, as demo.toml has them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from string import Template
from typing import Any

import dpeffects as dpe
from dpeffects import documents
from dpeffects.cli.arguments import Values, in_a_shell
from dpeffects.cli.commands import Command, one_line
from dpeffects.cli.output import format_of
from dpeffects.datasets import load_data
from dpeffects.errors import DataError, DPEffectsError, OptionError
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
    facts["shares"] = {level: plain(spec.shares(level, options)) for level in spec.levels}
    facts["options"] = {f.name: plain(getattr(options, f.name)) for f in fields(options) if f.init}
    return {"method": spec.name, **facts}


# --- results on file --------------------------------------------------------------------------


def _read_effect(args: argparse.Namespace, values: Values) -> Values:
    path = values["self"]
    text = documents.read(path, _MOST_BYTES)
    try:
        return values | {"self": dpe.Result.from_json(text)}
    except DataError:
        raise DataError(f"{path} is not the JSON of an effect") from None


# --- the beginning of a study -------------------------------------------------------------------

_DEMO = tomllib.loads(Path(__file__).with_name("demo.toml").read_text(encoding="utf-8"))


def demo(parser: Any, *, folder: str | None = None, seed: int | None = None) -> None:
    """Run a whole study on bundled data, and explain it.

    Parameters
    ----------
    folder
        Work there and leave the files; default: a new one, gone.
    seed
        The same numbers every time.

    In a shell::

        dpeffects demo
        dpeffects demo --folder study
    """
    if seed is not None and seed < 0:
        raise OptionError(f"seed must be a non-negative integer, got {seed}")
    with _folder(folder) as place, contextlib.chdir(place):
        _write_files(_DEMO["columns"])
        for number, step in enumerate(_DEMO["steps"], 1):
            line = step["line"] + (
                f" --seed {seed}" if "seeded" in step and seed is not None else ""
            )
            print(textwrap.fill(f"{number}. {step['about']}", 80))
            print(f"\n$ dpeffects {line}", flush=True)
            try:
                typed = parser.parse_args(shlex.split(line.replace("\\\n", "")))
                typed.run(typed)
            except DPEffectsError as error:
                print(f"dpeffects: {error}")
            print()
    if folder is None:
        print("The files are gone. To read smoking.html: dpeffects demo --folder study")
    else:
        print(f"The files are in {folder}; smoking.html has everything about the effect.")


@contextlib.contextmanager
def _folder(path: str | None) -> Iterator[str]:
    if path is None:
        with tempfile.TemporaryDirectory() as folder:
            yield folder
        return
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        is_empty = not any(Path(path).iterdir())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise OptionError(f"--folder: {path} cannot be used: {reason}") from None
    if not is_empty:
        raise OptionError(f"--folder: {path} is not empty")
    yield path


def _write_files(names: Mapping[str, str]) -> None:
    births = load_data("birthweight")
    births.frame[list(names)].rename(columns=names).to_csv("births.csv", index=False)
    entries = ["[bounds]"]
    for old, new in list(names.items())[1:]:
        low, high = births.bounds.interval(old)
        flag = (low, high) == (0.0, 1.0)
        declared = "{levels = [false, true]}" if flag else f"{{range = [{low:g}, {high:g}]}}"
        entries.append(f"{toml_key(new)} = {declared}")
    Path("bounds.toml").write_text("\n".join([*entries, ""]), encoding="utf-8")


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
        "sensitivity",
        dpe.Result.sensitivity,
        prepare=_read_effect,
        **in_a_shell("sensitivity"),
    ),
    Command("bounds-template", bounds_template, **in_a_shell("bounds-template")),
    Command("demo", demo, output=None, **in_a_shell("demo")),
)
