"""Print a benchmark's table and keep it in benchmarks/results/ with date and machine size."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

RESULTS = Path(__file__).parent / "results"


def machine() -> str:
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {gib:.0f} GiB, Python {platform.python_version()}"


def save(
    name: str,
    title: str,
    tables: dict[str, pd.DataFrame],
    notes: str = "",
    folder: Path = RESULTS,
    lead: str = "",
) -> None:
    """Write a page: ``lead``, the tables by their headings, ``notes``."""
    lines = [f"# {title}", "", f"{datetime.now(UTC):%Y-%m-%d}, {machine()}."]
    made = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    lines += [f"Made by `python benchmarks/{made}`."]
    lines += ["", lead] if lead else []
    for heading, table in tables.items():
        lines += ["", f"## {heading}" if heading else "", "", table.to_markdown(index=False)]
    if notes:
        lines += ["", notes]
    text = "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.md").write_text(text)
    print(text)
