"""A Summary as plain text: every line fits the width, numbers line up on the right."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from dpeffects.errors import OptionError
from dpeffects.render.blocks import NO_BREAK, Notes, Pairs, Table, column_widths, visible

if TYPE_CHECKING:
    from dpeffects.render.blocks import Block, Summary

_WIDEST_GAP = 6


def render_text(summary: Summary, width: int = 80) -> str:
    """Render a summary as text, at least 80 columns wide."""
    if isinstance(width, bool) or not isinstance(width, int) or width < 80:
        raise OptionError(f"width is a whole number of at least 80 columns, got {width!r}")
    head = [*_wrap(summary.title, width), "=" * width]
    if summary.alert:
        head += [line for part in summary.alert.split("\n") for line in _wrap(part, width)]
    first = _block(summary.blocks[0], width) if summary.blocks else []
    parts = ["\n".join(head + first)]
    parts += ["\n".join(_block(block, width)) for block in summary.blocks[1:]]
    return "\n\n".join(parts)


def _block(block: Block, width: int) -> list[str]:
    if isinstance(block, Table):
        return _table(block, width)
    if isinstance(block, Pairs):
        body = _pairs(block, width)
    else:
        body = _notes(block, width) if isinstance(block, Notes) else _wrap(block.text, width)
    return [*_wrap(block.title, width), "-" * width, *body] if block.title else body


def _pairs(block: Pairs, width: int) -> list[str]:
    margin = min(max((len(name) for name, _ in block.rows), default=0), width // 3)
    lines = []
    for name, text in block.rows:
        left, right = _wrap(name, margin), _wrap(text, width - margin - 3)
        lines += [
            f"{a:<{margin}}   {b}".rstrip() for a, b in zip_longest(left, right, fillvalue="")
        ]
    return lines


def _notes(block: Notes, width: int) -> list[str]:
    lines = []
    for item in block.items:
        first, *rest = _wrap(item, width - 2)
        lines += [f"- {first}".rstrip(), *(f"  {line}" for line in rest)]
    return lines


def _table(table: Table, width: int) -> list[str]:
    from tabulate import SEPARATING_LINE, DataRow, Line, TableFormat, tabulate

    room = column_widths(table, width)
    heads = [_wrap(head, size) for head, size in zip(table.columns, room, strict=True)]
    widths = [max(map(len, head)) for head in heads]
    rows: list[Sequence[str]] = [*zip_longest(*heads, fillvalue=""), SEPARATING_LINE]
    for i, row in enumerate(table.rows):
        if table.total and i == len(table.rows) - 1:
            rows.append(SEPARATING_LINE)
        cells = [_wrap(cell, size) for cell, size in zip(row, room, strict=True)]
        widths = [max(w, *map(len, cell)) for w, cell in zip(widths, cells, strict=True)]
        rows += zip_longest(*cells, fillvalue="")
    gaps = max(len(widths) - 1, 1)
    gap = min((width - sum(widths)) // gaps, _WIDEST_GAP)
    rule = Line("", "-", "-" * gap, "-" * (width - sum(widths) - gap * gaps))
    line = DataRow("", " " * gap, "")
    text = tabulate(
        rows,
        tablefmt=TableFormat(rule, rule, None, rule, line, line, 0, None),
        colalign=["left" if side == "l" else "right" for side in table.align],
        disable_numparse=True,
    )
    title = _wrap(table.title, width) if table.title else []
    return [*title, *(row.rstrip() for row in text.splitlines())]


def _wrap(text: str, width: int) -> list[str]:
    """Lines of at most ``width``; a no-break space never ends one."""
    lines = textwrap.wrap(visible(text), max(width, 1), break_on_hyphens=False)
    return [line.replace(NO_BREAK, " ") for line in lines] or [""]
