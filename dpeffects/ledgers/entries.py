"""One line of a durable ledger: what happened, the totals after it, and a link to the line before.

Entries are only ever added. Each carries the totals of its dataset, the number of the newest entry
of every dataset, and a digest of itself and of its predecessor. So the newest entry says, under its
digest, where the newest totals are: an edit is noticed, and totals that are not the newest too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple, Self

from dpeffects.errors import LedgerError
from dpeffects.privacy.ledger import Terms

COLUMNS = (
    "number",
    "kind",
    "dataset",
    "call_number",
    "body",
    "state",
    "hold",
    "heads",
    "written",
    "previous",
    "digest",
)
START = "0" * 64
"""Stands for the digest before the first entry."""


class Pair(NamedTuple):
    """Two exact amounts: epsilon or rho, and delta."""

    first: Fraction
    delta: Fraction

    def plus(self, other: Pair) -> Pair:
        """Return the sum."""
        return Pair(self.first + other.first, self.delta + other.delta)

    def minus(self, other: Pair) -> Pair:
        """Return the difference."""
        return Pair(self.first - other.first, self.delta - other.delta)

    def within(self, other: Pair) -> bool:
        """True when neither amount is above the other's."""
        return self.first <= other.first and self.delta <= other.delta

    def text(self) -> list[str]:
        """Return numerators and denominators, for JSON."""
        return [exact_text(self.first), exact_text(self.delta)]

    @classmethod
    def read(cls, texts: Sequence[str]) -> Self:
        """Read what `text` wrote."""
        first, delta = texts
        return cls(Fraction(first), Fraction(delta))


NONE = Pair(Fraction(0), Fraction(0))


def exact_text(value: Fraction) -> str:
    """Return "numerator/denominator".

    Examples
    --------
    >>> exact_text(Fraction(0.75))
    '3/4'
    """
    return f"{value.numerator}/{value.denominator}"


@dataclass(frozen=True)
class State:
    """Totals of one dataset after an entry.

    Parameters
    ----------
    spent
        Plain sums of epsilon and delta over all charges.
    used
        What these charges take of the limits, by the dataset's composition.
    held
        What open calls have reserved and not yet used.
    joint
        Epsilon of charges outside calls that do not stand alone.
    charges
        How many charges there are.
    terms
        What they protect, from the first of them, and all that voids them.
    """

    spent: Pair = NONE
    used: Pair = NONE
    held: Pair = NONE
    joint: Fraction = Fraction(0)
    charges: int = 0
    terms: Terms | None = None

    def text(self) -> str:
        """Return the totals as JSON."""
        pairs = {name: getattr(self, name).text() for name in ("spent", "used", "held")}
        rest = {"joint": exact_text(self.joint), "charges": self.charges, "terms": self.terms}
        return to_text(pairs | rest)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `text` wrote."""
        found = json.loads(text)
        return cls(
            spent=Pair.read(found["spent"]),
            used=Pair.read(found["used"]),
            held=Pair.read(found["held"]),
            joint=Fraction(found["joint"]),
            charges=int(found["charges"]),
            terms=found["terms"] and read_terms(found["terms"]),
        )


@dataclass(frozen=True)
class Hold:
    """The reservation of one call.

    Parameters
    ----------
    left
        What is left of it, by the dataset's composition.
    joint
        Epsilon of the call's charges that do not stand alone.
    open
        False when the call has ended.
    whole, paid
        Plain epsilon and delta: the budget of the call, and the sum of its charges. Layout version
        1 did not keep them.
    """

    left: Pair
    joint: Fraction = Fraction(0)
    open: bool = True
    whole: Pair = NONE
    paid: Pair = NONE

    @property
    def rest(self) -> Pair:
        """What the call has not charged, and pays all the same: nothing before a first charge."""
        return NONE if self.paid == NONE else self.whole.minus(self.paid)

    def text(self) -> str:
        """Return the reservation as JSON."""
        pairs = {name: getattr(self, name).text() for name in ("left", "whole", "paid")}
        return to_text(pairs | {"joint": exact_text(self.joint), "open": self.open})

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `text` wrote, or layout version 1."""
        found = json.loads(text)
        whole, paid = (Pair.read(found.get(name, ("0", "0"))) for name in ("whole", "paid"))
        return cls(
            Pair.read(found["left"]), Fraction(found["joint"]), bool(found["open"]), whole, paid
        )


