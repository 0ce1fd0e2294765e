"""A Summary as a Word file (python-docx, extra "word"): tables of three lines, titles and notes."""

from __future__ import annotations

from importlib.util import find_spec
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

from dpeffects import file_output
from dpeffects.errors import MissingExtraError, OptionError
from dpeffects.report.layout import clean, column_widths, fits, typeset
from dpeffects.summary import Block, Notes, Pairs, Summary, Table

ENDING = ".docx"
_SIZE, _WIDE = 8.5, 108
"""Points of letters in tables, and characters of a table beyond which pages are turned."""
_LINE = 96


def write_word(summary: Summary, path: str | PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a summary to a Word file; refuse other endings, and without python-docx."""
    target = word_file(path)
    return file_output.write(target, render_word(summary), overwrite=overwrite is True)


def word_file(path: str | PathLike[str]) -> Path:
    """Return the path of a Word file that can be made, or refuse it."""
    if not isinstance(path, str | PathLike) or Path(path).suffix.lower() != ENDING:
        raise OptionError(f'a Word file needs a name such as "study{ENDING}", got {path!r}')
    if find_spec("docx") is None:
        raise MissingExtraError('Word files need python-docx: pip install "dpeffects[word]"')
    return Path(path)


def render_word(summary: Summary) -> bytes:
    """The content of a Word file."""
    from docx import Document
    from docx.shared import Pt

    document: Any = Document()
    document.core_properties.title = clean(summary.title)[:255]
    document.core_properties.author = ""
    document.core_properties.comments = ""
    document.styles["Normal"].font.size = Pt(10)
    _pages(document, summary)
    document.add_heading(clean(summary.title), level=1)
    for line in summary.warnings:
        document.add_paragraph().add_run(f"\u26a0 {clean(line)}").bold = True
    for block in summary.blocks:
        _block(document, block)
    content = BytesIO()
    document.save(content)
    return content.getvalue()


def _pages(document: Any, summary: Summary) -> None:
    """A4 or letter as the template has it, turned where a table is wide; margins of 2 cm."""
    from docx.enum.section import WD_ORIENT
    from docx.shared import Cm

    section = document.sections[0]
    tables = [block for block in summary.blocks if isinstance(block, Table)]
    if not all(fits(table, _WIDE) for table in tables):
        section.orientation = WD_ORIENT.LANDSCAPE
        section.page_width, section.page_height = section.page_height, section.page_width
    section.left_margin = section.right_margin = Cm(2)


def _block(document: Any, block: Block) -> None:
    if block.title:
        paragraph = document.add_paragraph()
        paragraph.paragraph_format.keep_with_next = True
        paragraph.paragraph_format.space_before = document.styles["Normal"].font.size
        paragraph.add_run(clean(block.title)).bold = True
    if isinstance(block, Table):
        _table(document, block)
    elif isinstance(block, Pairs):
        _table(document, Table("", ("", ""), block.rows, "ll"), ruled=False)
    elif isinstance(block, Notes):
        for item in block.items:
            document.add_paragraph(clean(item), style="List Bullet")
    else:
        document.add_paragraph(clean(block.text))


def _table(document: Any, table: Table, ruled: bool = True) -> None:
    """A table of Word: a line above, one below the heads, one at the end."""
    heads = [table.columns] if any(table.columns) else []
    rows = [*heads, *table.rows]
    if not rows:
        return
    section = document.sections[0]
    room = section.page_width - section.left_margin - section.right_margin
    widths = column_widths(table, _LINE)
    made = document.add_table(len(rows), len(table.columns))
    made.autofit = False
    shares = [w + 2 for w in widths]
    for i, row in enumerate(rows):
        line = made.rows[i]
        for name in ("cantSplit", "tblHeader") if heads and i == 0 else ("cantSplit",):
            line._tr.get_or_add_trPr().append(_element(name))
        for j, text in enumerate(row):
            cell = line.cells[j]
            cell.width = int(room * shares[j] / sum(shares))
            _write(cell, text, table.align[j], bold=not ruled and j == 0)
    if ruled:
        last = len(rows) - 1
        lines = {0: (12, 6 if heads else 0)}
        lines[last] = (6 if table.total else 12 if last == 0 else 0, 12)
        for i, (top, bottom) in lines.items():
            _rule(made.rows[i], top=top, bottom=bottom)
    document.add_paragraph().paragraph_format.space_after = 0


def _write(cell: Any, text: str, side: str, bold: bool) -> None:
    from docx.enum.text import WD_ALIGN_PARAGRAPH
    from docx.shared import Pt

    paragraph = cell.paragraphs[0]
    paragraph.paragraph_format.space_after = Pt(1)
    right = side == "r"
    paragraph.alignment = WD_ALIGN_PARAGRAPH.RIGHT if right else WD_ALIGN_PARAGRAPH.LEFT
    run = paragraph.add_run(typeset(text))
    run.font.size, run.bold = Pt(_SIZE), bold


def _rule(row: Any, *, top: int = 0, bottom: int = 0) -> None:
    """Lines above and below all cells of a row, in eighths of a point."""
    for cell in row.cells:
        properties = cell._tc.get_or_add_tcPr()
        borders = _element("tcBorders")
        for side, size in (("top", top), ("bottom", bottom)):
            if size:
                borders.append(
                    _element(side, val="single", sz=str(size), space="0", color="000000")
                )
        properties.append(borders)


def _element(name: str, **attributes: str) -> Any:
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    return OxmlElement(f"w:{name}", {qn(f"w:{key}"): x for key, x in attributes.items()})
