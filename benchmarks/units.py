"""Replays where rows do not count alike: whole units replaced, weights, subsets, gaps.

Every method that adds up rows is replayed on every pair of neighbours (`tests/counted.py`): all
rows of one person are replaced, by others and by more or fewer, or a record changes its weight, its
village or its place in a subset, or loses a value. Releases are frozen: no true value may move by
more than is declared, and nothing else that leaves the call may differ.
"""

from __future__ import annotations

import pandas as pd
from harness import Part, Row, Table

from tests.contract.test_counted import CASES, PAIRS, replayed


def replay(people: int, noise: int, call: str, sample: str, pair: str) -> Row:
    found = replayed(call, sample, pair, seed=noise)
    bad = {"refused": bool(found.refused), "violations": bool(found.violations)}
    return bad | {"largest": found.largest}


def page(found: pd.DataFrame) -> dict[str, pd.DataFrame]:
    made = {}
    for by in ("sample", "call"):
        groups = found.groupby(by, sort=False)
        counts = groups[["refused", "violations"]].sum().assign(replays=groups.size())
        counts["largest moved / declared"] = groups["largest"].max().round(4)
        made[f"By {by}"] = counts.reset_index()
    return made


REPLAYS = [{"call": m, "sample": s, "pair": name} for m, s in CASES for name in PAIRS[s]]
TABLE = Table(
    "Whole units replaced: replays",
    (Part("Replays", REPLAYS, replay),),
    "A ratio of 1 says that a pair attains a declared sensitivity.",
    page=page,
    minutes=3,
)
