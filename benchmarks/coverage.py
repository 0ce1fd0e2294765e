"""Coverage of nominal 95 % intervals, by simulation.

    python benchmarks/coverage.py            # 500 runs a cell: about an hour on two cores; resumes
    python benchmarks/coverage.py --fresh    # the same from the start
    python benchmarks/coverage.py --table    # only the table, of the cells on file
    python benchmarks/coverage.py --small    # 60 runs, two sizes

Three designs, each with a continuous and a binary outcome in [0, 1] and a true effect of 0.1:
"randomised" (treatment by a coin; methods that do not adjust are consistent), "strata" (one binary
covariate moves treatment and outcome; exact matching is) and "observational" (a binary and a
continuous covariate do; methods that adjust are). A method is run on the design in which its
estimator is consistent. Noise is seeded.
"""

from __future__ import annotations

import itertools
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pandas as pd
from report import RESULTS, save

import dpeffects as dpe
from dpeffects.inference.estimate import Unavailable

BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (0, 1), "a": [0, 1], "b": [0, 1]}
STRATA = "y ~ t | a + b"
ALL = "y ~ t | x1 + x2 + a + b"
CASES = {
    "diff_in_means, private arms": ("randomised", "diff_in_means", "y ~ t", {}),
    "diff_in_means, public arms": ("randomised", "diff_in_means", "y ~ t", {"arms": "public"}),
    "private_psm, sample": ("randomised", "private_psm", ALL, {}),
    "private_psm, label": ("observational", "private_psm", ALL, {"level": "label"}),
    "smooth_matching": ("strata", "smooth_matching", STRATA, {"delta": 1e-5}),
    "global_matching": ("strata", "global_matching", STRATA, {}),
    "private_ipw": ("observational", "private_ipw", ALL, {}),
    "auto": ("observational", "auto", ALL, {}),
    "auto, randomised": ("randomised", "auto", ALL, {"design": "randomised"}),
}


COLUMNS = ["method", "binary", "n", "epsilon", "runs", "covered", "width"]


def sample(design: str, binary: bool, n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng([seed, n, binary])
    x = rng.random((n, 2))
    a, b = rng.integers(0, 2, (2, n))
    pull = {"randomised": 0.0, "strata": 0.0, "observational": 1.0}[design] * (x[:, 0] - 0.5)
    pull = pull + (0.0 if design == "randomised" else 0.6) * (a - 0.5)
    t = rng.random(n) < 1 / (1 + np.exp(-(pull - 0.2)))
    mean = 0.2 + 0.15 * x[:, 0] + 0.1 * x[:, 1] + 0.1 * a + 0.05 * b + 0.1 * t
    y = rng.random(n) < mean if binary else mean + 0.3 * (rng.random(n) - 0.5)
    frame = pd.DataFrame({"y": np.asarray(y, float), "t": t, "x1": x[:, 0], "x2": x[:, 1]})
    return frame.assign(a=a, b=b)


def cell(task) -> tuple[float, float]:
    label, binary, n, epsilon, runs = task
    design, method, formula, options = CASES[label]
    hits, widths = 0, []
    for seed in range(runs):
        data = sample(design, binary, n, seed)
        fit = dpe.dp_ate(
            formula, data, method, epsilon=epsilon, bounds=BOUNDS, seed=seed, **options
        )
        if design == "observational" and fit.released.caution.startswith("NOT ADJUSTED"):
            return float("nan"), float("nan")  # the plan is not to adjust, and it says so
        if isinstance(fit.std_error, Unavailable):
            continue  # it says why there is no interval
        low, high = fit.conf_int(0.95)
        hits += low <= 0.1 <= high
        widths.append(high - low)
    if len(widths) < runs / 2:
        return float("nan"), float("nan")
    return hits / len(widths), float(np.median(widths))


def measured(tasks, path) -> pd.DataFrame:
    """Run the cells that are not on file yet; every finished cell is kept, so a run can resume."""
    done = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=COLUMNS)
    known = set(map(tuple, done[COLUMNS[:5]].itertuples(index=False)))
    left = [task for task in tasks if task not in known]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for task, result in zip(left, pool.map(cell, left), strict=True):
            row = pd.DataFrame([(*task, *result)], columns=COLUMNS)
            row.to_csv(path, mode="a", header=not path.exists(), index=False)
            print(*row.iloc[0].tolist(), flush=True)
    return pd.read_csv(path)


def main() -> None:
    small = "--small" in sys.argv
    runs = 60 if small else 500
    sizes = (1000, 5000) if small else (1000, 5000, 20_000)
    tasks = [
        (label, binary, n, epsilon, runs)
        for label, n, epsilon, binary in itertools.product(
            CASES, sizes, (0.5, 1.0, 2.0), (False, True)
        )
    ]
    path = RESULTS / ("coverage_small.csv" if small else "coverage.csv")
    if "--fresh" in sys.argv:
        path.unlink(missing_ok=True)
    table = pd.read_csv(path) if "--table" in sys.argv else measured(tasks, path)
    table["outcome"] = np.where(table["binary"], "binary", "continuous")
    table["coverage"] = (100 * table["covered"]).round(1)
    table["median width"] = [float(f"{w:.3g}") for w in table["width"]]
    wide = table.pivot(index=["method", "n", "outcome"], columns="epsilon", values="coverage")
    width = table.pivot(index=["method", "n", "outcome"], columns="epsilon", values="median width")
    wide.columns = [f"eps {c:g}" for c in wide.columns]
    width.columns = [f"width, eps {c:g}" for c in width.columns]
    both = wide.join(width).loc[list(CASES)].reset_index()
    se = 100 * np.sqrt(0.95 * 0.05 / runs)
    notes = (
        f"{runs} runs a cell: the standard error of a coverage of 95 % is {se:.1f} points. "
        "Coverage above 97 % has two reasons. Where the released variance carries noise as large "
        "as itself, an interval that holds for every variance the release leaves plausible must be "
        "too wide for the smallest (`dpeffects.inference.intervals.interval`). And private_ipw and "
        "auto allow for confounding that noise in their models may hide. Empty cells are not on "
        "file yet."
    )
    save("coverage", "Coverage of 95 % intervals", {"": both}, notes)


if __name__ == "__main__":
    main()
