"""An office: under load, with processes killed, replayed on neighbours, and asked nonsense.

The machinery is that of tests: `tests/office/load.py`, `tests/office/replayed.py`,
`tests/fuzzing/office.py`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from faults import CELLS, COUNTED, SMALL, cases, ends
from harness import Bar, Part, Table, grid, together

from tests.office.load import CHEAP, under_load, with_kills
from tests.office.replayed import PAIRS, kinds, replayed
from tests.privacy.conftest import binaries

STORES = ("SQLite", "PostgreSQL") if binaries() else ("SQLite",)
NONE = ("drawn twice", "seen and not paid", "lost", "told other than spent", "budgets overspent")
SLOW = "cheap requests: p95, s"
NONE += ("epsilon beyond the total", "lost in the ledger's total", "people without an answer")


def load(people: int, noise: int, store: str, persons: int, seconds: int):
    office, became = under_load(store, persons, seconds)
    times = {"cheap requests": [y for x in CHEAP for y in office.times[x]], **office.times}
    for what in ("cheap requests", "page", "plan", "question, until its answer"):
        half, most = np.quantile(times.get(what, [0.0]), [0.5, 0.95])
        became |= {what: len(times.get(what, [])), f"{what}: median, s": round(half, 2)}
        became |= {f"{what}: p95, s": round(most, 2)}
    bad = sum(n for code, n in office.codes.items() if not 0 < code < 500)
    return became | {"answers without sense, or none": bad}


def killed(people: int, noise: int, store: str, kills: int):
    office, became = with_kills(store, kills)
    return became | {"starts": len(office.starts), "a start: median, s": np.median(office.starts)}


def page(found: pd.DataFrame) -> dict[str, pd.DataFrame]:
    shown = (
        found.fillna("").map(lambda x: f"{x:g}" if isinstance(x, float) else x).set_index("store").T
    )
    return {"": shown.rename_axis(None, axis=1).reset_index(names="")}


def bars(found: pd.DataFrame) -> list[Bar]:
    rows = found.to_dict("records")
    wrong = [f"{row['store']}: {x}" for row in rows for x in NONE if row.get(x, 0) > 0]
    wrong += [*found["store"][found["ledger"] != "sound"] + ": ledger"]
    said = f"{found['requests accepted'].sum():g} requests"
    made = [Bar("nothing is lost, drawn twice, unpaid, overspent or told otherwise", said, wrong)]
    if SLOW in found:
        late, said = found["store"][found[SLOW] > 2.0], f"{found[SLOW].max():g} s"
        made.append(Bar("95 % of cheap requests are answered within 2 s", said, [*late]))
    return made


def replay(people: int, noise: int, pair: str, some: int):
    """One of so many kinds of request, others on the next pair."""
    found, shown = replayed(pair, some, PAIRS.index(pair) + people)
    row = {"answers and lines of logs": shown, "differences": len(found.violations)}
    return row | {"largest moved / declared": found.largest, "such as": [*found.violations, ""][0]}


REPLAYS = grid(pair=PAIRS, some=[4], runs=[1])
LOAD = [{"store": x, "persons": 50, "seconds": 60, "runs": 1} for x in STORES]
KILLS = [{"store": x, "kills": 12} for x in STORES]
TABLES = {
    "office": Table(
        "An office under load",
        (Part("", LOAD, load, together, small=[{"store": "SQLite", "persons": 5, "seconds": 20}]),),
        "Cheap requests are for a codebook, a budget, states and questions, half sent again. "
        "Longer: `make evidence TABLE=office RUNS=10 MINUTES=40`, in parts of a minute.",
        page=page,
        bars=bars,
        alone=True,
        minutes=2.5,
    ),
    "office_kills": Table(
        "An office whose processes are killed",
        (Part("", KILLS, killed, together, runs=2, small=[KILLS[0] | {"kills": 3}], chunk=1),),
        "The numbers below *killed* are of what was killed. Requests that are accepted and then "
        "refused because a budget does not cover them cost nothing. 500 kills and more: "
        "`make evidence TABLE=office_kills RUNS=21 MINUTES=60`.",
        page=page,
        bars=bars,
        minutes=4,
    ),
    "replay_office": Table(
        f"Replay of an office on neighbours: {kinds()} kinds of request, {len(PAIRS)} pairs",
        (Part("", REPLAYS, replay, together, small=grid(pair=PAIRS[:1], some=[8]), chunk=1),),
        "Every second pair has its records in another order, too. Compared are statuses, headers "
        "and bodies of all that researchers and stewards can fetch, of plans, events, budgets, "
        "metrics and exports, and the lines of the log, without times and random identifiers. A "
        "pair gets a quarter of the kinds, the next one another quarter; RUNS=4 gives it all.",
        page=lambda found: {"": found.drop(columns=["some", "runs"], errors="ignore")},
        minutes=2,
    ),
    "fuzz_office": Table(
        "Requests that nobody would send",
        (Part("", CELLS[2:], cases, COUNTED, small=SMALL[3:], by=("end",), chunk=1),),
        page=ends,
        minutes=2.5,
    ),
}
