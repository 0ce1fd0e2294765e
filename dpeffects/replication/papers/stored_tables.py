"""Results of many runs, made once by a vignette and kept as small tables.

A vignette run with ``--full`` makes its tables anew; one run without shows those on file. The
files are ``data/papers/*.csv``, and they come with the package. The first line of a file says when
and where it was made, and which command makes it again.
"""

from __future__ import annotations

import datetime
import io
import math
import os
import platform
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import numpy as np

from dpeffects.datasets.descriptions import data_path
from dpeffects.errors import DataError, did_you_mean
from dpeffects.lazy import pd


def table(name: str) -> pd.DataFrame:
    """Return a table on file.

    Parameters
    ----------
    name
        Paper and item, as in ``"000_figure_2"``. :func:`table_names` lists the names.
    """
    path = _path(name)
    if not path.is_file():
        raise DataError(f"no table {name!r} is on file.{did_you_mean(name, table_names())}")
    return _read(path)


def table_names(paper: str = "") -> list[str]:
    """Return the names of the tables on file, of one paper or of all.

    Examples
    --------
    >>> table_names("999")
    []
    """
    return sorted(path.stem for path in _folder().glob(f"{paper}*.csv"))


def made(name: str) -> str:
    """Return when and where a table was made, and which command makes it again."""
    with _path(name).open(encoding="utf-8") as file:
        first = file.readline()
    return first.lstrip("# ").strip() if first.startswith("#") else ""


def kept(name: str, make: Callable[[], pd.DataFrame], again: bool = False) -> pd.DataFrame:
    """Return a table on file, or make it anew and put it on file.

    Parameters
    ----------
    name
        Paper and item, as in ``"000_figure_2"``.
    make
        Computes the table.
    again
        Make it anew. Where words follow on the command line that are not options (``--full
        figure_2``), only the tables whose names end in one of them are made. In a checkout tables
        are written to ``data/papers``, elsewhere to the folder ``papers`` of the current one.

    Notes
    -----
    A table that was made anew is written with six significant digits, and what is returned is what
    was written: a page shows the same numbers whether it made them or read them.
    """
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    if again and (not words or any(name.endswith(f"_{word}") for word in words)):
        frame = make()
        folder = (
            _folder() if _folder().parent.name == "data" else Path("papers")
        )  # not into a wheel
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}.csv"
        command = f"python vignettes/{Path(sys.argv[0]).name} --full"
        where = f"{platform.machine()}, {os.cpu_count()} cores"
        head = f"# {datetime.date.today().isoformat()}; {where}; {command}\n"
        text = frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")
        path.write_text(head + text, encoding="utf-8")
        print(f"[table: {path}]")
        return _read(path)
    return table(name)


def spread(values: Iterable[float]) -> dict[str, float]:
    """Return mean, standard error and number of repeated measurements.

    Examples
    --------
    >>> spread([1.0, 2.0, 3.0])
    {'mean': 2.0, 'se': 0.5773502691896258, 'runs': 3}
    """
    found = np.asarray(list(values), dtype=float)
    se = float(found.std(ddof=1)) / math.sqrt(len(found)) if len(found) > 1 else math.nan
    return {"mean": float(found.mean()), "se": se, "runs": len(found)}


def _read(path: Path) -> pd.DataFrame:
    return _parsed(path.read_text(encoding="utf-8")).copy()


@cache
def _parsed(text: str) -> pd.DataFrame:
    """Claims ask for the same few tables again and again."""
    return pd.read_csv(io.StringIO(text), comment="#")


def _folder() -> Path:
    return data_path("README.md").with_name("papers")


def _path(name: str) -> Path:
    return _folder() / f"{name}.csv"
