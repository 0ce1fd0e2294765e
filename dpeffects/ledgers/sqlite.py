"""A ledger in one SQLite file.

A rollback journal rather than a write-ahead log: between calls the ledger is one file that can be
copied, mailed and read from a read-only folder, and a commit is on the disk, folder included,
before noise is drawn (``synchronous=EXTRA``). During a call the file of the journal is kept, which
saves most of the time of a charge. A connection lives for one transaction, so forks and threads
share none. Keep the file on a local disk: network folders do not lock reliably.

Entries are found by their numbers. One index holds numbers and digests a second time, and the
newest of both must agree: a damaged page cannot hide the last entries.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from dpeffects.errors import LedgerError, refusal
from dpeffects.file_output import BESIDE
from dpeffects.ledgers.transaction import EntryStore, Session

WAIT = 60.0
"""Seconds to wait for other writers."""

_TURN = threading.RLock()
"""One transaction at a time in a process, and none while it forks."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_TURN.acquire, after_in_parent=_TURN.release, after_in_child=_TURN.release
    )

_REFUSE = "BEGIN SELECT RAISE(ABORT, 'the ledger is only added to'); END"
_NEWEST = (
    "SELECT number, digest FROM dpeffects_entries INDEXED BY dpeffects_numbers "
    "ORDER BY number DESC LIMIT 1"
)
_REASONS = {
    sqlite3.SQLITE_BUSY: f"was in use by others for more than {WAIT:.0f} seconds",
    sqlite3.SQLITE_LOCKED: "is locked",
    sqlite3.SQLITE_READONLY: "is read-only, or its folder is",
    sqlite3.SQLITE_PERM: "may not be opened",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: look at its folder and permissions",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    sqlite3.SQLITE_IOERR: "cannot be read or written: look at the disk and its free space",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is not a ledger of dpeffects, or is damaged",
}


class SQLiteStore(EntryStore):
    """Entries in a SQLite file."""

    additions = ("CREATE INDEX dpeffects_numbers ON dpeffects_entries (number, digest)",)
    triggers: ClassVar = {
        "dpeffects_no_update": f"BEFORE UPDATE ON dpeffects_entries {_REFUSE}",
        "dpeffects_no_delete": f"BEFORE DELETE ON dpeffects_entries {_REFUSE}",
        "dpeffects_in_order": "BEFORE INSERT ON dpeffects_entries WHEN NEW.number <> "
        f"(SELECT COALESCE(MAX(number), 0) + 1 FROM dpeffects_entries) {_REFUSE}",
    }
    list_triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger'"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Path = Path(path).absolute()
        self.name = str(path)

    def create(self) -> None:
        """Make the file and its tables where there are none."""
        if self.path.name.endswith(BESIDE):
            raise LedgerError(refusal("reserved_name", name=self.name))
        with self._session("DELETE", "rwc") as session:
            names = {row[0] for row in session.rows("SELECT name FROM sqlite_master")}
            if "dpeffects_version" in names:
                return
            if names:
                raise LedgerError(f"{self.name} is not a ledger; give the ledger a new file")
            self.make_tables(session)

    def session(
        self, write: bool, more: bool = False
    ) -> contextlib.AbstractContextManager[Session]:
        """Begin a transaction on the file, which must exist."""
        journal = ("PERSIST" if more else "DELETE") if write else None
        return self._session(journal, "rw")  # falls back to reading where writing is forbidden

    def faults(self, session: Session) -> list[str]:
        """Say what is wrong with the file; nothing when all is well."""
        checks = [str(row[0]) for row in session.rows("PRAGMA integrity_check")]
        return [text for text in checks if text != "ok"] + super().faults(session)

    @contextlib.contextmanager
    def _session(self, journal: str | None, mode: str) -> Iterator[Session]:
        with _TURN:
            self._check_file()
            try:
                # without transactions of its own: they are begun and ended here
                uri = f"{self.path.as_uri()}?mode={mode}"
                opened = sqlite3.connect(uri, uri=True, timeout=0.0, isolation_level=None)
                with contextlib.closing(opened) as connection:
                    _begin(connection, journal)
                    try:
                        yield Session(lambda *sql: connection.execute(*sql).fetchall(), _NEWEST)
                        connection.execute("COMMIT")
                    except BaseException:
                        if connection.in_transaction:
                            connection.execute("ROLLBACK")
                        raise
            except sqlite3.Error as error:
                raise LedgerError(self._explained(error)) from error
            except (UnicodeError, OverflowError, MemoryError) as error:
                raise LedgerError(f"{self.name} is damaged") from error

    def _check_file(self) -> None:
        """Refuse what is no file, and a file with two names: a journal belongs to a name."""
        try:
            status = self.path.stat()
        except OSError:
            return  # said when it is opened
        if not stat.S_ISREG(status.st_mode):
            raise LedgerError(f"{self.name} is not a file")
        if status.st_nlink > 1:
            raise LedgerError(refusal("hard_link", name=self.name))

    def _explained(self, error: sqlite3.Error) -> str:
        code = getattr(error, "sqlite_errorcode", None) or 0
        reason = _REASONS.get(code & 0xFF, "cannot be used")
        if "no such table" in str(error):
            reason = "is not a ledger of dpeffects"
        return f"{self.name} {reason} ({error})"


def _begin(connection: sqlite3.Connection, journal: str | None) -> None:
    """Begin a transaction when the file is free; one that writes has a journal.

    Asking every other millisecond is fairer among many writers than SQLite's growing pauses.
    """
    last = time.monotonic() + WAIT
    while True:
        try:
            connection.execute("PRAGMA synchronous=EXTRA")
            connection.execute("PRAGMA fullfsync=ON")
            connection.execute("PRAGMA cell_size_check=ON")
            if journal:
                connection.execute(f"PRAGMA journal_mode={journal}")
            connection.execute("BEGIN IMMEDIATE" if journal else "BEGIN")
            connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchall()
            break
        except sqlite3.OperationalError as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > last:
                raise
            time.sleep(0.002)
    connection.execute(f"PRAGMA busy_timeout={int(1000 * WAIT)}")  # for readers at the commit
