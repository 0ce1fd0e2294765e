"""Hostile row functions against the trusted kernel, and bugs planted in it.

    python benchmarks/kernel.py            # 40,000 pairs of records, 12,000 of units; some minutes
    python benchmarks/kernel.py --small    # a tenth of that

A pair is two neighbouring tables, a random set and a row function that returns NaN, infinities,
wrong shapes and kinds, or raises (`tests/privacy/hostile.py`). No record, and no unit with all its
rows, may move the totals by more than the set allows, in L1 and in L2. Then one line of the kernel
is changed at a time (`tests/privacy/planted.py`): each change must be found. Last, noise for
matrices: how much more likely one record makes a rounded matrix than its price allows, in standard
errors, by the right noise and by wrong ones (`tests/privacy/test_shaped.py`), and the time that the
exact samplers take.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from report import save

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest

from dpeffects.privacy.noise import SecureNoise
from tests.privacy.hostile import pairs_of_records, pairs_of_units
from tests.privacy.planted import BUGS, plant
from tests.privacy.test_shaped import WRONG, largest_excess, rounded_differences

SEED = 20261115


def attacked(cases: dict) -> pd.DataFrame:
    rows = []
    for what, (search, count) in cases.items():
        found = search(count, SEED)
        rows.append(
            {
                "neighbours replace": what,
                "pairs": found.pairs,
                "refused on rows of zeros": found.refused,
                "violations": len(found.violations),
                "largest move over its bound": f"{found.closest:.6f}",
            }
        )
    return pd.DataFrame(rows)


def planted() -> pd.DataFrame:
    rows = []
    for bug in BUGS:
        search = pairs_of_units if "unit" in bug or "weight" in bug else pairs_of_records
        with pytest.MonkeyPatch.context() as patch:
            plant(patch, bug)
            found = search(5000, SEED, most_violations=1)
        rows.append({"bug": bug, "found": bool(found.violations), "after pairs": found.pairs + 0})
    return pd.DataFrame(rows)


def ratios(times: int) -> pd.DataFrame:
    rows = []
    for noise, how in {"d + 1 degrees of freedom": {}, **WRONG}.items():
        excess = largest_excess(rounded_differences(SEED, **how), times)
        rows.append({"noise": noise, "draws": times * 250_000, "above the price": f"{excess:.1f}"})
    return pd.DataFrame(rows)


def seconds() -> pd.DataFrame:
    source, rows = SecureNoise(), []
    for d in (12, 30, 60):
        triangles, columns = np.zeros((2, d * (d + 1) // 2), np.int64), np.zeros((1, d), np.int64)
        matrices = partial(source.matrices, triangles, 2.0**37, 2**60)
        cube = partial(source.cubes, columns, 2.0**31, 2**30, 1.0)
        rows.append({"columns": d, "two matrices": fastest(matrices), "a cube": fastest(cube)})
    return pd.DataFrame(rows)


def fastest(draw) -> str:
    """Seconds of the fastest of five draws."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        draw()
        times.append(time.perf_counter() - start)
    return f"{min(times):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a tenth of the pairs")
    part = 10 if parser.parse_args().small else 1
    warnings.simplefilter("ignore", RuntimeWarning)
    cases = {
        "a record": (pairs_of_records, 42_000 // part),
        "a unit": (pairs_of_units, 12_000 // part),
    }
    tables = {
        "Hostile row functions": attacked(cases),
        "Planted bugs": planted(),
        "Noise for matrices: a rounded matrix of two columns": ratios(32 // part),
        "Seconds of a draw": seconds(),
    }
    save("kernel", "The trusted kernel under attack", tables)
    bad = tables["Hostile row functions"]["violations"].sum()
    if bad or not tables["Planted bugs"]["found"].all():
        sys.exit("a bound was broken, or a bug was not found")


if __name__ == "__main__":
    main()
