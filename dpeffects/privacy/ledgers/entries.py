"""One line of a durable ledger: what happened, the totals after it, and a link to the line before.

Entries are only ever added. Each carries the totals of its dataset, so the newest one is all that
a charge has to read, and a digest of itself and of its predecessor, so that an edit is noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
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
    """What one call has left of its reservation, and its epsilon that does not stand alone."""

    left: Pair
    joint: Fraction = Fraction(0)
    open: bool = True

    def text(self) -> str:
        """Return the reservation as JSON."""
        return to_text(
            {"left": self.left.text(), "joint": exact_text(self.joint), "open": self.open}
        )

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `text` wrote."""
        found = json.loads(text)
        return cls(Pair.read(found["left"]), Fraction(found["joint"]), bool(found["open"]))


@dataclass(frozen=True)
class Entry:
    """A line of the ledger: "dataset", "reserve", "charge" or "settle".

    ``call`` is the number of the entry that reserved for the call, or 0; ``written`` is the clock
    of the writer, for show.
    """

    number: int
    kind: str
    dataset: str
    call: int
    body: dict[str, Any]
    state: State
    hold: Hold | None
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
        texts = (to_text(self.body), self.state.text(), hold, self.written, self.previous)
        return (self.number, self.kind, self.dataset, self.call, *texts)

    @classmethod
    def read(cls, row: Sequence[Any]) -> Self:
        """Read a stored row; one that does not fit its digest is an error."""
        *content, digest = row
        if _digest(content) != digest:
            raise LedgerError(f"entry {row[0]} of the ledger was changed after it was written")
        number, kind, dataset, call, body, state, hold, written, previous = content
        return cls(
            number=int(number),
            kind=kind,
            dataset=dataset,
            call=int(call),
            body=json.loads(body),
            state=State.read(state),
            hold=Hold.read(hold) if hold else None,
            written=written,
            previous=previous,
            digest=digest,
        )


def _digest(row: Sequence[Any]) -> str:
    return hashlib.sha256(to_text(list(row)).encode()).hexdigest()


def read_terms(found: Sequence[Any]) -> Terms:
    """Read terms from JSON."""
    unit, public, void = found
    return Terms(unit, tuple(public), tuple(void))


def to_text(value: Any) -> str:
    """Return the one JSON text of a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
