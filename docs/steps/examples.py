"""Which vignettes and figures are shown, in what order, and how they are run."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@cache
def order() -> tuple[str, ...]:
    """Names in the order of the index: vignettes/ORDER, then what it does not name."""
    lines = (ROOT / "vignettes" / "ORDER").read_text().split("\n")
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


class Order:
    """Sort key of sphinx-gallery: the file's place in the order, then its name."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, filename: str) -> tuple[int, str]:
        """Return the key of one file."""
        name = Path(filename).stem
        return (order().index(name) if name in order() else len(order()), name)

    def __repr__(self) -> str:  # sphinx-gallery caches by it
        return f"<Order of {len(order())}>"


def arguments(gallery_conf: object, script_vars: dict[str, Any]) -> list[str]:
    """Return the command-line arguments of an example; ``make vignettes FULL=1`` sets --full.

    Examples find files of the repository by ``__file__``, which sphinx-gallery leaves out.
    """
    script_vars["example_globals"]["__file__"] = script_vars["src_file"]
    return ["--full"] if os.environ.get("FULL") else []


def left_out() -> str:
    """Return a pattern of files that are not shown: figures whose function is not there yet."""
    drawn: set[str] = set()
    if find_spec("dpeffects.report.plots"):
        from dpeffects import plots

        drawn = set(dir(plots))
    names = [path.stem for path in (ROOT / "docs" / "gallery").glob("*.py")]
    missing = [name for name in names if name not in drawn]
    return "|".join([r"__init__\.py", *(rf"gallery[/\\]{name}\.py" for name in missing)])
