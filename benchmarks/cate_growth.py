"""Time and memory of an effect function as records, queries and covariates grow.

Each size runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import resource
import time

import numpy as np
import pandas as pd
from harness import Part, Table, grid

import dpeffects as dpe

WIDE = (10, 100, 400, 1_000, 2_000, 4_000)


def measure(people: int, noise: int, records: int, queries: int) -> dict:
    n = records
    sample = dpe.simulate("cate_1", n=n, seed=1)
    points = dpe.simulate("cate_1", n=queries, seed=2).frame
    start = time.process_time()
    fit = dpe.dp_cate("outcome ~ treatment | x1 + x2", sample, epsilon=1, delta=1e-5)
    fitted = time.process_time()
    fit.effect(points)
    done = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "fit, s": round(fitted - start, 2),
        "queries, s": round(done - fitted, 3),
        "fit, microseconds a record": round(1e6 * (fitted - start) / n, 1),
        "peak memory, GiB": round(peak, 2),
    }


def measure_wide(people: int, noise: int, covariates: int, records: int) -> dict:
    """Fit, print and query a function of many covariates."""
    columns, n = covariates, records
    rng = np.random.default_rng(1)
    x = rng.random((n, columns))
    treated = rng.random(n) < 0.3 + 0.4 * x[:, 0]
    outcome = np.clip(x[:, 0] * treated + x[:, 1] + 0.2 * rng.normal(size=n), -1, 3)
    names = [f"x{j}" for j in range(columns)]
    frame = pd.DataFrame(x, columns=names).assign(t=treated, y=outcome)
    bounds = {"y": (-1, 3), **dict.fromkeys(names, (0, 1))}
    start = time.process_time()
    fit = dpe.dp_cate(f"y ~ t | {' + '.join(names)}", frame, epsilon=1, delta=1e-5, bounds=bounds)
    fitted = time.process_time()
    str(fit.summary())
    printed = time.process_time()
    fit.bands(frame[:300])
    done = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "features": fit.function.features.size,
        "fit, s": round(fitted - start, 1),
        "summary, s": round(printed - fitted, 1),
        "bands at 300 points, s": round(done - printed, 1),
        "peak memory, GiB": round(peak, 2),
    }


SIZES = (12_500, 25_000, 50_000, 100_000)
PAIRS = [*grid(records=SIZES, queries=[1_000]), *grid(records=SIZES[-1:], queries=SIZES)]
TABLE = Table(
    "Growth of effect functions",
    (
        Part(
            "Records and queries",
            PAIRS,
            measure,
            small=grid(records=(2_500, 10_000), queries=[1_000]),
        ),
        Part("Covariates", grid(covariates=WIDE, records=[3_000]), measure_wide),
    ),
    "Seconds are of the processor. The bars: 100,000 records and 100,000 queries under "
    "4 GB, growing at most linearly; 400 covariates and 3,000 records in 20 s of the processor.",
    alone=True,
    minutes=4,
)
