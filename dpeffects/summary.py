"""Summary: titled blocks of text, built once, rendered in several ways.

Results, plans and ledgers know nothing of how they are shown: `summarise`, `tabulate`,
`brief`, `write_about` and `draw` find by its type what the package `report` has registered for
them, and `RENDERERS` has its formats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import singledispatch
from os import PathLike
from pathlib import Path
from typing import Any

from dpeffects.errors import OptionError, nearest

FORMS = ("full", "short")
"""How much a summary says."""
MOST_ROWS = 5
"""Rows of a table in a short summary."""
EVERYTHING, SHORT_OF = "Everything: fit.summary()", 'Everything: summary("full")'
"""The last line of a short summary: of a release, and of what is not one."""


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
class Renderer:
    """An output format: how it writes a summary, one paragraph of text, and a file of its own."""

    summary: Callable[..., str]
    paragraph: Callable[..., str]
    ending: str
    document: Callable[..., str]


RENDERERS: dict[str, Renderer] = {}
"""Output formats by name."""


WRITERS: dict[str, Callable[..., Path]] = {}
"""Formats that are files and no text, by the ending of their names."""


@dataclass(frozen=True)
class Summary:
    """A title, an alert (empty when all is well), and blocks in reading order.

    Examples
    --------
    >>> summary = Summary("Effect", "", (Pairs((("Records", "n = 5"),)),))
    >>> print(summary.as_text())
    Effect
    ================================================================================
    Records   n = 5
    >>> print(summary.as_markdown())
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
        return RENDERERS["text"].summary(self, width)

    def as_html(self, standalone: bool = False) -> str:
        """Return the summary as HTML with its own style; ``standalone`` makes it a whole page.

        Nothing is loaded from elsewhere, and no script is run.
        """
        return RENDERERS["html"].summary(self, standalone)

    def as_latex(self, standalone: bool = False) -> str:
        r"""Return the summary as LaTeX; ``standalone`` makes it a document that compiles.

        The packages booktabs, array and longtable are needed.
        """
        return RENDERERS["latex"].summary(self, standalone)

    def as_markdown(self) -> str:
        """Return the summary as Markdown, with tables as GitHub reads them."""
        return RENDERERS["markdown"].summary(self)

    def as_docx(self, path: str | PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the summary to a Word file, with its tables as tables of Word; return the path.

        It needs python-docx: ``pip install "dpeffects[word]"``.
        """
        return WRITERS[".docx"](self, path, overwrite=overwrite)

    def shortened(self) -> Summary:
        """Return what it begins with: title, alert, first lines, and the first rows of a table."""
        pairs = [block for block in self.blocks if isinstance(block, Pairs)][:1]
        tables = [_cut(block) for block in self.blocks if isinstance(block, Table)][:1]
        return replace(self, blocks=(*pairs, *tables, Prose(SHORT_OF)))

    def _repr_html_(self) -> str:
        return self.as_html()

    def __str__(self) -> str:
        return self.as_text()


def _cut(table: Table) -> Table:
    left = len(table.rows) - MOST_ROWS
    if left < 2:
        return table
    more = (f"and {left} more", *[""] * (len(table.columns) - 1))
    return replace(table, rows=(*table.rows[:MOST_ROWS], more), total=False)


@dataclass(frozen=True, repr=False)
class Report:
    """A paragraph on methods and results: ``text`` is one line, printing wraps it.

    Examples
    --------
    >>> Report("We found 5 % more.").as_latex()
    'We found 5 \\\\% more.'
    """

    text: str

    def as_text(self, width: int = 80) -> str:
        """Return the paragraph in lines of at most ``width``."""
        return RENDERERS["text"].paragraph(self.text, width)

    def as_html(self) -> str:
        """Return the paragraph as an HTML element."""
        return RENDERERS["html"].paragraph(self.text)

    def as_latex(self) -> str:
        """Return the paragraph for LaTeX."""
        return RENDERERS["latex"].paragraph(self.text)

    def as_markdown(self) -> str:
        """Return the paragraph for Markdown."""
        return RENDERERS["markdown"].paragraph(self.text)

    def _repr_html_(self) -> str:
        return self.as_html()

    def __str__(self) -> str:
        return self.as_text()

    __repr__ = __str__


class Shown:
    """Whatever has a summary: it prints as text, and as HTML in a notebook."""

    def summary(self, form: str = "full") -> Summary:
        """Everything worth printing, as titled blocks; what matters most where ``form="short"``."""
        return show(self, form)

    def _repr_html_(self) -> str:
        return self.summary().as_html()

    def __str__(self) -> str:
        return self.summary().as_text()


@singledispatch
def summarise(result: Any, **options: Any) -> Summary:
    """Build the summary of a result; each type has its own function."""
    raise NotImplementedError(f"no summary of {type(result).__name__}")


@singledispatch
def brief(result: Any, **options: Any) -> Summary:
    """Build the short summary of a result: by default what the whole one begins with."""
    return summarise(result, **options).shortened()


def show(result: Any, form: str, **options: Any) -> Summary:
    """Build the summary of a result in one of the `FORMS`."""
    return (brief if check_form(form) == "short" else summarise)(result, **options)


def check_form(form: Any) -> str:
    """Return the form of a summary, or say what it can be."""
    if isinstance(form, str) and form in FORMS:
        return form
    if isinstance(form, int | float):
        told = f"; write summary(conf_level={form})"
    else:
        told = nearest(form, FORMS)
    raise OptionError(f'summary takes "full" or "short", got {form!r}{told}')


@singledispatch
def tabulate(result: Any, **options: Any) -> dict[str, Summary]:
    """Build the tables of a result, each as a summary of its own."""
    raise NotImplementedError(f"no tables of {type(result).__name__}")


@singledispatch
def write_about(
    result: Any, path: str | PathLike[str] | None, conf_level: float, overwrite: bool
) -> Report | Path:
    """Return the paragraph about a result, or write its record for a review board to a path."""
    raise NotImplementedError(f"no report of {type(result).__name__}")


@singledispatch
def draw(result: Any, *args: Any, **options: Any) -> Any:
    """Draw a result; return the axes."""
    raise NotImplementedError(f"no plot of {type(result).__name__}")
