"""One line of a durable ledger: what happened, the totals after it, and a link to the line before.

Entries are only ever added. Each carries the totals of its dataset, the number of the newest entry
of every dataset, and a digest of itself and of its predecessor. So the newest entry says, under its
digest, where the newest totals are: an edit is noticed, and totals that are not the newest too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple, Self

from dpeffects.errors import LedgerError
from dpeffects.privacy.ledger import Part, Parts, Terms

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


class Cost(NamedTuple):
    """Two exact amounts: epsilon or rho, and delta."""

    first: Fraction
    delta: Fraction

    def plus(self, other: Cost) -> Cost:
        """Return the sum."""
        return Cost(self.first + other.first, self.delta + other.delta)

    def minus(self, other: Cost) -> Cost:
        """Return the difference."""
        return Cost(self.first - other.first, self.delta - other.delta)

    def within(self, other: Cost) -> bool:
        """True when neither amount is above the other's."""
        return self.first <= other.first and self.delta <= other.delta

    @classmethod
    def read(cls, texts: Sequence[str]) -> Self:
        """Read two fractions from JSON."""
        first, delta = texts
        return cls(Fraction(first), Fraction(delta))


NONE = Cost(Fraction(0), Fraction(0))


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
    noncomposable_epsilon
        Epsilon of charges outside calls that are part of a larger price (`Spend.alone` is False).
    charges
        How many charges there are.
    terms
        What they protect, from the first of them, and all that voids them.
    allotments
        Those of this dataset; what they have left is held.
    """

    spent: Cost = NONE
    used: Cost = NONE
    held: Cost = NONE
    noncomposable_epsilon: Fraction = Fraction(0)
    charges: int = 0
    terms: Terms | None = None
    allotments: Parts = field(default_factory=dict)

    def with_part(self, name: str, part: Part) -> Self:
        """Return the totals with those of an allotment changed."""
        return replace(self, allotments={**self.allotments, name: part})

    @classmethod
    def read(cls, text: str) -> Self:
        """Read the totals from JSON."""
        stored = json.loads(text)
        return cls(
            spent=Cost.read(stored["spent"]),
            used=Cost.read(stored["used"]),
            held=Cost.read(stored["held"]),
            noncomposable_epsilon=Fraction(stored["joint"]),
            charges=int(stored["charges"]),
            terms=stored["terms"] and read_terms(stored["terms"]),
            allotments={k: _read_part(x) for k, x in stored.get("allotments", {}).items()},
        )


@dataclass(frozen=True)
class Hold:
    """The reservation of one call.

    Parameters
    ----------
    left
        What is left of it, by the dataset's composition.
    noncomposable_epsilon
        Epsilon of the call's charges that are part of a larger price.
    open
        False when the call has ended.
    whole, paid
        Plain epsilon and delta: the budget of the call, and the sum of its charges. Layout version
        1 did not keep them.
    allotment
        The name of the allotment that it is of, or empty.
    """

    left: Cost
    noncomposable_epsilon: Fraction = Fraction(0)
    open: bool = True
    whole: Cost = NONE
    paid: Cost = NONE
    allotment: str = ""

    @property
    def rest(self) -> Cost:
        """What the call has not charged, and pays all the same: nothing before a first charge."""
        return NONE if self.paid == NONE else self.whole.minus(self.paid)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read the reservation from JSON, also from that of layout version 1."""
        stored = json.loads(text)
        return cls(
            left=Cost.read(stored["left"]),
            noncomposable_epsilon=Fraction(stored["joint"]),
            open=bool(stored["open"]),
            whole=Cost.read(stored.get("whole", ("0", "0"))),
            paid=Cost.read(stored.get("paid", ("0", "0"))),
            allotment=stored.get("allotment", ""),
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
    def read(cls, stored: Sequence[Any]) -> Self:
        """Read a head from JSON."""
        first, last, asked, calls = stored
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
    federation, "allot" and "release" of allotments, "upgrade" is the first line of this layout in
    an older ledger. ``call`` is the
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
        hold = to_text(self.hold) if self.hold else ""
        heads = to_text(self.heads) if self.heads else ""
        texts = (to_text(self.body), to_text(self.state), hold, heads, self.written, self.previous)
        return (self.number, self.kind, self.dataset, self.call, *texts)

    @classmethod
    def read(cls, row: Sequence[Any]) -> Self:
        """Read a stored row; one that does not fit its digest is an error."""
        cls.check(row)
        number, kind, dataset, call, body, state, hold, heads, written, previous, digest = row
        try:
            return cls(
                number=int(number),
                kind=kind,
                dataset=dataset,
                call=int(call),
                body=json.loads(body),
                state=State.read(state),
                hold=Hold.read(hold) if hold else None,
                heads={k: Head.read(head) for k, head in json.loads(heads or "{}").items()},
                written=written,
                previous=previous,
                digest=digest,
            )
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


_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)


def _digest(content: Sequence[Any]) -> str:
    """Digest of the columns before it; rows of layout version 1 had no heads."""
    at = COLUMNS.index("heads")
    row = list(content) if content[at] else [*content[:at], *content[at + 1 :]]
    return hashlib.sha256(to_text(row).encode()).hexdigest()


def read_terms(stored: Sequence[Any]) -> Terms:
    """Read terms from JSON."""
    unit, public, void = stored
    return Terms(unit, tuple(public), tuple(void))


def _read_part(stored: Sequence[Any]) -> Part:
    share, left, spent, is_open = stored
    return Part(Fraction(share), Cost.read(left), Cost.read(spent), bool(is_open))


def to_text(value: Any) -> str:
    """Return the one JSON text of a value; fractions are written "numerator/denominator".

    Examples
    --------
    >>> to_text({"limits": Cost(Fraction(0.75), Fraction(0))})
    '{"limits":["3/4","0/1"]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=to_plain)


def to_plain(value: Any) -> Any:
    """Return what JSON does not know, fractions and totals, as texts and dicts."""
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, State | Hold):
        stored = dict(vars(value))
        stored["joint"] = stored.pop("noncomposable_epsilon")
        return {k: x for k, x in stored.items() if x or not k.startswith("allotment")}
    raise TypeError(f"a ledger does not hold {type(value).__name__}")
