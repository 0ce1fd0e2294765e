"""What the papers say, claim by claim, with what was measured here and a verdict.

Statements are in ``claims.toml``; each paper has a module whose functions read the tables on file
and judge them. No number is typed: when a table is made anew, the page of verdicts follows. What
does not come back is read again (``tests/second_reading.py``): the row says what was tried.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from tabulate import tabulate

from dpeffects.errors import OptionError, did_you_mean
from dpeffects.lazy import pd
from dpeffects.replication.papers import paper_000, paper_001, paper_003, paper_004
from dpeffects.replication.papers.claim_checks import VERDICTS, ClaimCheck, rows
from dpeffects.replication.papers.stored_tables import table, table_names

_MAIN = {
    "comes back": "What comes back ({}), among it:",
    "does not": "What does not ({}), and why:",
    "cannot be checked": "What cannot be checked ({}), and why:",
}
_SHORT = 60
"""A reason that begins with a sentence this short has two."""
_JUDGES = {x.__name__[-3:]: x for x in (paper_000, paper_001, paper_003, paper_004)}
_VERSIONS = {"002": "003"}
"""What is judged by the functions of another version."""
_COLUMNS = ["where", "the paper", "measured here", "verdict", "why"]


@dataclass(frozen=True)
class Paper:
    """One of the texts: what to cite, and what it numbers."""

    key: str
    authors: str
    short: str
    title: str
    year: int
    venue: str
    doi: str
    vignette: str
    items: tuple[str, ...]
    about: str
    main: tuple[str, ...]
    instead: str

    @property
    def reference(self) -> str:
        """The entry of a list of references."""
        return f"{self.authors} ({self.year}). {self.title}. {self.venue}. doi:{self.doi}"


@dataclass(frozen=True)
class VerdictRow:
    """One row of the page of verdicts."""

    paper: str
    item: str
    place: str
    printed: str
    measured: str
    verdict: str
    why: str
    tried: tuple[str, ...] = ()

    @property
    def reasons(self) -> str:
        """Why the verdict is what it is, and what else was tried."""
        once = "Read once." if self.verdict == VERDICTS[False] else ""
        tried = f"Also tried: {'; '.join(self.tried)}." if self.tried else once
        return " ".join(filter(None, [self.why, tried]))

    def __post_init__(self) -> None:
        if self.verdict != VERDICTS[True] and not self.why:
            raise ValueError(f"a claim that does not come back needs a reason: {self.measured}")


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, and what judges it; ``claims.toml`` has them all, and the words."""

    judges: str
    item: str
    says: str
    judge: str
    given: Sequence[Any] = ()
    name: str = ""
    place: str = ""
    of: str = ""

    def found(self) -> ClaimCheck:
        """Judge it by the tables on file."""
        judge = rows if self.judge == "rows" else getattr(_JUDGES[self.judges], f"_{self.judge}")
        found: ClaimCheck = judge(*self.given)
        return found

    @property
    def names(self) -> list[str]:
        """What it is called in other files: alone and with what it judges."""
        name = self.name or self.judge
        return [name, *(f"{name}:{word}" for word in self.given)]

    @property
    def reason(self) -> str:
        """What ``verdicts.toml`` says of it."""
        own = _words("verdicts").get(f"paper_{self.judges}", {})
        return str(own.get(self.names[0], "")).format(**own)

    def readings(self) -> list[tuple[str, bool]]:
        """Other readings of it: what came out, and whether a plain one brings it back."""
        file, found = f"{self.judges}_readings", []
        if file in table_names():
            rows = table(file)
            here = rows["item"].isna() | rows["item"].eq(self.item)
            rows = rows[rows["claim"].isin(self.names) & here]
            said = rows["reading"] + ": " + rows["found"].astype(str)
            found = list(zip(said, rows["plain"] & rows["holds"], strict=True))
        argued = _words("tried").get(f"paper_{self.judges}", {})
        return found + [(said, False) for name in self.names for said in argued.get(name, ())]


def claims(key: str) -> list[Claim]:
    """Return the statements of a paper, in the order of its items."""
    judges = _VERSIONS.get(key, key)
    known = _words("claims")[f"paper_{judges}"]
    made = [Claim(judges, x, **own) for x in papers()[key].items for own in known.get(x, ())]
    return [claim for claim in made if claim.of in ("", key)]


@cache
def papers() -> dict[str, Paper]:
    """Return the five texts by their key."""
    return {
        key: Paper(key=key, **(entry | {x: tuple(entry[x]) for x in ("items", "main")}))
        for key, entry in _words("texts").items()
    }


@cache
def _words(file: str) -> dict[str, dict[str, Any]]:
    """A file of words beside this one, by module or paper."""
    return tomllib.loads(Path(__file__).with_name(f"{file}.toml").read_text(encoding="utf-8"))


