"""Replays on neighbours, calls that nobody would write, and small faults in the code.

A replay records a call on one table and repeats it on another that differs in one record, with its
releases frozen (`tests/replay.py`). A case of fuzzing is made from its number alone
(`tests/fuzzing`), and `python -m tests.fuzzing 1234` repeats one. A mutant is a module with one
operator, number, name, statement or returned value replaced (`tests/mutants.py`): it is tried by
ruff, by the tests that import the module and by kept outputs, and by mypy.
"""

from __future__ import annotations

import random
import tomllib
from functools import cache

import pandas as pd
from harness import Part, Table, first, grid
from report import RESULTS

from tests.calls import CALLS
from tests.contract import test_counted as counted
from tests.fuzzing import ENTRANCES, FORMULAS, FRAMES, REQUESTS
from tests.fuzzing.limits import outcomes
from tests.mutants import Copy, importing, sample
from tests.neighbours import PAIRS, TYPES
from tests.replay import Replayed

WAYS = {
    "in memory": ("", False),
    "in memory, unordered": ("", True),
    "on polars": ("polars", False),
    "on DuckDB, unordered": ("duckdb", True),
    "in a CSV file": ("file", False),
    "in nullable types": ("nullable", False),
}
EVERY = [(pair, way) for pair in PAIRS for way in WAYS]


def replay(people: int, noise: int, call: str):
    """One of all pairs and ways, in an order of its own for each call."""
    pair, way = random.Random(call).sample(EVERY, len(EVERY))[people]
    found = CALLS[call].replay(pair, *WAYS[way], seed=list(PAIRS).index(pair))
    return {"pair": pair, "way": way} | seen(found)


def units(people: int, noise: int, call: str, sample: str, pair: str):
    return seen(counted.replayed(call, sample, pair, seed=noise))


def seen(found: Replayed):
    wrong = [*found.violations, ""][0]
    row = {"refused": found.refused > "", "largest": found.largest}
    return row | {"violated": wrong > "", "violation": wrong}


def replays(found: pd.DataFrame) -> dict[str, pd.DataFrame]:
    by, tables = [x for x in ("way", "sample", "pair", "call") if x in found], {}
    for name in by:
        groups = found.groupby(name, sort=False)
        table = groups[["refused", "violated"]].sum().astype(int)
        table.insert(0, "replays", groups.size())
        table["largest moved / declared"] = groups["largest"].max().round(4)
        tables[f"By {name}"] = table.reset_index()
    wrong = found[found["violated"] > 0]
    return tables | {"Violations": wrong[[*by, "violation"]]}


UNITS = [{"call": m, "sample": s, "pair": p} for m, s in counted.CASES for p in counted.PAIRS[s]]
UNITS.sort(key=lambda cell: cell["call"] == "auto")  # it calls others, and takes most of the time
KINDS = {"formulas": (FORMULAS, 50), "frames with options": (FRAMES, 50)}
KINDS |= {"requests": (REQUESTS, 250), "sign-ins, sessions and tokens": (ENTRANCES, 250)}
FEW = {"formulas": 16, "frames with options": 8}
CELLS = [{"kind": x, "runs": FEW.get(x, all // some)} for x, (all, some) in KINDS.items()]
SMALL = [{"kind": x} for x in KINDS]


def cases(people: int, noise: int, kind: str):
    """Some cases, by how they ended."""
    before = sum(all for all, _ in [*KINDS.values()][: list(KINDS).index(kind)])
    all, some = KINDS[kind]
    start = before + people * some % all
    found = outcomes(range(start, start + some))
    return [{"end": x.end, "case": x.number, "wrong": not x.good} for x in found]


def ends(found: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How often each end came, by kind; the first case of those that are wrong."""
    table = found.pivot_table(index="end", columns="kind", values="cases", fill_value=0, sort=False)
    wrong = found[found["wrong"] > 0][["kind", "end", "case"]]
    return {"": table.astype(int).reset_index(), "Wrong: one case of each": wrong}


COUNTED = {"cases": len, "wrong": lambda runs: runs["wrong"].sum(), "case": first("case")}
MUTANTS, tree = grid(tests=("", "that import the module")), cache(Copy)


def mutant(people: int, noise: int, tests: str):
    name, one = list(sample().items())[people]
    killer = tree().killer(one, importing(one.file) if tests else [])
    return {"place": one.file.split("/")[1], "kind": one.kind, "mutant": name, "killed": killer}


def killed(found: pd.DataFrame) -> dict[str, pd.DataFrame]:
    tables, found = {}, found.assign(dead=found["killed"] != "")
    for column, heading in {"place": "By place", "kind": "By what was changed"}.items():
        table = found.groupby(column)["dead"].agg(["size", "sum", "mean"]).reset_index()
        table["mean"] = (100 * table["mean"]).round(1)
        tables[heading] = table.set_axis([column, "mutants", "killed", "killed, %"], axis=1)
    why = tomllib.loads((RESULTS / "mutants.toml").read_text())
    live = found["mutant"][~found["dead"]]
    shown = "``" + live.str.replace("|", "\\|") + "``"
    reasons = [why.get(name, "not explained yet") for name in live]
    return tables | {"Those that live": pd.DataFrame({"mutant": shown, "why": reasons})}


def score(found: pd.DataFrame) -> str:
    share = (found["killed"] != "").mean()
    said = f"{len(found)} mutants, a random sample of {len(sample())}: {share:.1%} are killed. "
    return f"{said}What is in brackets is replaced. More: `make evidence TABLE=mutants RUNS=300`."


TABLES = {
    "replay": Table(
        f"Replay on neighbours: {len(CALLS)} calls, {len(PAIRS)} pairs, {len(WAYS)} ways",
        (Part("", grid(call=CALLS), replay, runs=9, by=("pair", "way")),),
        f"Of the {len(EVERY)} replays of a call, a random part; `RUNS={len(EVERY)}` makes all. "
        "A refusal before the first charge goes to the person who holds the data (an empty arm, a "
        "range that is too narrow, a release that needs rows in memory). A ratio of 1 says that a "
        "pair attains a declared sensitivity. In these pairs the value of one record decides on "
        "the type that pandas gives its column: " + "; ".join(TYPES) + ".",
        page=replays,
        minutes=3.5,
    ),
    "units": Table(
        "Whole units replaced: replays",
        (Part("Replays", UNITS, units),),
        "Every method that adds up rows, on every pair of neighbours of `tests/counted.py`: all "
        "rows of one person are replaced, by others and by more or fewer, or a record changes its "
        "weight, its village or its place in a subset, or loses a value. A ratio of 1 says that a "
        "pair attains a declared sensitivity.",
        page=replays,
        minutes=3,
    ),
    "fuzz": Table(
        "Calls that nobody would write",
        (Part("", CELLS[:2], cases, COUNTED, small=SMALL[:2], by=("end",), chunk=1),),
        page=ends,
        minutes=3,
    ),
    "mutants": Table(
        "Small faults that `make test` finds",
        (Part("", MUTANTS[1:], mutant, runs=16, small=MUTANTS[:1], by=("mutant",), chunk=1),),
        score,
        page=killed,
        minutes=4,
    ),
}
