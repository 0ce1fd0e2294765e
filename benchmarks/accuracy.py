"""Relative error of every method at sample level against non-private matching.

Data: Lalonde, IHDP (surface A), Synth (paper 000) and ACIC 2016 (needs the extra `data`), epsilon
0.5 to 4; and a confounded simulation (n = 20,000, 10 covariates) at epsilon 1 against its true
effect. The target is plain matching on outcomes clipped to the declared range. Noise is seeded.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
from harness import Part, Table, grid

import dpeffects as dpe

EPSILONS = (0.5, 1.0, 2.0, 4.0)
METHODS = {
    "private_psm, paper": ("private_psm", {"as_printed": True, "debias": False}),
    "private_psm, debiased": ("private_psm", {"as_printed": True}),
    "diff_in_means": ("diff_in_means", {}),
    "private_ipw": ("private_ipw", {}),
    "auto": ("auto", {}),
}


DATA = {"Lalonde": "lalonde", "Synth": "private_psm", "IHDP": "ihdp", "ACIC": "acic2016"}


@cache
def dataset(name: str) -> tuple[dpe.DeclaredFrame, str, float]:
    """Data, a formula, and non-private matching on outcomes clipped to the declared range."""
    known = DATA[name]
    data = dpe.simulate(known) if name == "Synth" else dpe.load_data(known)
    formula = dpe.data_info(known).formula
    return data, formula, dpe.reference(formula, data, "private_psm", level="label").estimate


def run(people: int, noise: int, data: str, method: str, epsilon: float):
    """The same records, other noise."""
    frame, formula, truth = dataset(data)
    name, options = METHODS[method]
    fit = dpe.dp_ate(formula, frame, name, epsilon=epsilon, seed=noise, **options)
    return {"n": len(frame), "error": abs(fit.estimate - truth) / abs(truth)}


def confounded(people: int, noise: int, method: str):
    """Fresh samples of the confounded simulation, against the true effect."""
    data, (name, options) = dpe.simulate("confounded", seed=people), METHODS[method]
    truth = float((data["mu1"] - data["mu0"]).mean())
    formula = dpe.data_info("confounded").formula
    fit = dpe.dp_ate(formula, data, name, epsilon=1, seed=noise, **options)
    return {"relative error": abs(fit.estimate - truth) / truth}


def summary(cells: pd.DataFrame) -> pd.DataFrame:
    wide = cells.pivot(index=["data", "epsilon"], columns="method", values="error")
    mean = np.exp(np.log(wide).mean())
    chosen = [m for m in METHODS if m in wide]
    paper, plain = mean["private_psm, paper"], wide["diff_in_means"]
    return pd.DataFrame(
        {
            "method": chosen,
            "geometric mean of the errors": [round(mean[m], 4) for m in chosen],
            "against private_psm, paper": [f"1/{paper / mean[m]:.1f}" for m in chosen],
            "worst cell against diff_in_means": [
                round(float((wide[m] / plain).max()), 2) for m in chosen
            ],
        }
    )


def page(cells: pd.DataFrame, fresh: pd.DataFrame) -> dict[str, pd.DataFrame]:
    cells["n"] = cells["n"].astype(int)
    wide = cells.pivot(index=["data", "n", "epsilon"], columns="method", values="error").round(3)
    wide = wide[[m for m in METHODS if m in wide]].reset_index()
    fresh = fresh.drop(columns="runs", errors="ignore").round(3)
    plain = fresh.loc[fresh["method"] == "diff_in_means", "relative error"].iloc[0]
    fresh["against diff_in_means"] = (fresh["relative error"] / plain).round(3)
    return {
        "Relative error, mean of 50 runs": wide,
        "Over all cells": summary(cells),
        "Confounded simulation, n = 20,000, epsilon = 1, 30 samples": fresh,
    }


SMALL = grid(data=["Lalonde"], method=METHODS, epsilon=[1.0])
FRESH = grid(method=METHODS)
TABLE = Table(
    "Accuracy at sample level",
    (
        Part(
            "Data sets",
            grid(data=DATA, method=METHODS, epsilon=EPSILONS),
            run,
            runs=50,
            small=SMALL,
        ),
        Part("Confounded simulation", FRESH, confounded, runs=30, small=FRESH),
    ),
    page=page,
    minutes=4,
)
