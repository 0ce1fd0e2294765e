"""Ledgers that outlive the process: in a SQLite file, or on a PostgreSQL server."""

from dpeffects.ledgers.durable import (
    Address,
    DurableLedger,
    create_ledger,
    ledger_datasets,
    open_ledger,
    upgrade_ledger,
    verify_ledger,
)

__all__ = [
    "Address",
    "DurableLedger",
    "create_ledger",
    "ledger_datasets",
    "open_ledger",
    "upgrade_ledger",
    "verify_ledger",
]
