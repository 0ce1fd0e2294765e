"""Durable ledgers: processes that are killed, files that are damaged, and how long things take.

A process that is killed reserves, charges, draws and settles as a call does, with or without an
anchor, or finds, pays for, draws and answers requests as a site of a federation does. Eight run at
a time, and each gets SIGKILL at a random moment of its first fifth of a second
(`tests/killing.py`). A damaged file has a bit, some bytes, a page or its end changed
(`tests/damage.py`). Ledgers that are timed hold requests and dead calls; those on a server are on
one that is made for this, where PostgreSQL is installed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from json import loads
from pathlib import Path

import pandas as pd
from harness import Part, Table, grid, together
from report import ROOT

from dpeffects.ledgers import DurableLedger, create_ledger, open_ledger
from dpeffects.ledgers.transaction import Transaction
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.ledger import Terms
from dpeffects.services.gate.store import Price, Store
from tests.damage import count
from tests.killing import a_charge
from tests.privacy.conftest import Server, binaries

TERMS = Terms("record")


def killed(people: int, noise: int, work: str, budget: str, kills: int):
    charges = 1_000_000 if budget == "ample" else 100
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        command = [sys.executable, "-m", "tests.killing", work, f"{folder}/{work}.db"]
        command += [str(kills), "8", str(charges), "0.2"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return loads(done.stdout)


def damaged(people: int, noise: int, files: int):
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        return count(Path(folder) / "damage.db", files, noise)


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


def timed(people: int, noise: int, ledger: str, requests: int, calls: int, times: int):
    """Medians in ms, in a file or on a server, with this much in the ledger."""
    with contextlib.ExitStack() as last:
        folder = last.enter_context(tempfile.TemporaryDirectory(dir=ROOT))
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


def page(kills: pd.DataFrame, files: pd.DataFrame, times: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Cells are columns."""
    heads = {"work": kills["work"] + ", " + kills["budget"]}
    heads["ledger"] = [f"{x}, {n:,} requests" for x, n in times[["ledger", "requests"]].to_numpy()]
    kills, times = (
        kills.drop(columns=["kills", "budget"]),
        times.drop(columns=["times", "requests"]),
    )
    made = {"Killed processes, 8 at a time": kills, "Medians of times": times}
    for (title, frame), (column, names) in zip(made.items(), heads.items(), strict=True):
        shown = frame.drop(columns=column).astype(object).fillna("").T.set_axis(names, axis=1)
        made[title] = shown.rename_axis(None, axis=1).reset_index(names="")
    return made | {"Damaged files": files}


WHERE = ("file", "file, anchor in a file", "server, same machine")
TIMES = [*grid(ledger=WHERE, requests=[0], calls=[0], times=[50])]
TIMES += grid(ledger=WHERE, requests=[5000], calls=[500], times=[50])
KILLS = grid(work=("calls", "anchored", "site"), budget=("ample", "runs out"), kills=[16], runs=[1])
TABLE = Table(
    "Durable ledgers",
    (
        Part("Kills", KILLS, killed, together, small=[KILLS[0] | {"kills": 8}]),
        Part("Damage", grid(files=[300]), damaged, small=grid(files=[20])),
        Part("Times", TIMES, timed, small=[x | {"times": 5} for x in TIMES[:2]]),
    ),
    "The bars: zero over-release, zero lost charges, nothing drawn twice, nothing released "
    "beyond the anchor (it counts as failed to open), the ledger opens every time; of damaged "
    "files, none forgets a charge or raises another error. With 10,000 entries of requests and "
    "replies and 500 dead calls: a charge under 5 ms at the median on a local file, opening "
    "under 20 ms, `verify` linear, an entry of the same size. A charge is a transaction of its "
    "own with five fsyncs (journal, folder, file), and is on the disk when it returns; an "
    "anchor in a file costs a second transaction. Ten times the kills: "
    "`make evidence TABLE=ledger RUNS=10 MINUTES=40`.",
    page=page,
    alone=True,
    minutes=3.5,
)
