"""Time and memory of an effect function as records and queries grow.

    python benchmarks/cate_growth.py            # up to 100,000 records and queries, about 2 minutes
    python benchmarks/cate_growth.py --small    # up to 10,000

Each size runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pandas as pd
from report import save

import dpeffects as dpe


def measure(n: int, queries: int) -> dict:
    sample = dpe.simulate("cate_1", n=n, seed=1)
    points = dpe.simulate("cate_1", n=queries, seed=2).frame
    start = time.perf_counter()
    fit = dpe.dp_cate("outcome ~ treatment | x1 + x2", sample, epsilon=1, delta=1e-5)
    fitted = time.perf_counter()
    fit.effect(points)
    done = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "records": n,
        "queries": queries,
        "fit, s": round(fitted - start, 2),
        "queries, s": round(done - fitted, 3),
        "fit, microseconds a record": round(1e6 * (fitted - start) / n, 1),
        "peak memory, GiB": round(peak, 2),
    }


def main() -> None:
    sizes = (2_500, 10_000) if "--small" in sys.argv else (12_500, 25_000, 50_000, 100_000)
    rows = []
    for n, queries in [*((n, 1_000) for n in sizes), *((sizes[-1], q) for q in sizes)]:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            rows.append(pool.submit(measure, n, queries).result())
            print(rows[-1], flush=True)
    if "--small" not in sys.argv:
        notes = "The bar: 100,000 records and 100,000 queries under 4 GB, growing at most linearly."
        save("cate_growth", "Growth of effect functions", {"": pd.DataFrame(rows)}, notes)


if __name__ == "__main__":
    main()
