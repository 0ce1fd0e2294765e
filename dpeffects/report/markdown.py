"""A Summary as Markdown, with tables as GitHub reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dpeffects.report.layout import clean
from dpeffects.summary import Block, Notes, Pairs, Renderer, Summary, Table

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~$&])")
_START = re.compile(r"^(\d*)([-+=.)])")  # a list or an underline


def render_markdown(summary: Summary) -> str:
    """Render a summary as Markdown."""
    parts = [f"### {escaped(summary.title)}"]
    if summary.warnings:
        parts.append("\n>\n".join(f"> **\u26a0 {escaped(line)}**" for line in summary.warnings))
    parts += [_block(block) for block in summary.blocks]
    return "\n\n".join(parts)


def escaped(text: str) -> str:
    r"""Escape what Markdown, or mathematics and HTML in it, would read as more than text.

    Examples
    --------
    >>> print(escaped("a|b <i> x_1"))
    a\|b \<i\> x\_1
    """
    return _SPECIAL.sub(r"\\\1", " ".join(clean(text).split()))


def _line(text: str) -> str:
    return _START.sub(r"\1\\\2", escaped(text))


def _block(block: Block) -> str:
    title = f"**{escaped(block.title)}**\n\n" if block.title else ""
    if isinstance(block, Table):
        return title + _table(block.columns, block.rows, block.align)
    if isinstance(block, Pairs):
        return title + _table(("", ""), block.rows, "ll")
    if isinstance(block, Notes):
        return title + "\n".join(f"- {_line(item)}" for item in block.items)
    return title + _line(block.text)


def _table(columns: Iterable[str], rows: Iterable[tuple[str, ...]], align: str) -> str:
    rule = "|".join(":--" if side == "l" else "--:" for side in align)
    return "\n".join([_row(columns), f"|{rule}|", *map(_row, rows)])


def _row(cells: Iterable[str]) -> str:
    texts = (escaped(cell) for cell in cells)
    return "|" + "".join(f" {text} |" if text else " |" for text in texts)


FORMAT = Renderer(render_markdown, escaped, ".md", render_markdown)
