"""Relative error of every method at sample level against non-private matching.

    python benchmarks/accuracy.py            # 50 runs a cell: a few minutes
    python benchmarks/accuracy.py --small    # 10 runs, two data sets

Data: Lalonde, IHDP (surface A), Synth (paper 000) and ACIC 2016 (needs the extra `data`), epsilon
0.5 to 4; and a confounded simulation (n = 20,000, 10 covariates) at epsilon 1 against its true
effect. The target is plain matching on outcomes clipped to the declared range. Noise is seeded.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pandas as pd
from report import save

import dpeffects as dpe
from dpeffects.errors import DPEffectsError, MissingExtraError

EPSILONS = (0.5, 1.0, 2.0, 4.0)
METHODS = {
    "private_psm, paper": ("private_psm", {"as_printed": True, "debias": False}),
    "private_psm, debiased": ("private_psm", {"as_printed": True}),
    "diff_in_means": ("diff_in_means", {}),
    "private_ipw": ("private_ipw", {}),
    "auto": ("auto", {}),
}


def datasets(small: bool):
    yield "Lalonde", dpe.load_data("lalonde"), dpe.data_info("lalonde").formula
    yield "Synth", dpe.simulate("private_psm"), dpe.data_info("private_psm").formula
    if small:
        return
    yield "IHDP", dpe.load_data("ihdp"), dpe.data_info("ihdp").formula
    try:
        yield "ACIC", dpe.load_data("acic2016"), dpe.data_info("acic2016").formula
    except MissingExtraError as error:
        print(f"ACIC left out: {error}")


def target(formula: str, data: dpe.DeclaredFrame) -> float:
    """Non-private matching on outcomes clipped to the declared range."""
    return dpe.reference(formula, data, "private_psm", level="label").estimate


def error(formula, data, method, options, epsilon, truth, runs) -> float:
    fits = (
        dpe.dp_ate(formula, data, method, epsilon=epsilon, seed=seed, **options).estimate
        for seed in range(runs)
    )
    return float(np.mean([abs(value - truth) for value in fits]) / abs(truth))


def grid(small: bool, runs: int) -> pd.DataFrame:
    rows = []
    for name, data, formula in datasets(small):
        truth = target(formula, data)
        for label, (method, options) in METHODS.items():
            for epsilon in EPSILONS:
                value = error(formula, data, method, options, epsilon, truth, runs)
                rows.append((name, len(data), label, epsilon, value))
        print(f"{name} done", flush=True)
    return pd.DataFrame(rows, columns=["data", "n", "method", "epsilon", "error"])


def summary(cells: pd.DataFrame) -> pd.DataFrame:
    wide = cells.pivot(index=["data", "epsilon"], columns="method", values="error")
    mean = np.exp(np.log(wide).mean())
    paper, plain = mean["private_psm, paper"], wide["diff_in_means"]
    return pd.DataFrame(
        {
            "method": list(METHODS),
            "geometric mean of the errors": [round(mean[m], 4) for m in METHODS],
            "against private_psm, paper": [f"1/{paper / mean[m]:.1f}" for m in METHODS],
            "worst cell against diff_in_means": [
                round(float((wide[m] / plain).max()), 2) for m in METHODS
            ],
        }
    )


def confounded(runs: int) -> pd.DataFrame:
    """Fresh samples of the confounded simulation, at epsilon 1, against the true effect."""
    formula, rows = dpe.data_info("confounded").formula, []
    for label, (method, options) in METHODS.items():
        errors = []
        for seed in range(runs):
            data = dpe.simulate("confounded", seed=seed)
            truth = float((data["mu1"] - data["mu0"]).mean())
            fit = dpe.dp_ate(formula, data, method, epsilon=1, seed=seed, **options)
            errors.append(abs(fit.estimate - truth) / truth)
        rows.append({"method": label, "relative error": round(float(np.mean(errors)), 3)})
    table = pd.DataFrame(rows)
    plain = table.loc[table["method"] == "diff_in_means", "relative error"].iloc[0]
    table["against diff_in_means"] = (table["relative error"] / plain).round(3)
    return table


def main() -> None:
    warnings.simplefilter("ignore")
    small = "--small" in sys.argv
    runs = 10 if small else 50
    for method, _ in list(METHODS.values()):
        try:
            dpe.methods(method)
        except DPEffectsError:
            raise SystemExit(f"{method} is not there") from None
    cells = grid(small, runs)
    cells["method"] = pd.Categorical(cells["method"], list(METHODS))
    wide = cells.pivot(index=["data", "n", "epsilon"], columns="method", values="error").round(3)
    wide = wide.reset_index()
    wide.columns = [str(c) for c in wide.columns]
    tables = {
        f"Relative error, mean of {runs} runs": wide,
        "Over all cells": summary(cells.astype({"method": str})),
        f"Confounded simulation, n = 20,000, epsilon = 1, {min(runs, 30)} samples": confounded(
            min(runs, 30)
        ),
    }
    save("accuracy", "Accuracy at sample level", tables)


if __name__ == "__main__":
    main()
