"""Writers that charge a ledger and are killed at any moment, and a count of what came of it.

    python -m tests.killing ADDRESS KILLS PROCESSES CHARGES SECONDS

A writer reserves, charges and settles as a call does. After each charge, and a moment for drawing,
it writes the label of the charge to a log: what is in the log was released. The budget is for
CHARGES charges; writers are killed within SECONDS of their start. Prints the counts as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from fractions import Fraction
from itertools import count
from pathlib import Path

from dpeffects.errors import BudgetError, DPEffectsError
from dpeffects.privacy.budget import Budget, as_written
from dpeffects.privacy.guarantee import Spend
from dpeffects.privacy.ledger import Terms
from dpeffects.privacy.ledgers import create_ledger, open_ledger

PRICE = 0.1
TERMS = Terms("record")


def spend(label: str, epsilon: float = PRICE, delta: float = 0.0) -> Spend:
    return Spend(label, "estimate", epsilon, delta, "Laplace", (1.0,), (1.0,), 2, alone=True)


def write_until_killed(address: str, name: int, log: int) -> None:
    ledger = open_ledger(address, "nsw")
    with contextlib.suppress(BudgetError):
        for call in count():
            room = ledger.reserve(Budget(3 * PRICE), TERMS, {"method": "writer"})
            for charge in range(2):
                label = f"{name}.{call}.{charge}"
                room.charge(spend(label), TERMS)
                time.sleep(0.002)
                os.write(log, f"{label}\n".encode())
            room.settle()
    time.sleep(60)


def start(address: str, name: int, log: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        write_until_killed(address, name, log)
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
    """Do what a curator would: give back what dead processes have reserved."""
    for call in ledger.open_calls():
        if int(call.about["process"].split(":")[-1]) not in alive:
            ledger.settle(call.number)


def kill_writers(address: str, kills: int, processes: int, most: int, longest: float) -> dict:
    chance = random.Random(1)
    ledger = create_ledger(address, "nsw", epsilon=float(as_written(PRICE) * most))
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "released"
        out = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        names = count()
        alive: list[tuple[float, int]] = []
        for done in range(kills):
            while len(alive) < min(processes, kills - done):
                due = time.monotonic() + chance.uniform(0.0, longest)
                alive.append((due, start(address, next(names), out)))
            alive.sort()
            due, pid = alive.pop(0)
            time.sleep(max(0.0, due - time.monotonic()))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            failed += not opens(address)
            if done % 20 == 19:
                settle_dead(ledger, {pid for _, pid in alive})
        os.close(out)
        released = log.read_text().split()
    return counts(ledger, released, failed)


def counts(ledger, released: list[str], failed: int) -> dict:
    charged = [s.label for s in ledger.spends]
    price = Fraction(PRICE)
    allowed = ledger.agreement.limits.first
    abandoned = len(ledger.open_calls())
    ledger.settle() if abandoned else None
    return {
        "charges": len(charged),
        "releases": len(released),
        "charged, killed before the draw": len(set(charged) - set(released)),
        "released without a charge": len(set(released) - set(charged)),
        "charged twice": len(charged) - len(set(charged)),
        "over-release": float(max(Fraction(0), len(released) * price - allowed)),
        "budget used, %": round(float(100 * ledger.spent[0] / allowed), 1),
        "lost in the total": float(abs(ledger.spent[0] - len(charged) * price)),
        "failed to open": failed,
        "calls left open": abandoned,
        "sound": ledger.verify().split(": ")[-1].split(",")[0],
    }


if __name__ == "__main__":
    where, kills, processes, most, longest = sys.argv[1:]
    found = kill_writers(where, int(kills), int(processes), int(most), float(longest))
    print(json.dumps(found))
