"""Durable ledgers: processes that are killed, files that are damaged, and how long things take.

A process that is killed reserves, charges, draws and settles as a call does, with or without an
anchor, or finds, pays for, draws and answers requests as a site of a federation does. Eight run at
a time, and each gets SIGKILL at a random moment of its first fifth of a second
(`tests/killing.py`). A damaged file has a bit, some bytes, a page or its end changed
(`tests/damage.py`). Ledgers that are timed hold requests and dead calls; those on a server are on
one that is made for this, where PostgreSQL is installed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from json import loads
from pathlib import Path

import pandas as pd
from harness import Part, Table, grid, together
from report import ROOT

from tests.damage import count
from tests.ledger_times import timed


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


def taken(people: int, noise: int, **cell):
    return timed(**cell)


def page(kills: pd.DataFrame, files: pd.DataFrame, times: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Cells are columns."""
    heads = {"work": kills["work"] + ", " + kills["budget"]}
    heads["ledger"] = [f"{x}, {n:,} requests" for x, n in times[["ledger", "requests"]].to_numpy()]
    kills, times = kills.drop(columns="budget"), times.drop(columns="requests")
    made = {"Killed processes, 8 at a time": kills, "Medians of times": times}
    for (title, frame), (column, names) in zip(made.items(), heads.items(), strict=True):
        shown = frame.drop(columns=["times", column], errors="ignore").T.set_axis(names, axis=1)
        shown = shown.where(shown.notna(), "").rename_axis(None, axis=1)
        made[title] = shown.reset_index(names="")
    return made | {"Damaged files": files}


WHERE = ("file", "file, anchor in a file", "server, same machine")
TIMES = [*grid(ledger=WHERE, requests=[0], calls=[0], times=[50])]
TIMES += grid(ledger=WHERE, requests=[5000], calls=[500], times=[50])
KILLS = grid(work=("calls", "anchored", "site"), budget=("ample", "runs out"), kills=[40], runs=[1])
TABLE = Table(
    "Durable ledgers",
    (
        Part(
            "Kills",
            KILLS,
            killed,
            together,
            small=[{"work": "calls", "budget": "ample", "kills": 8}],
        ),
        Part("Damage", grid(files=[300]), damaged, small=grid(files=[20])),
        Part("Times", TIMES, taken, small=[x | {"times": 5} for x in TIMES[:2]]),
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
    minutes=1.5,
)
