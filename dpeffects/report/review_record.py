"""report(): a paragraph for a paper, or the release record for a review board.

The record is one page with everything public, and its JSON twin.

The numbered claims of privacy/PROOFS.md, by title, for those who read a result.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from os import PathLike
from pathlib import Path

from dpeffects import documents, file_output, summary
from dpeffects.errors import OptionError, refusal
from dpeffects.guarantee import Guarantee, column_of, protected
from dpeffects.privacy.noise import SecureNoise
from dpeffects.report.paragraph import versions
from dpeffects.report.word import ENDING, word_file
from dpeffects.results.number_format import joined, number
from dpeffects.results.result_base import Payment, ResultBase

FORMAT = "dpeffects release record"
ASK, MET, NOT_MET = "for the board", "met", "NOT MET"
Check = tuple[str, str, str]
"""A question of docs/review_board.md, its answer, and whether it is met."""


def write_about(
    fit: ResultBase, path: str | PathLike[str] | None, conf_level: float, overwrite: bool
) -> summary.Report | Path:
    """Return the paragraph about a result, or write its record for a review board to a path."""
    paragraph = summary.named(f"{fit._words}.described")(fit, conf_level)
    if path is None:
        return summary.Report(paragraph)
    target = _target(path)
    parts = fit._paid
    now = datetime.now(UTC).isoformat(timespec="seconds")
    document = {
        "format": FORMAT,
        "version": 1,
        "written": now,
        "software": versions(),
        "report": paragraph,
        "checklist": [
            dict(zip(("check", "answer", "verdict"), row, strict=True)) for row in checklist(parts)
        ],
        "claims": {str(s.claim): title_of(s.claim) for part in parts for s in part.charges},
        "result": fit.to_dict(conf_level),
    }
    twin = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    file = twin_of(target)
    earlier = _same_record(file, twin)
    for name, again in ((target, overwrite), (file, overwrite or bool(earlier))):
        file_output.check(name, overwrite=again is True)
    twin = earlier or twin
    about = {"File": file.name, "SHA-256": hashlib.sha256(twin.encode()).hexdigest()}
    page = _page(parts, summary.summarise(fit, conf_level=conf_level), paragraph, now, about)
    if not earlier:
        file_output.write(file, twin.encode(), overwrite=overwrite is True)
    if target.suffix.lower() == ENDING:
        return page.as_docx(target, overwrite=overwrite)
    text = _formats()[target.suffix.lower()].document(page)
    return file_output.write(target, text, overwrite=overwrite is True)


def _formats() -> dict[str, summary.Renderer]:
    return {known.ending: known for known in map(summary.renderer, summary.FORMATS)}


def _page(
    parts: Sequence[Payment],
    whole: summary.Summary,
    paragraph: str,
    now: str,
    twin: dict[str, str],
) -> summary.Summary:
    columns = ("check", "this release", "verdict")
    blocks = (
        summary.Prose(paragraph, "Methods and results"),
        summary.Table("Checklist (docs/review_board.md)", columns, tuple(checklist(parts)), "lll"),
        *whole.blocks,
        _charges(parts),
        _bounds(parts),
        summary.Pairs((*versions().items(), ("Written", now)), "Versions"),
        summary.Pairs(tuple(twin.items()), "The same for machines"),
    )
    return summary.Summary(f"Release record. {whole.title}", whole.starred_warnings, blocks)


def _target(path: str | PathLike[str]) -> Path:
    if not isinstance(path, str | PathLike):
        raise OptionError(f'the record needs a path such as "record.html", got {path!r}')
    target = Path(path)
    if target.suffix.lower() == ENDING:
        word_file(target)
    elif target.suffix.lower() not in _formats():
        known, example = ", ".join((*_formats(), ENDING)), target.with_suffix(".html").name
        facts = {"example": example or "record.html", "path": str(target)}
        raise OptionError(refusal("record_file", endings=known, **facts))
    return target


def _same_record(file: Path, twin: str) -> str:
    """The text of an earlier record of the same result, which pages of two formats can share."""
    if not os.path.exists(file):
        return ""
    text = documents.read(file)
    one, other = (documents.parse_json(x) | {"written": ""} for x in (text, twin))
    return text.decode() if one == other else ""


def twin_of(target: Path) -> Path:
    """Return where the JSON of a record goes; a file that is something else stays as it is."""
    twin = target.with_suffix(".json")
    if os.path.exists(twin) and not documents.holds(twin, FORMAT):
        raise OptionError(f"{twin} is not the JSON of a record; give the record another name")
    return twin


def checklist(parts: Sequence[Payment]) -> list[Check]:
    """Answer the questions of docs/review_board.md."""
    holds = all(part.guarantee.holds for part in parts)
    return [
        ("Status", _each(parts, lambda p: p.guarantee.status), MET if holds else NOT_MET),
        ("Epsilon and delta", _each(parts, _price), ASK if all(map(_within, parts)) else NOT_MET),
        ("Unit", _each(parts, lambda p: _unit(p.guarantee)), ASK),
        ("Public", _each(parts, lambda p: ", ".join(p.guarantee.public) or "nothing"), ASK),
        _bounds_check(parts),
        _noise(parts),
        ("The ledger", _each(parts, _ledger), ASK),
        _person(parts),
        (
            "Warnings",
            _each(parts, lambda p: p.estimate_warnings or "none"),
            "accuracy, not privacy",
        ),
    ]


def _each(parts: Sequence[Payment], say: Callable[[Payment], str]) -> str:
    """Say it once if all parts agree, else by site."""
    said: dict[str, list[str]] = {}
    for part in parts:
        said.setdefault(say(part), []).append(part.site)
    if len(said) == 1:
        return next(iter(said))
    return "; ".join(f"{', '.join(sites)}: {text}" for text, sites in said.items())


def _ledger(part: Payment) -> str:
    paid = f"Paid by its allotment {part.allotment}. " if part.allotment else ""
    return f"{paid}A result does not know what else was released: see the ledger."


def _total(part: Payment) -> tuple[float, float]:
    return sum(s.epsilon for s in part.charges), sum(s.delta for s in part.charges)


def _price(part: Payment) -> str:
    charges = sum(not s.covered for s in part.charges)
    asked = part.epsilon_requested
    of = "" if asked is None else f" of epsilon = {number(asked)}"
    return (
        f"epsilon = {number(part.guarantee.epsilon)}, delta = {number(part.guarantee.delta)}; "
        f"{charges} charges sum to ({', '.join(map(number, _total(part)))}){of}"
        + (f"; {weak}" if (weak := part.guarantee.warnings(part.n)) else "")
    )


def _within(part: Payment) -> bool:
    """Tell whether charges sum to no more than what is promised."""
    epsilon, delta = (spent / (1 + 1e-9) for spent in _total(part))
    return epsilon <= part.guarantee.epsilon and delta <= part.guarantee.delta


def _unit(guarantee: Guarantee) -> str:
    if guarantee.unit == "record":
        return "record: everything in one record is protected, but for what is public"
    if guarantee.unit == "nothing":
        return "nothing is protected"
    if column_of(guarantee.unit):
        return f"{guarantee.unit}: {protected(guarantee.unit)}, is protected"
    return f"{guarantee.unit}: only that is protected; covariates and treatment count as public"


def _person(parts: Sequence[Payment]) -> Check:
    columns = dict.fromkeys(filter(None, (column_of(part.guarantee.unit) for part in parts)))
    if not columns:
        return "One person, one record", "Not known from a result; if not, multiply epsilon.", ASK
    names = ", ".join(columns)
    text = f"Not known from a result: has each person one value of {names}? If not, multiply."
    return "One person, one unit", text, ASK


def _bounds_check(parts: Sequence[Payment]) -> Check:
    counts = Counter(source for part in parts for _, _, source in part.bounds)
    text = ", ".join(f"{count} {source}" for source, count in counts.items()) or "none"
    return "Bounds", text, NOT_MET if "data" in counts else ASK if "declared" in counts else MET


def _noise(parts: Sequence[Payment]) -> Check:
    sources = {part.noise_source for part in parts}
    text = "; ".join(sources) or "not part of a site's release"
    if sources == {SecureNoise.description}:
        return "Noise", text, MET
    return "Noise", text, ASK if sources == {""} else NOT_MET


def _charges(parts: Sequence[Payment]) -> summary.Table:
    rows = []
    for site, s in [(part.site, charge) for part in parts for charge in part.charges]:
        sizes = _all(s.sensitivity), _all(s.scale)
        price = ("covered",) * 2 if s.covered else (number(s.epsilon), number(s.delta))
        claim = f"{s.claim}. {title_of(s.claim)}"
        rows.append((site, s.label, s.share, s.mechanism, *sizes, *price, claim))
    columns = ("site", "release", "share", "mechanism", "sensitivity", "scale", "epsilon", "delta")
    title = "All charges, with the claim behind each (dpeffects/privacy/PROOFS.md)"
    return _without_site(summary.Table(title, (*columns, "claim"), tuple(rows), "llllrrrrl"))


def _bounds(parts: Sequence[Payment]) -> summary.Table:
    rows = tuple((part.site, *bound) for part in parts for bound in part.bounds)
    return _without_site(
        summary.Table("All bounds", ("site", "column", "bounds", "source"), rows, "llll")
    )


def _without_site(table: summary.Table) -> summary.Table:
    if any(row[0] for row in table.rows):
        return table
    rows = tuple(row[1:] for row in table.rows)
    return summary.Table(table.title, table.columns[1:], rows, table.align[1:])


def _all(values: Sequence[float]) -> str:
    return joined(values) if len(set(values)) <= 1 else ", ".join(map(number, values))


_HEADING = re.compile(r"^## Claim (\d+)\. (.+)$", re.MULTILINE)


@cache
def titles() -> dict[int, str]:
    """Return the title of each claim, as it stands above its proof; 0 is for unproved releases.

    Examples
    --------
    >>> titles()[2], titles()[0]
    ('Discrete Laplace on integers', 'no proof here')
    """
    text = Path(__file__).parents[1].joinpath("privacy", "PROOFS.md").read_text(encoding="utf-8")
    proved = {int(number): title for number, title in _HEADING.findall(text)}
    return {0: "no proof here", **proved}


def title_of(claim: int) -> str:
    """Return the title of a claim; files of earlier versions may have numbers that are gone."""
    return titles().get(claim, "of an earlier numbering")
