"""A Summary as plain text: every line fits the width, numbers line up on the right."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from dpeffects.errors import OptionError
from dpeffects.results.summary import Notes, Pairs, Table

if TYPE_CHECKING:
    from dpeffects.results.summary import Block, Summary

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_GAP, _WIDEST_GAP, _WORDS = 2, 6, 12  # columns between cells, and at least for words


def render_text(summary: Summary, width: int = 80) -> str:
    """Render a summary as text, at least 80 columns wide."""
    if isinstance(width, bool) or not isinstance(width, int) or width < 80:
        raise OptionError(f"width is a whole number of at least 80 columns, got {width!r}")
    head = [*_wrap(summary.title, width), "=" * width]
    if summary.alert:
        head += [line for part in summary.alert.split("\n") for line in _wrap(part, width)]
    parts = ["\n".join(head + _block(summary.blocks[0], width))] if summary.blocks else head
    parts += ["\n".join(_block(block, width)) for block in summary.blocks[1:]]
    return "\n\n".join(parts)


def _block(block: Block, width: int) -> list[str]:
    if isinstance(block, Table):
        return _table(block, width)
    body = _pairs(block, width) if isinstance(block, Pairs) else _notes(block, width)
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

    room = _column_widths(table, width)
    rows: list[Sequence[str]] = [table.columns, SEPARATING_LINE]
    widths = [len(head) for head in table.columns]
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
    return [*_wrap(table.title, width), *(row.rstrip() for row in text.splitlines())]


def _column_widths(table: Table, width: int) -> list[int]:
    """Widths that fit: text is wrapped between words first, then numbers, then words are cut."""
    columns = list(zip(table.columns, *table.rows, strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    words = [max(len(word) for word in " ".join(column).split()) for column in columns]
    words = [
        max(w, _WORDS) if side == "l" else w for w, side in zip(words, table.align, strict=True)
    ]
    heads = [max(len(head), 3) for head in table.columns]
    room = width - _GAP * (len(widths) - 1)
    for sides, least in (("l", words), ("r", words), ("l", heads), ("r", heads)):
        while sum(widths) > room:
            wide = [j for j, w in enumerate(widths) if table.align[j] in sides and w > least[j]]
            if not wide:
                break
            widths[max(wide, key=lambda j: widths[j])] -= 1
    return widths


def _wrap(text: str, width: int) -> list[str]:
    """Lines of at most ``width``; a no-break space never ends one."""
    lines = textwrap.wrap(_CONTROL.sub(" ", text), max(width, 1), break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines] or [""]
