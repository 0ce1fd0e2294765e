"""How often intervals cover where rows have something in common, are weighted, or are missing.

Data are simulated (`dpe.simulate`), but for those with gaps. Every run has other data and other
noise; methods and epsilons share the data. A call without the argument that the data need stands
beside each: it is there to fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from averages import commonest, compared, over_peer
from harness import Cell, Part, Row, Table

import dpeffects as dpe

PEERS = 60
"""Runs of a cell that are also made without privacy."""
TRIAL = {"diff_in_means", "clipped_contrast"}
"""Methods that do not adjust: they get the data of a trial."""
ADDITIVE = ("diff_in_means", "clipped_contrast", "one_step", "private_ipw")
DATA: dict[str, tuple[str, dict[str, Any]]] = {
    "villages, people treated": ("clustered", {}),
    "villages treated": ("clustered", {"assigned": "village"}),
    "people with 1 to 8 rows": ("repeated", {}),
    "survey": ("survey", {}),
    "records": ("clustered", {"icc": 0.0}),
    "outcomes missing at random": ("missing_outcomes", {}),
}
"""Simulators and their options."""
GAPS = "covariate with gaps"
EVERY_ROW = 0.2 * (0.5 + 7 / 3) / 4.5
"""The effect on rows, where people have 1 to 8 of them."""
VILLAGE, PERSON = {"cluster": "village"}, {"unit": "person"}
CALLS: dict[str, tuple[dict[str, Any], float]] = {
    "rows": ({}, 0.1),
    "cluster": (VILLAGE, 0.1),
    "cluster, clusters": (VILLAGE | {"clusters": 0}, 0.1),
    "unit": (PERSON, 0.1),
    "unit, max_rows=8": (PERSON | {"max_rows": 8}, EVERY_ROW),
    "all rows": ({}, EVERY_ROW),
    "weights": ({"weights": "weight"}, 0.1),
    "subset of 30 %": ({"subset": "x1 >= 0.7"}, 0.17),
    "subset of 5 %": ({"subset": "x1 >= 0.95"}, 0.195),
    "weight": ({"missing": "weight"}, 0.1),
    "complete": ({"missing": "complete"}, 0.1),
    "indicator": ({"missing": "indicator"}, 0.1),
}
"""Arguments, and the effect that is to be covered; ``clusters`` 0 stands for how many there are."""
ASKED: dict[str, tuple[tuple[str, ...], int, tuple[str, ...], str, tuple[str, ...]]] = {
    "clusters": (tuple(DATA)[:2], 100, ("cluster", "cluster, clusters"), "rows", ADDITIVE),
    "units": (tuple(DATA)[2:3], 6000, ("unit", "unit, max_rows=8"), "all rows", ADDITIVE),
    "weights": (("survey",), 4000, ("weights",), "rows", ADDITIVE),
    "subsets": (("records",), 300, ("subset of 30 %", "subset of 5 %"), "", ADDITIVE),
    "missing": (tuple(DATA)[5:], 6000, ("weight",), "complete", ADDITIVE),
    "gaps": ((GAPS,), 4000, ("indicator",), "", ADDITIVE[2:]),
}
"""Data, their size, calls, the call that is there to fail, and methods."""


def cells() -> Iterator[Cell]:
    for part, (names, size, calls, fails, methods) in ASKED.items():
        for data in names:
            for call in filter(None, (*calls, fails)):
                for method in methods:
                    for epsilon in (4.0,) if call == fails else (1.0, 4.0):
                        made = {"part": part, "data": data, "size": size, "call": call}
                        yield made | {"method": method, "epsilon": epsilon}
    for size in (40, 300):
        for method in ADDITIVE:
            made = {"part": "clusters", "data": "villages treated", "call": "cluster, clusters"}
            yield made | {"size": size, "method": method, "epsilon": 4.0}


def with_gaps(seed: int, size: int, randomised: bool) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A fifth of a confounder is missing, also to those who chose the treatment."""
    rng = np.random.default_rng(70_000 + seed)
    x = rng.random((size, 3))
    known = np.where(rng.random(size) < 0.2, np.nan, x[:, 0])
    seen = np.where(np.isnan(known), 0.5, known)
    logit = 0.0 if randomised else 3.0 * (seen + x[:, 1] - 1.0)
    treatment = (rng.random(size) < 1.0 / (1.0 + np.exp(-logit))).astype(int)
    y = 0.3 + 0.2 * seen + 0.1 * x[:, 1] + 0.1 * treatment + rng.uniform(-0.2, 0.2, size)
    frame = pd.DataFrame({"treatment": treatment, "outcome": y, "x1": known})
    bounds = {"treatment": [0, 1], **dict.fromkeys(("outcome", "x1", "x2", "x3"), (0, 1))}
    return frame.assign(x2=x[:, 1], x3=x[:, 2]), bounds


