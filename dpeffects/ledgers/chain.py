"""The chain of a ledger's entries, and who else knows the newest: process, mark and anchor.

A ledger that was set back to an older copy is sound in itself. It is refused all the same where
somebody knows a later entry: a process that has used it; the mark, a small file beside it that
every writer leaves; and its anchor, a note at a second place. Both are written after the commit of
an entry, so that neither is ever ahead of the ledger: the mark when a call has ended, before its
result is seen, and the anchor before anything is drawn, so that it is never behind (claim L5).

Check a whole ledger by replaying its entries.
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from dpeffects import file_output
from dpeffects.errors import DPEffectsError, LedgerError, OptionError, refusal
from dpeffects.ledgers.agreement import Agreement, payments, read_charge
from dpeffects.ledgers.entry import START, EntryIndex, Hold, LedgerEntry, State, read_stored
from dpeffects.ledgers.transaction import EntryStore, Session, Transaction
from dpeffects.ledgers.tree import Node
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.ledger import Terms

Address = str | os.PathLike[str]
"""A path, ``sqlite:///path``, or ``postgresql://user@host/database``."""
Known = tuple[int, str]
"""Number and digest of an entry."""


class Chain:
    """Entries in a store, read and added to in transactions that notice what was set back.

    ``anchor`` is a place to use instead of the one that the ledger names.
    """

    def __init__(self, store: EntryStore, anchor: Address | None = None) -> None:
        self.store, self._given, self._named = store, anchor, ""
        self.seen: Known | None = None
        self.mark = NewestEntryFile(store.path)
        self.anchor: Anchor | None = None
        with store.session(write=False) as session:
            self._find_anchor(Transaction(session))

    @contextmanager
    def transaction(self, write: bool, more: bool = False) -> Iterator[Transaction]:
        """Begin a transaction, unless the ledger was set back; then note its newest entry."""
        known = self.known()  # before it begins: what is noted later may not show in it
        book = None
        try:
            with self.store.session(write, more) as session:
                book = Transaction(session)
                for who, seen in known.items():
                    if not book.holds(*seen):
                        raise _set_back(self.store, seen, who)
                yield book
                head = book.head()
                self._find_anchor(book)
            if head is not None:
                self.seen = (head.number, head.digest)
            if self.seen and write and not more:
                self.mark.write(*self.seen)
            if self.seen and write and self.anchor:
                noted = self.anchor.write(*self.seen, more)
                if noted != self.seen:  # another writer was faster; is that of the same chain?
                    with self.transaction(write=False):
                        pass
        except LedgerError as error:
            if book is None or not book.added:
                raise
            raise LedgerError(f"{error}; {self._told(book.added[-1])}") from error

    def known(self) -> dict[str, Known]:
        """Return who knows which entry."""
        found = {"this process": self.seen, f"its mark {self.mark.path}": self.mark.read()}
        if self.anchor is not None:
            found[self.anchor.store.name] = self.anchor.read()
        return {who: seen for who, seen in found.items() if seen}

    def verify(self, head: str | None) -> str:
        """Check storage, chain, totals and who knows of them; say so in a line."""
        known, name = self.known(), self.store.name
        with self.store.session(write=False) as session:
            if faults := self.store.faults(session):
                raise LedgerError(f"{name} is damaged or was changed: {'; '.join(faults)}")
            replay = Replay()
            for entry in Transaction(session).all():
                replay.follow(entry)
        for who, seen in known.items():
            if seen[1] not in replay.digests:
                raise _set_back(self.store, seen, who)
        if head is not None and head not in replay.digests:
            raise LedgerError(refusal("does_contain_entry", name=name, head=head))
        anchored = "no anchor, so that a folder or machine restored as a whole would not show"
        if self.anchor is not None:
            anchored = f"not behind {self.anchor.store.name}"
        datasets = f"{len(replay.states)} dataset{'s' if len(replay.states) != 1 else ''}"
        counts = f"{replay.entries} entries, {replay.charges} charges, {datasets}"
        return f"{name}: sound, {counts}; {anchored}; head {replay.last}"

    def _find_anchor(self, book: Transaction) -> None:
        """Take the anchor that was given, or the one that the newest entry names."""
        named = book.heads.anchor
        if named == self._named and (self.anchor or not self._given):
            return
        place, first = self._given or named, book.entry(1)
        self.anchor = Anchor(store_of(place), first.digest) if place and first else None
        self._named = named

    def _told(self, entry: LedgerEntry) -> str:
        """Say whether an entry is there whose transaction failed, from the ledger as it is."""
        name = f"entry {entry.number} ({entry.kind})"
        try:
            with self.store.session(write=False) as session:
                kept = Transaction(session).holds(entry.number, entry.digest)
        except LedgerError:
            return f"whether {name} is in the ledger shows when it can be read again"
        return f"{name} is in the ledger" if kept else f"{name} is not in the ledger"


