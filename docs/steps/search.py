"""Words by which the search finds a page although its text has others: see search.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".toml")


def words() -> dict[str, list[str]]:
    """Return the words of each page, by its name without an ending."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))["words"]


def finds() -> dict[str, str]:
    """Return what people search for, with the page that has to be among the first."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))["finds"]


def index_source(app: Any, name: str, content: list[str]) -> None:
    """Write the words of a page as index entries below its title, when Sphinx reads it."""
    if name not in words():
        return
    app.env.note_dependency(str(FILE))
    title, _, rest = content[0].partition("\n")
    entries = ", ".join(f"! {word}" for word in words()[name])
    content[0] = f"{title}\n\n```{{index}} {entries}\n```\n{rest}"
