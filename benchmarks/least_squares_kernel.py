"""Substitutions against the bounds of least squares, and bugs planted in them (claims 34 to 36).

    python benchmarks/least_squares_kernel.py            # 100,000 substitutions; 20 minutes
    python benchmarks/least_squares_kernel.py --small    # a fiftieth of that

A substitution replaces a record, or a unit with all its rows, at the ends of what rows can be: in
arms of any size, of collinear rows, across arms (`tests/privacy/substitutions.py`). No value may
move by more than is said, no contrast by more than the first rung of its ladder, and no rung exceed
the neighbour's next one. For some pairs the chances of steps about all ends of stairs are compared
with the price. Then one line of the kernel is changed at a time: each change must be found.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from report import save

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dpeffects.privacy.ladder import Ladder, LadderPace
from tests.privacy.planted import plant_line
from tests.privacy.substitutions import substitutions
from tests.privacy.test_least_squares import PLANTED

SEED = 20261117


def attacked(count: int, by_density: bool) -> pd.DataFrame:
    found = substitutions(count, SEED + by_density, by_density=by_density)
    print(found.violations, flush=True)
    rows = [
        {"what": what, "largest over its bound": f"{x:.4f}"} for what, x in found.closest.items()
    ]
    head = {"substitutions": found.pairs, "of them inside the ladders": found.open}
    head |= {"violations": len(found.violations)}
    rows += [{"what": what, "largest over its bound": f"{x:,}"} for what, x in head.items()]
    return pd.DataFrame(rows)


def planted() -> pd.DataFrame:
    rows = []
    for bug, lines in PLANTED.items():
        with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
            plant_line(patch, *lines)
            by_density = lines[0] in (Ladder, LadderPace)
            found = substitutions(4000, SEED, most_violations=1, by_density=by_density)
        rows.append({"bug": bug, "found": bool(found.violations), "after": found.pairs})
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a fiftieth of the substitutions")
    part = 50 if parser.parse_args().small else 1
    tables = {
        "Moves and rungs": attacked(100_000 // part, False),
        "Chances": attacked(5_000 // part, True),
        "Planted bugs": planted(),
    }
    save("least_squares_kernel", "Least squares by arm under attack", tables)
    if not tables["Planted bugs"]["found"].all():
        sys.exit("a bug was not found")


if __name__ == "__main__":
    main()
