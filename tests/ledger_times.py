"""How long it takes to open, charge and check a ledger that holds much."""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dpeffects.ledgers import DurableLedger, create_ledger, open_ledger
from dpeffects.ledgers.transaction import Transaction
from dpeffects.privacy.budget import Budget
from dpeffects.services.gate.store import Price, Store
from tests.killing import TERMS, a_charge
from tests.privacy.conftest import Server, binaries


def fill(ledger: DurableLedger, requests: int, calls: int) -> None:
    """Add requests with replies, and calls that never end, in one transaction."""
    with ledger._store.session(write=True) as session:
        book = Transaction(session)
        for number in range(requests):
            price = {"epsilon": 1e-3, "delta": 0.0, "terms": TERMS}
            body = {"request": f"q{number}", "question": "hash", **price}
            state = ledger.agreement.pay(book.state("x"), Budget(1e-3), TERMS)
            to = book.add("request", "x", body, state).number
            body = {"request": f"q{number}", "to": to, "reply": {"value": number}}
            book.add("reply", "x", body, state)
        for _ in range(calls):
            state, hold = ledger.agreement.reserve(book.state("x"), Budget(1e-3), TERMS)
            body = {"epsilon": 1e-3, "delta": 0.0, "terms": TERMS, "about": {"process": "dead:0"}}
            book.add("reserve", "x", body, state, hold)


def median_of(act: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        act()
        taken.append(1e3 * (time.perf_counter() - start))
    return round(statistics.median(taken), 2)


def timed(ledger: str, requests: int, calls: int, times: int) -> dict[str, object]:
    """Medians in ms, in a file or on a server, with this much in the ledger."""
    with contextlib.ExitStack() as last:
        folder = last.enter_context(tempfile.TemporaryDirectory(dir=Path(__file__).parents[1]))
        address, anchor = f"{folder}/a.db", f"{folder}/a.anchor" if "anchor" in ledger else None
        if "server" in ledger:
            if not (programs := binaries()):
                return {"": "no PostgreSQL here"}
            server = Server(programs)
            last.callback(server.remove)
            address = server.url(server.schema())
        book = create_ledger(address, "x", epsilon=1e6, anchor=anchor)
        fill(book, requests, calls)
        store, number = Store(address, 1e6), itertools.count()
        room = book.reserve(Budget(10.0), TERMS, {})
        plain = last.enter_context(open(f"{folder}/plain", "wb", buffering=0))
        acts = {
            "open": lambda: open_ledger(address),
            "charge in a call": lambda: room.charge(a_charge("a", 1e-3), TERMS),
            "charge by itself": lambda: book.charge(a_charge("a", 1e-3), TERMS),
            "find a new request": lambda: store.find("new", "hash"),
            "pay for a request": lambda: store.reserve(f"n{next(number)}", "hash", Price(1e-3)),
            "one fsync": lambda: (plain.write(b"x" * 4096), os.fsync(plain.fileno())),
        }
        found = {f"{name}, ms": median_of(act, times) for name, act in acts.items()}
        found["verify, ms"] = median_of(book.verify, 1)
        newest = book.entries()[-1]
    return found | {"bytes of an entry": sum(len(str(x)) for x in newest.values().values())}
