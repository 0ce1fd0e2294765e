"""Seconds of one call of each method, at its default options.

    python benchmarks/seconds.py    # a minute or two

Data: the confounded simulation (10 covariates); matching on strata takes two of them cut in four.
The best of three calls, after one that loads the libraries. `dp_cate` has two covariates.
"""

from __future__ import annotations

import time

import pandas as pd
from report import RESULTS, save

import dpeffects as dpe

SIZES = (10_000, 100_000)
CUT = "[0, 0.25, 0.5, 0.75, 1]"
STRATA = f"outcome ~ treatment | cut(x1, {CUT}) + cut(x2, {CUT})"


def call(method: str, data: dpe.DeclaredFrame) -> None:
    learner = method.endswith("_learner")
    needs_strata = method.endswith("_matching")
    formula = STRATA if needs_strata else dpe.data_info("confounded").formula
    if learner:
        formula = "outcome ~ treatment | x1 + x2"
    run = dpe.dp_cate if learner else dpe.dp_ate
    run(formula, data, method=method, epsilon=1, delta=1e-6)


def seconds(method: str, data: dpe.DeclaredFrame) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        call(method, data)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    names = list(dict.fromkeys(dpe.methods()["method"]))
    rows = []
    for n in SIZES:
        data = dpe.simulate("confounded", n=n, seed=1)
        for name in names:
            call(name, dpe.simulate("confounded", n=2_000, seed=1))
            rows.append({"method": name, "n": n, "seconds": round(seconds(name, data), 3)})
            print(rows[-1], flush=True)
    frame = pd.DataFrame(rows)
    frame.to_csv(RESULTS / "seconds.csv", index=False)
    wide = frame.pivot(index="method", columns="n", values="seconds").loc[names].reset_index()
    wide.columns = ["method", *(f"n = {n:,}" for n in SIZES)]
    save(
        "seconds", "Seconds of one call", {"": wide}, "Epsilon 1, delta 1e-6, best of three calls."
    )


if __name__ == "__main__":
    main()
