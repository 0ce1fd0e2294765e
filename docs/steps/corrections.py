"""The corrections to the source papers as one page to cite: docs/corrections.md.

``python docs/steps/corrections.py`` writes it anew from ``corrections.toml`` and the verdicts.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from dpeffects.replication.papers import papers, references, verdicts

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "corrections.md"
_HEAD = """\
# Corrections to the source papers

dpeffects contributors. Version {version}, {date} (dpeffects {package}).

The methods of dpeffects come from four papers in five versions. In {count} places what is printed
is not private, not true, or more costly than it has to be. Each correction has the printed
statement, the right one, why, and what was measured. Nothing here says that a method is bad: most
hold once corrected, and the package has them so. *Measured* is the entry of
[the papers, claim by claim](replication.md), where everything that does come back stands as well;
[What we corrected in the papers](../vignettes/corrected.py) computes most of the examples anew in
seconds, and [the claims](../dpeffects/privacy/PROOFS.md) prove what the package does instead.

To cite this page:

> dpeffects contributors ({year}). Corrections to the source papers, version {version}. In
> *dpeffects: differentially private treatment effects* {package}. <{url}corrections.html>

The papers:
"""


def text() -> str:
    """Return the page."""
    release = dict(re.findall(r"^([\w-]+): (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M))
    given = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    entries, found = given.pop("correction"), verdicts().rows
    given |= {"year": given["date"][:4], "package": release["version"], "url": release["url"]}
    parts = [_HEAD.format(count=len(entries), **given)]
    parts += [*(f"- **{key}** {references(key)}" for key in papers()), ""]
    paper = ""
    for number, entry in enumerate(entries, 1):
        if entry["paper"] != paper:
            paper = entry["paper"]
            parts.append(f"## {papers()[paper].short} (paper {paper})\n")
        parts.append(f"### {number}. {entry['title']} ({entry['where']})\n")
        for word in ("printed", "right", "proof"):
            if word in entry:
                parts.append(f"*{word.capitalize()}.* {_plain(entry[word])}\n")
        for item, begins in entry["rows"]:
            (row,) = (
                row
                for row in found
                if (row.paper, row.item) == (paper, item) and row.printed.startswith(begins)
            )
            said = _plain(row.measured[:1].upper() + row.measured[1:])
            parts.append(f"*Measured* ({item}: {row.verdict}). {said}.\n")
    return "\n".join(parts)


def _plain(words: str) -> str:
    """Words without what Markdown would take for markup."""
    return words.replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
