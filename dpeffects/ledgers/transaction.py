"""The entries of a ledger within one transaction, and what a store of them must offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from dpeffects.errors import LedgerError
from dpeffects.ledgers.entry import (
    COLUMNS,
    START,
    Entry,
    Head,
    Heads,
    Hold,
    State,
    heads_after,
)

Rows = list[tuple[Any, ...]]

VERSION = 2
"""Version of the layout. `upgrade_ledger` reads version 1."""
ALLOTTING = 3
"""The same with allotments. A ledger has it from its first one on: dpeffects that do not know of
allotments refuse it."""

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

    def require_sound(self, session: Session) -> None:
        """Raise LedgerError where something is wrong with the storage itself."""
        if faults := self.faults(session):
            raise LedgerError(f"{self.name} is not sound: {'; '.join(faults)}")

    def make_tables(self, session: Session) -> None:
        """Make tables, indexes and triggers, and note the version of the layout."""
        types = {"number": f"{self.integer} PRIMARY KEY", "call_number": f"{self.integer} NOT NULL"}
        columns = ", ".join(f"{name} {types.get(name, 'TEXT NOT NULL')}" for name in COLUMNS)
        session.rows("CREATE TABLE dpeffects_version (version INTEGER NOT NULL)")
        session.rows(f"CREATE TABLE dpeffects_entries ({columns})")
        for statement in self.additions:
            session.rows(statement)
        for name, action in self.triggers.items():
            session.rows(f"CREATE TRIGGER {name} {action}")
        session.rows(f"INSERT INTO dpeffects_version VALUES ({VERSION})")

    def upgrade_tables(self, session: Session) -> None:
        """Turn the tables of layout version 1 into those of this one."""
        session.rows("ALTER TABLE dpeffects_entries ADD COLUMN heads TEXT NOT NULL DEFAULT ''")
        for index in ("dpeffects_by_dataset", "dpeffects_by_call", "dpeffects_datasets"):
            session.rows(f"DROP INDEX IF EXISTS {index}")
        for statement in self.additions:
            session.rows(statement)
        session.rows(f"UPDATE dpeffects_version SET version = {VERSION}")


class Transaction:
    """Reads and adds entries, each found by its number and checked against its digest.

    The newest entry holds the numbers of the others that matter, so nothing rests on an index: one
    that is damaged can hide entries.
    """

    def __init__(self, session: Session, check_version: bool = True) -> None:
        self._session = session
        self._newest: Entry | None = None
        if check_version:
            self.check_version()

    def check_version(self) -> None:
        """Refuse a ledger of another version."""
        versions = self.versions()
        if versions == [1]:
            raise LedgerError(
                "the ledger has layout version 1, of an earlier dpeffects: bring it up to date, "
                "once, with `dpeffects ledger upgrade` and its address"
            )
        if versions not in ([VERSION], [ALLOTTING]):
            words = ", ".join(str(version)[:20] for version in versions) or "none"
            raise LedgerError(
                f"the ledger has layout version {words}, and this dpeffects reads {VERSION} and "
                f"{ALLOTTING}: use the version of dpeffects that wrote it, or a newer one"
            )

    def expect_allotments(self) -> None:
        """Note that there are allotments."""
        if self.versions() != [ALLOTTING]:
            self._session.rows(f"UPDATE dpeffects_version SET version = {ALLOTTING}")

    def versions(self) -> list[Any]:
        """Return the layout version, as a list of one."""
        return [row[0] for row in self._session.rows("SELECT version FROM dpeffects_version")]

    def datasets(self) -> list[str]:
        """Return the names of the datasets, in the order they were added."""
        return sorted(self._heads(), key=lambda name: self._heads()[name].first)

    def entry(self, number: int) -> Entry | None:
        """Return one entry."""
        return self._one("WHERE number = :number", number=number)

    def holds(self, number: int, digest: str) -> bool:
        """Say whether an entry is there that was seen before."""
        entry = self.entry(number)
        return entry is not None and entry.digest == digest

    def head(self) -> Entry | None:
        """Return the newest entry."""
        if self._newest is None:
            entry = self._one("ORDER BY number DESC LIMIT 1")
            rows = [(entry.number, entry.digest)] if entry else []
            if self._session.newest and self._session.rows(self._session.newest) != rows:
                raise LedgerError(
                    "the ledger is damaged: its newest entry is not where it should be"
                )
            self._newest = entry
        return self._newest

    def opening(self, dataset: str) -> Entry:
        """Return the entry that added a dataset."""
        return self._of(dataset, self._head(dataset).first)

    def state(self, dataset: str) -> State:
        """Return the newest totals of a dataset."""
        return self._of(dataset, self._head(dataset).last).state

    def hold(self, dataset: str, call: int) -> Hold | None:
        """Return what a call has left of its reservation, or None where it has ended."""
        number = self._head(dataset).calls.get(call)
        return self._of(dataset, number).hold if number else None

    def open_calls(self, dataset: str) -> list[tuple[Entry, Hold]]:
        """Return the calls that have not ended: how each began, and what it has left."""
        calls = sorted(self._head(dataset).calls)
        holds = [(self._of(dataset, call), self.hold(dataset, call)) for call in calls]
        return [(entry, hold) for entry, hold in holds if hold]

    def asked(self, dataset: str) -> Iterator[Entry]:
        """Return the requests and replies of a federation, newest first."""
        number = self._head(dataset).asked
        while number:
            entry = self._of(dataset, number)
            yield entry
            number = entry.body["before"]

    def all(self, dataset: str | None = None) -> Iterator[Entry]:
        """Return all entries, or those of a dataset, in order; the chain must be whole."""
        last = START
        rows = self._session.rows(f"{_SELECT} ORDER BY number")
        for number, row in enumerate(rows, start=1):
            if row[0] != number or row[COLUMNS.index("previous")] != last:
                raise LedgerError(f"the ledger is not sound: entry {number} is missing or changed")
            last = row[-1]
            if dataset in (None, row[COLUMNS.index("dataset")]):
                yield Entry.read(row)
            else:
                Entry.check(row)
        head = self.head()
        if last != (head.digest if head else START):
            raise LedgerError("the ledger is not sound: its newest entries are missing")

    def add(
        self,
        kind: str,
        dataset: str,
        body: dict[str, Any],
        state: State,
        hold: Hold | None = None,
        call: int = 0,
        heads: Heads | None = None,
    ) -> Entry:
        """Add an entry after the newest. One that reserves gives its own number to its call."""
        head = self.head()
        number = head.number + 1 if head else 1
        call = number if kind == "reserve" else call
        before = self._heads() if heads is None else heads
        entry = Entry(
            number=number,
            kind=kind,
            dataset=dataset,
            call=call,
            body=body,
            state=state,
            hold=hold,
            heads=heads_after(before, number, kind, dataset, call),
            written=datetime.now(UTC).isoformat(timespec="seconds"),
            previous=head.digest if head else START,
        ).sealed()
        self._session.rows(_INSERT, **entry.values())
        self._newest = entry
        return entry

    def _heads(self) -> Heads:
        head = self.head()
        return head.heads if head else {}

    def _head(self, dataset: str) -> Head:
        head = self._heads().get(dataset)
        if head is None:
            raise LedgerError(f"the ledger has no dataset {dataset!r} any more")
        return head

    def _of(self, dataset: str, number: int) -> Entry:
        entry = self.entry(number)
        if entry is None or entry.dataset != dataset:
            raise LedgerError(f"the ledger is damaged: it has lost entry {number}, of {dataset}")
        return entry

    def _one(self, where: str, **values: Any) -> Entry | None:
        rows = self._session.rows(f"{_SELECT} {where}", **values)
        return Entry.read(rows[0]) if rows else None
