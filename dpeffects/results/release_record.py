"""The release record: one page for a review board with everything public, and its JSON twin."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpeffects import documents, writing
from dpeffects.claims import titles
from dpeffects.errors import OptionError
from dpeffects.privacy.guarantee import Guarantee, Spend
from dpeffects.render import Block, Pairs, Prose, Summary, Table
from dpeffects.results.numbers import joined, number, text_of
from dpeffects.results.report import versions

if TYPE_CHECKING:
    from dpeffects.results.record import Bound

FORMAT = "dpeffects release record"
ASK, MET, NOT_MET = "for the board", "met", "NOT MET"


@dataclass(frozen=True)
class Part:
    """One guarantee and what was paid for it: a whole result, or one site of a combination."""

    site: str
    guarantee: Guarantee
    spends: tuple[Spend, ...]
    bounds: tuple[Bound, ...]
    caution: str
    epsilon_asked: float | None = None
    noise_source: str = ""


@dataclass(frozen=True)
class Page:
    """What a release record is written from."""

    summary: Summary
    paragraph: str
    parts: tuple[Part, ...]
    options: Mapping[str, Any]
    result: Mapping[str, Any]


def write(page: Page, path: str | PathLike[str], overwrite: bool) -> Path:
    """Write the page and, beside it, its twin; return the path of the page."""
    target = _target(path, overwrite)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    twin = (_twin(page, now) + "\n").encode("utf-8")
    file = target.with_suffix(".json")
    html = _page(page, now, file.name, hashlib.sha256(twin).hexdigest()).as_html(standalone=True)
    writing.write(file, twin, overwrite=overwrite is True)
    writing.write(target, html, overwrite=overwrite is True)
    return target


def _target(path: str | PathLike[str], overwrite: bool) -> Path:
    if not isinstance(path, str | PathLike):
        raise OptionError(f'the record needs a path such as "record.html", got {path!r}')
    target = Path(path)
    if target.suffix.lower() != ".html":
        raise OptionError(
            f"a release record is an .html file (its .json twin is written beside it): write "
            f'"{target.with_suffix(".html").name or "record.html"}", not {str(target)!r}'
        )
    for file in (target, twin_of(target)):
        writing.check(file, overwrite=overwrite is True)
    return target


def twin_of(target: Path) -> Path:
    """Return where the JSON of a record goes; a file that is something else stays as it is."""
    twin = target.with_suffix(".json")
    if os.path.exists(twin) and not documents.holds(twin, "format", FORMAT):
        raise OptionError(f"{twin} is not the JSON of a record; give the record another name")
    return twin


def checklist(parts: Sequence[Part]) -> list[tuple[str, str, str]]:
    """Answer the questions of docs/review_board.md: title, answer, and whether it is met."""
    return [
        _status(parts),
        _price(parts),
        ("Unit", _each(parts, lambda p: _unit(p.guarantee)), ASK),
        ("Public", _each(parts, lambda p: ", ".join(p.guarantee.public) or "nothing"), ASK),
        _bounds_check(parts),
        _noise(parts),
        ("The ledger", "A result does not know what else was released: see the ledger.", ASK),
        ("One person, one record", "Not known from a result; if not, multiply epsilon.", ASK),
        ("Cautions", _each(parts, lambda p: p.caution or "none"), "accuracy, not privacy"),
    ]


def _each(parts: Sequence[Part], say: Any) -> str:
    """Say it once if all parts agree, else by site."""
    said: dict[str, list[str]] = {}
    for part in parts:
        said.setdefault(say(part), []).append(part.site)
    if len(said) == 1:
        return next(iter(said))
    return "; ".join(f"{', '.join(sites)}: {text}" for text, sites in said.items())


def _status(parts: Sequence[Part]) -> tuple[str, str, str]:
    holds = all(part.guarantee.holds for part in parts)
    return "Status", _each(parts, lambda p: p.guarantee.status), MET if holds else NOT_MET


def _price(parts: Sequence[Part]) -> tuple[str, str, str]:
    def words(part: Part) -> str:
        epsilon, delta = (sum(getattr(s, x) for s in part.spends) for x in ("epsilon", "delta"))
        charges = sum(not s.covered for s in part.spends)
        asked = "" if part.epsilon_asked is None else f" of epsilon = {number(part.epsilon_asked)}"
        return (
            f"epsilon = {number(part.guarantee.epsilon)}, delta = {number(part.guarantee.delta)}; "
            f"{charges} charges sum to ({number(epsilon)}, {number(delta)}){asked}"
        )

    within = all(
        sum(s.epsilon for s in part.spends) <= part.guarantee.epsilon * (1 + 1e-9)
        and sum(s.delta for s in part.spends) <= part.guarantee.delta * (1 + 1e-9)
        for part in parts
    )
    return "Epsilon and delta", _each(parts, words), ASK if within else NOT_MET


def _unit(guarantee: Guarantee) -> str:
    if guarantee.unit == "record":
        return "record: everything in one record is protected, but for what is public"
    if guarantee.unit == "nothing":
        return "nothing is protected"
    return f"{guarantee.unit}: only that is protected; covariates and treatment count as public"


def _bounds_check(parts: Sequence[Part]) -> tuple[str, str, str]:
    sources = dict.fromkeys(source for part in parts for _, _, source in part.bounds)
    counts = {s: sum(b[2] == s for part in parts for b in part.bounds) for s in sources}
    text = ", ".join(f"{count} {source}" for source, count in counts.items()) or "none"
    return "Bounds", text, NOT_MET if "data" in counts else ASK if "declared" in counts else MET


def _noise(parts: Sequence[Part]) -> tuple[str, str, str]:
    from dpeffects.privacy.noise import SecureNoise

    known = {part.noise_source for part in parts}
    text = _each(parts, lambda p: p.noise_source or "not part of a site's release")
    if known == {SecureNoise.description}:
        return "Noise", text, MET
    return "Noise", text, ASK if known == {""} else NOT_MET


def _twin(page: Page, now: str) -> str:
    claims = {str(s.claim): titles()[s.claim] for part in page.parts for s in part.spends}
    found = {
        "format": FORMAT,
        "version": 1,
        "written": now,
        "software": versions(),
        "report": page.paragraph,
        "checklist": [
            dict(zip(("check", "answer", "verdict"), row, strict=True))
            for row in checklist(page.parts)
        ],
        "claims": claims,
        "result": page.result,
    }
    return json.dumps(found, indent=2, allow_nan=False, ensure_ascii=False)


def _page(page: Page, now: str, twin: str, digest: str) -> Summary:
    options = tuple((str(name), text_of(x)) for name, x in page.options.items() if x is not None)
    columns = ("check", "this release", "verdict")
    blocks: list[Block] = [
        Prose(page.paragraph, "Methods and results"),
        Table("Checklist (docs/review_board.md)", columns, tuple(checklist(page.parts)), "lll"),
        *page.summary.blocks,
        _charges(page.parts),
        _bounds(page.parts),
        *((Pairs(options, "Options"),) if options else ()),
        Pairs((*versions().items(), ("Written", now)), "Versions"),
        Pairs((("File", twin), ("SHA-256", digest)), "The same for machines"),
    ]
    title = f"Release record. {page.summary.title}"
    return Summary(title, page.summary.alert, tuple(blocks))


def _charges(parts: Sequence[Part]) -> Table:
    rows = tuple(
        (
            part.site,
            s.label,
            s.share,
            s.mechanism,
            _all(s.sensitivity),
            _all(s.scale),
            "covered" if s.covered else number(s.epsilon),
            "covered" if s.covered else number(s.delta),
            f"{s.claim}. {titles()[s.claim]}",
        )
        for part in parts
        for s in part.spends
    )
    columns = ("site", "release", "share", "mechanism", "sensitivity", "scale", "epsilon", "delta")
    title = "All charges, with the claim behind each (dpeffects/privacy/PROOFS.md)"
    return _without_site(Table(title, (*columns, "claim"), rows, "llllrrrrl"))


def _bounds(parts: Sequence[Part]) -> Table:
    rows = tuple((part.site, *bound) for part in parts for bound in part.bounds)
    return _without_site(Table("All bounds", ("site", "column", "bounds", "source"), rows, "llll"))


def _without_site(table: Table) -> Table:
    if any(row[0] for row in table.rows):
        return table
    rows = tuple(row[1:] for row in table.rows)
    return Table(table.title, table.columns[1:], rows, table.align[1:])


def _all(values: Sequence[float]) -> str:
    return joined(values) if len(set(values)) <= 1 else ", ".join(map(number, values))
