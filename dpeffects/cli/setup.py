"""Commands that prepare a study: bounds-template, keygen, synthetic-setup; and the vignettes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from dpeffects.cli.commands import Command, one_line
from dpeffects.cli.output import add_output_arguments, check_files, put_text
from dpeffects.files import column_names, is_parquet, read_schema, toml_key

_HEAD = """\
# Bounds: what each variable could be, from what it means, never from the data.
# Made from the {what} of {path}; no row was read.
#
#     age = {{range = [18, 90]}}          a number: smallest and largest possible
#     region = {{levels = ["N", "S"]}}    a category: possible values, reference first
#     day = {{range = [2020-01-01, 2021-12-31]}}    a date: first and last possible
#     "*_hx" = {{range = [0, 1]}}         all columns that match and are not filled in
#
# Fill in the columns of your formula; what is not filled in declares nothing. A
# treatment of 0 and 1, or true and false, needs no entry; other such columns have
# the levels [false, true] in a CSV file, which does not say that they hold nothing
# between. A treatment in words has levels, control first; an outcome in words has
# two, the second is what is counted.

[bounds]"""
_ENTRIES = {"number": "{range = []}", "text": "{levels = []}", "date": "{range = []}", "": "{}"}
_HINTS = {
    "number": "number: a range",
    "text": "text: levels",
    "date": "dates: the first and the last",
    "": "a range or levels",
}


def add_template_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the data file and the output."""
    parser.add_argument("data", help="a .csv, .csv.gz or .parquet file; no row of it is read")
    add_output_arguments(parser, (), conf_level=False)


def run_template(args: argparse.Namespace) -> None:
    """Start a file of bounds from a data file's column names and declared types.

    In a shell::

        dpeffects bounds-template patients.csv > bounds.toml
        dpeffects bounds-template patients.parquet --out bounds.toml
    """
    check_files(args)
    what = "names and declared types" if is_parquet(args.data) else "header"
    head = _HEAD.format(what=what, path=one_line(args.data))
    put_text(args, "template", "\n".join([head, *entries_of(args.data)]))


def entries_of(path: str) -> Iterator[str]:
    """An entry for each column.

    A Parquet file declares types in its schema. A CSV file declares none, and working them out
    would read every row (one cell can turn a column to text), so its template has names only.
    """
    types = {f.name: _kind(f.type) for f in read_schema(path)} if is_parquet(path) else {}
    names = [name for name in column_names(path) if name and name != "__index_level_0__"]
    for name in names:
        key, kind = toml_key(name), types.get(name, "")
        if kind in _ENTRIES:
            yield f"{key} = {_ENTRIES[kind]}  # {_HINTS[kind]}"
        else:
            yield f"# {key}: {kind}"


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


def add_keygen_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the site and the folder."""
    parser.add_argument("site", help="name of the site")
    parser.add_argument("--folder", default=".", help="where to write the two files")


def run_keygen(args: argparse.Namespace) -> None:
    """Make a key pair with which a site signs its releases.

    In a shell::

        dpeffects keygen North --folder keys
    """
    from dpeffects.sites.signing import make_keys

    private, public = make_keys(args.site, args.folder)
    print(f"{private}: keep it here, it signs releases (dpeffects release --sign)")
    print(f"{public}: send it to the centre (dpeffects combine --trust)")


def run_synthetic_setup(args: argparse.Namespace) -> None:
    """Make the environment that method synthetic needs.

    In a shell::

        dpeffects synthetic-setup
        DPEFFECTS_GENERATORS=/opt/dpmm dpeffects synthetic-setup
    """
    from dpeffects.unproved.generators import environment as generators

    place = f"{generators.LIBRARY} in {generators.folder()}"
    print(f"Installing {place} (about 500 MB) ...", flush=True)
    generators.make()
    print('Ready: dp_ate(..., method="synthetic", accept_library=True)')


def add_vignette_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the name, and what to do with it."""
    parser.add_argument("name", nargs="?", help="the vignette to run; none: list them")
    parser.add_argument("--source", action="store_true", help="print the script, do not run it")
    parser.add_argument("--figures", default=".", metavar="FOLDER", help="where to save figures")
    parser.add_argument(
        "--full",
        nargs="*",
        metavar="TABLE",
        help="make the tables on file anew, which takes long: all, or those named",
    )


def run_vignettes(args: argparse.Namespace) -> None:
    """List the vignettes, run one and save its figures, or print its script.

    In a shell::

        dpeffects vignette
        dpeffects vignette weighting --figures pictures
        dpeffects vignette weighting --source > weighting.py
    """
    from dpeffects.vignettes import list_vignettes, run_vignette, vignette_path

    if args.name is None:
        titles = list_vignettes()["title"]
        width = max(map(len, titles.index))
        print("\n".join(f"{name:{width}}  {title}" for name, title in titles.items()))
    elif args.source:
        print(vignette_path(args.name).read_text(encoding="utf-8"), end="")
    else:
        full = None if args.full is None else tuple(args.full)
        run_vignette(args.name, args.figures, full)


COMMANDS = (
    Command.of("bounds-template", run_template, add_template_arguments),
    Command.of("keygen", run_keygen, add_keygen_arguments),
    Command.of("synthetic-setup", run_synthetic_setup),
    Command.of("vignette", run_vignettes, add_vignette_arguments),
)
