"""Summary: titled blocks of text, built once, rendered in several ways."""

from __future__ import annotations

import re
from dataclasses import dataclass

NO_BREAK = "\u00a0"
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"  # what hides, breaks or reverses text
    "\ud800-\udfff\ufdd0-\ufdef\ufff0-\ufff8\ufffe\uffff]"  # what no page may hold
)


@dataclass(frozen=True)
class Pairs:
    """Names with their values, one below the other."""

    rows: tuple[tuple[str, str], ...]
    title: str = ""


@dataclass(frozen=True)
class Table:
    """A titled table of formatted cells.

    ``align`` has "l" or "r" for each column; with ``total`` the last row is set apart.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    align: str
    total: bool = False


@dataclass(frozen=True)
class Notes:
    """Sentences for the reader."""

    items: tuple[str, ...]
    title: str = "Notes"


@dataclass(frozen=True)
class Prose:
    """A paragraph."""

    text: str
    title: str = ""


Block = Pairs | Table | Notes | Prose


@dataclass(frozen=True)
class Summary:
    """A title, an alert (empty when all is well), and blocks in reading order.

    Examples
    --------
    >>> made = Summary("Effect", "", (Pairs((("Records", "n = 5"),)),))
    >>> print(made.as_text())
    Effect
    ================================================================================
    Records   n = 5
    >>> print(made.as_markdown())
    ### Effect
    <BLANKLINE>
    | | |
    |:--|:--|
    | Records | n = 5 |
    """

    title: str
    alert: str
    blocks: tuple[Block, ...]

    @property
    def alerts(self) -> tuple[str, ...]:
        """The lines of the alert, without the asterisks that mark them in plain text."""
        return tuple(filter(None, (line.strip("* ") for line in self.alert.split("\n"))))

    def as_text(self, width: int = 80) -> str:
        """Return the summary as plain text, no line longer than ``width`` (at least 80)."""
        from dpeffects.render.text import render_text

        return render_text(self, width)

    def as_html(self, standalone: bool = False) -> str:
        """Return the summary as HTML with its own style; ``standalone`` makes it a whole page.

        Nothing is loaded from elsewhere, and no script is run.
        """
        from dpeffects.render.html import render_html

        return render_html(self, standalone)

    def as_latex(self, standalone: bool = False) -> str:
        r"""Return the summary as LaTeX; ``standalone`` makes it a document that compiles.

        The packages booktabs, array and longtable are needed.
        """
        from dpeffects.render.latex import render_latex

        return render_latex(self, standalone)

    def as_markdown(self) -> str:
        """Return the summary as Markdown, with tables as GitHub reads them."""
        from dpeffects.render.markdown import render_markdown

        return render_markdown(self)

    def _repr_html_(self) -> str:
        return self.as_html()

    def __str__(self) -> str:
        return self.as_text()


class Shown:
    """Whatever has a summary: it prints as text, and as HTML in a notebook."""

    def summary(self) -> Summary:
        """Everything worth printing, as titled blocks."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return self.summary().as_html()

    def __str__(self) -> str:
        return self.summary().as_text()


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