class Head(NamedTuple):
    """Numbers of a dataset's entries: the first, the newest, and where to begin to look.

    ``asked`` is the newest request or reply, or 0; ``calls`` has the newest entry of each call that
    is open.
    """

    first: int
    last: int
    asked: int = 0
    calls: Mapping[int, int] = {}

    @classmethod
    def read(cls, found: Sequence[Any]) -> Self:
        """Read a head from JSON."""
        first, last, asked, calls = found
        return cls(first, last, asked, {int(call): number for call, number in calls.items()})


Heads = Mapping[str, Head]


def heads_after(heads: Heads, number: int, kind: str, dataset: str, call: int) -> Heads:
    """Return the heads of all datasets after an entry."""
    if kind == "dataset":
        return {**heads, dataset: Head(number, number)}
    head = heads[dataset]
    calls = {k: v for k, v in head.calls.items() if k != call}
    if call and kind != "settle":
        calls[call] = number
    asked = number if kind in ("request", "reply") else head.asked
    return {**heads, dataset: Head(head.first, number, asked, calls)}


@dataclass(frozen=True)
class Entry:
    """A line of the ledger.

    "dataset" adds one, "reserve", "charge" and "settle" are of calls, "request" and "reply" of a
    federation, "upgrade" is the first line of this layout in an older ledger. ``call`` is the
    number of the entry that reserved for the call, or 0; ``heads`` are those of all datasets after
    this entry, none in layout version 1; ``written`` is the clock of the writer, for show.
    """

    number: int
    kind: str
    dataset: str
    call: int
    body: dict[str, Any]
    state: State
    hold: Hold | None
    heads: Heads
    written: str
    previous: str
    digest: str = ""

    def sealed(self) -> Self:
        """Return the entry with its digest: SHA-256 of itself and of the digest before it."""
        return replace(self, digest=_digest(self._content()))

    def values(self) -> dict[str, Any]:
        """Return the columns as they are stored."""
        return dict(zip(COLUMNS, (*self._content(), self.digest), strict=True))

    def _content(self) -> tuple[Any, ...]:
        hold = self.hold.text() if self.hold else ""
        heads = to_text(self.heads) if self.heads else ""
        texts = (to_text(self.body), self.state.text(), hold, heads, self.written, self.previous)
        return (self.number, self.kind, self.dataset, self.call, *texts)

    @classmethod
    def read(cls, row: Sequence[Any]) -> Self:
        """Read a stored row; one that does not fit its digest is an error."""
        cls.check(row)
        try:
            return cls._parsed(row[:-1], row[-1])
        except _UNREADABLE as error:
            raise LedgerError("the ledger has an entry that cannot be read") from error

    @staticmethod
    def check(row: Sequence[Any]) -> None:
        """Raise LedgerError unless a stored row fits its digest."""
        try:
            same = _digest(row[:-1]) == row[-1]
        except _UNREADABLE:
            same = False
        if not same:
            raise LedgerError(f"entry {row[0]!r} of the ledger was changed after it was written")

    @classmethod
    def _parsed(cls, content: Sequence[Any], digest: str) -> Self:
        number, kind, dataset, call, body, state, hold, heads, written, previous = content
        found = json.loads(heads) if heads else {}
        return cls(
            number=int(number),
            kind=kind,
            dataset=dataset,
            call=int(call),
            body=json.loads(body),
            state=State.read(state),
            hold=Hold.read(hold) if hold else None,
            heads={name: Head.read(head) for name, head in found.items()},
            written=written,
            previous=previous,
            digest=digest,
        )


_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)


def _digest(content: Sequence[Any]) -> str:
    """Digest of the columns before it; rows of layout version 1 had no heads."""
    at = COLUMNS.index("heads")
    row = list(content) if content[at] else [*content[:at], *content[at + 1 :]]
    return hashlib.sha256(to_text(row).encode()).hexdigest()


def read_terms(found: Sequence[Any]) -> Terms:
    """Read terms from JSON."""
    unit, public, void = found
    return Terms(unit, tuple(public), tuple(void))


def to_text(value: Any) -> str:
    """Return the one JSON text of a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