@lru_cache(maxsize=100)
def sample(
    data: str, size: int, seed: int, randomised: bool
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """``size`` is the number of rows, or of villages."""
    if data == GAPS:
        return with_gaps(seed, size, randomised)
    name, options = DATA[data]
    rows = 40 * size if name == "clustered" else size
    more = {"clusters": size} if name == "clustered" else {}
    made = dpe.simulate(name, rows, seed, randomised=randomised, **more, **options)
    return made.frame, dict(made.bounds)


def run(people: int, noise: int, **cell: Any) -> Row:
    (given, truth), method = CALLS[cell["call"]], cell["method"]
    trial = method in TRIAL
    given = given | ({"clusters": cell["size"]} if "clusters" in given else {})
    given |= {"design": "randomised"} if trial else {}
    adjusted = not trial or cell["call"] == "weight"
    formula = "outcome ~ treatment" + (" | x1 + x2 + x3" if adjusted else "")
    frame, bounds = sample(cell["data"], cell["size"], people, trial)
    about = {"epsilon": cell["epsilon"], "bounds": bounds, "seed": noise, "peer": people < PEERS}
    return compared(formula, frame, method, truth, **about, **given)


def summary(runs: pd.DataFrame) -> Row:
    """Shares of the runs; ``error`` is the standard deviation of the estimates."""
    names = ("cover95", "peer covers", "half_width", "error", "std_error", "warned")
    runs = runs.reindex(columns=[*dict.fromkeys([*runs, *names])])
    return {
        "refused": round(100 * runs["refused"].mean()),
        "coverage": round(100 * runs["cover95"].mean(), 1),
        "without privacy": round(100 * runs["peer covers"].mean(), 1),
        "half-width": float(f"{runs['half_width'].mean():.3g}"),
        "over that without privacy": round(over_peer(runs), 2),
        "bias": float(f"{runs['error'].mean():.2g}"),
        "error": float(f"{runs['error'].std(ddof=0):.3g}"),
        "reported": float(f"{np.sqrt((runs['std_error'] ** 2).mean()):.3g}"),
        "warned": round(100 * runs["warned"].mean()) if runs["warned"].notna().any() else np.nan,
        "said": commonest(runs["said"]),
    }


LEAD = """\
Nominal 95 % intervals, coverage in %; *without privacy* is that of the same call without it, on the
same data (`dpe.reference`); *error* is the standard deviation of the estimates, *reported* what the
standard errors say it is; *warned* are runs with a line of stars above the estimate. Methods that
do not adjust (`diff_in_means`, `clipped_contrast`) get a trial, the others a confounded study;
covariates say who has an outcome in both. In villages, size is their number, and there are 40
people in each on average; elsewhere it is the number of rows.

Calls: *rows* knows nothing of clusters, weights or missing values, and is there to fail;
*cluster, clusters* declares how many there are, *cluster* has them counted privately; *unit* counts
every person once; *unit, max_rows=8* and *all rows* count every row; *complete* leaves out records
without an outcome, and is biased here. Data are shared between methods and epsilons, so that chance
repeats itself."""


def page(found: pd.DataFrame) -> dict[str, pd.DataFrame]:
    groups = found.groupby(["part", "data", "call"], sort=False)["coverage"]
    short = groups.agg(cells="size", coverage="mean", least="min", most="max").round(1)
    parts = {part: rows.drop(columns="part") for part, rows in found.groupby("part", sort=False)}
    return {"In short": short.reset_index()} | {x.capitalize(): y for x, y in parts.items()}


TABLE = Table(
    "Clusters, units, weights, subsets, missing values",
    (Part("", [*cells()], run, summary, runs=100, csv="real_data"),),
    lead=LEAD,
    page=page,
    minutes=4,
)
