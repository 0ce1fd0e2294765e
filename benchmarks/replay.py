"""Every public call on every nasty pair of neighbours, with its releases frozen.

    python benchmarks/replay.py                # about 6 minutes on two idle cores
    python benchmarks/replay.py --workers 1    # in one process
    python benchmarks/replay.py --small        # every sixth call

Each replay records a call on one table and repeats it on the other (`tests/replay.py`): no true
value may move by more than is declared, and nothing else that leaves the call may differ. Four
ways: records in the same order or in another, tables in memory or on an engine (polars for those
in the same order, DuckDB for the others). Ends with an error if anything was violated.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
from report import save

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dpeffects.progress import bar
from tests.calls import CALLS
from tests.neighbours import PAIRS

WAYS = {
    "in memory": ("", False),
    "in memory, unordered": ("", True),
    "on polars": ("polars", False),
    "on DuckDB, unordered": ("duckdb", True),
}


def cells(name: str) -> list[dict]:
    """All replays of one call."""
    warnings.simplefilter("ignore")
    found = []
    for k, pair in enumerate(PAIRS):
        for way, (engine, unordered) in WAYS.items():
            cell = CALLS[name].replay(pair, engine, unordered, seed=k)
            found.append({"call": name, "pair": pair, "way": way, **vars(cell)})
    return found


def run(names: list[str], workers: int) -> pd.DataFrame:
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        done = list(bar(pool.map(cells, names), "calls", len(names)))
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    table = run(list(CALLS)[:: 6 if given.small else 1], given.workers)
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
        f"Replay on neighbours: {table['call'].nunique()} calls, {len(PAIRS)} pairs, four ways",
        {"": total, "By call": by_call(table)}
        | ({"Violations": violated} if len(violated) else {}),
        "A refusal before the first charge goes to the person who holds the data (an empty arm, a "
        "range that is too narrow, a release that needs rows in memory). A ratio of 1 says that a "
        "pair attains a declared sensitivity. Pairs: " + "; ".join(PAIRS) + ".",
    )
    sys.exit(1 if len(violated) else 0)


if __name__ == "__main__":
    main()
