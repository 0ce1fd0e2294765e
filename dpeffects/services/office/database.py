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

METADATA = sql.MetaData()


def _table(name: str, *columns: Any) -> Any:
    return sql.Table(name, METADATA, *columns)


def _key() -> Any:
    return sql.Column("id", sql.Integer, primary_key=True)


def _of(table: str, **settings: Any) -> Any:
    key = sql.ForeignKey(f"{table}s.id")
    return sql.Column(f"{table}_id", sql.Integer, key, **{"nullable": False} | settings)


def _text(name: str, **settings: Any) -> Any:
    return sql.Column(name, sql.Text, **{"nullable": False} | settings)


def _caps() -> tuple[Any, Any]:
    """Most that may be spent; where there is none, what the dataset has left."""
    return sql.Column("epsilon", sql.Float(53)), sql.Column("delta", sql.Float(53))


ACCOUNTS = _table(
    "accounts",
    _key(),
    _text("name", unique=True),
    _text("role"),
    _text("password"),
    sql.Column("changes_password", sql.Boolean, nullable=False),
    sql.Column("active", sql.Boolean, nullable=False),
    *_caps(),
    _text("created"),
)
PROJECTS = _table("projects", _key(), _text("name", unique=True), *_caps(), _text("created"))
MEMBERSHIPS = _table(
    "memberships", _of("account", primary_key=True), _of("project", primary_key=True)
)
TOKENS = _table(
    "tokens",
    _key(),
    _text("digest", unique=True),
    _text("kind"),
    _of("account"),
    _of("project", nullable=True),
    _text("label"),
    _text("created"),
    _text("expires"),
    _text("revoked", nullable=True),
)
REQUESTS = _table(
    "requests",
    sql.Column("id", sql.String(64), primary_key=True),
    _of("account"),
    _of("project"),
    _text("question"),
    sql.Column("epsilon", sql.Float(53), nullable=False),
    sql.Column("delta", sql.Float(53), nullable=False),
    _text("status"),
    _text("reason"),
    _text("decided_by"),
    _text("kind"),
    _text("result", nullable=True),
    _text("asked"),
    _text("changed"),
    sql.Index("requests_by_status", "status", "asked"),
)
EVENTS = _table("events", _key(), _text("at"), _text("account"), _text("action"), _text("subject"))


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

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """Begin a transaction that may write."""
        with self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Begin a transaction that reads."""
        with self._engine.execution_options(dpeffects_reads=True).connect() as connection:
            yield connection

    def rows(self, statement: Any, **values: Any) -> list[dict[str, Any]]:
        """Select rows."""
        with self.read() as connection:
            return [dict(row) for row in connection.execute(statement, values).mappings()]

    def upgrade(self) -> None:
        """Make the tables, or bring those of an earlier version up to date."""
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
        with self.write() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def one(connection: Connection, statement: Any) -> dict[str, Any] | None:
    """Return the first row that is selected."""
    row = connection.execute(statement).mappings().first()
    return None if row is None else dict(row)


def note(connection: Connection, account: str, action: str, subject: str) -> None:
    """Note an event, which stays."""
    values = {"at": now(), "account": account, "action": action, "subject": subject}
    connection.execute(EVENTS.insert().values(**values))


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
