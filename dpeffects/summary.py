"""Summary: titled blocks of text, built once, rendered in several ways.

Results hold no formats. What a release has to say is in methods of its class, which
`report.about_records` puts on a page. What draws it is a function that a class names,
``class Result(..., picture="report.plots.interval_plots.estimate")``, loaded when it is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpeffects.errors import OptionError, nearest, quoted

FORMS = ("full", "short")
"""How much a summary says."""
MOST_ROWS = 5
"""Rows of a table in a short summary."""
SHOWN, NAMED = 25, 8
"""Rows of a table in a full one, and names in a sentence or a header."""
NOISE = "noise"
"""What a cell says in the place of a number that is mostly noise."""
_ABOUT_NOISE = (
    "noise: not printed, as the standard deviation of its noise is above a third of the number (of "
    "a count, share, spread or ratio) or a twentieth of the range it could have. Half of these "
    "would be printed with about {} times the epsilon, or the records."
)
EVERYTHING, SHORT_OF = "Everything: fit.summary()", "Everything: summary()"
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


def starred(alerts: Iterable[str]) -> str:
    """Return the lines of an alert; empty ones are left out."""
    return "\n".join(f"*** {words} ***" for words in alerts if words)


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
    """What is shown: a name that it does not have is answered by the nearest that it has."""

    if not TYPE_CHECKING:  # it would let every name pass

        def __getattr__(self, name: str) -> Any:
            own = [] if name.startswith("_") else [x for x in dir(self) if x[0] != "_"]
            told = type(self)._elsewhere(name) or nearest(name, own)
            raise AttributeError(f"{type(self).__name__} has no {name}{told}")

    @classmethod
    def _elsewhere(cls, name: str) -> str:
        """What to write for a name that other packages have; empty where nobody knows."""
        return ""


@dataclass(frozen=True)
class Summary(Named):
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


def explained(summary: Summary) -> Summary:
    """Say what cells that are mostly noise mean, where there are any."""
    if not (ratios := sorted(noise_cells({"": summary}).values())):
        return summary
    own = _ABOUT_NOISE.format(math.ceil(min(ratios[len(ratios) // 2], 1e6)))
    blocks = list(summary.blocks)
    place = next((k for k, x in enumerate(blocks) if isinstance(x, Notes)), len(blocks))
    others = [item for x in blocks[place : place + 1] for item in x.items]  # type: ignore[union-attr]
    blocks[place : place + 1] = [Notes((own, *others))]
    return replace(summary, blocks=tuple(blocks))


@dataclass(frozen=True, repr=False)
class Report(Named):
    """A paragraph on methods and results: ``text`` is one line, printing wraps it.

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


class Shown(Named):
    """Whatever has a summary: it prints as text, and as HTML in a notebook.

    A class names the function of the package that draws it, ``picture``, and the module that has
    the ``words`` about it, where they are not in methods of its own.
    """

    _picture: ClassVar[str] = ""
    _words: ClassVar[str] = ""

    def __init_subclass__(cls, *, picture: str = "", words: str = "") -> None:
        super().__init_subclass__()
        cls._picture, cls._words = picture or cls._picture, words or cls._words

    def summary(self, form: str = "full") -> Summary:
        """Everything worth printing, as titled blocks; what matters most where ``form="short"``."""
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


def show(result: Shown, form: str, **options: Any) -> Summary:
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
    raise OptionError(f'summary takes "full" or "short", got {quoted(form)}{told}')
