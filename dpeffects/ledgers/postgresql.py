"""A ledger on a PostgreSQL server, for a team (extra ``server``).

An advisory lock makes writers take turns, and the primary key on entry numbers would refuse two
that did not. A commit waits for the server's disk also where the server is set not to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

from dpeffects.errors import LedgerError, MissingExtraError, OptionError, refusal
from dpeffects.ledgers.transaction import EntryStore, Rows, Session

WAIT = 60
"""Seconds to wait for other writers."""
_LOCK = 0x6470_6C65_6467_6572
"""Key of the advisory lock ("dpledger")."""

_REASONS = {
    "25006": "is read-only",
    "42501": "may not be used by this user",
    "42P01": "is not a ledger of dpeffects",
    "53100": "cannot grow: the disk is full",
    "55P03": f"was in use by others for more than {WAIT} seconds",
}


class PostgreSQLStore(EntryStore):
    """Entries in a PostgreSQL database."""

    integer = "BIGINT"
    additions = (
        "CREATE OR REPLACE FUNCTION dpeffects_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the ledger is only added to'; END $$",
    )
    triggers: ClassVar = {
        "dpeffects_only_added_to": "BEFORE UPDATE OR DELETE OR TRUNCATE ON dpeffects_entries "
        "FOR EACH STATEMENT EXECUTE FUNCTION dpeffects_refuse()"
    }
    list_triggers = (
        "SELECT tgname FROM pg_trigger WHERE tgrelid = 'dpeffects_entries'::regclass "
        "AND tgenabled <> 'D'"
    )

    def __init__(self, url: str) -> None:
        try:
            import sqlalchemy

            self._sql: Any = sqlalchemy
            parsed = self._sql.make_url(url)
            if "+" not in parsed.drivername:
                parsed = parsed.set(drivername="postgresql+psycopg")
            self._engine = self._sql.create_engine(
                parsed, poolclass=self._sql.pool.NullPool, connect_args={"connect_timeout": 10}
            )
        except ModuleNotFoundError as error:
            raise MissingExtraError(refusal("server_extra")) from error
        except sqlalchemy.exc.ArgumentError as error:
            raise OptionError(f"cannot read the address of the ledger: {error}") from error
        self.name = parsed.set(drivername="postgresql").render_as_string(hide_password=True)

    def create(self) -> None:
        """Make the tables where there are none."""
        with self.session(write=True) as session:
            if session.rows("SELECT to_regclass('dpeffects_version')") == [(None,)]:
                self.make_tables(session)

    @contextlib.contextmanager
    def session(self, write: bool, more: bool = False) -> Iterator[Session]:
        """Begin a transaction; one that writes waits for its turn."""
        level = "READ COMMITTED" if write else "REPEATABLE READ"
        try:
            with self._engine.connect() as connection:
                connection = connection.execution_options(isolation_level=level)
                with connection.begin():
                    session = Session(lambda sql, values: self._rows(connection, sql, values))
                    if write:
                        _take_turn(session)
                    yield session
        except self._sql.exc.DBAPIError as error:
            raise LedgerError(self._explained(error)) from error

    def _rows(self, connection: Any, sql: str, values: dict[str, Any]) -> Rows:
        result = connection.execute(self._sql.text(sql), values)
        return [tuple(row) for row in result] if result.returns_rows else []

    def _explained(self, error: Any) -> str:
        code = getattr(error.orig, "sqlstate", None) or ""
        said = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
        fallback = "cannot be used" if code else "cannot be reached, or the connection was lost"
        return f"{self.name} {_REASONS.get(code, fallback)} ({said[0]})"


def _take_turn(session: Session) -> None:
    session.rows(f"SET LOCAL lock_timeout = '{WAIT}s'")
    session.rows(f"SET LOCAL idle_in_transaction_session_timeout = '{WAIT}s'")
    session.rows(
        "SELECT set_config('synchronous_commit', 'on', true) "
        "WHERE current_setting('synchronous_commit') IN ('off', 'local')"
    )
    session.rows(f"SELECT pg_advisory_xact_lock({_LOCK})")
