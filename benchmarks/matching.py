"""Matching that adjusts: `private_psm` beside the printed algorithm, the default and no adjusting.

Data are those of the leaderboard, each at its own number of records, and populations drawn at
random by seeds for tuning (`benchmarks/populations.py`), 10,000 records each. All four are run on
the same samples. Errors are roots of mean squares, against the true effect of the sample where it
is known, or that of the population.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from harness import Part, Table, grid
from populations import population

import dpeffects as dpe
from dpeffects.evidence.leaderboard import tasks
from dpeffects.inference.estimate import Unavailable

METHODS: dict[str, dict[str, Any]] = {
    "private_psm": {"method": "private_psm"},
    "as printed": {"method": "private_psm", "as_printed": True},
    "auto": {"method": "auto"},
    "unadjusted": {"method": "diff_in_means"},
}
N, EPSILONS = 10_000, {"leaderboard": (1.0, 3.0, 10.0), "populations": (1.0, 3.0)}


def of_task(name: str, run: int) -> tuple[str, Any, float, dict[str, Any]]:
    task = tasks()[name]
    data, truth = task.make(task.n, run)
    return task.formula, data, truth, {}


def of_population(seed: int, run: int) -> tuple[str, Any, float, dict[str, Any]]:
    drawn = population(seed)
    data, truths = drawn.draw(N, np.random.default_rng([seed, N, run]))
    return drawn.formula, data, truths["ATE"], {"bounds": drawn.bounds}


def run(people: int, noise: int, kind: str, data: str, epsilon: float):
    """All four on the same records, with the same noise."""
    board = kind == "leaderboard"
    draw = of_task(data, people) if board else of_population(int(data), people)
    formula, frame, truth, given = draw
    rows = []
    for label, own in METHODS.items():
        fit = dpe.dp_ate(formula, frame, **own, **given, epsilon=epsilon, seed=noise)
        found = fit.conf_int(0.95)
        low, high = (np.nan, np.nan) if isinstance(found, Unavailable) else found
        rows.append(
            {
                "method": label,
                "n": len(frame),
                "square": (fit.estimate - truth) ** 2,
                "covers": low <= truth <= high,
                "effect": fit.identification == "adjusted",
            }
        )
    return rows


def tables(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Errors and coverage: by data of the leaderboard, by kind of population."""
    board = runs[runs["kind"] == "leaderboard"]
    kinds = runs[runs["kind"] != "leaderboard"]
    return {
        "Data of the leaderboard": table(board, ["data", "n", "epsilon"]),
        "Populations drawn at random, by kind": table(kinds, ["kind", "epsilon"]),
    }


def errors(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Root mean square errors by method, over data of a kind."""
    cells = [*dict.fromkeys([*by, "data"])]
    return np.sqrt(rows.pivot_table(index=cells, columns="method", values="square", sort=False))


def table(runs: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    own = errors(runs, by)
    relative = own.div(own["unadjusted"], axis=0)
    relative["in auto's"] = own["private_psm"] / own["auto"]
    shown = np.exp(np.log(relative).groupby(by, sort=False).mean())
    shown = shown[[*METHODS, "in auto's"]].drop(columns="unadjusted").round(3)
    shown["unadjusted"] = own["unadjusted"].groupby(by, sort=False).mean().map("{:.3g}".format)
    rates = runs.pivot_table(index=by, columns="method", values="covers", sort=False)
    for label in ("private_psm", "as printed", "auto"):
        shown[f"{label} covers"] = (100 * rates[label]).round(0).astype(int)
    own = runs[runs["method"] == "private_psm"]
    shown["an effect"] = (100 * own.groupby(by, sort=False)["effect"].mean()).round(0).astype(int)
    return shown.reset_index()


def notes(runs: pd.DataFrame) -> str:
    own = errors(runs, ["kind", "n", "epsilon"])
    enough = own.index.get_level_values("n") * own.index.get_level_values("epsilon") >= 5000
    ratio = (own["private_psm"] / own["auto"])[enough]
    return (
        "Errors of the first three are in those of `unadjusted`, whose own are in units of the "
        "outcome; over several populations they are geometric means. `covers` is how many of 100 "
        "intervals of 95 % have the true effect, `an effect` how many results are called one. "
        f"Where n epsilon is at least 5,000, errors of `private_psm` are {ratio.min():.2f} to "
        f"{ratio.max():.2f} times those of `auto` (median {ratio.median():.2f}, {len(ratio)} "
        "cells). Where log odds or outcomes bend in ways that the columns do not, both miss."
    )


BOARD = [x for x in tasks().values() if x.covariates and not x.randomised]
CELLS = grid(kind=["leaderboard"], data=[x.name for x in BOARD], epsilon=EPSILONS["leaderboard"])
for _k in range(12):
    _kind = f"populations {population(_k).kind}"
    CELLS += grid(kind=[_kind], data=[str(_k)], epsilon=EPSILONS["populations"])
TABLE = Table(
    "Matching that adjusts",
    (Part("", CELLS, run, runs=20, by=("method",), small=[CELLS[0], CELLS[-1]], chunk=2),),
    notes,
    page=tables,
    minutes=5,
)
