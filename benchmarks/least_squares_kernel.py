"""Substitutions against the bounds of least squares, and bugs planted in them (claims 34 to 36).

A substitution replaces a record, or a unit with all its rows, at the ends of what rows can be: in
arms of any size, of collinear rows, across arms (`tests/privacy/substitutions.py`). No value may
move by more than is said, no contrast by more than the first rung of its ladder, and no rung exceed
the neighbour's next one. For some pairs the chances of steps about all ends of stairs are compared
with the price. Then one line of the kernel is changed at a time: each change must be found.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from harness import Bar, Part, Table, grid

from dpeffects.privacy.ladder import Ladder, LadderPace
from tests.privacy.planted import plant_line
from tests.privacy.substitutions import substitutions
from tests.privacy.test_least_squares import PLANTED


def attack(people: int, noise: int, what: str, count: int):
    found = substitutions(count, noise, by_density=what == "chances")
    closest = {f"largest over its bound: {x}": f"{size:.4f}" for x, size in found.closest.items()}
    head = {"substitutions": found.pairs, "of them inside the ladders": found.open}
    return {**head, "violations": len(found.violations), **closest}


def plant_one(people: int, noise: int, bug: str):
    lines = PLANTED[bug]
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        plant_line(patch, *lines)
        by_density = lines[0] in (Ladder, LadderPace)
        found = substitutions(4000, noise, most_violations=1, by_density=by_density)
    return {"found": str(bool(found.violations)), "after": found.pairs}


def bars(moves: pd.DataFrame, planted: pd.DataFrame) -> list[Bar]:
    broken, missed = moves[moves["violations"] > 0], planted[planted["found"] != "True"]
    said = f"{int(moves['substitutions'].sum()):,} substitutions"
    return [
        Bar("no value moves by more than is said", said, [*broken["what"]]),
        Bar("every planted bug is found", f"{len(planted)} bugs", [*missed["bug"]]),
    ]


def page(moves: pd.DataFrame, planted: pd.DataFrame) -> dict[str, pd.DataFrame]:
    made = {}
    for _, row in moves.iterrows():
        kept = row.drop(["what", "count"]).dropna()
        made[row["what"].capitalize()] = pd.DataFrame(
            {"what": kept.index, "found": kept.to_numpy()}
        )
    return made | {"Planted bugs": planted}


COUNTS = [{"what": "moves and rungs", "count": 100_000}, {"what": "chances", "count": 5_000}]
TABLE = Table(
    "Least squares by arm under attack",
    (
        Part("Substitutions", COUNTS, attack, small=[x | {"count": 200} for x in COUNTS]),
        Part("Planted bugs", grid(bug=PLANTED), plant_one),
    ),
    page=page,
    bars=bars,
    minutes=4,
)
