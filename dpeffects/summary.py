"""Summary: titled blocks of text, built once, rendered in several ways.

Results hold no formats. What a release has to say is in methods of its class, which
`report.release_summary` puts on a page. What draws it is a function that a class names,
``class Result(..., picture="report.plots.interval_plots.estimate")``, loaded when it is shown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpeffects.errors import OptionError, advised, nearest, quoted

FORMS = ("full", "short")
"""The two lengths of a summary."""
MOST_ROWS = 5
"""Rows of a table in a short summary."""
SHOWN, NAMED = 25, 8
"""Rows of a table in a full one, and names in a sentence or a header."""
NOISE, MARK, _MOST_TIMES = "suppressed", "\N{EN DASH}", 100
"""In place of a number that is too imprecise: in a sentence, and in a table, with a note."""
_LOUD = re.compile("[A-Z]{2} [A-Z]{2}|[A-Z]{3}, [A-Z]{2}")
"""Words in capitals, which warnings have where numbers must not be read as what they look like."""
EVERYTHING, SHORT_OF = "Full results: fit.summary()", "Full results: summary()"
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


class MostlyNoise(str):
    """A cell in the place of a number whose noise is ``ratio`` times too large."""

    ratio = math.inf


def printed(text: str, ratio: float, noise: str = NOISE) -> str:
    """Return a cell, or what stands in its place where its noise is too large: a ratio above 1."""
    cell = MostlyNoise(noise)
    cell.ratio = ratio
    return cell if ratio > 1.0 else text


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


def starred(warnings: Iterable[str]) -> str:
    """Return a line for each warning; those that void a reading stand between asterisks."""
    lines = each_warning(*warnings)
    return "\n".join(f"*** {x} ***" if _LOUD.search(x) else f"Warning: {x}" for x in lines)


def each_warning(*texts: str) -> list[str]:
    """Warnings, of which several may be joined to one text: each begins with a capital."""
    return [words for text in texts for words in re.split(r"; (?=[A-Z])", text) if words]


def noted(notes: Iterable[str]) -> Notes | None:
    """Return the notes, if there are any."""
    items = tuple(filter(None, notes))
    return Notes(items) if items else None


@dataclass(frozen=True)
class Renderer:
    """An output format: how it writes a summary, one paragraph of text, and a file of its own."""

    summary: Callable[..., str]
    paragraph: Callable[..., str]
    ending: str
    document: Callable[..., str]


FORMATS = ("html", "latex", "markdown", "text")
"""Output formats: each is a module of `report` that ends in its ``FORMAT``, a `Renderer`."""


def of_report(name: str) -> Any:
    """Load a module of the package `report`, which comes after all that it shows."""
    return import_module(f"dpeffects.report.{name}")


def renderer(name: str) -> Renderer:
    """Return an output format by name."""
    made: Renderer = of_report(name).FORMAT
    return made


class Named:
    """Base of public classes: an unknown name is answered by the nearest known one."""

    if not TYPE_CHECKING:  # it would let every name pass

        def __getattr__(self, name: str) -> Any:
            own = [] if name.startswith("_") else [x for x in dir(self) if x[0] != "_"]
            told = type(self)._elsewhere(name) or nearest(name, own)
            text = f"{type(self).__name__} has no {name}{told}"
            raise AttributeError(text, name=None)  # with a name, Python adds a hint of its own

    @classmethod
    def _elsewhere(cls, name: str) -> str:
        """What to write for a name that other packages have; empty where nobody knows."""
        return ""


@dataclass(frozen=True)
class Summary(Named):
    """A title, warnings (empty where there are none), and blocks in reading order.

    Examples
    --------
    >>> summary = Summary("Effect", "", (Pairs((("Records", "5"),)),))
    >>> print(summary.as_text())
    Effect
    ================================================================================
    Records   5
    >>> print(summary.as_markdown())
    ### Effect
    <BLANKLINE>
    | | |
    |:--|:--|
    | Records | 5 |
    """

    title: str
    starred_warnings: str
    blocks: tuple[Block, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings, without the asterisks that mark some of them in plain text."""
        return tuple(filter(None, (line.strip("* ") for line in self.starred_warnings.split("\n"))))

    def as_text(self, width: int = 80) -> str:
        """Return the summary as plain text, no line longer than ``width`` (at least 80)."""
        return renderer("text").summary(self, width)

    def as_html(self, standalone: bool = False) -> str:
        """Return the summary as HTML with its own style; ``standalone`` makes it a whole page.

        Nothing is loaded from elsewhere, and no script is run.
        """
        return renderer("html").summary(self, standalone)

    def as_latex(self, standalone: bool = False) -> str:
        r"""Return the summary as LaTeX; ``standalone`` makes it a document that compiles.

        The packages booktabs, array and longtable are needed.
        """
        return renderer("latex").summary(self, standalone)

    def as_markdown(self) -> str:
        """Return the summary as Markdown, with tables as GitHub reads them."""
        return renderer("markdown").summary(self)

    def as_docx(self, path: str | PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the summary to a Word file, with its tables as tables of Word; return the path.

        It needs python-docx: ``pip install "dpeffects[word]"``.
        """
        write: Callable[..., Path] = of_report("word").write_word
        return write(self, path, overwrite=overwrite)

    def shortened(self) -> Summary:
        """Return its beginning: title, warnings, first rows, and the first rows of a table."""
        pairs = [block for block in self.blocks if isinstance(block, Pairs)][:1]
        tables = [_cut(block) for block in self.blocks if isinstance(block, Table)][:1]
        short = explained(replace(self, blocks=(*pairs, *tables)))
        return replace(short, blocks=(*short.blocks, Prose(SHORT_OF)))

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


def noise_cells(tables: Mapping[str, Summary]) -> dict[str, float]:
    """Cells that are mostly noise, by table, row and column, and how many times too large it is."""
    return {
        f"{name}, {' '.join(row[: x.align.count('l')]).strip() or place}: {column}": cell.ratio
        for name, summary in tables.items()
        for x in summary.blocks
        if isinstance(x, Table)
        for place, row in enumerate(x.rows)
        for column, cell in zip(x.columns, row, strict=True)
        if isinstance(cell, MostlyNoise)
    }


def _marked(table: Table) -> Table:
    """The table with a mark, which narrow columns do not break, for the word."""
    return replace(table, rows=tuple(tuple(map(_mark, row)) for row in table.rows))


def _mark(x: str) -> str:
    return printed("", x.ratio, x.replace(NOISE, MARK)) if isinstance(x, MostlyNoise) else x


def explained(summary: Summary) -> Summary:
    """Mark suppressed cells, where there are any, and explain the mark in a note."""
    if not (ratios := sorted(noise_cells({"": summary}).values())):
        return summary
    more, notes = math.ceil(min(ratios[len(ratios) // 2], 1e6)), advised("notes")
    own = notes["suppressed"] + notes["shown" if more <= _MOST_TIMES else "far"].format(more)
    blocks = [_marked(x) if isinstance(x, Table) else x for x in summary.blocks]
    place = next((k for k, x in enumerate(blocks) if isinstance(x, Notes)), len(blocks))
    others = [item for x in blocks[place : place + 1] for item in x.items]  # type: ignore[union-attr]
    blocks[place : place + 1] = [Notes((own, *others))]
    return replace(summary, blocks=tuple(blocks))


@dataclass(frozen=True, repr=False)
class Report(Named):
    """A paragraph on methods and results; ``text`` is one line, which printing wraps.

    Examples
    --------
    >>> Report("We found 5 % more.").as_latex()
    'We found 5 \\\\% more.'
    """

    text: str

    def as_text(self, width: int = 80) -> str:
        """Return the paragraph in lines of at most ``width``."""
        return renderer("text").paragraph(self.text, width)

    def as_html(self) -> str:
        """Return the paragraph as an HTML element."""
        return renderer("html").paragraph(self.text)

    def as_latex(self) -> str:
        """Return the paragraph for LaTeX."""
        return renderer("latex").paragraph(self.text)

    def as_markdown(self) -> str:
        """Return the paragraph for Markdown."""
        return renderer("markdown").paragraph(self.text)

    def _repr_html_(self) -> str:
        return self.as_html()

    def __str__(self) -> str:
        return self.as_text()

    __repr__ = __str__


class SummaryMixin(Named):
    """A result with a summary: it prints as text, and as HTML in a notebook.

    A class names the function of the package that draws it, ``picture``, and the module that has
    the ``words`` about it, where they are not in methods of its own.
    """

    _picture: ClassVar[str] = ""
    _words: ClassVar[str] = ""

    def __init_subclass__(cls, *, picture: str = "", words: str = "") -> None:
        super().__init_subclass__()
        cls._picture, cls._words = picture or cls._picture, words or cls._words

    def summary(self, form: str = "full") -> Summary:
        """All results as titled tables; the main ones with ``form="short"``."""
        return show(self, form)

    def _brief(self, **options: Any) -> Summary:
        """The short summary: by default what the whole one begins with."""
        return summarise(self, **options).shortened()

    def _repr_html_(self) -> str:
        return self.summary().as_html()

    def __str__(self) -> str:
        return self.summary().as_text()


def named(function: str) -> Any:
    """Load a function of the package by its dotted name."""
    module, _, name = function.rpartition(".")
    return getattr(import_module(f"dpeffects.{module}"), name)


def summarise(result: Any, **options: Any) -> Summary:
    """Build the summary of a result."""
    return explained(result._summary(**options))


def draw(result: Any, *args: Any, **options: Any) -> Any:
    """Draw a result; return the axes."""
    return named(result._picture)(result, *args, **options)


def show(result: SummaryMixin, form: str, **options: Any) -> Summary:
    """Build the summary of a result in one of the `FORMS`."""
    if check_form(form) == "full":
        return summarise(result, **options)
    return result._brief(**options)


def check_form(form: Any) -> str:
    """Return the form of a summary, or say what it can be."""
    if isinstance(form, str) and form in FORMS:
        return form
    if isinstance(form, int | float):
        told = f"; write summary(conf_level={form})"
    else:
        told = nearest(form, FORMS)
    raise OptionError(f'summary must be "full" or "short", got {quoted(form)}{told}')
