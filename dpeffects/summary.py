"""Summary: titled blocks of text, built once, rendered in several ways.

Results, plans and ledgers know nothing of how they are shown: `summarise`, `tabulate`,
`write_about` and `draw` find by its type what the package `report` has registered for them, and
`RENDERERS` has its formats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from os import PathLike
from pathlib import Path
from typing import Any


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

    def _repr_html_(self) -> str:
        return self.as_html()

    def __str__(self) -> str:
        return self.as_text()


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

    def summary(self) -> Summary:
        """Everything worth printing, as titled blocks."""
        return summarise(self)

    def _repr_html_(self) -> str:
        return self.summary().as_html()

    def __str__(self) -> str:
        return self.summary().as_text()


@singledispatch
def summarise(result: Any, **options: Any) -> Summary:
    """Build the summary of a result; each type has its own function."""
    raise NotImplementedError(f"no summary of {type(result).__name__}")


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