def references(*keys: str) -> str:
    """Return the entries of some papers for a list of references, one line each."""
    return "\n".join(_known(key).reference for key in keys or papers())


def verdicts(paper: str = "") -> Verdicts:
    """Return each claim of a paper, or of all, beside what was measured here.

    Parameters
    ----------
    paper
        ``"000"`` private matching, ``"001"`` conditional effects, ``"002"`` and ``"003"`` many
        sites, ``"004"`` weighting; all by default.

    Returns
    -------
    Verdicts
        Prints as a table; ``to_frame()`` gives its rows, ``markdown()`` a page.

    Examples
    --------
    >>> set(verdicts("004").to_frame()["verdict"]) <= set(VERDICTS.values())
    True
    """
    chosen = [_known(paper).key] if paper else list(papers())
    return Verdicts(tuple(_row(key, claim) for key in chosen for claim in claims(key)))


def _known(key: str) -> Paper:
    if key not in papers():
        raise OptionError(f"unknown paper {key!r}.{did_you_mean(key, papers())}")
    return papers()[key]


def _row(key: str, claim: Claim) -> VerdictRow:
    """A claim as it was first judged, or as a plain reading brings it back."""
    first = claim.found()
    others = [] if first.holds else claim.readings()
    measured, verdict = first.measured, VERDICTS[first.holds]
    back = next((said for said, holds in others if holds), "")
    if back:
        measured, verdict = f"{measured}. Read again, {back}", VERDICTS[True]
    tried = tuple(said for said, _ in others if said != back)
    why, about = first.why or claim.reason, (claim.item, claim.place, claim.says)
    return VerdictRow(key, *about, measured, verdict, why, tried)


@dataclass(frozen=True)
class Verdicts:
    """Claims of the papers with what was measured here; ``print`` shows them as a table."""

    rows: tuple[VerdictRow, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each claim."""
        return pd.DataFrame([vars(row) for row in self.rows])

    def total(self) -> str:
        """Return how many claims come back, do not, and cannot be checked, as a sentence."""
        back, gone, unknown = (
            sum(row.verdict == name for row in self.rows) for name in VERDICTS.values()
        )
        return (
            f"{len(self.rows)} claims: {back} come back, {gone} do not, "
            f"{unknown} cannot be checked."
        )

    def opening(self) -> str:
        """Return a screen: what a paper is about, what comes back, what does not, and why."""
        paper = papers()[self.rows[0].paper]
        found = {f"{row.item}: {row.printed}": row for row in self.rows}
        parts = [paper.about, ""]
        for verdict, words in _MAIN.items():
            count = sum(row.verdict == verdict for row in self.rows)
            chosen = [x for x in paper.main if x in found and found[x].verdict == verdict]
            if chosen:
                parts += [words.format(f"{count} of {len(self.rows)} claims"), ""]
            for name in chosen:
                first, *more = found[name].why.rstrip(".").split(". ")
                why = ". ".join([first, *more[: len(first) < _SHORT]])
                parts.append(f"- {name}. {why}." if words.endswith("why:") else f"- {name}.")
            parts += [""] if chosen else []
        return "\n".join(_wrapped(part) for part in [*parts, f"Here: {paper.instead}"])

    def _cells(self) -> list[list[str]]:
        return [
            [
                f"{row.item} ({row.place})" if row.place else row.item,
                row.printed,
                row.measured,
                row.verdict,
                row.reasons,
            ]
            for row in self.rows
        ]

    def __str__(self) -> str:
        cells = [
            [where, printed, "\n\n".join(filter(None, [measured, why])), verdict]
            for where, printed, measured, verdict, why in self._cells()
        ]
        heads = ["where", "the paper", "measured here, and why", "verdict"]
        grid = tabulate(cells, heads, tablefmt="grid", maxcolwidths=[11, 30, 38, 9])
        return f"{grid}\n{self.total()}"

    def _repr_html_(self) -> str:
        return str(tabulate(self._cells(), _COLUMNS, tablefmt="html"))

    def markdown(self) -> str:
        """Return a page with one table for each paper."""
        parts = []
        for key, paper in papers().items():
            own = Verdicts(tuple(row for row in self.rows if row.paper == key))
            if own.rows:
                cells = [
                    [escape(c, quote=False).replace("|", "\\|") for c in r] for r in own._cells()
                ]
                parts += [
                    f"## {paper.short} (paper {key})",
                    f"{paper.reference}",
                    f"{len(paper.items)} items, {own.total()} "
                    f"The vignette is [{paper.vignette}](../vignettes/{paper.vignette}.py).",
                    own.opening(),
                    _markdown_table(cells),
                ]
        return "\n\n".join(parts) + "\n"


def _wrapped(line: str) -> str:
    return textwrap.fill(line, 96, subsequent_indent="  " * line.startswith("-"))


def _markdown_table(cells: list[list[str]]) -> str:
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in cells)])
