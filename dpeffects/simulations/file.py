"""Runs on file: appended as they finish, read when a study is started again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from dpeffects import writing
from dpeffects.errors import MissingExtraError, OptionError
from dpeffects.lazy import pd
from dpeffects.results.export import frame_of
from dpeffects.simulations.parallel import run_tasks
from dpeffects.simulations.runs import COLUMNS, KEYS


def run_batches(
    batches: Sequence[Callable[[], list[dict[str, Any]]]],
    known: Iterable[dict[str, Any]],
    workers: int,
    path: str | Path | None,
    columns: Sequence[str] = COLUMNS,
) -> list[dict[str, Any]]:
    """Run batches, append their runs to the file, and return them with those already known.

    Runs that lacked a library are not kept on file: they are tried again the next time.
    """
    rows = list(known)
    for done in run_tasks(batches, workers, "batches of the study", ordered=False):
        rows += done
        if path is not None:
            lacking = MissingExtraError.__name__
            append(path, [r for r in done if not str(r["failure"]).startswith(lacking)], columns)
    return rows


def on_file(
    path: str | Path | None, columns: Sequence[str] = COLUMNS, keys: Sequence[str] = KEYS
) -> list[dict[str, Any]]:
    """Read the runs of a file with these columns, if there is one; ``keys`` name a run."""
    if path is None:
        return []
    if not _exists(path):
        writing.check(path)  # before hours of runs that could not be kept
        return []
    content = _content(path, columns)
    try:
        found = pd.read_csv(
            BytesIO(content),
            dtype={"fit": str, "caution": str, "failure": str},
            keep_default_na=False,
            na_values=["nan"],
        )
    except ValueError:
        raise _another(path) from None
    rows = found.drop_duplicates(list(keys)).to_dict("records")
    return [{str(name): x for name, x in row.items()} for row in rows]


def _exists(path: str | Path) -> bool:
    try:
        return Path(path).exists()
    except (OSError, TypeError, ValueError):
        raise OptionError(f"{path!r} is not the path of a file") from None


def _content(path: str | Path, columns: Sequence[str], *, head_only: bool = False) -> bytes:
    """Whole lines of a file of runs; of another file the first line is read, and nothing changed.

    Where a run was stopped while it wrote, its last line does not count and is cut off.
    """
    wanted = ",".join(columns).encode()
    try:
        with Path(path).open("rb") if Path(path).is_file() else BytesIO() as file:  # no pipes
            head = file.readline(len(wanted) + 2)
            if head.rstrip(b"\r\n") != wanted or not head.endswith(b"\n"):
                raise _another(path)
            content = head + (b"" if head_only else file.read())
        if not content.endswith(b"\n"):
            content = content[: content.rfind(b"\n") + 1]
            os.truncate(path, len(content))
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror}") from None
    return content


def _another(path: str | Path) -> OptionError:
    return OptionError(f"{path} is not a file of a study: give another path")


def append(path: str | Path, rows: list[dict[str, Any]], columns: Sequence[str] = COLUMNS) -> None:
    """Add finished runs to a file; one that has come there since is another study's, or none."""
    fresh = not _exists(path)
    if not fresh:
        _content(path, columns, head_only=True)
    frame_of(rows, list(columns)).to_csv(
        path, mode="a", header=fresh, index=False, na_rep="nan", compression=None
    )
