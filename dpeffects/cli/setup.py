"""Commands that prepare a study: templates and keygen.

``dpeffects demo``: a whole study on bundled data, command by command, as demo.toml has them.
"""

from __future__ import annotations

import contextlib
import shlex
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any

from dpeffects.cli.arguments import in_a_shell
from dpeffects.cli.commands import Command, one_line
from dpeffects.datasets import load_data
from dpeffects.errors import DPEffectsError, OptionError
from dpeffects.files import column_names, is_parquet, read_schema, toml_key

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
    return _template("bounds.toml", data, what=what)


def protocol_template(data: str) -> str:
    """Start the protocol of a study from a data file's column names.

    In a shell::

        dpeffects protocol-template patients.csv --out protocol.toml
    """
    return _template("protocol.toml", data)


def _template(name: str, data: str, **said: str) -> str:
    """A template of this folder, with an entry for each column of a data file."""
    text = Template(Path(__file__).with_name(name).read_text(encoding="utf-8"))
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


def keygen(site: str, *, folder: str = ".") -> str:
    """Make a key pair with which a site signs its releases.

    Parameters
    ----------
    site
        Name of the site.
    folder
        Where to write the two files.

    In a shell::

        dpeffects keygen North --folder keys
    """
    from dpeffects.sites.signing import make_keys

    private, public = make_keys(site, folder)
    return (
        f"{private}: keep it here, it signs releases (dpeffects release --sign)\n"
        f"{public}: send it to the centre (dpeffects combine --trust)"
    )


COMMANDS = (
    Command("bounds-template", bounds_template, **in_a_shell("bounds-template")),
    Command("protocol-template", protocol_template, **in_a_shell("protocol-template")),
    Command("keygen", keygen, output=None),
    Command("demo", demo, output=None, **in_a_shell("demo")),
)
