"""Every public call on every nasty pair of neighbours, with its releases frozen.

    python benchmarks/replay.py                # about half an hour on two idle cores
    python benchmarks/replay.py --workers 1    # in one process
    python benchmarks/replay.py --small        # every sixth call
    python benchmarks/replay.py --some         # every call on four pairs, each in one way
    python benchmarks/replay.py --office       # every kind of request to an office

Each replay records a call on one table and repeats it on the other (`tests/replay.py`): no true
value may move by more than is declared, and nothing else that leaves the call may differ. Ways:
records in the same order or in another, tables in memory, on an engine (polars for those in the
same order, DuckDB for the others), in a CSV file, or in types of pandas that may be missing. Ends
with an error if anything was violated.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
from report import save

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dpeffects.progress import bar
from tests.calls import CALLS
from tests.neighbours import PAIRS, TYPES

WAYS = {
    "in memory": ("", False),
    "in memory, unordered": ("", True),
    "on polars": ("polars", False),
    "on DuckDB, unordered": ("duckdb", True),
    "in a CSV file": ("file", False),
    "in nullable types": ("nullable", False),
}


def cells(name: str, some: bool = False) -> list[dict]:
    """All replays of one call, or ``some``: two pairs that change types and two others."""
    warnings.simplefilter("ignore")
    first, found = list(CALLS).index(name), []
    others = [pair for pair in PAIRS if pair not in TYPES]
    chosen = [(pair, way) for pair in PAIRS for way in WAYS]
    if some:
        of = [(TYPES, first), (TYPES, first + 3), (others, first), (others, first + 7)]
        ways = [list(WAYS)[(first // 8 + j) % len(WAYS)] for j in range(4)]
        chosen = [([*x][k % len(x)], way) for (x, k), way in zip(of, ways, strict=True)]
    for pair, way in chosen:
        engine, unordered = WAYS[way]
        cell = CALLS[name].replay(pair, engine, unordered, seed=list(PAIRS).index(pair))
        found.append({"call": name, "pair": pair, "way": way, **vars(cell)})
    return found


def run(names: list[str], workers: int, some: bool = False) -> pd.DataFrame:
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        done = list(bar(pool.map(partial(cells, some=some), names), "calls", len(names)))
    table = pd.DataFrame([cell for part in done for cell in part])
    table["largest"] = [max(moves.values(), default=0.0) for moves in table["moves"]]
    table["violated"], table["refused"] = table["violations"].map(bool), table["refused"].map(bool)
    return table


def by_call(table: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for name, part in table.groupby("call", sort=False):
        on_engine = part[part["way"].str.startswith("on ")]
        worst = Counter()
        for moves in part["moves"]:
            worst |= Counter(moves)
        label = max(worst, key=worst.get, default="")
        rows.append(
            {
                "call": name,
                "replays": len(part),
                "refused": int(part["refused"].sum()),
                "runs on an engine": "yes" if (on_engine["largest"] > 0).any() else "no",
                "violations": int(part["violated"].sum()),
                "largest moved / declared": round(part["largest"].max(), 4),
                "of": label,
            }
        )
    return pd.DataFrame(rows)


def by_pair(table: pd.DataFrame) -> pd.DataFrame:
    pairs = table.groupby("pair", sort=False)[["refused", "violated"]].agg(["size", "sum"])
    rows = [(pair, *row) for pair, *row in pairs.droplevel(1, axis=1).itertuples()]
    made = pd.DataFrame([(pair, n, refused, bad) for pair, n, refused, _, bad in rows])
    return made.set_axis(["pair", "replays", "refused", "violations"], axis=1)


def of_office(name: str) -> tuple[str, int, tuple[str, ...], float]:
    from tests.office.replayed import replayed

    warnings.simplefilter("ignore")
    found, shown = replayed(name)
    return name, shown, found.violations, found.largest


def office(workers: int) -> None:
    from tests.office.replayed import PAIRS, kinds

    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        found = list(bar(pool.map(of_office, PAIRS), "pairs", len(PAIRS)))
    rows = [(pair, shown, len(bad), round(largest, 4)) for pair, shown, bad, largest in found]
    columns = ["pair", "answers and lines of logs", "differences", "largest moved / declared"]
    save(
        "replay_office",
        f"Replay of an office on neighbours: {kinds()} kinds of request, {len(PAIRS)} pairs",
        {"": pd.DataFrame(rows, columns=columns)},
        "Every second pair has its records in another order, too. Compared are statuses, headers "
        "and bodies of all that researchers and stewards can fetch, of plans, events, budgets, "
        "metrics and exports, and the lines of the log, without times and random identifiers.",
    )
    wrong = [(pair, bad[:3]) for pair, _, bad, _ in found if bad]
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--some", action="store_true")
    parser.add_argument("--office", action="store_true")
    given = parser.parse_args()
    if given.office:
        office(given.workers)
    table = run(list(CALLS)[:: 6 if given.small else 1], given.workers, given.some)
    counted = [("refused before the first charge", "refused"), ("violations", "violated")]
    ways = table.groupby("way", sort=False)
    total = pd.DataFrame(
        {"way": list(ways.groups), "replays": ways.size().to_numpy()}
        | {title: ways[column].sum().to_numpy() for title, column in counted}
        | {"largest moved / declared": ways["largest"].max().round(4).to_numpy()}
    )
    violated = table.loc[table["violated"], ["call", "pair", "way", "violations"]]
    violated = violated.assign(violations=violated["violations"].map(lambda v: v[0][:120]))
    save(
        "replay",
        f"Replay on neighbours: {table['call'].nunique()} calls, {len(PAIRS)} pairs, "
        f"{len(table)} replays",
        {"": total, "By pair": by_pair(table), "By call": by_call(table)}
        | ({"Violations": violated} if len(violated) else {}),
        "A refusal before the first charge goes to the person who holds the data (an empty arm, a "
        "range that is too narrow, a release that needs rows in memory). A ratio of 1 says that a "
        "pair attains a declared sensitivity. In these pairs the value of one record decides on "
        "the type that pandas gives its column: " + "; ".join(TYPES) + ".",
    )
    sys.exit(1 if len(violated) else 0)


if __name__ == "__main__":
    main()
