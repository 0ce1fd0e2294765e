"""Build steps of the site: each writes pages to docs/generated, or teaches Sphinx one thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steps import command_line, formulas, outputs, pages, reference, search, which_method


def setup(app: Any) -> dict[str, bool]:
    """Register the steps with Sphinx."""
    app.add_html_math_renderer("mathml", (formulas.inline, None), (formulas.block, None))
    app.connect("config-inited", _generate, priority=100)
    app.connect("config-inited", outputs.refresh)
    app.connect("source-read", pages.relink_source)
    app.connect("source-read", outputs.show_source, priority=600)
    app.connect("source-read", search.index_source, priority=700)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _generate(app: Any, config: Any) -> None:
    made = Path(app.srcdir) / "generated"
    texts = {
        **pages.texts(),
        **reference.texts(),
        "command_line.md": command_line.text(),
        "which_method.md": which_method.text(),
    }
    for name, text in texts.items():
        write(made / name, text)


def write(path: Path, text: str) -> None:
    """Write a page only if it changed: Sphinx reads again what is newer than its cache."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
