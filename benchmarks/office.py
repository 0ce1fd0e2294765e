"""An office: under load, with processes killed, replayed on neighbours, and asked nonsense.

The machinery is that of tests: `tests/office/load.py`, `tests/office/replayed.py`,
`tests/fuzzing/office.py`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from faults import CELLS, COUNTED, cases, ends
from harness import Bar, Part, Table, grid, together

from tests.office.load import CHEAP, under_load, with_kills
from tests.office.replayed import PAIRS, kinds, replayed

STORES = ("SQLite", "PostgreSQL")
NONE = ("drawn twice", "seen and not paid", "lost", "told other than spent", "budgets overspent")
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
    shown = found.fillna("").astype(str).set_index("store").T
    return {"": shown.rename_axis(None, axis=1).reset_index(names="")}


def bars(found: pd.DataFrame) -> list[Bar]:
    wrong = [
        f"{row['store']}: {x} {row[x]:g}" for _, row in found.iterrows() for x in NONE if row[x]
    ]
    wrong += [
        f"{row['store']}: {row['ledger']}"
        for _, row in found.iterrows()
        if row["ledger"] != "sound"
    ]
    said = f"{found['requests accepted'].sum():g} requests"
    made = [Bar("nothing is lost, drawn twice, unpaid, overspent or told otherwise", said, wrong)]
    if "cheap requests: p95, s" in found:
        slow = found["cheap requests: p95, s"]
        late = [*found["store"][slow > 2.0]]
        made.append(
            Bar("95 % of cheap requests are answered within 2 s", f"{slow.max():g} s", late)
        )
    return made


def replay(people: int, noise: int, pair: str, some: int):
    found, shown = replayed(pair, some)
    differences = "; ".join(found.violations[:3])
    return {
        "answers and lines of logs": shown,
        "differences": len(found.violations),
        "largest moved / declared": f"{found.largest:.4f}",
    } | ({"such as": differences} if differences else {})


LOAD = [{"store": x, "persons": 50, "seconds": 75, "runs": 1} for x in STORES]
KILLS = [{"store": x, "kills": 15} for x in STORES]
TABLES = {
    "office": Table(
        "An office under load",
        (Part("", LOAD, load, together, small=[{"store": "SQLite", "persons": 5, "seconds": 5}]),),
        "Cheap requests are for a codebook, a budget, states and questions, half sent again.",
        page=page,
        bars=bars,
        alone=True,
        minutes=4,
    ),
    "office_kills": Table(
        "An office whose processes are killed",
        (Part("", KILLS, killed, together, runs=2, small=[KILLS[0] | {"kills": 3}], chunk=1),),
        "The numbers below *killed* are of what was killed. Requests that are accepted and then "
        "refused because a budget does not cover them cost nothing. 500 kills and more: "
        "`make evidence TABLE=office_kills RUNS=17 MINUTES=60`.",
        page=page,
        bars=bars,
        minutes=4,
    ),
    "replay_office": Table(
        f"Replay of an office on neighbours: {kinds()} kinds of request, {len(PAIRS)} pairs",
        (Part("", grid(pair=PAIRS, some=[1]), replay, small=grid(pair=PAIRS[:1], some=[8])),),
        "Every second pair has its records in another order, too. Compared are statuses, headers "
        "and bodies of all that researchers and stewards can fetch, of plans, events, budgets, "
        "metrics and exports, and the lines of the log, without times and random identifiers.",
        minutes=2,
    ),
    "fuzz_office": Table(
        "Requests that nobody would send",
        (Part("", CELLS[2:], cases, COUNTED, by=("end",), chunk=1),),
        page=ends,
        minutes=2.5,
    ),
}
