"""A site's durable record of what it was asked, what it paid and what it answered.

One SQLite file. A request is reserved, in a transaction that also checks the totals, before any
noise is drawn; the reply is kept when it is there. A request that was reserved but never answered
stays paid for and is never drawn again: a crash loses budget, not privacy.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from dpeffects.errors import BudgetError, PolicyError, RefusalError
from dpeffects.privacy.budget import Budget, as_written, round_down

_SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    request TEXT PRIMARY KEY,
    question TEXT NOT NULL,
    epsilon TEXT NOT NULL,
    delta TEXT NOT NULL,
    terms TEXT NOT NULL,
    reply TEXT
) STRICT
"""
_WAIT = 30.0
"""Seconds to wait for another process that holds the file."""


class Price(NamedTuple):
    """What a request costs, and what that protects: charges of other terms do not add up."""

    epsilon: float
    delta: float = 0.0
    terms: str = "record"


class Store:
    """The ledger of a site over all questions, safe against crashes and concurrent processes.

    Parameters
    ----------
    path
        The file; it is made when it is not there.
    epsilon, delta
        Totals over all requests, ever.

    Examples
    --------
    >>> import tempfile
    >>> store = Store(Path(tempfile.mkdtemp()) / "ledger.sqlite", epsilon=1.0)
    >>> store.reserve("q1", "hash", Price(0.5))
    >>> store.finish("q1", {"status": "ok"})
    >>> store.find("q1", "hash"), store.left
    ({'status': 'ok'}, (0.5, 0.0))
    """

    def __init__(self, path: str | Path, epsilon: float, delta: float = 0.0) -> None:
        self._path = Path(path)
        self._total = Budget(epsilon, delta)
        try:
            with self._transaction() as database:
                database.execute(_SCHEMA)
        except sqlite3.Error as error:
            raise PolicyError(f"the ledger file {self._path} cannot be used: {error}") from None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the file's write lock from the first read to the commit."""
        opened = sqlite3.connect(self._path, timeout=_WAIT, isolation_level=None)
        with closing(opened) as database:
            database.execute("PRAGMA synchronous = FULL")
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    def find(self, request: str, question: str) -> dict[str, Any] | None:
        """Return the stored reply, or None for a request that is new.

        Raises RefusalError when the request is known with another question, or was reserved and
        has no reply.
        """
        with self._transaction() as database:
            return _find(database, request, question)

    def reserve(self, request: str, question: str, price: Price) -> None:
        """Pay for a new request, or refuse. Call before anything is drawn."""
        with self._transaction() as database:
            if _find(database, request, question) is not None:
                raise RefusalError("this request has been answered already")
            self._check(database, price)
            database.execute(
                "INSERT INTO requests VALUES (?, ?, ?, ?, ?, NULL)",
                (request, question, repr(price.epsilon), repr(price.delta), price.terms),
            )

    def _check(self, database: sqlite3.Connection, price: Price) -> None:
        Budget(price.epsilon, price.delta)
        rows = database.execute("SELECT DISTINCT terms FROM requests").fetchall()
        if any(terms != price.terms for (terms,) in rows):
            raise RefusalError("this site's ledger holds charges that protect something else")
        epsilon, delta = _spent(database)
        total = as_written(self._total.epsilon), as_written(self._total.delta)
        if epsilon + as_written(price.epsilon) > total[0]:
            raise RefusalError("the total epsilon of this site does not cover the question")
        if delta + as_written(price.delta) > total[1]:
            raise RefusalError("the total delta of this site does not cover the question")

    def finish(self, request: str, reply: Mapping[str, Any]) -> None:
        """Keep the reply to a reserved request; it can be kept once."""
        text = json.dumps(reply, allow_nan=False)
        with self._transaction() as database:
            done = database.execute(
                "UPDATE requests SET reply = ? WHERE request = ? AND reply IS NULL", (text, request)
            )
            if done.rowcount != 1:
                raise BudgetError(f"request {request!r} is not waiting for a reply")

    @property
    def spent(self) -> tuple[Fraction, Fraction]:
        """Exact totals of epsilon and delta so far."""
        with self._transaction() as database:
            return _spent(database)

    @property
    def left(self) -> tuple[float, float]:
        """What is left of epsilon and delta, rounded down."""
        epsilon, delta = self.spent
        return (
            max(0.0, round_down(as_written(self._total.epsilon) - epsilon)),
            max(0.0, round_down(as_written(self._total.delta) - delta)),
        )


def _find(database: sqlite3.Connection, request: str, question: str) -> dict[str, Any] | None:
    row = database.execute(
        "SELECT question, reply FROM requests WHERE request = ?", (request,)
    ).fetchone()
    if row is None:
        return None
    if row[0] != question:
        raise RefusalError("this request id was used for another question")
    if row[1] is None:
        raise RefusalError(
            "lost: this request is paid for but was never answered, and is not drawn again; "
            "ask with a new request id"
        )
    stored: dict[str, Any] = json.loads(row[1])
    return stored


def _spent(database: sqlite3.Connection) -> tuple[Fraction, Fraction]:
    rows = database.execute("SELECT epsilon, delta FROM requests").fetchall()
    return (
        sum((Fraction(epsilon) for epsilon, _ in rows), Fraction(0)),
        sum((Fraction(delta) for _, delta in rows), Fraction(0)),
    )
