"""Effects by group: error and coverage of both learners, on populations of several kinds.

Four groups, effects that differ between them, five or ten covariates. Seeds are those of nothing
else in the package.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from harness import Part, Table, grid, percent, root, standard_error

import dpeffects as dpe

KINDS = {
    "trial": "by lot",
    "linear": "models right, five covariates",
    "few treated": "9 % treated, models right",
    "binary": "outcomes of 0 and 1",
    "unequal groups": "groups of 3, 12, 25 and 60 %",
    "confounded": "simulate('confounded'), ten covariates",
    "curved": "the score and the outcome follow a square that the formula lacks",
}
COVARIATES = [f"x{k}" for k in range(1, 6)]
QUARTERS = "cut(x1, [0, 0.25, 0.5, 0.75, 1])"
START = 50_000


def drawn(kind: str, n: int, seed: int) -> pd.DataFrame:
    """Records with both mean outcomes; groups are quarters of x1, or the column g."""
    if kind == "confounded":
        return dpe.simulate("confounded", n=n, seed=seed)
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 5))
    centred = x - 0.5
    score = 1.5 * centred[:, 0] + 1.5 * centred[:, 1] + centred[:, 2]
    control, effect = 0.3 + 0.3 * x[:, 0] + 0.1 * x[:, 1], 0.1 + 0.2 * centred[:, 0]
    if kind == "curved":
        score = 6 * centred[:, 0] ** 2 - 0.5 + centred[:, 1]
        control = 0.2 + 0.8 * centred[:, 0] ** 2 + 0.1 * x[:, 1]
    if kind == "few treated":
        score = score - 2.3
    if kind == "trial":
        score = np.zeros(n)
    group = rng.choice(4, size=n, p=[0.03, 0.12, 0.25, 0.6])
    if kind == "unequal groups":
        effect = effect + 0.1 * (group == 0)
    treated = rng.random(n) < 1 / (1 + np.exp(-score))
    mean = control + treated * effect
    outcome = rng.normal(mean, 0.08)
    if kind == "binary":
        outcome = (rng.random(n) < mean).astype(float)
    made = {"treatment": treated.astype(int), "outcome": outcome, "g": group}
    return pd.DataFrame(x, columns=COVARIATES).assign(**made, mu0=control, mu1=control + effect)


def run(people: int, noise: int, population: str, n: int, epsilon: float, method: str):
    """Every group counts once."""
    data = drawn(population, n, START + people)
    names = [name for name in data if name[0] == "x"]
    by = "g" if population == "unequal groups" else QUARTERS
    group = data["g"] if by == "g" else np.minimum(4 * data["x1"], 3).astype(int)
    ends = (0, 1) if population in ("binary", "confounded") else (-0.5, 1.5)
    bounds = {**dict.fromkeys(names, (0, 1)), "outcome": ends}
    bounds |= {"g": [0, 1, 2, 3]} if by == "g" else {}
    asked = {"release": "groups", "by": by, "epsilon": epsilon, "bounds": bounds, "seed": noise}
    asked |= {"design": "randomised"} if population == "trial" else {}
    fit = dpe.dp_cate(f"outcome ~ treatment | {' + '.join(names)}", data, method, **asked)
    truth, found = (data["mu1"] - data["mu0"]).groupby(group).mean().to_numpy(), fit.tidy()
    covered = (found["conf_low"] <= truth) & (truth <= found["conf_high"])
    known = found["conf_low"].notna()
    made = {"error": found["estimate"] - truth, "known": known}
    return pd.DataFrame({**made, "covered": covered.where(known).astype(float)}).to_dict("records")


COLUMNS = {
    "error": root("error"),
    "covers %": percent("covered"),
    "with an interval %": percent("known"),
}
CELLS = [
    cell
    for method, epsilons in (("one_step", (0.5, 1.0, 4.0)), ("dr_learner", (1.0,)))
    for cell in grid(population=KINDS, n=(2_000, 10_000), epsilon=epsilons, method=[method])
]

TABLE = Table(
    "Effects by group",
    (Part("", CELLS, run, COLUMNS, runs=40),),
    "Four groups in each run (standard error of a coverage of 95 % in 40 runs: "
    f"{standard_error(160)} points). Populations: "
    + "; ".join(f"*{k}*: {v}" for k, v in KINDS.items())
    + ".",
    minutes=2,
)
