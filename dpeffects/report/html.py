"""A Summary as HTML: one element with its own style, or a whole page. Nothing is loaded."""

from __future__ import annotations

from functools import partial
from html import escape
from importlib.resources import files

from dpeffects.report.layout import clean, typeset
from dpeffects.summary import Block, Notes, Pairs, Renderer, Summary, Table

# Colours come from the notebook or the browser, so that light and dark themes both work; lines are
# a grey that shows on either.
_STYLE, _PAGE = (
    files("dpeffects.report").joinpath(name).read_text(encoding="utf-8").strip()
    for name in ("summary.css", "page.css")
)
_LONG = 20
"""A cell with more characters than this may be wrapped."""


def render_html(summary: Summary, standalone: bool = False) -> str:
    """Render a summary as an HTML element, or as a page."""
    big, small = ("h1", "h2") if standalone else ("h3", "h4")
    parts = [f"<{big}>{_escaped(summary.title)}</{big}>"]
    parts += [
        f'<p class="dpe-warning" role="alert">&#9888; {_escaped(line)}</p>'
        for line in summary.warnings
    ]
    parts += [_block(block, small) for block in summary.blocks]
    body = "\n".join(parts)
    if not standalone:
        return f'<div class="dpeffects">\n<style>\n{_STYLE}\n</style>\n{body}\n</div>'
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escaped(summary.title)}</title>\n<style>\n{_PAGE}\n{_STYLE}\n</style>\n</head>\n"
        f'<body>\n<main class="dpeffects">\n{body}\n</main>\n</body>\n</html>\n'
    )


def _escaped(text: str) -> str:
    return escape(clean(text))


def _block(block: Block, heading: str) -> str:
    if isinstance(block, Table):
        return _table(block)
    title = f"<{heading}>{_escaped(block.title)}</{heading}>\n" if block.title else ""
    if isinstance(block, Pairs):
        rows = (f"<dt>{_escaped(name)}</dt><dd>{_escaped(text)}</dd>" for name, text in block.rows)
        return title + "<dl>\n" + "\n".join(rows) + "\n</dl>"
    if isinstance(block, Notes):
        items = (f"<li>{_escaped(item)}</li>" for item in block.items)
        return title + "<ul>\n" + "\n".join(items) + "\n</ul>"
    return title + _paragraph(block.text)


def _paragraph(text: str) -> str:
    return f"<p>{_escaped(text)}</p>"


def _table(table: Table) -> str:
    rows = [_row(row, table.align) for row in table.rows]
    last = rows.pop() if table.total and rows else ""
    heads = "".join(
        f'<th scope="col"{_class(head, side)}>{_escaped(head)}</th>' if head else "<td></td>"
        for head, side in zip(table.columns, table.align, strict=True)
    )
    return "\n".join(
        [
            '<div class="dpe-scroll" tabindex="0">\n<table>',
            f"<caption>{_escaped(table.title)}</caption>" if table.title else "",
            f"<thead><tr>{heads}</tr></thead>\n<tbody>",
            *rows,
            "</tbody>",
            f"<tfoot>{last}</tfoot>" if last else "",
            "</table>\n</div>",
        ]
    )


def _row(row: tuple[str, ...], align: str) -> str:
    first, *rest = (
        f"{_class(cell, side)}>{escape(typeset(cell))}"
        for cell, side in zip(row, align, strict=True)
    )
    return f'<tr><th scope="row"{first}</th>' + "".join(f"<td{x}</td>" for x in rest) + "</tr>"


def _class(cell: str, side: str) -> str:
    names = ["dpe-number"] * (side == "r") + ["dpe-long"] * (len(cell) > _LONG)
    return f' class="{" ".join(names)}"' if names else ""


FORMAT = Renderer(render_html, _paragraph, ".html", partial(render_html, standalone=True))
