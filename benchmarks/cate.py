"""Private conditional effects: errors (PEHE) and bands on the data sets of paper 001, and growth.

3,000 records, of which 2,700 train and 300 are queries; delta = 1e-5; private nuisances included.
"""

from __future__ import annotations

import resource
import time

import numpy as np
import pandas as pd
from harness import Part, Row, apart, grid, mean, percent
from known_truth import table

import dpeffects as dpe

DATA = {"data set 1": ("cate_1", 2), "data set 2": ("cate_2", 30)}
LINEAR, POINTS = {"second_stage": "linear"}, {"release": "points"}
CASES = {
    f"{x.upper()}-learner, {way}": (f"{x}_learner", options)
    for way, options in {"function": {}, "linear function": LINEAR, "300 points": POINTS}.items()
    for x in ("r", "dr")
}
FOREST = "sample and aggregate, forest, 300 points"


def run(people: int, noise: int, data: str, case: str, epsilon: float) -> Row:
    name, columns = DATA[data]
    sample = dpe.simulate(name, n=3000, seed=people)
    train, test = sample[:2700], sample.frame.iloc[2700:]
    method, options = CASES.get(case, ("sample_aggregate", POINTS))
    if case == FOREST:
        from sklearn.ensemble import RandomForestRegressor

        forest = RandomForestRegressor(10, min_samples_leaf=5, random_state=0)
        options = options | {"outcome": forest, "effect_range": (-8.0, 8.0)}
    if "release" in options:
        options = options | {"at": test}
    formula = "outcome ~ treatment | " + " + ".join(f"x{j + 1}" for j in range(columns))
    fit = dpe.dp_cate(formula, train, method, epsilon=epsilon, delta=1e-5, seed=noise, **options)
    truth = (test["mu1"] - test["mu0"]).to_numpy()
    if "release" in options:
        return {"pehe": dpe.pehe(fit.estimates, truth), "covered": np.nan, "constant": truth.std()}
    low, high, effect = fit.bands(test)[["conf_low", "conf_high", "effect"]].to_numpy().T
    found = {"pehe": dpe.pehe(effect, truth), "covered": ((low <= truth) & (truth <= high)).mean()}
    return found | {"constant": truth.std()}


def notes(found: pd.DataFrame) -> str:
    constant = found.groupby("data")["constant"].mean()
    return (
        "PEHE of the best constant: "
        + ", ".join(f"{value:.2f} ({data})" for data, value in constant.items())
        + ". Bands cover on average over points; linear functions do not cover a curved effect."
    )


FIRST, EPSILONS = ["data set 1"], (0.5, 1.0, 5.0)
CELLS = grid(data=FIRST, case=[*CASES][:2], epsilon=EPSILONS, runs=[200])
CELLS += grid(data=["data set 2"], case=[*CASES][:2], epsilon=EPSILONS, runs=[15])
CELLS += grid(data=DATA, case=[*CASES][2:], epsilon=EPSILONS, runs=[15])
CELLS += grid(data=FIRST, case=[FOREST], epsilon=EPSILONS, runs=[3])


def measure(covariates: int) -> Row:
    """Fit a function of many covariates to 3,000 records, in a process of its own."""
    x = np.random.default_rng(1).random((3_000, covariates + 2))
    t, names = x[:, -1] < 0.3 + 0.4 * x[:, 0], [f"x{j}" for j in range(covariates)]
    frame = pd.DataFrame(x[:, :-2], columns=names).assign(t=t, y=x[:, 0] * t + 0.2 * x[:, -2])
    bounds, start = {"y": (-1, 3), **dict.fromkeys(names, (0, 1))}, time.process_time()
    dpe.dp_cate(f"y ~ t | {' + '.join(names)}", frame, epsilon=1, delta=1e-5, bounds=bounds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"fit, s": round(time.process_time() - start, 1), "peak memory, GiB": round(peak, 2)}


GROWTH = [{"covariates": k} for k in (2, 100, 400, 2_000)]
COLUMNS = {"pehe": mean("pehe"), "covered": percent("covered"), "constant": mean("constant")}
TABLES = {
    "cate": table(
        "Private conditional effects",
        notes,
        2.5,
        Part("", CELLS, run, COLUMNS, runs=15, csv="cate"),
    ),
    "cate_growth": table(
        "Growth of effect functions",
        "3,000 records; seconds of the processor. The bar: 400 covariates in 20 s.",
        0.5,
        Part("", GROWTH, lambda people, noise, **size: apart(measure, *size.values())),
        alone=True,
    ),
}
