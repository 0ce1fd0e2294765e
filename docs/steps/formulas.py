"""Formulas without a server: LaTeX becomes MathML, plain text gets its subscripts."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

_log = logging.getLogger(__name__)

_CODE = re.compile(r"(```.*?```|`[^`]*`)", re.DOTALL)
_SCRIPT = re.compile(r"(?<=[\w)\]|'])(_|\^)(\([^()]*\)|\{[^{}]*\}|-?\w+)")
_SIGNS = {"<=": "≤", ">=": "≥", "!=": "≠"}


def inline(translator: Any, node: nodes.math) -> None:
    """Write a formula in a line."""
    translator.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    """Write a formula on lines of its own; wide ones scroll."""
    translator.body.append(f'<div class="math">{_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def _mathml(node: nodes.Element, *, as_block: bool) -> str:
    """Convert LaTeX; what cannot be read is a warning, and stays as it is."""
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except (MathError, AttributeError, IndexError, KeyError, ValueError) as error:
        _log.warning("formula %r: %s", node.astext(), error, location=node)
        return f"<code>{escape(node.astext())}</code>"


def typeset(text: str) -> str:
    """Set formulas that are plain text in Markdown: ``v_i <= 2^(b+1)``; code stays as it is.

    Examples
    --------
    >>> typeset("v_i <= 2^(b+1), `a_b`")
    'v<sub>i</sub> ≤ 2<sup>b+1</sup>, `a_b`'
    """
    parts = _CODE.split(text)
    return "".join(part if i % 2 else _scripts(part) for i, part in enumerate(parts))


def _scripts(text: str) -> str:
    def script(found: re.Match[str]) -> str:
        tag = "sub" if found[1] == "_" else "sup"
        body = found[2]
        if body[0] in "({":
            body = body[1:-1]
        return f"<{tag}>{_scripts(body)}</{tag}>"

    for plain, sign in _SIGNS.items():
        text = text.replace(plain, sign)
    return _SCRIPT.sub(script, text)
