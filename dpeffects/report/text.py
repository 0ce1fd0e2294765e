"""A Summary as plain text: every line fits the width, numbers line up on the right."""

from __future__ import annotations

import textwrap
from itertools import zip_longest

from dpeffects.errors import OptionError
from dpeffects.report.layout import NO_BREAK, column_widths, visible
from dpeffects.summary import Block, Notes, Pairs, Renderer, Summary, Table

_WIDEST_GAP = 6


def render_text(summary: Summary, width: int = 80) -> str:
    """Render a summary as text, at least 80 columns wide."""
    if isinstance(width, bool) or not isinstance(width, int) or width < 80:
        raise OptionError(f"width is a whole number of at least 80 columns, got {width!r}")
    head = [*_wrap(summary.title, width), "=" * width]
    if summary.starred_warnings:
        head += [
            line for part in summary.starred_warnings.split("\n") for line in _wrap(part, width)
        ]
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
    """Cells in columns, between rules of the whole width; a character counts as one column."""
    room = column_widths(table, width)
    grid = [
        [_wrap(cell, size) for cell, size in zip(row, room, strict=True)]
        for row in (table.columns, *table.rows)
    ]
    widths = [max(len(line) for row in grid for line in row[k]) for k in range(len(room))]
    gaps = max(len(widths) - 1, 1)
    gap = " " * min((width - sum(widths)) // gaps, _WIDEST_GAP)
    rule, lines = "-" * width, [*(_wrap(table.title, width) if table.title else [])]
    for i, row in enumerate(grid):
        if i < 2 or (table.total and i == len(grid) - 1):
            lines.append(rule)
        lines += [
            gap.join(_set(*cell) for cell in zip(line, widths, table.align, strict=True)).rstrip()
            for line in zip_longest(*row, fillvalue="")
        ]
    return [*lines, rule]


def _set(cell: str, width: int, side: str) -> str:
    return cell.ljust(width) if side == "l" else cell.rjust(width)


def _wrap(text: str, width: int) -> list[str]:
    """Lines of at most ``width``; a no-break space never ends one, nor a number its per cent."""
    whole = visible(text).replace(" %", f"{NO_BREAK}%")
    lines = textwrap.wrap(whole, max(width, 1), break_on_hyphens=False)
    return [line.replace(NO_BREAK, " ") for line in lines] or [""]


def _paragraph(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_on_hyphens=False)


FORMAT = Renderer(render_text, _paragraph, ".txt", render_text)
