"""The entries of a ledger within one transaction, and what a store of them must offer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Protocol

from dpeffects.errors import LedgerError
from dpeffects.privacy.ledgers.entries import COLUMNS, START, Entry, Hold, State

VERSION = 1
"""Version of the layout; a ledger of another one is refused."""

_SELECT = f"SELECT {', '.join(COLUMNS)} FROM dpeffects_entries"
_INSERT = (
    f"INSERT INTO dpeffects_entries ({', '.join(COLUMNS)}) "
    f"VALUES ({', '.join(':' + name for name in COLUMNS)})"
)


class Session(Protocol):
    """A transaction: SQL with named values in, rows out."""

    def rows(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""


class Store(Protocol):
    """Where entries are kept, one transaction at a time."""

    name: str

    def create(self) -> None:
        """Make the tables where there are none."""

    def session(self, write: bool, more: bool = False) -> AbstractContextManager[Session]:
        """Begin a transaction; commit it durably at the end, or undo it after an error.

        Of those that write, one at a time begins, and it sees what the ones before committed.
        ``more`` says that others will follow soon.
        """

    def faults(self, session: Session) -> list[str]:
        """Say what is wrong with the storage itself; nothing when all is well."""


class Book:
    """Reads and adds entries. Every entry that is read is checked against its digest."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def check_version(self) -> None:
        """Refuse a ledger of another version."""
        found = self._session.rows("SELECT version FROM dpeffects_version")
        if [row[0] for row in found] != [VERSION]:
            shown = ", ".join(str(row[0]) for row in found) or "none"
            raise LedgerError(
                f"the ledger has layout version {shown}, and this dpeffects reads {VERSION}: "
                "use the version of dpeffects that wrote it, or a newer one"
            )

    def datasets(self) -> list[str]:
        """Return the names of the datasets, in the order they were added."""
        sql = "SELECT dataset FROM dpeffects_entries WHERE kind = 'dataset' ORDER BY number"
        return [str(row[0]) for row in self._session.rows(sql)]

    def entry(self, number: int) -> Entry | None:
        """Return one entry."""
        return self._one("WHERE number = :number", number=number)

    def head(self) -> Entry | None:
        """Return the newest entry."""
        return self._one("ORDER BY number DESC LIMIT 1")

    def opening(self, dataset: str) -> Entry:
        """Return the entry that added a dataset."""
        return self._needed("WHERE dataset = :dataset ORDER BY number LIMIT 1", dataset=dataset)

    def state(self, dataset: str) -> State:
        """Return the newest totals of a dataset."""
        sql = "WHERE dataset = :dataset ORDER BY number DESC LIMIT 1"
        return self._needed(sql, dataset=dataset).state

    def hold(self, call: int) -> Hold:
        """Return what a call has left of its reservation."""
        sql = "WHERE call_number = :call ORDER BY number DESC LIMIT 1"
        hold = self._needed(sql, call=call).hold
        if hold is None:
            raise LedgerError(f"the ledger has no reservation for call {call}")
        return hold

    def all(self) -> Iterator[Entry]:
        """Return all entries, in order."""
        for row in self._session.rows(f"{_SELECT} ORDER BY number"):
            yield Entry.read(row)

    def of_dataset(self, dataset: str) -> list[Entry]:
        """Return the entries of a dataset, in order."""
        sql = f"{_SELECT} WHERE dataset = :dataset ORDER BY number"
        return [Entry.read(row) for row in self._session.rows(sql, dataset=dataset)]

    def add(
        self,
        kind: str,
        dataset: str,
        body: dict[str, Any],
        state: State,
        hold: Hold | None = None,
        call: int = 0,
    ) -> Entry:
        """Add an entry after the newest. One that reserves gives its own number to its call."""
        head = self.head()
        number = head.number + 1 if head else 1
        entry = Entry(
            number=number,
            kind=kind,
            dataset=dataset,
            call=number if kind == "reserve" else call,
            body=body,
            state=state,
            hold=hold,
            written=datetime.now(UTC).isoformat(timespec="seconds"),
            previous=head.digest if head else START,
        ).sealed()
        self._session.rows(_INSERT, **entry.values())
        return entry

    def _one(self, where: str, **values: Any) -> Entry | None:
        rows = self._session.rows(f"{_SELECT} {where}", **values)
        return Entry.read(rows[0]) if rows else None

    def _needed(self, where: str, **values: Any) -> Entry:
        found = self._one(where, **values)
        if found is None:
            raise LedgerError(f"the ledger has lost its entries for {next(iter(values.values()))}")
        return found
