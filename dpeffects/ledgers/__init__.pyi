"""The public names of ledgers and their places (see `dpeffects.lazy`)."""

from dpeffects.ledgers.chain import Address
from dpeffects.ledgers.durable import (
    DurableLedger,
    anchor_ledger,
    create_ledger,
    ledger_datasets,
    open_ledger,
    verify_ledger,
)

__all__ = [
    "Address",
    "DurableLedger",
    "anchor_ledger",
    "create_ledger",
    "ledger_datasets",
    "open_ledger",
    "verify_ledger",
]
