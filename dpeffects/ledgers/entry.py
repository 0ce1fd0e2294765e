"""One line of a durable ledger: what happened, the totals after it, and a link to the line before.

Entries are only ever added. Each carries the totals of its dataset, the number of the newest entry
of every dataset, a nonce, and a digest of itself and of its predecessor. So the newest entry says,
under its digest, where the newest totals are: an edit is noticed, and totals that are not the
newest too. No two ledgers have the same entry by chance, not even one that was set back and then
spent again in the same way: its numbers repeat, and its nonces do not.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, NamedTuple, Self, get_type_hints

from dpeffects.errors import LedgerError
from dpeffects.ledgers.tree import Nodes, Read, changed, key_of
from dpeffects.privacy.budget import round_up
from dpeffects.privacy.ledger import Terms
from dpeffects.type_checks import PLAIN, Types

START = "0" * 64
"""Stands for the digest before the first entry."""


class Cost(NamedTuple):
    """Two exact amounts: epsilon, or rho, and delta."""

    first: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)

    def plus(self, other: Cost) -> Cost:
        """Return the sum."""
        return Cost(self.first + other.first, self.delta + other.delta)

    def minus(self, other: Cost) -> Cost:
        """Return the difference."""
        return Cost(self.first - other.first, self.delta - other.delta)

    def above(self) -> tuple[float, float]:
        """Return both as floats that are not less."""
        return round_up(self.first), round_up(self.delta)

    def within(self, other: Cost) -> bool:
        """True when neither amount is above the other's."""
        return self.first <= other.first and self.delta <= other.delta


NONE = Cost()


class AllotmentTotals(NamedTuple):
    """The totals of an allotment.

    ``share`` is its part of all that is allowed; ``left`` what calls may still reserve, as the
    ledger counts; ``spent`` plain sums; ``open`` is False once it was released.
    """

    share: Fraction
    left: Cost
    spent: Cost = NONE
    open: bool = True

    def less(self, cost: Cost) -> Self:
        """After a call has reserved this much."""
        return self._replace(left=self.left.minus(cost))

    def after(self, price: Cost) -> Self:
        """After this much was charged."""
        return self._replace(spent=self.spent.plus(price))


Parts = Mapping[str, AllotmentTotals]
"""Allotments by name."""


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

    def with_part(self, name: str, part: AllotmentTotals) -> Self:
        """Return the totals with those of an allotment changed."""
        return replace(self, allotments={**self.allotments, name: part})


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
        Plain epsilon and delta: the budget of the call, and the sum of its charges.
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


class EntryIndex(NamedTuple):
    """Where to begin to look, after an entry.

    ``datasets`` has the numbers of the first and the newest entry of each; ``calls`` and
    ``requests`` are the entries that hold the tops of the trees of open calls and of requests, or
    0; ``anchor`` is the place where the newest entry is noted too, or empty.
    """

    datasets: Mapping[str, tuple[int, int]] = {}
    calls: int = 0
    requests: int = 0
    anchor: str = ""

    def after(self, read: Read, entry: LedgerEntry) -> tuple[Self, Nodes]:
        """Return the heads after an entry, and the nodes that it holds."""
        number, kind, dataset, body = entry.number, entry.kind, entry.dataset, entry.body
        first = number if kind == "dataset" else self.datasets[dataset][0]
        heads = self._replace(datasets={**self.datasets, dataset: (first, number)})
        if kind in ("request", "reply"):
            key = key_of(dataset, body["request"])
            nodes, top = changed(read, self.requests, key, number, keep=True)
            return heads._replace(requests=top), nodes
        if entry.call:
            key = key_of(dataset, entry.call)
            nodes, top = changed(read, self.calls, key, number, keep=kind != "settle")
            return heads._replace(calls=top), nodes
        return heads._replace(anchor=body["anchor"]) if kind == "anchor" else heads, {}


@dataclass(frozen=True)
class LedgerEntry:
    """A line of the ledger.

    "dataset" adds one, "reserve", "charge" and "settle" are of calls, "request" and "reply" of a
    federation, "allot" and "release" of allotments, "anchor" says where the newest entry is noted
    from here on. ``call`` is the number of the entry that reserved for the call, or 0; ``nonce`` is
    drawn for the entry; ``heads`` and ``nodes`` say where others are to be found; ``written`` is
    the clock of the writer, for show.
    """

    number: int
    nonce: str
    kind: str
    dataset: str
    call: int
    body: Mapping[str, Any]
    state: State
    hold: Hold | None
    written: str
    previous: str
    heads: EntryIndex = field(default_factory=EntryIndex)
    nodes: Nodes = field(default_factory=dict)
    digest: str = ""

    def sealed(self, before: EntryIndex, read: Read) -> Self:
        """Return the entry with its heads, its nodes and its digest (SHA-256, of all columns)."""
        heads, nodes = before.after(read, self)
        entry = replace(self, heads=heads, nodes=nodes)
        return replace(entry, digest=_digest([*entry.values().values()][:-1]))

    def values(self) -> dict[str, Any]:
        """Return the columns as they are stored."""
        return {k: x if isinstance(x, int | str) else to_text(x) for k, x in vars(self).items()}

    @classmethod
    def read(cls, row: Sequence[Any]) -> Self:
        """Read a stored row; one that does not fit its digest is an error."""
        try:
            if _digest(row[:-1]) != row[-1]:
                raise ValueError
            return cls(*map(_read_column, _HINTS, row))
        except _UNREADABLE as error:
            said = f"entry {row[0]!r} of the ledger was changed after it was written"
            raise LedgerError(said) from error


COLUMNS = tuple(column.name for column in fields(LedgerEntry))
_HINTS = [get_type_hints(LedgerEntry)[name] for name in COLUMNS]
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)


def _digest(content: Sequence[Any]) -> str:
    """Digest of the columns before it."""
    return hashlib.sha256(to_text(list(content)).encode()).hexdigest()


_STORED = Types(PLAIN | {Fraction: lambda text, _: Fraction(text)}, longest=math.inf)


def read_stored(hint: Any, value: Any) -> Any:
    """Read what JSON held of a value of this type; ValueError where it is another."""
    return _STORED.of(hint)(value, "the entry")


def _read_column(hint: Any, value: Any) -> Any:
    return value if hint in (int, str) else read_stored(hint, json.loads(value))


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
        return vars(value)
    raise TypeError(f"a ledger does not hold {type(value).__name__}")
