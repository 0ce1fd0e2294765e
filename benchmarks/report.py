"""Pages of results, with what made them at their head: date, version, commit, machine, code.

The head is a comment that a machine can read. ``code`` is a digest of the modules of the package
that the run had imported, without comments, docstrings and empty lines; a page whose modules have
another digest by now was measured on earlier code, and `on_age` says so.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import platform
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pandas as pd

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).resolve().parents[1]
_HEAD = re.compile(r"<!-- evidence\n(.*?)\n-->", re.DOTALL)


def machine() -> str:
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {gib:.0f} GiB, Python {platform.python_version()}"


def imported(*folders: str) -> list[str]:
    """Return the files of some folders of the repository that this process has imported."""
    top = f"{ROOT}{os.sep}"
    places = (str(getattr(module, "__file__", "")) for module in list(sys.modules.values()))
    inside = {place.removeprefix(top) for place in places if place.startswith(top)}
    return sorted(x for x in inside if x.startswith(folders))


def digest(files: Iterable[str]) -> str:
    """Return a digest of what files of the repository do; one that is gone counts as empty."""
    found = hashlib.sha256()
    for name in sorted(set(files)):
        found.update(f"{name}\n".encode() + _bare(name).encode())
    return found.hexdigest()[:16]


@cache
def _bare(name: str) -> str:
    path = ROOT / name
    return bare(path.read_text(encoding="utf-8")) if path.exists() else ""


def bare(source: str) -> str:
    """Return source without comments, docstrings and empty lines."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        words = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if words and not lines[node.lineno - 1][: node.col_offset].strip():
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())


@cache
def commit() -> str:
    """Return the commit of the repository, with a plus where the package differs from it."""

    def git(*words: str) -> str:
        run = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return run.stdout.strip()

    changed = "+" if git("status", "--porcelain", "--", "dpeffects") else ""
    return (git("rev-parse", "--short=8", "HEAD") or "unknown") + changed


def head(files: Iterable[str], seconds: float) -> str:
    """Return the comment of a page that is made now."""
    import dpeffects

    used = sorted(set(files))
    values = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "version": dpeffects.__version__,
        "commit": commit(),
        "machine": machine(),
        "seconds": f"{seconds:.0f}",
        "code": digest(used),
        "modules": ", ".join(used),
    }
    lines = [f"{name}: {value}" for name, value in values.items()]
    return "\n".join(["<!-- evidence", *lines, "-->"])


def made_by(page: str) -> dict[str, str]:
    """Return what the head of a page says, or nothing."""
    found = _HEAD.search(page)
    return dict(line.split(": ", 1) for line in found[1].splitlines()) if found else {}


def on_age(page: str) -> str:
    """Return a sentence where a page was measured on earlier code, and nothing where it was not."""
    said = made_by(page)
    if said and said["code"] != "unknown":
        if said["code"] == digest(said["modules"].split(", ")):
            return ""
        return (
            f"**Measured on earlier code** (version {said['version']}, commit {said['commit']}): "
            "what these figures depend on has changed since."
        )
    known = f" It came with commit {said['commit']}." if said else ""
    return (
        "**Measured on earlier code**: this page was made before pages said which code made them."
        + known
    )


def save(
    name: str,
    title: str,
    tables: dict[str, pd.DataFrame],
    notes: str = "",
    folder: Path = RESULTS,
    lead: str = "",
    made: str = "",
    files: Iterable[str] = (),
    seconds: float = 0.0,
) -> str:
    """Write a page: ``lead``, the tables by their headings, ``notes``; ``files`` it depends on."""
    comment = head(files, seconds)
    said = made_by(comment)
    lines = [f"# {title}", "", comment, ""]
    lines += [f"{said['date']}, {said['machine']}; dpeffects {said['version']}, {said['commit']}."]
    lines += [f"Made by `{made}` in {said['seconds']} seconds of one core."]
    lines += ["", lead] if lead else []
    for heading, table in tables.items():
        lines += ["", f"## {heading}" if heading else "", "", table.to_markdown(index=False)]
    text = "\n".join([*lines, "", notes]).replace("\n\n\n", "\n\n").rstrip() + "\n"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return text
