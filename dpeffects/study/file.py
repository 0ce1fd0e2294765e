"""Runs on file: appended as they finish, read when a study is started again."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from dpeffects.errors import OptionError
from dpeffects.results.export import frame_of
from dpeffects.study.runs import COLUMNS, KEYS


def on_file(
    path: str | Path | None, columns: Sequence[str] = COLUMNS, keys: Sequence[str] = KEYS
) -> list[dict[str, Any]]:
    """Read the runs of a file with these columns, if there is one; ``keys`` name a run."""
    if path is None or not Path(path).exists():
        return []
    import pandas as pd

    text = Path(path).read_text(encoding="utf-8")
    if not text.endswith("\n"):  # a run was stopped while it wrote: its last line does not count
        text = text[: text.rfind("\n") + 1]
        Path(path).write_text(text, encoding="utf-8")
    if text.partition("\n")[0] != ",".join(columns):
        raise OptionError(f"{path} is not a file of a study: give another path")
    found = pd.read_csv(
        StringIO(text),
        dtype={"fit": str, "caution": str, "failure": str},
        keep_default_na=False,
        na_values=["nan"],
    )
    rows = found.drop_duplicates(list(keys)).to_dict("records")
    return [{str(name): x for name, x in row.items()} for row in rows]


def append(path: str | Path, rows: list[dict[str, Any]], columns: Sequence[str] = COLUMNS) -> None:
    """Add finished runs to a file."""
    fresh = not Path(path).exists()
    frame_of(rows, list(columns)).to_csv(path, mode="a", header=fresh, index=False, na_rep="nan")