class NewestEntryFile:
    """The newest entry of a ledger in a file, in a small file beside it; on a server there is none.

    It may be behind: by a call that was killed, and where it cannot be written.
    """

    def __init__(self, ledger: Path | None) -> None:
        self.path = Path(f"{os.path.realpath(ledger)}.seen") if ledger else None

    def read(self) -> Known | None:
        """Return number and digest, or None where nothing was noted yet."""
        last = time.monotonic() + 1.0
        while self.path is not None and self.path.exists():
            with suppress(OSError, ValueError):
                text = self.path.read_text(encoding="ascii")
                number, digest, _ = text.split()
                if text == _line(int(number), digest):
                    return int(number), digest
            if time.monotonic() > last:
                raise LedgerError(refusal("anchor_unreadable", path=self.path))
            time.sleep(0.01)  # somebody is writing it
        return None

    def write(self, number: int, digest: str) -> None:
        """Note an entry, unless a newer one is noted already; in place, which is fast."""
        if self.path is None or (self.read() or (0, ""))[0] >= number:
            return
        line = _line(number, digest).encode("ascii")
        try:
            with self.path.open("r+b") as file:
                file.write(line)
        except OSError:  # it is not there, or somebody else's
            try:
                file_output.replace_file(self.path, line)
            except OSError as error:
                said = f"cannot write {self.path}: {error.strerror or error}"
                warnings.warn(f"{said}; an older copy of the ledger may go unnoticed", stacklevel=2)


def _line(number: int, digest: str) -> str:
    """What a mark says, in the same length for all entries, with a sum that shows half of one."""
    text = f"{number:020d} {digest}"
    return f"{text} {hashlib.sha256(text.encode()).hexdigest()}\n"


class Anchor:
    """The newest entry of a ledger at a second place, by the digest of its first entry.

    The place is another file or server, as for a ledger, and may have the anchors of several.
    """

    def __init__(self, store: EntryStore, ledger: str) -> None:
        self.store, self._ledger = store, ledger
        store.name = f"its anchor {store.name}"

    def read(self) -> Known:
        """Return number and digest; an anchor that is not there is no reason to go on."""
        with self.store.session(write=False) as session:
            return self._noted(session)

    def write(self, number: int, digest: str, more: bool, make: bool = False) -> Known:
        """Note an entry, unless a newer one is noted already; return what is noted."""
        known = {"ledger": self._ledger, "number": number, "digest": digest}
        make_sql = "INSERT INTO dpeffects_anchors VALUES (:ledger, :number, :digest)"
        sql = "UPDATE dpeffects_anchors SET number = :number, digest = :digest"
        with self.store.session(write=True, more=more) as session:
            if make:
                session.rows(f"{make_sql} ON CONFLICT DO NOTHING", **known)
            session.rows(f"{sql} WHERE ledger = :ledger AND number < :number", **known)
            return self._noted(session)

    def _noted(self, session: Session) -> Known:
        sql = "SELECT number, digest FROM dpeffects_anchors WHERE ledger = :ledger"
        for number, digest in session.rows(sql, ledger=self._ledger):
            return number, digest
        raise LedgerError(refusal("no_anchor", name=self.store.name))


def _set_back(store: EntryStore, seen: Known, who: str) -> LedgerError:
    return LedgerError(refusal("unseen_entry", name=store.name, number=seen[0], who=who))


