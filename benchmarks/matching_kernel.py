"""Time and memory of the matching kernel beside scikit-learn's NearestNeighbors.

    python benchmarks/matching_kernel.py [--big]

Each cell runs in a fresh process: seconds of the call, and by how much it raised the peak
resident memory of the process. 5 neighbours both ways, a fifth to three fifths treated.
"""

import argparse
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from dpeffects.replication.nearest import feasible, match_into

NEIGHBOURS = 5
PATIENCE = 10.0  # no larger sizes for scikit-learn after this many seconds: ties make it quadratic
SIZES = [100_000, 300_000, 1_000_000]


def unlimited(scores, treated):
    for arm in (treated, ~treated):
        match_into(scores, arm, NEIGHBOURS)


def limited(times):
    """Limits at a multiple of the smallest feasible ones."""

    def run(scores, treated):
        for arm in (treated, ~treated):
            k = feasible(1, int(arm.sum()), int((~arm).sum()))
            match_into(scores, arm, NEIGHBOURS, times * k * NEIGHBOURS)

    return run


def scikit_learn(scores, treated):
    for pool, asking in ((scores[treated], scores[~treated]), (scores[~treated], scores[treated])):
        index = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(pool[:, None])
        index.kneighbors(asking[:, None], return_distance=False)


CASES = {
    "unlimited": unlimited,
    "limits that do not bind": limited(50),
    "limits that bind rarely (4 x feasible)": limited(4),
    "limits barely feasible": limited(1),
    "scikit-learn, unlimited": scikit_learn,
}
SCORES = {
    "continuous": lambda rng, n: rng.random(n),
    "discrete (100 levels)": lambda rng, n: rng.integers(0, 100, n) / 100,
}


def peak_mb():
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def measure(job):
    case, kind, n = job
    if case.startswith("scikit"):  # imported here, so that its size is not counted for ours
        global NearestNeighbors
        from sklearn.neighbors import NearestNeighbors
    rng = np.random.default_rng(n)
    scores = SCORES[kind](rng, n)
    treated = rng.random(n) < 0.2 + 0.4 * scores
    before, start = peak_mb(), time.perf_counter()
    CASES[case](scores, treated)
    return time.perf_counter() - start, peak_mb() - before


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--big", action="store_true", help="also five million records")
    sizes = SIZES + [5_000_000] * parser.parse_args().big
    context = get_context("spawn")
    for kind in SCORES:
        print(f"\n{kind} scores".ljust(42) + "".join(f"{f'n = {n:,}':>20}" for n in sizes))
        for case in CASES:
            cells, seconds = [], 0.0
            for n in sizes:
                if seconds > PATIENCE and case.startswith("scikit"):
                    cells.append(f"{'too slow':>20}")
                    continue
                with ProcessPoolExecutor(1, mp_context=context) as pool:
                    seconds, memory = pool.submit(measure, (case, kind, n)).result()
                cells.append(f"{f'{seconds:.2f} s {memory:5.0f} MB':>20}")
            print(case.ljust(41) + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
