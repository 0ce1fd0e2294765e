"""Seconds of one call of each method, at its default options.

Data: the confounded simulation (10 covariates); matching on strata takes two of them cut in four.
The best of three calls, after one that loads the libraries. `dp_cate` has two covariates.
"""

from __future__ import annotations

import time

import pandas as pd
from harness import Part, Table, grid

import dpeffects as dpe

CUT = "[0, 0.25, 0.5, 0.75, 1]"
STRATA = f"outcome ~ treatment | cut(x1, {CUT}) + cut(x2, {CUT})"


def call(method: str, data: dpe.DeclaredFrame) -> None:
    learner, formula = method.endswith("_learner"), dpe.data_info("confounded").formula
    formula = STRATA if method.endswith("_matching") else formula
    formula = "outcome ~ treatment | x1 + x2" if learner else formula
    run = dpe.dp_cate if learner else dpe.dp_ate
    run(formula, data, method=method, epsilon=1, delta=1e-6)


def run(people: int, noise: int, method: str, n: int):
    data, best = dpe.simulate("confounded", n=n, seed=1), float("inf")
    call(method, dpe.simulate("confounded", n=2_000, seed=1))
    for _ in range(3):
        start = time.perf_counter()
        call(method, data)
        best = min(best, time.perf_counter() - start)
    return {"seconds": round(best, 3)}


def page(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    wide = rows.pivot(index="method", columns="n", values="seconds").reset_index()
    wide.columns = ["method", *(f"n = {n:,}" for n in wide.columns[1:])]
    return {"": wide}


METHODS = list(dict.fromkeys(dpe.methods()["method"]))
TABLE = Table(
    "Seconds of one call",
    (Part("", grid(method=METHODS, n=(10_000, 100_000)), run, csv="seconds"),),
    "Epsilon 1, delta 1e-6, best of three calls.",
    page=page,
    alone=True,
    minutes=3,
)
