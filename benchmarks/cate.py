"""Error of private conditional effects (PEHE) on the data sets of paper 001, by epsilon.

3,000 records, of which 2,700 train and 300 are queries; delta = 1e-5; private nuisances included.
Epsilon = infinity stands for 10^6, where noise is negligible. A constant (the true average effect)
scores the standard deviation of the effect. Coverage is that of the 95 % band for the effect,
averaged over queries. Noise is seeded.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from harness import Part, Table, grid, mean

import dpeffects as dpe

DATA = {"data set 1": ("cate_1", 2), "data set 2": ("cate_2", 30)}
BARS = {("data set 1", 1.0): 0.75, ("data set 1", 5.0): 0.55}
_POINTS = {"release": "points"}
CASES = {
    "R-learner, function": ("r_learner", {}),
    "DR-learner, function": ("dr_learner", {}),
    "R-learner, function, noise by the kernel": ("r_learner", {"noise": "kernel"}),
    "DR-learner, function, noise by the kernel": ("dr_learner", {"noise": "kernel"}),
    "R-learner, linear function": ("r_learner", {"second_stage": "linear"}),
    "DR-learner, linear function": ("dr_learner", {"second_stage": "linear"}),
    "R-learner, 300 points": ("r_learner", _POINTS),
    "DR-learner, 300 points": ("dr_learner", _POINTS),
    "R-learner, 300 points, independent noise": ("r_learner", {**_POINTS, "noise": "kernel"}),
    "DR-learner, 300 points, independent noise": ("dr_learner", {**_POINTS, "noise": "kernel"}),
    "sample and aggregate, forest, 300 points": (
        "sample_aggregate",
        {**_POINTS, "learner": "forest"},
    ),
}
EPSILONS = (0.1, 0.5, 1.0, 5.0, 10.0, 1e6)


def run(people: int, noise: int, data: str, case: str, epsilon: float):
    name, columns = DATA[data]
    method, options = CASES[case]
    options = dict(options)
    sample = dpe.simulate(name, n=3000, seed=people)
    train, test = sample[:2700], sample.frame.iloc[2700:]
    formula = "outcome ~ treatment | " + " + ".join(f"x{j + 1}" for j in range(columns))
    if options.pop("learner", None):
        from sklearn.ensemble import RandomForestRegressor

        width = 8.0 if columns == 2 else 16.0
        forest = RandomForestRegressor(10, min_samples_leaf=5, random_state=0)
        options |= {"outcome": forest, "effect_range": (-width, width)}
    if options.get("release") == "points":
        options["at"] = test
    fit = dpe.dp_cate(formula, train, method, epsilon=epsilon, delta=1e-5, seed=noise, **options)
    truth = (test["mu1"] - test["mu0"]).to_numpy()
    found = {"constant": truth.std()}
    if isinstance(fit, dpe.CateEffects):
        return found | {"pehe": dpe.pehe(fit.estimates, truth), "covered": np.nan}
    bands = fit.bands(test)
    inside = (bands["conf_low"] <= truth) & (truth <= bands["conf_high"])
    return found | {"pehe": dpe.pehe(bands["effect"], truth), "covered": inside.mean()}


def table(found: pd.DataFrame, value: str) -> pd.DataFrame:
    wide = found.pivot(index=["data", "case"], columns="epsilon", values=value)
    names = {e: "inf" if e > 1e5 else f"eps {e:g}" for e in wide.columns}
    order = [(d, c) for d in DATA for c in CASES if (d, c) in wide.index]
    return wide.rename(columns=names).loc[order].round(2).reset_index()


def page(found: pd.DataFrame) -> dict[str, pd.DataFrame]:
    bars = [
        {"data": data, "epsilon": epsilon, "bar": bar}
        | {
            name: _at(found, data, f"{name}, function", epsilon)
            for name in ("R-learner", "DR-learner")
        }
        for (data, epsilon), bar in BARS.items()
    ]
    smooth = found[~found["case"].str.contains("linear")].dropna(subset=["covered"])
    return {
        "Bars (exact function release, private nuisances)": pd.DataFrame(bars),
        "PEHE": table(found, "pehe"),
        "Coverage of 95 % bands, in %": table(
            smooth.assign(covered=100 * smooth["covered"]), "covered"
        ),
    }


def notes(found: pd.DataFrame) -> str:
    constant = found.groupby("data")["constant"].mean()
    return (
        "PEHE of the best constant: "
        + ", ".join(f"{value:.2f} ({data})" for data, value in constant.items())
        + ". Sample and aggregate is an average of 3 runs (forests of 10 trees; effects within "
        "8, or 16 for data set 2). Bands cover noise, sampling and shrinkage, on average over "
        "points. The paper's finite release is in vignettes/heterogeneous_effects.py."
    )


def _at(found: pd.DataFrame, data: str, case: str, epsilon: float) -> float:
    rows = found[(found.data == data) & (found.case == case) & (found.epsilon == epsilon)]
    return round(float(rows["pehe"].iloc[0]), 3) if len(rows) else np.nan


COLUMNS = {name: mean(name, 6) for name in ("pehe", "covered", "constant")}
CELLS = [
    cell | {"runs": 3 if cell["case"].startswith("sample") else 20}
    for cell in grid(data=DATA, case=CASES, epsilon=EPSILONS)
]
TABLE = Table(
    "Private conditional effects",
    (Part("", CELLS, run, COLUMNS, runs=20, csv="cate"),),
    notes,
    page=page,
    minutes=4,
)
