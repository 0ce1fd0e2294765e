"""Three arms in one call, against two calls on the arms compared at half of the budget each.

    python benchmarks/three_arms.py            # a few minutes
    python benchmarks/three_arms.py --small    # a few seconds

All calls are on the same 6,000 simulated records, so that estimates differ by their noise alone:
"noise" is the standard deviation of the effects of both treatments against none over draws of it.
One call has the rows of all arms and epsilon; two calls have those of two arms and epsilon / 2.
"error" is the mean of the standard errors that they report, which sampling is a part of. The
effects of one call are averages over all records, those of two over the records of the two arms.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from report import save

import dpeffects as dpe

METHODS: dict[str, dict[str, Any]] = {
    "auto": {},
    "auto, delta = 1e-6": {"delta": 1e-6},
    "auto, label": {"level": "label"},
    "clipped_contrast": {},
    "diff_in_means": {},
    "one_step": {},
    "one_step, label": {"level": "label"},
    "private_ipw": {},
    "private_ipw, label": {"level": "label"},
    "private_psm, label": {"level": "label"},
}
LEVELS = ["none", "low", "high"]
FORMULA = "outcome ~ treatment | x1 + x2 + x3"


def calls(data: Any, name: str, epsilon: float, seed: int) -> Iterator[pd.DataFrame]:
    """Effects of one call, then of two."""
    method, given = name.split(",")[0], METHODS[name]
    both = dpe.dp_ate(FORMULA, data, method, epsilon=epsilon, seed=seed, **given)
    yield both.tidy(simultaneous=False)
    rows = []
    if "delta" in given:
        given = {**given, "delta": given["delta"] / 2}
    for k, level in enumerate(LEVELS[1:]):
        levels = [LEVELS[0], level]
        bounds = dict.fromkeys(("outcome", "x1", "x2", "x3"), (0, 1)) | {"treatment": levels}
        some = data.frame[data.frame["treatment"].isin(levels)].reset_index(drop=True)
        about = {"bounds": bounds, "epsilon": epsilon / 2, "seed": 10_000 * (k + 1) + seed}
        rows.append(dpe.dp_ate(FORMULA, some, method, **about, **given).tidy())
    yield pd.concat(rows)


def run(n: int, name: str, epsilon: float, seed: int) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = dpe.simulate("three_arms", n=n, seed=1)
        found = calls(data, name, epsilon, seed)
        return [table[["estimate", "std_error"]].to_numpy() for table in found]


def row(n: int, name: str, epsilon: float, runs: int) -> dict[str, Any]:
    made = Parallel(-1)(delayed(run)(n, name, epsilon, seed) for seed in range(runs))
    one, two = np.moveaxis(np.array(made), 1, 0)  # runs, effects, (estimate, error)
    noise = [float(np.sqrt(x[..., 0].var(axis=0, ddof=1).mean())) for x in (one, two)]
    error = [float(np.sqrt((x[..., 1] ** 2).mean())) for x in (one, two)]
    return {
        "method": name,
        "epsilon": epsilon,
        "noise, one call": noise[0],
        "noise, two calls": noise[1],
        "ratio": noise[0] / noise[1],
        "error, one call": error[0],
        "error, two calls": error[1],
        "ratio of errors": error[0] / error[1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    n, runs, epsilons = (1000, 4, [1.0]) if small else (6000, 60, [1.0])
    table = pd.DataFrame([row(n, name, e, runs) for name in METHODS for e in epsilons])
    for column in table.columns[2:]:
        table[column] = [f"{x:.3g}" for x in table[column]]
    title = "Three arms in one call, against two calls at half of the budget"
    save("three_arms", title, {f"{n} records, {runs} draws": table})


if __name__ == "__main__":
    main()
