"""Run the code of the pages, and show below each block what it printed, drew or returned.

Outputs are kept in docs/outputs, one Markdown file for each page, and drawn without a seed, as
releases are. ``make outputs`` makes all of them anew. A build of the site runs only the pages whose
code has changed since; ``tests/test_guide.py`` runs every page, and compares words.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir, redirect_stdout
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

DOCS = Path(__file__).resolve().parents[1]
ROOT, KEPT = DOCS.parent, DOCS / "outputs"
FOLDERS = ("docs", "docs/guide", "docs/questions", "docs/from")
ROWS = 15
"""Longer tables are cut after so many rows."""
_BLOCK = re.compile(r"^```python( [^\n]*)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(r"^!\[(.*?)\]\((.*?)\)$", re.MULTILINE)


class Output(NamedTuple):
    """What one block of code gave: Markdown text, and the pictures that it refers to."""

    text: str
    pictures: dict[str, bytes]


def pages() -> list[str]:
    """Return the pages with code that is run, by their paths in the repository."""
    found = (path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.md")))
    return [path.relative_to(ROOT).as_posix() for path in found if any(blocks(_read(path)))]


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Return the code of each block that is run, below as many blank lines as are above it.

    A block that begins with "```python no-run" is left out.
    """
    for found in _BLOCK.finditer(text):
        words = (found[1] or "").split()
        if "no-run" not in words:
            yield "\n" * text[: found.start(2)].count("\n") + found[2], " ".join(words)


def run(name: str) -> list[Output]:
    """Run the blocks of a page in order; they share their names, as a reader would type them."""
    space: dict[str, Any] = {"__name__": "__main__"}
    _figures()  # drawn by others, in a process that did something else before
    outputs, files = [], (f"{Path(name).stem}-{number}.png" for number in count(1))
    for code, words in blocks(_read(ROOT / name)):
        shown = _execute(ast.parse(code, name), name, space)
        pictures = {next(files): png for png in _figures()}
        shown += [f"![Drawn by the code above]({file})\n" for file in pictures]
        hidden = "no-output" in words
        outputs.append(Output("" if hidden else "\n".join(filter(None, shown)), pictures))
    return outputs


def _execute(tree: ast.Module, name: str, space: dict[str, Any]) -> list[str]:
    """Execute a block; return what it printed, and the value of its last line if it has one."""
    printed, value = [], None
    for line in tree.body:
        with redirect_stdout(io.StringIO()) as stream:
            if line is tree.body[-1] and isinstance(line, ast.Expr):
                value = eval(compile(ast.Expression(line.value), name, "eval"), space)
            else:
                exec(compile(ast.Module([line], []), name, "exec"), space)
        printed.append(stream.getvalue().strip("\n"))
    return [_fenced("\n\n".join(filter(None, printed))), _shown(value)]


def _shown(value: Any) -> str:
    """Return a value as a notebook shows it: tables as tables, and no name of what was drawn."""
    if isinstance(value, pd.Series):
        value = value.to_frame(value.name or "value")
    if isinstance(value, pd.DataFrame):
        return _table(value)
    first = next(iter(value), None) if isinstance(value, tuple | list | dict) else value
    if value is None or type(first).__module__.startswith(("matplotlib", "mpl_")):
        return ""
    return _fenced(str(value) if hasattr(value, "_repr_html_") else repr(value))


def _fenced(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))
    return f"```text\n{lines}\n```\n" if lines else ""


def _table(frame: pd.DataFrame) -> str:
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index()
    rows = [[_cell(value) for value in row] for row in frame.head(ROWS).itertuples(index=False)]
    head = [" ".join(map(str, name)) if isinstance(name, tuple) else name for name in frame]
    right = [pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes]
    lines = [[_cell(name) for name in head], ["---:" if number else "---" for number in right]]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines + rows)
    more = len(frame) - len(rows)
    return text + (f"\n\n*{more} more rows are not shown.*\n" if more else "\n")


def _cell(value: Any) -> str:
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    if isinstance(value, float):  # numbers of numpy among them
        return f"{value:.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
    return re.sub(r"([|*<\[`])", r"\\\1", str(value))


def _figures() -> list[bytes]:
    """Return the open figures as pictures, and close them."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    from matplotlib import pyplot

    found = []
    for number in pyplot.get_fignums():
        file = io.BytesIO()
        pyplot.figure(number).savefig(
            file, dpi=130, bbox_inches="tight", metadata={"Software": None}
        )
        found.append(file.getvalue())
    pyplot.close("all")
    return found


# --- what is kept ---------------------------------------------------------------------------------


def kept(name: str) -> list[str]:
    """Return what is on file for each block of a page; nothing if the code was another then."""
    path = _file(name)
    if not path.exists():
        return []
    head, *parts = re.split(r"^<!-- block \d+ -->\n\n?", _read(path), flags=re.MULTILINE)
    return parts if _digest(name) in head else []


def _file(name: str) -> Path:
    return KEPT / Path(name).relative_to("docs")


def _digest(name: str) -> str:
    code = "".join(f"{words}\n{code.lstrip(chr(10))}" for code, words in blocks(_read(ROOT / name)))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def make(names: Iterable[str]) -> None:
    """Run these pages, beside each other, and keep what they gave."""
    wanted = sorted(names, key=lambda name: -len(_read(ROOT / name)))
    if not wanted:
        return
    with ProcessPoolExecutor(min(len(wanted), os.cpu_count() or 1)) as pool:
        for name, outputs in zip(wanted, pool.map(_apart, wanted), strict=True):
            _keep(name, outputs)


def _apart(name: str) -> list[Output]:
    """Run a page in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        try:
            return run(name)
        except Exception as error:
            error.add_note(f"in the code of {name}")
            raise


def _keep(name: str, outputs: list[Output]) -> None:
    path = _file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.glob(f"{path.stem}-[0-9]*.png"):
        old.unlink()
    parts = [f"<!-- output of {name}; code {_digest(name)}; made by make outputs -->\n"]
    for number, (text, pictures) in enumerate(outputs, 1):
        parts.append(f"<!-- block {number} -->\n\n{text}")
        for file, png in pictures.items():
            (path.parent / file).write_bytes(png)
    path.write_text("\n".join(parts), encoding="utf-8")


# --- in the site ----------------------------------------------------------------------------------


def refresh(*_: Any) -> None:
    """Run the pages whose code is not that of their outputs: a step of the build."""
    make(name for name in pages() if not kept(name))


def show_source(app: Any, name: str, content: list[str]) -> None:
    """Put the outputs of a page below its code, when Sphinx reads it."""
    page = f"docs/{name}.md"
    if not (ROOT / page).exists() or not (outputs := kept(page)):
        return
    app.env.note_dependency(str(_file(page)))
    home, found = _file(page).parent.relative_to(DOCS), iter(outputs)

    def below(block: re.Match[str]) -> str:
        code = block[0].replace(block[1] or "\n", "", 1) if block[1] else block[0]
        if "no-run" in (block[1] or ""):
            return code
        text = next(found).replace("```text\n", "```{code-block} text\n:class: output\n\n")
        text = _PICTURE.sub(rf"```{{image}} /{home}/\2\n:alt: \1\n:class: on-white\n```", text)
        return f"{code}\n\n{text}" if text.strip() else code

    content[0] = _BLOCK.sub(below, content[0])


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


if __name__ == "__main__":
    os.environ["MPLBACKEND"] = "agg"
    make(sys.argv[1:] or pages())