def store_of(address: Address) -> EntryStore:
    """Return the store at an address; nothing is opened yet."""
    text = os.fspath(address)
    if not isinstance(text, str) or not text or "\0" in text:
        raise OptionError(f"a ledger must be a path or a URL, got {address!r}")
    scheme, separator, rest = text.partition("://")
    if not separator or scheme == "sqlite":
        from dpeffects.ledgers.sqlite import SQLiteStore

        path = rest.removeprefix("/") if separator else text
        if not path or path == ":memory:":
            raise OptionError("a ledger in a file needs a path; in memory, use dpeffects.Ledger")
        return SQLiteStore(path)
    if scheme.partition("+")[0] in ("postgresql", "postgres"):
        from dpeffects.ledgers.postgresql import PostgreSQLStore

        return PostgreSQLStore(text)
    raise OptionError(refusal("ledger_scheme", scheme=scheme))


@dataclass
class Replay:
    """Totals from the events alone, compared with what each entry says."""

    agreements: dict[str, Agreement] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    holds: dict[int, Hold] = field(default_factory=dict)
    heads: EntryIndex = field(default_factory=EntryIndex)
    nodes: dict[tuple[str, str], Node] = field(default_factory=dict)
    requests: dict[tuple[str, str], int] = field(default_factory=dict)
    digests: set[str] = field(default_factory=set)
    last: str = START
    entries: int = 0
    charges: int = 0

    def follow(self, entry: LedgerEntry) -> None:
        """Apply an entry, and compare; LedgerError where it does not fit those before."""
        tree = "requests" if entry.kind in ("request", "reply") else "calls"
        try:
            state, hold = self._after(entry)
            heads, nodes = self.heads.after(lambda _, place: self.nodes[tree, place], entry)
        except (DPEffectsError, KeyError) as error:
            raise LedgerError(f"entry {entry.number} should have been refused: {error}") from error
        if (state, hold, heads, nodes) != (entry.state, entry.hold, entry.heads, entry.nodes):
            raise LedgerError(f"entry {entry.number} has totals that the entries do not give")
        self.states[entry.dataset], self.heads, self.last = state, heads, entry.digest
        self.nodes |= {(tree, place): node for place, node in nodes.items()}
        self.digests.add(entry.digest)
        if hold is not None:
            self.holds[entry.call] = hold
        self.entries += 1
        self.charges += len(payments(entry))

    def _after(self, entry: LedgerEntry) -> tuple[State, Hold | None]:
        body = entry.body
        if entry.kind == "dataset" and entry.dataset not in self.states:
            self.agreements[entry.dataset] = Agreement.read(body)
            return State(), None
        agreement, state = self.agreements[entry.dataset], self.states[entry.dataset]
        allotment = body.get("allotment", "")
        if entry.kind == "allot" and allotment not in state.allotments:
            return agreement.allot(state, allotment, Fraction(body["share"])), None
        if entry.kind == "release" and state.allotments[allotment].open:
            return agreement.release(state, allotment), None
        if entry.kind == "reserve" and entry.call == entry.number:
            budget = Budget(body["epsilon"], body["delta"])
            return agreement.reserve(state, budget, read_stored(Terms, body["terms"]), allotment)
        if entry.kind == "anchor":
            return state, None
        if entry.kind in ("request", "reply"):
            return self._asked(entry, agreement, state), None
        hold = self.holds[entry.call] if entry.call else None
        if entry.kind == "charge":
            return agreement.charge(state, hold, *read_charge(body), allotment)
        if entry.kind == "settle" and hold is not None and hold.open:
            return agreement.settle(state, hold)
        raise LedgerError(f"{entry.kind} is not allowed at this place")

    def _asked(self, entry: LedgerEntry, agreement: Agreement, state: State) -> State:
        """A request is paid for once, and a reply follows its request once."""
        body = entry.body
        key = (entry.dataset, body["request"])
        if entry.kind == "reply":
            if self.requests[key] != body["to"]:
                raise LedgerError("a reply is not allowed at this place")
            self.requests[key] = 0
            return state
        if key in self.requests:
            raise LedgerError("a request is recorded twice")
        self.requests[key] = entry.number
        return agreement.pay(
            state, Budget(body["epsilon"], body["delta"]), read_stored(Terms, body["terms"])
        )
