"""Hostile row functions against the trusted kernel, and bugs planted in it.

A pair is two neighbouring tables, a random set and a row function that returns NaN, infinities,
wrong shapes and kinds, or raises (`tests/privacy/hostile.py`). No record, and no unit with all its
rows, may move the totals by more than the set allows, in L1 and in L2. Then one line of the kernel
is changed at a time (`tests/privacy/planted.py`): each change must be found. Last, noise for
matrices: how much more likely one record makes a rounded matrix than its price allows, in standard
errors, by the right noise and by wrong ones (`tests/privacy/test_shaped.py`).
"""

from __future__ import annotations

import pandas as pd
import pytest
from harness import Bar, Part, Table, grid

from tests.privacy.hostile import pairs_of_records, pairs_of_units
from tests.privacy.planted import BUGS, plant
from tests.privacy.test_shaped import WRONG, largest_excess, rounded_differences

SEARCH = {"a record": pairs_of_records, "a unit": pairs_of_units}
NOISE = {"d + 1 degrees of freedom": {}, **WRONG}


def attack(people: int, noise: int, replaced: str):
    """A thousand neighbours that replace a record, or a unit."""
    found = SEARCH[replaced](1000, noise)
    return {"violations": len(found.violations), "largest": found.closest}


def plant_one(people: int, noise: int, bug: str):
    search = pairs_of_units if "unit" in bug or "weight" in bug else pairs_of_records
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, bug)
        found = search(5000, noise, most_violations=1)
    return {"found": str(bool(found.violations)), "after pairs": found.pairs}


def ratio(people: int, noise: int, kind: str, times: int):
    """How much more likely one record makes a rounded matrix of two columns than is priced."""
    excess = largest_excess(rounded_differences(noise, **NOISE[kind]), times)
    return {"draws": times * 250_000, "above the price": f"{excess:.1f}"}


def bars(attacked: pd.DataFrame, planted: pd.DataFrame, *others: pd.DataFrame) -> list[Bar]:
    broken, missed = attacked[attacked["violations"] > 0], planted[planted["found"] != "True"]
    said = f"{attacked['pairs'].sum():,} pairs"
    return [
        Bar("no record or unit moves totals by more than is allowed", said, [*broken["replaced"]]),
        Bar("every planted bug is found", f"{len(planted)} bugs", [*missed["bug"]]),
    ]


COLUMNS = {
    "pairs": lambda runs: 1000 * len(runs),
    "violations": lambda runs: runs["violations"].sum(),
    "largest move over its bound": lambda runs: f"{runs['largest'].max():.6f}",
}
PAIRS = [{"replaced": "a record", "runs": 40}, {"replaced": "a unit", "runs": 12}]
TABLE = Table(
    "The trusted kernel under attack",
    (
        Part("Hostile row functions", PAIRS, attack, COLUMNS, chunk=1),
        Part("Planted bugs", grid(bug=BUGS), plant_one),
        Part(
            "Noise for matrices: a rounded matrix of two columns",
            grid(kind=NOISE, times=[32]),
            ratio,
            small=grid(kind=list(NOISE)[:2], times=[1]),
        ),
    ),
    bars=bars,
    minutes=1.5,
)
