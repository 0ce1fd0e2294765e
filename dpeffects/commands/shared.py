"""What commands share: data files, bounds in TOML, NAME=VALUE options, files to write."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from dpeffects.errors import BoundsError, DataError, OptionError

if TYPE_CHECKING:
    import pandas as pd


class Command(NamedTuple):
    """A subcommand: its name, what it does, its arguments, and the function that runs it."""

    name: str
    about: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


class Parser(argparse.ArgumentParser):
    """Errors on one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where to look."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def check_out(path: str | None, force: bool) -> None:
    """Refuse a file that cannot be written, before anything is spent."""
    if path is None:
        return
    if not Path(path).absolute().parent.is_dir():
        raise OptionError(f"--out: the folder of {path} does not exist")
    if Path(path).exists() and not force:
        raise OptionError(f"--out: {path} exists; another name, or --force to overwrite it")


def settings(pairs: Sequence[str], what: str) -> dict[str, Any]:
    """Read NAME=VALUE pairs; values are written as in TOML, or as plain words."""
    import tomllib

    made = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise OptionError(f"--{what} takes NAME=VALUE, got {pair!r}")
        try:
            made[name.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            made[name.strip()] = text.strip()
    return made


def read_bounds(path: str) -> dict[str, Any]:
    """Read declared bounds from a TOML file.

    ``[bounds]`` holds ``age = {range = [18, 90]}`` for a range and
    ``region = {levels = ["N", "S"]}`` for levels.
    """
    import tomllib

    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BoundsError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BoundsError(f"{path} is not TOML: {error}") from None
    table = found.get("bounds")
    if set(found) != {"bounds"} or not isinstance(table, dict):
        raise BoundsError(f"{path} must hold one table, [bounds]")
    return {name: _bound(name, entry) for name, entry in table.items()}


def _bound(name: str, entry: Any) -> Any:
    kinds = {"range": tuple, "levels": list}
    if isinstance(entry, dict) and len(entry) == 1:
        kind, values = next(iter(entry.items()))
        if kind in kinds and isinstance(values, list):
            return kinds[kind](values)
    raise BoundsError(
        f'bounds of {name!r}: write {name} = {{range = [0, 1]}} or {name} = {{levels = ["a", "b"]}}'
    )


def read_data(path: str) -> pd.DataFrame:
    """Read a CSV or Parquet file."""
    import pandas as pd

    name = path.lower()
    try:
        if name.endswith((".parquet", ".pq")):
            return pd.read_parquet(path)
        if name.endswith((".csv", ".csv.gz")):
            return pd.read_csv(path)
    except ImportError:
        raise DataError("reading Parquet needs pyarrow: pip install pyarrow") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # of the parser, about the file
        raise DataError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
    raise DataError(f"{path}: data is a .csv, .csv.gz or .parquet file")
