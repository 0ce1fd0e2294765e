"""Effects by group: error and coverage of both learners, on populations of several kinds.

    python benchmarks/groups.py               # half an hour
    python benchmarks/groups.py --runs 2      # a minute or two

Four groups, effects that differ between them, five or ten covariates. Seeds are those of nothing
else in the package.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from report import save

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


def population(kind: str, n: int, seed: int) -> pd.DataFrame:
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


def run(kind: str, n: int, epsilon: float, method: str, seed: int) -> pd.DataFrame:
    data = population(kind, n, seed)
    names = [name for name in data if name[0] == "x"]
    by = "g" if kind == "unequal groups" else QUARTERS
    group = data["g"] if by == "g" else np.minimum(4 * data["x1"], 3).astype(int)
    low, high = (0, 1) if kind in ("binary", "confounded") else (-0.5, 1.5)
    bounds = {**dict.fromkeys(names, (0, 1)), "outcome": (low, high)}
    if by == "g":
        bounds["g"] = [0, 1, 2, 3]
    fit = dpe.dp_cate(
        f"outcome ~ treatment | {' + '.join(names)}",
        data,
        method,
        release="groups",
        by=by,
        epsilon=epsilon,
        bounds=bounds,
        seed=seed,
        **({"design": "randomised"} if kind == "trial" else {}),
    )
    truth = (data["mu1"] - data["mu0"]).groupby(group).mean().to_numpy()
    found = fit.tidy()
    covered = (found["conf_low"] <= truth) & (truth <= found["conf_high"])
    known = found["conf_low"].notna()
    error = (found["estimate"] - truth) ** 2
    return pd.DataFrame({"error": error, "known": known, "covered": covered.where(known)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    runs, rows = parser.parse_args().runs, []
    for kind in KINDS:
        for n in (2_000, 10_000):
            for epsilon in (0.5, 1.0, 4.0):
                row = {"population": kind, "n": n, "epsilon": epsilon}
                for method in ("one_step", "dr_learner"):
                    if method == "dr_learner" and epsilon != 1.0:
                        continue
                    seeds = range(START, START + (runs if method == "one_step" else runs // 2))
                    found = pd.concat([run(kind, n, epsilon, method, seed) for seed in seeds])
                    row[f"{method}, error"] = round(float(np.sqrt(found["error"].mean())), 4)
                    row[f"{method}, covers %"] = round(
                        100 * found["covered"].astype(float).mean(), 1
                    )
                    row[f"{method}, with an interval %"] = round(100 * found["known"].mean(), 1)
                rows.append(row)
                print(row, flush=True)
    points = 100 * np.sqrt(0.95 * 0.05 / (4 * runs))
    notes = (
        f"{runs} runs a cell, four groups each, of `one_step` (standard error of a coverage of "
        f"95 %: {points:.1f} points), half as many of `dr_learner`, "
        "at epsilon 1 only. Populations: "
        + "; ".join(f"*{k}*: {v}" for k, v in KINDS.items())
        + "."
    )
    save("groups", "Effects by group", {"": pd.DataFrame(rows)}, notes)


if __name__ == "__main__":
    main()
