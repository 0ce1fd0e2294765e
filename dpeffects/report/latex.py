r"""A Summary as LaTeX with booktabs rules: every table fits the line, every name is escaped."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from dpeffects.errors import texts
from dpeffects.report.layout import clean, column_widths, fits, typeset
from dpeffects.summary import Block, Notes, Pairs, Renderer, Summary, Table

_LINE, _NARROW, _LONG = 84, 64, 36
"""Characters on a line of p columns, and of plain ones; lines of text that call for longtable."""
_WORD = 14
"""A word longer than this may be broken."""
_SYMBOLS = texts("dpeffects.report", "symbols.toml")
_GREEK = re.compile(r"GREEK (SMALL|CAPITAL) LETTER (\w+)")
_SMALL = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau"
_SMALL += " upsilon phi chi psi omega"
_CAPITAL = "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
_ACCENTS = dict(zip("\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308", "`'^~=u.\"", strict=True))
_ACCENTS |= dict(zip("\u030a\u030b\u030c\u0327", "rHvc", strict=True))
_PACKAGES = r"\usepackage{booktabs, array, longtable}"


def render_latex(summary: Summary, standalone: bool = False) -> str:
    """Render a summary as LaTeX, or as a document."""
    parts = [f"% needs {_PACKAGES}", r"{\footnotesize\setlength{\tabcolsep}{4pt}\raggedright"]
    parts.append(rf"\noindent{{\normalsize\bfseries {escaped(summary.title)}}}\par\smallskip")
    parts += [
        r"\noindent\fbox{\parbox{\dimexpr\linewidth-2\fboxsep-2\fboxrule\relax}{\raggedright"
        rf"\bfseries ! {escaped(line)}}}}}\par\smallskip"
        for line in summary.warnings
    ]
    parts += [_block(block) for block in summary.blocks]
    body = "\n".join([*parts, r"\par}"])
    if not standalone:
        return body
    return (
        "\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\usepackage[margin=1in]{geometry}\n"
        f"{_PACKAGES}\n\\begin{{document}}\n{body}\n\\end{{document}}\n"
    )


def escaped(text: str) -> str:
    """Escape a text; long words may break, without a hyphen."""
    words = (_word(word) for word in clean(text).split(" "))
    out = " ".join(words)
    return "{}" + out if out.startswith(("[", "*")) else out  # after \\ and \item these are options


def _word(word: str) -> str:
    if len(word) <= _WORD:
        return "".join(map(_character, word))
    pieces = re.findall(r"[^_./:+=,;|-]{1,14}[_./:+=,;|-]?|[_./:+=,;|-]", word)
    return r"\allowbreak{}".join("".join(map(_character, piece)) for piece in pieces)


def _character(char: str) -> str:
    if char in _SYMBOLS or char.isascii():
        return _SYMBOLS.get(char, char)
    parts = unicodedata.normalize("NFD", char)
    if len(parts) == 2 and parts[0].isascii() and parts[1] in _ACCENTS:
        return rf"\{_ACCENTS[parts[1]]}{{{parts[0]}}}"
    if greek := _GREEK.fullmatch(unicodedata.name(char, "")):
        name = greek[2].lower().replace("lamda", "lambda")
        name = name if greek[1] == "SMALL" else name.capitalize()
        if name in (_SMALL if greek[1] == "SMALL" else _CAPITAL).split():
            return rf"$\{name}$"
    return f"[U+{ord(char):04X}]"  # no engine and no font fails on it


def _block(block: Block) -> str:
    title = rf"\medskip\noindent\textbf{{{escaped(block.title)}}}" if block.title else r"\smallskip"
    title += r"\par\nopagebreak\smallskip"
    if isinstance(block, Table):
        return "\n".join([title, _table(block)])
    if isinstance(block, Pairs):
        table = Table("", ("", ""), block.rows, "ll")
        return "\n".join([title, _table(table)]) if block.rows else ""
    if isinstance(block, Notes):
        items = (rf"\item {escaped(item)}" for item in block.items)
        margins = r"\setlength{\itemsep}{0pt}\setlength{\parskip}{0pt}"
        return "\n".join([title, rf"\begin{{itemize}}{margins}", *items, r"\end{itemize}"])
    return "\n".join([title, rf"\noindent {escaped(block.text)}\par"])


def _table(table: Table) -> str:
    narrow = fits(table, _NARROW)
    widths = column_widths(table, _LINE)
    total = sum(w + 2 for w in widths)
    columns = zip(table.align, [(w + 2) / total for w in widths], strict=True)
    spec = table.align if narrow else "".join(_column(side, share) for side, share in columns)
    lines = [_lines(row, widths) for row in table.rows]
    begin, repeat, end = r"\noindent\begin{tabular}", [], r"\end{tabular}\par"
    if sum(lines) > _LONG:
        begin, repeat, end = r"\begin{longtable}[l]", [r"\endhead"], r"\end{longtable}"
    heads = [_row(table.columns), r"\midrule"] if any(table.columns) else []
    rows = [_row(row) for row in table.rows]
    if table.total and rows:
        rows.insert(-1, r"\midrule")
    opening = f"{begin}{{@{{}}{spec}@{{}}}}"
    return "\n".join([opening, r"\toprule", *heads, *repeat, *rows, r"\bottomrule", end])


def _column(side: str, share: float) -> str:
    ragged = "raggedright" if side == "l" else "raggedleft"
    width = rf"\dimexpr {share:.4f}\linewidth-2\tabcolsep\relax"
    return rf">{{\{ragged}\arraybackslash}}p{{{width}}}"


def _lines(row: Sequence[str], widths: Sequence[int]) -> int:
    return max(-(-len(cell) // max(w, 1)) or 1 for cell, w in zip(row, widths, strict=True))


def _row(cells: Sequence[str]) -> str:
    return " & ".join(escaped(typeset(cell)) for cell in cells) + r" \\"


FORMAT = Renderer(render_latex, escaped, ".tex", render_latex)
