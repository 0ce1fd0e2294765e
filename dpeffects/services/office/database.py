"""The database of an office: accounts, projects, tokens, requests and events, in SQLAlchemy Core.

Nothing of the data is in it but released results. Every change is one transaction, and those that
write take turns: `BEGIN IMMEDIATE` in SQLite, locked rows in PostgreSQL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from alembic import command
from alembic.config import Config
from sqlalchemy.engine import Connection, Engine

_KINDS = {"": sql.Text, "flag": sql.Boolean, "number": sql.Float(53), "name": sql.String(64)}


def column(word: str) -> Any:
    """Return what ``name:kind`` says: text that is there, where no kind is said.

    ``:key`` is the number of a row, ``:of`` that of a row of another table, ``?`` may be missing.

    Examples
    --------
    >>> column("label"), column("cap:number?").nullable
    (Column('label', Text(), table=None, nullable=False), True)
    """
    name, _, kind = word.partition(":")
    missing, kind = kind.endswith("?"), kind.rstrip("?")
    if kind in ("key", "of", "of+key"):
        parents = [sql.ForeignKey(f"{name.removesuffix('_id')}s.id")] if "of" in kind else []
        keys = {"primary_key": True} if "key" in kind else {"nullable": missing}
        return sql.Column(name, sql.Integer, *parents, **keys)
    first, once = kind == "name", kind == "once"
    return sql.Column(
        name, _KINDS.get(kind, sql.Text), nullable=missing, unique=once or None, primary_key=first
    )


METADATA = sql.MetaData()


def _table(name: str, words: str, *more: Any) -> Any:
    return sql.Table(name, METADATA, *map(column, words.split()), *more)


_CAPS = "epsilon:number? delta:number?"
"""Most that may be spent; where there is none, what the dataset has left."""
ACCOUNTS = _table(
    "accounts", f"id:key name:once role password changes_password:flag active:flag {_CAPS} created"
)
PROJECTS = _table("projects", f"id:key name:once {_CAPS} created")
MEMBERSHIPS = _table("memberships", "account_id:of+key project_id:of+key")
TOKENS = _table(
    "tokens", "id:key digest:once kind account_id:of project_id:of? label created expires revoked:?"
)
REQUESTS = _table(
    "requests",
    "id:name account_id:of project_id:of question epsilon:number delta:number status reason "
    "decided_by kind result:? asked changed",
    sql.Index("requests_by_status", "status", "asked"),
)
EVENTS = _table("events", "id:key at account action subject")


def now(after: timedelta = timedelta()) -> str:
    """The time as texts that sort."""
    return (datetime.now(UTC) + after).isoformat(timespec="microseconds")


class Database:
    """The database at a URL."""

    def __init__(self, url: str) -> None:
        made = sql.make_url(url)
        if made.drivername in ("postgresql", "postgres"):
            made = made.set(drivername="postgresql+psycopg")
        self.name = made.render_as_string(hide_password=True)
        self._engine: Engine = sql.create_engine(made, pool_pre_ping=True)
        if self._engine.dialect.name == "sqlite":
            sql.event.listen(self._engine, "connect", _prepare_sqlite)
            sql.event.listen(self._engine, "begin", _begin_sqlite)
        self.write = self._engine.begin
        """Begin a transaction that may write."""
        self.close = self._engine.dispose
        """Close all connections."""

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Begin a transaction that reads."""
        with self._engine.execution_options(dpeffects_reads=True).connect() as connection:
            yield connection

    def rows(self, statement: Any) -> list[dict[str, Any]]:
        """Select rows."""
        with self.read() as connection:
            return [dict(row) for row in connection.execute(statement).mappings()]

    def upgrade(self) -> None:
        """Make the tables, or bring those of an earlier version up to date."""
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
        with self.write() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def one(connection: Connection, statement: Any) -> dict[str, Any] | None:
    """Return the first row that is selected."""
    row = connection.execute(statement).mappings().first()
    return None if row is None else dict(row)


def note(connection: Connection, account: str, action: str, subject: str = "") -> None:
    """Note an event, which stays."""
    values = {"at": now(), "account": account, "action": action, "subject": subject}
    connection.execute(EVENTS.insert().values(**values))


def change(connection: Connection, table: Any, row: Any, **values: Any) -> None:
    """Change the row of an identifier."""
    connection.execute(table.update().where(table.c.id == row).values(**values))


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions are begun below
    for setting in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "busy_timeout=60000",
    ):
        connection.execute(f"PRAGMA {setting}")


def _begin_sqlite(connection: Connection) -> None:
    reads = connection.get_execution_options().get("dpeffects_reads", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
