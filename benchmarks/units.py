"""Replays where rows do not count alike: whole units replaced, weights, subsets, gaps.

Every method that adds up rows is replayed on every pair of neighbours (`tests/counted.py`): all
rows of one person are replaced, by others and by more or fewer, or a record changes its weight, its
village or its place in a subset, or loses a value. Releases are frozen: no true value may move by
more than is declared, and nothing else that leaves the call may differ.
"""

from __future__ import annotations

import pandas as pd
from harness import Bar, Part, Row, Table

from tests.contract.test_counted import CASES, PAIRS, replayed


def replay(people: int, noise: int, call: str, sample: str, pair: str) -> Row:
    found = replayed(call, sample, pair, seed=noise)
    bad = {"refused": bool(found.refused), "violations": bool(found.violations)}
    return bad | {"largest": found.largest}


def totals(found: pd.DataFrame, by: str) -> pd.DataFrame:
    groups = found.groupby(by, sort=False)
    counts = {name: groups[name].sum() for name in ("refused", "violations")}
    largest = groups["largest"].max().round(4)
    made = {"replays": groups.size(), **counts, "largest moved / declared": largest}
    return pd.DataFrame(made).reset_index()


def bars(found: pd.DataFrame) -> list[Bar]:
    bad = found[found["violations"] > 0]["pair"]
    return [Bar("no release moves by more than is declared", f"{len(found)} replays", [*bad])]


REPLAYS = [{"call": m, "sample": s, "pair": name} for m, s in CASES for name in PAIRS[s]]
TABLE = Table(
    "Whole units replaced: replays",
    (Part("Replays", REPLAYS, replay),),
    "A ratio of 1 says that a pair attains a declared sensitivity.",
    page=lambda found: {f"By {by}": totals(found, by) for by in ("sample", "call")},
    bars=bars,
    minutes=3,
)
