"""Bring a ledger of layout version 1 up to date, in one transaction."""

from __future__ import annotations

from dpeffects.errors import LedgerError
from dpeffects.ledgers.audit import replayed
from dpeffects.ledgers.book import VERSION, Book, Store

_REASON = "open when the ledger was brought up to date"


def upgrade(store: Store) -> str:
    """Check all entries, add the columns and the heads of this version, and end open calls."""
    with store.session(write=True) as session:
        book = Book(session)
        if book.versions() == [VERSION]:
            return f"{store.name} has layout version {VERSION} already"
        if book.versions() != [1]:
            book.check_version()
        faults = store.faults(session)
        if faults:
            raise LedgerError(f"{store.name} is not sound: {'; '.join(faults)}")
        for statement in store.upgrade:
            session.rows(statement)
        replay = replayed(book)
        for number, dataset in enumerate(replay.heads):
            if number == 0:
                book.add(
                    "upgrade", dataset, {"from": 1}, replay.states[dataset], heads=replay.heads
                )
            for call in replay.heads[dataset].calls:
                state, hold = replay.agreements[dataset].settle(
                    book.state(dataset), replay.holds[call]
                )
                book.add("settle", dataset, {"reason": _REASON}, state, hold, call)
        session.rows(f"UPDATE dpeffects_version SET version = {VERSION}")
    return f"{store.name}: brought up to layout version {VERSION}, {replay.entries} entries checked"
