"""The entries of a ledger within one transaction, and what a store of them must offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from dpeffects.errors import LedgerError, refusal
from dpeffects.ledgers.entry import COLUMNS, START, EntryIndex, Hold, LedgerEntry, State
from dpeffects.ledgers.tree import Node, find, key_of, leaves
from dpeffects.privacy.noise import nonce

Rows = list[tuple[Any, ...]]

VERSION = 4
"""Version of the layout."""

_SELECT = f"SELECT {', '.join(COLUMNS)} FROM dpeffects_entries"
_INSERT = (
    f"INSERT INTO dpeffects_entries ({', '.join(COLUMNS)}) "
    f"VALUES ({', '.join(':' + name for name in COLUMNS)})"
)


class Session:
    """A transaction of a database: SQL with named values in, rows out.

    ``newest`` selects number and digest of the newest entry from a second place, if there is one.
    """

    def __init__(self, run: Callable[[str, dict[str, Any]], Rows], newest: str = "") -> None:
        self._run, self.newest = run, newest

    def rows(self, sql: str, **values: Any) -> Rows:
        """Run a statement and return its rows."""
        return self._run(sql, values)


class EntryStore(ABC):
    """Where entries are kept, one transaction at a time."""

    name: str
    path: Path | None = None
    """The file, where it is one."""
    integer: ClassVar[str] = "INTEGER"
    """The type of the numbers of entries."""
    additions: ClassVar[tuple[str, ...]]
    """Statements between those that make the tables and those that make the triggers."""
    triggers: ClassVar[Mapping[str, str]]
    """What refuses changes of entries: names of triggers, and what each does."""
    list_triggers: ClassVar[str]
    """Statement that selects the names of the triggers that are there."""

    @abstractmethod
    def create(self) -> None:
        """Make the tables where there are none."""

    @abstractmethod
    def session(self, write: bool, more: bool = False) -> AbstractContextManager[Session]:
        """Begin a transaction; commit it durably at the end, or undo it after an error.

        Of those that write, one at a time begins, and it sees what the ones before committed.
        ``more`` says that others will follow soon.
        """

    def faults(self, session: Session) -> list[str]:
        """Say what is wrong with the storage itself; nothing when all is well."""
        names = {row[0] for row in session.rows(self.list_triggers)}
        return [f"the trigger {name} is gone" for name in self.triggers if name not in names]

    def make_tables(self, session: Session) -> None:
        """Make tables, indexes and triggers, and note the version of the layout."""
        types = {"number": f"{self.integer} PRIMARY KEY", "call": f"{self.integer} NOT NULL"}
        columns = ", ".join(f"{name} {types.get(name, 'TEXT NOT NULL')}" for name in COLUMNS)
        session.rows("CREATE TABLE dpeffects_version (version INTEGER NOT NULL)")
        session.rows(
            "CREATE TABLE dpeffects_anchors (ledger TEXT PRIMARY KEY, "
            f"number {self.integer} NOT NULL, digest TEXT NOT NULL)"
        )
        session.rows(f"CREATE TABLE dpeffects_entries ({columns})")
        for statement in self.additions:
            session.rows(statement)
        for name, action in self.triggers.items():
            session.rows(f"CREATE TRIGGER {name} {action}")
        session.rows(f"INSERT INTO dpeffects_version VALUES ({VERSION})")


class Transaction:
    """Reads and adds entries, each found by its number and checked against its digest.

    The newest entry holds the numbers of the others that matter, so nothing rests on an index: one
    that is damaged can hide entries. ``added`` are the entries that are, or should be, new.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._newest: LedgerEntry | None = None
        self._found: dict[int, LedgerEntry | None] = {}
        self.added: list[LedgerEntry] = []
        versions = [row[0] for row in session.rows("SELECT version FROM dpeffects_version")]
        if versions != [VERSION]:
            words = ", ".join(str(version)[:20] for version in versions) or "none"
            raise LedgerError(refusal("other_layout", words=words, version=VERSION))

    @property
    def heads(self) -> EntryIndex:
        """Where to begin to look for entries."""
        head = self.head()
        return head.heads if head else EntryIndex()

    def datasets(self) -> list[str]:
        """Return the names of the datasets, in the order they were added."""
        found = self.heads.datasets
        return sorted(found, key=lambda name: found[name][0])

    def entry(self, number: int) -> LedgerEntry | None:
        """Return one entry."""
        if number not in self._found:
            self._found[number] = self._one("WHERE number = :number", number=number)
        return self._found[number]

    def holds(self, number: int, digest: str) -> bool:
        """Say whether an entry is there that was seen before."""
        self.head()  # mostly it is that one
        entry = self.entry(number)
        return entry is not None and entry.digest == digest

    def head(self) -> LedgerEntry | None:
        """Return the newest entry."""
        if self._newest is None:
            entry = self._one("ORDER BY number DESC LIMIT 1")
            rows = [(entry.number, entry.digest)] if entry else []
            if self._session.newest and self._session.rows(self._session.newest) != rows:
                raise LedgerError("the ledger is damaged: its newest entry is not at its place")
            self._newest = entry
            self._found |= {entry.number: entry} if entry else {}
        return self._newest

    def opening(self, dataset: str) -> LedgerEntry:
        """Return the entry that added a dataset."""
        return self._of(dataset, self._ends(dataset)[0])

    def state(self, dataset: str) -> State:
        """Return the newest totals of a dataset."""
        return self._of(dataset, self._ends(dataset)[1]).state

    def hold(self, dataset: str, call: int) -> Hold | None:
        """Return what a call has left of its reservation, or None where it has ended."""
        number = find(self.node, self.heads.calls, key_of(dataset, call))
        return self._of(dataset, number).hold if number else None

    def open_calls(self, dataset: str) -> list[tuple[LedgerEntry, Hold]]:
        """Return the calls that have not ended: how each began, and what it has left."""
        found = [self.entry(number) for number in leaves(self.node, self.heads.calls)]
        newest = {e.call: e.hold for e in found if e and e.dataset == dataset}
        return [(self._of(dataset, call), hold) for call, hold in sorted(newest.items()) if hold]

    def asked(self, dataset: str, request: str) -> LedgerEntry | None:
        """Return the reply to a request of a federation, or the request if it has none, or None."""
        number = find(self.node, self.heads.requests, key_of(dataset, request))
        return self._of(dataset, number) if number else None

    def node(self, number: int, place: str) -> Node:
        """Return a node of a tree from the entry that holds it."""
        entry = self.entry(number)
        if entry is None or place not in entry.nodes:
            raise LedgerError(f"the ledger is damaged: entry {number} is lost")
        return entry.nodes[place]

    def all(self, dataset: str | None = None) -> Iterator[LedgerEntry]:
        """Return all entries, or those of a dataset, in order; the chain must be whole."""
        last = START
        rows = self._session.rows(f"{_SELECT} ORDER BY number")
        for number, entry in enumerate(map(LedgerEntry.read, rows), start=1):
            if (entry.number, entry.previous) != (number, last):
                raise LedgerError(f"the ledger is damaged: entry {number} is missing or changed")
            last = entry.digest
            if dataset in (None, entry.dataset):
                yield entry
        head = self.head()
        if last != (head.digest if head else START):
            raise LedgerError("the ledger is damaged: its newest entries are missing")

    def add(
        self,
        kind: str,
        dataset: str,
        body: dict[str, Any],
        state: State,
        hold: Hold | None = None,
        call: int = 0,
    ) -> LedgerEntry:
        """Add an entry after the newest. One that reserves gives its own number to its call."""
        head = self.head()
        number = head.number + 1 if head else 1
        call = number if kind == "reserve" else call
        event = number, nonce(), kind, dataset, call, body, state, hold
        written = datetime.now(UTC).isoformat(timespec="seconds")
        entry = LedgerEntry(*event, written, head.digest if head else START)
        entry = entry.sealed(self.heads, self.node)
        self.added.append(entry)
        self._session.rows(_INSERT, **entry.values())
        self._newest = self._found[number] = entry
        return entry

    def _ends(self, dataset: str) -> Sequence[int]:
        ends = self.heads.datasets.get(dataset)
        if ends is None:
            raise LedgerError(f"the ledger no longer has the dataset {dataset!r}")
        return ends

    def _of(self, dataset: str, number: int) -> LedgerEntry:
        entry = self.entry(number)
        if entry is None or entry.dataset != dataset:
            raise LedgerError(f"the ledger is damaged: entry {number}, of {dataset}, is lost")
        return entry

    def _one(self, where: str, **values: Any) -> LedgerEntry | None:
        rows = self._session.rows(f"{_SELECT} {where}", **values)
        return LedgerEntry.read(rows[0]) if rows else None
