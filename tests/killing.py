"""Processes that charge a ledger and are killed at any moment, and a count of what came of it.

    python -m tests.killing calls ADDRESS KILLS PROCESSES CHARGES SECONDS
    python -m tests.killing allotment ADDRESS KILLS PROCESSES CHARGES SECONDS
    python -m tests.killing anchored ADDRESS KILLS PROCESSES CHARGES SECONDS
    python -m tests.killing site ADDRESS KILLS PROCESSES CHARGES SECONDS

A call reserves, charges and settles. After each charge, and a moment for drawing, it writes the
label of the charge to a log: what is in the log was released. Of "allotment", every other process
asks for the same half of the budget, and charges that. Of "anchored", the ledger has an anchor in
a file, and whatever is in the log must not be after the entry that is noted there. A site finds,
pays for, draws and answers requests, some of its own and some that all processes are asked; the log
has what it has drawn and what it has sent. The budget is for CHARGES charges; processes are killed
within SECONDS of their start. Prints the counts as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from itertools import count
from pathlib import Path

from dpeffects.errors import BudgetError, DPEffectsError, RefusalError
from dpeffects.ledgers import create_ledger, open_ledger
from dpeffects.privacy.budget import Budget, as_written
from dpeffects.privacy.charges import Charge
from dpeffects.privacy.ledger import Terms
from dpeffects.services.gate.store import Price, Store

PRICE = 0.1
TERMS = Terms("record")
WHOLE = Budget(3 * PRICE)


def a_charge(label: str, epsilon: float = PRICE, delta: float = 0.0) -> Charge:
    return Charge(
        label, "estimate", epsilon, delta, "discrete Laplace", (1.0,), (1.0,), 2, alone=True
    )


def call_until_killed(address: str, name: int, log: int, share: float | None = None) -> None:
    ledger = open_ledger(address, "nsw")
    with contextlib.suppress(BudgetError):
        account = ledger if share is None else ledger.allot("odd", share)
        for call in count():
            room = account.reserve(WHOLE, TERMS, {"method": "writer"})
            for charge in range(2):
                label = f"{name}.{call}.{charge}"
                room.charge(a_charge(label), TERMS)
                time.sleep(0.002)
                os.write(log, f"{label}\n".encode())
            room.settle()
    time.sleep(60)


def allot_until_killed(address: str, name: int, log: int) -> None:
    call_until_killed(address, name, log, 0.5 if name % 2 else None)


def answer_until_killed(address: str, name: int, log: int) -> None:
    total = open_ledger(address, "nsw").agreement.budget.epsilon
    for number in count():
        shared = number % 2 == 0
        request = f"all.{name // 6}.{number}" if shared else f"{name}.{number}"
        try:
            store = Store(address, total, dataset="nsw")
            reply = store.find(request, "question")
            if reply is None:
                store.reserve(request, "question", Price(PRICE, terms=TERMS))
                reply = {"value": secrets.token_hex(4)}
                os.write(log, f"drawn {request} {reply['value']}\n".encode())
                time.sleep(0.002)
                store.finish(request, reply)
            os.write(log, f"sent {request} {reply['value']}\n".encode())
        except RefusalError as error:
            if "total" in str(error):
                break
    time.sleep(60)


def start(work: Callable[[str, int, int], None], address: str, name: int, log: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work(address, name, log)
    except BaseException as error:
        os.write(log, f"failed {type(error).__name__} {error}\n".replace("\n", " ").encode())
        os.write(log, b"\n")
    finally:
        os._exit(1)


def opens(address: str) -> bool:
    try:
        ledger = open_ledger(address, "nsw")
        state = ledger.state
    except DPEffectsError as error:
        print(error, file=sys.stderr)
        return False
    return state.used.plus(state.held).within(ledger.agreement.limits)


def settle_dead(ledger, alive: set[int]) -> None:
    """Do what a curator would: end the calls of dead processes."""
    for call in ledger.open_calls():
        if int(call.about["process"].split(":")[-1]) not in alive:
            ledger.settle(call.number)


def beyond(ledger, log: Path) -> int:
    """Count what was released and is after the entry that the anchor has noted."""
    labels = set(log.read_text().splitlines())
    number, _ = ledger._chain.anchor.read()
    entries = ledger.entries()[number:]
    return sum(e.kind == "charge" and e.body["charge"]["label"] in labels for e in entries)


@contextlib.contextmanager
def kill(work, address: str, kills: int, processes: int, most: int, longest: float, anchored: bool):
    """Run and kill processes; return the ledger, the lines of the log, and failures to open."""
    chance = random.Random(1)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        ledger = create_ledger(
            address,
            "nsw",
            epsilon=float(as_written(PRICE) * most),
            anchor=f"{folder}/anchor.db" if anchored else None,
        )
        log = Path(folder) / "released"
        out = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        names = count()
        alive: list[tuple[float, int]] = []
        for done in range(kills):
            while len(alive) < min(processes, kills - done):
                due = time.monotonic() + chance.uniform(0.0, longest)
                alive.append((due, start(work, address, next(names), out)))
            alive.sort()
            due, pid = alive.pop(0)
            time.sleep(max(0.0, due - time.monotonic()))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            failed += not opens(address)
            failed += beyond(ledger, log) if anchored else 0
            if done % 20 == 19:
                settle_dead(ledger, {pid for _, pid in alive})
        os.close(out)
        yield ledger, log.read_text().splitlines(), failed


def count_calls(ledger, released: list[str], failed: int) -> dict:
    errors = [line for line in released if line.startswith("failed")]
    released = [line for line in released if not line.startswith("failed")]
    abandoned = len(ledger.open_calls())
    ledger.settle() if abandoned else None
    charged = [s.label for s in ledger.charges if s.share != "rest"]
    calls = {label.rpartition(".")[0] for label in charged}
    allowed = ledger.agreement.limits.first
    odd = [label for label in released if int(label.split(".")[0]) % 2]
    kept = ledger.state.allotments.get("odd")
    return {
        "charges": len(charged),
        "releases": len(released),
        "over-release of the allotment": float(
            max(Fraction(0), len(odd) * Fraction(PRICE) - kept.share * allowed) if kept else 0
        ),
        "lost in the allotment": float(
            abs(kept.left[0] + kept.spent[0] - kept.share * allowed) if kept else 0
        ),
        "charged, killed before the draw": len(set(charged) - set(released)),
        "released without a charge": len(set(released) - set(charged)),
        "charged twice": len(charged) - len(set(charged)),
        "over-release": float(max(Fraction(0), len(released) * Fraction(PRICE) - allowed)),
        "budget used, %": round(float(100 * ledger.spent[0] / allowed), 1),
        "lost in the total": float(abs(ledger.spent[0] - len(calls) * as_written(WHOLE.epsilon))),
        "failed to open": failed,
        "other errors": len(errors),
        "calls left open": abandoned,
        "sound": ledger.verify().split(": ")[-1].split(",")[0],
    }


def count_requests(ledger, lines: list[str], failed: int) -> dict:
    """Two values for one request, a value that was not paid for, or one that changed is a leak."""
    drawn, sent = defaultdict(set), defaultdict(set)
    errors = [line for line in lines if line.startswith("failed")]
    for line in lines:
        kind, request, value = line.split(maxsplit=2)
        if kind in ("drawn", "sent"):
            (drawn if kind == "drawn" else sent)[request].add(value)
    entries = ledger.entries()
    paid = [e.body["request"] for e in entries if e.kind == "request"]
    kept = {e.body["request"]: e.body["reply"]["value"] for e in entries if e.kind == "reply"}
    allowed = ledger.agreement.limits.first
    return {
        "charges": len(paid),
        "releases": len(sent),
        "charged, killed before the draw": len(set(paid) - set(drawn)),
        "drawn, killed before the answer": len(set(drawn) - set(kept)),
        "released without a charge": len(set(drawn) - set(paid)),
        "charged twice": len(paid) - len(set(paid)),
        "drawn twice": sum(len(values) > 1 for values in drawn.values()),
        "sent, and not what was kept": sum({kept.get(r)} != values for r, values in sent.items()),
        "over-release": float(max(Fraction(0), len(drawn) * as_written(PRICE) - allowed)),
        "budget used, %": round(float(100 * ledger.spent[0] / allowed), 1),
        "lost in the total": float(abs(ledger.spent[0] - len(paid) * as_written(PRICE))),
        "failed to open": failed,
        "other errors": len(errors),
        "sound": ledger.verify().split(": ")[-1].split(",")[0],
    }


WORK = {
    "calls": (call_until_killed, count_calls),
    "allotment": (allot_until_killed, count_calls),
    "anchored": (call_until_killed, count_calls),
    "site": (answer_until_killed, count_requests),
}
ZEROS = (
    "released without a charge",
    "charged twice",
    "drawn twice",
    "sent, and not what was kept",
    "over-release",
    "over-release of the allotment",
    "lost in the allotment",
    "lost in the total",
    "failed to open",
    "other errors",
)
"""Counts that must be zero."""


if __name__ == "__main__":
    kind, where, kills, processes, most, longest = sys.argv[1:]
    work, counts = WORK[kind]
    times = (int(kills), int(processes), int(most), float(longest))
    with kill(work, where, *times, kind == "anchored") as done:
        print(json.dumps(counts(*done)))
