"""Visible characters and widths of columns, which the output formats share."""

from __future__ import annotations

import re

from dpeffects.summary import Table

NO_BREAK, MINUS = "\u00a0", "\u2212"
_HYPHEN = re.compile(r"(?<![\w.)\]])-(?=\.?\d|inf)")
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"  # what hides, breaks or reverses text
    "\ud800-\udfff\ufdd0-\ufdef\ufff0-\ufff8\ufffe\uffff]"  # what no page may hold
)


def visible(text: str) -> str:
    """Return one line of visible characters, whatever a name held.

    Examples
    --------
    >>> visible("a\\nb\\u202ec")
    'a b c'
    """
    seen = _UNSEEN.sub(" ", text)
    return "".join("\ufffd" if ord(c) & 0xFFFE == 0xFFFE else c for c in seen)


def clean(text: str) -> str:
    """Return visible characters for a page that breaks lines itself."""
    return visible(text).replace(NO_BREAK, " ")


def typeset(cell: str) -> str:
    """Return the text of a cell for a page, with a minus sign before a negative number.

    Examples
    --------
    >>> typeset("-0.1 to 2, as of 2020-01-02")
    '\u22120.1 to 2, as of 2020-01-02'
    """
    return _HYPHEN.sub(MINUS, clean(cell))


def fits(table: Table, width: int) -> bool:
    """Tell whether no cell of a table has to be wrapped for it to fit."""
    columns = zip(table.columns, *table.rows, strict=True)
    return sum(max(map(len, column)) + 2 for column in columns) - 2 <= width


def column_widths(table: Table, width: int, gap: int = 2, words: int = 12) -> list[int]:
    """Widths that fit: text is wrapped between words first, then numbers, then words are cut.

    ``gap`` stands between columns; text gets at least ``words`` while numbers can give way.
    """
    columns = list(zip(table.columns, *table.rows, strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    longest = [max((len(w) for w in " ".join(column).split()), default=0) for column in columns]
    least = [
        max(w, words) if side == "l" else w for w, side in zip(longest, table.align, strict=True)
    ]
    heads = [max(min(len(head), words), 3) for head in table.columns]
    room = width - gap * (len(widths) - 1)
    for side, floor in (("l", least), ("r", least), ("l", heads), ("r", heads)):
        while sum(widths) > room:
            wide = [j for j, w in enumerate(widths) if table.align[j] == side and w > floor[j]]
            if not wide:
                break
            widths[max(wide, key=lambda j: widths[j])] -= 1
    return widths
