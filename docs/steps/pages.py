"""Markdown that is written elsewhere in the repository, as pages of the site.

The sources link to each other as files, so that they work where the code is hosted. Here those
links are pointed to the pages.
"""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from steps.formulas import typeset

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))
from harness import known  # noqa: E402
from report import made_by as made_by  # noqa: E402
from report import on_age  # noqa: E402

HOME = "docs/generated"
PAGES = {
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CHANGELOG.md": "changelog.md",
    "dpeffects/privacy/PROOFS.md": "proofs.md",
    "dpeffects/ledgers/PROOFS.md": "ledger_proofs.md",
    "dpeffects/replication/unproved/CLAIMS.md": "unproved_claims.md",
    "dpeffects/services/federation/app/README.md": "federation.md",
    "data/README.md": "data.md",
}
FRONT = {
    "README.md": "../index.md",
    "vignettes": "vignettes/index.rst",
    "docs/gallery": "gallery/index.rst",
}
_LINK = re.compile(r"(?<=\]\()([^()\s]+)(?=\))")


def texts() -> dict[str, str]:
    """Return the text of each page, by its name in docs/generated."""
    made = {}
    for source, page in _table().items():
        text = _read(source)
        if source.endswith(("PROOFS.md", "CLAIMS.md")):
            text = typeset(text)
        made[page] = relink(text, posixpath.dirname(source), posixpath.dirname(f"{HOME}/{page}"))
    return made


def _table() -> dict[str, str]:
    results = {path.stem for path in (ROOT / "benchmarks" / "results").glob("*.md")}
    made = sorted(results | {*known()})
    pages = {f"benchmarks/results/{name}.md": f"benchmarks/{name}.md" for name in made}
    return {**PAGES, **pages}


def _vignettes() -> dict[str, str]:
    found = (ROOT / "vignettes").glob("*.py")
    return {f"vignettes/{path.name}": f"vignettes/{path.stem}.rst" for path in found}


def _read(source: str) -> str:
    """Return the text of a source; a benchmark without results has a page that says so.

    So has one whose results are of earlier code.
    """
    path = ROOT / source
    if "benchmarks/results" not in source:
        return path.read_text(encoding="utf-8")
    if path.exists():
        text = path.read_text(encoding="utf-8")
        title, _, rest = text.partition("\n")
        age = on_age(text)
        return f"{title}\n\n```{{warning}}\n{age}\n```\n{rest}" if age else text
    script = f"benchmarks/{known()[path.stem]}.py"
    about = ast.get_docstring(ast.parse((ROOT / script).read_text(encoding="utf-8"))) or ""
    title, _, rest = about.partition("\n")
    run = f"make evidence TABLE={path.stem}"
    return f"# {title.rstrip('.')}\n\nNo results are on file: run `{run}`.\n{rest}\n"


def relink(text: str, folder: str, home: str) -> str:
    """Point links to files of the repository, seen from ``folder``, to pages seen from ``home``."""
    known = _table() | FRONT | _vignettes()

    def target(found: re.Match[str]) -> str:
        path, _, fragment = found[1].partition("#")
        full = posixpath.normpath(posixpath.join(folder, path))
        if not path or ":" in path or not (full in known or (ROOT / full).exists()):
            return found[1]
        page = f"{HOME}/{known[full]}" if full in known else full
        return posixpath.relpath(page, home) + (f"#{fragment}" if fragment else "")

    return _LINK.sub(target, text)


def relink_source(app: Any, name: str, content: list[str]) -> None:
    """Do the same for the pages in docs, when Sphinx reads them."""
    if not name.startswith("generated/") and app.env.doc2path(name).suffix == ".md":
        folder = posixpath.dirname(f"docs/{name}")
        if name == "guide/how_good":  # what is of earlier code by now
            from steps.how_good import sources

            content[0] = sources(content[0])
        content[0] = relink(content[0], folder, folder)
