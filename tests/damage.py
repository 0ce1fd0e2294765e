"""Ledgers on a damaged disk: copies of a file with bytes, pages or its end changed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from dpeffects.errors import LedgerError
from dpeffects.ledgers import create_ledger, open_ledger
from dpeffects.privacy.budget import Budget
from tests.killing import TERMS, a_charge

PAGE = 4096


def make_ledger(path: Path) -> None:
    """A ledger of several pages, with two datasets, calls, and a call that is open."""
    first = create_ledger(path, "nsw", epsilon=100.0)
    second = create_ledger(path, "ihdp", epsilon=100.0)
    for number in range(12):
        room = first.reserve(Budget(0.5), TERMS, {"method": "m" * 40})
        room.charge(a_charge(f"a{number}", 0.25), TERMS)
        second.charge(a_charge(f"b{number}", 0.25), TERMS)
        room.settle() if number < 11 else None


def totals(path: Path, create: bool = False) -> list[Any]:
    """What a ledger says of its datasets, before and after a charge to a copy of it."""
    if create:
        make_ledger(path)
    found = []
    work = path.with_suffix(".work")
    shutil.copy(path, work)
    Path(f"{work}.seen").unlink(missing_ok=True)  # the mark of the copy before
    for name in ("nsw", "ihdp"):
        ledger = open_ledger(work, name)
        calls = tuple((call.number, call.epsilon) for call in ledger.open_calls())
        found += [ledger.spent, ledger.remaining, ledger.charges, calls]
    for name in ("nsw", "ihdp"):
        ledger = open_ledger(work, name)
        ledger.charge(a_charge("c", 0.125), TERMS)
        again = open_ledger(work, name)
        assert again.spent[0] >= found[0 if name == "nsw" else 4][0] + Fraction(1, 8)
        found += [again.spent, again.remaining]
    return found


def damaged_copies(path: Path, cases: int, chance: Random) -> Iterator[Path]:
    """Damage a copy in one of several ways, many times."""
    whole = path.read_bytes()
    target = path.with_name("damaged.db")
    for _ in range(cases):
        content = bytearray(whole)
        kind = chance.choice(["bit", "byte", "bytes", "header", "zero", "copy", "end", "text"])
        at = chance.randrange(len(content))
        page = at // PAGE * PAGE
        if kind == "bit":
            content[at] ^= 1 << chance.randrange(8)
        elif kind == "byte":
            content[at] = chance.randrange(256)
        elif kind == "bytes":
            content[at : at + 16] = chance.randbytes(min(16, len(content) - at))
        elif kind == "header":  # of a page: its type, free space and number of rows
            content[page + chance.randrange(12)] = chance.randrange(256)
        elif kind == "zero":
            content[page : page + PAGE] = bytes(PAGE)
        elif kind == "copy":  # a page that was written in the place of another
            other = chance.randrange(len(content) // PAGE) * PAGE
            content[page : page + PAGE] = whole[other : other + PAGE]
        elif kind == "end":
            del content[page:]
        else:  # schema: the first page
            content[100 + chance.randrange(PAGE - 100)] = chance.randrange(256)
        target.write_bytes(bytes(content))
        yield target


def count(path: Path, cases: int, seed: int = 0) -> dict[str, int]:
    """Count what comes of damage; whatever is neither noticed nor right is an error."""
    right, found = (
        totals(path, create=True),
        {"noticed": 0, "no matter": 0, "forgotten": 0, "other": 0},
    )
    for copy in damaged_copies(path, cases, Random(seed)):
        try:
            outcome = "no matter" if totals(copy) == right else "forgotten"
        except LedgerError:
            outcome = "noticed"
        except Exception as error:
            print(repr(error), flush=True)
            outcome = "other"
        found[outcome] += 1
    return found
