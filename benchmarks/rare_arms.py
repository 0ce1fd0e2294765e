"""Few treated records: error and coverage of the default where 1, 3 or 10 % are treated.

    python benchmarks/rare_arms.py              # five minutes
    python benchmarks/rare_arms.py --runs 2     # a quarter of a minute

Two covariates, outcomes in [0, 1], epsilon 1. Seeds are those of nothing else in the package.
"""

from __future__ import annotations

import argparse
from itertools import product

import numpy as np
import pandas as pd
from report import save

import dpeffects as dpe

KINDS = {
    "large": "an effect of 0.4",
    "none": "no effect",
    "skewed": "log-normal outcomes, 2.5 times as high when treated",
    "some": "an effect of 0.6 on a fifth of the records",
}
BOUNDS = dict.fromkeys(("y", "x1", "x2"), (0, 1))
START = 70_000


def population(kind: str, n: int, share: float, trial: bool, seed: int) -> pd.DataFrame:
    """Records with both potential outcomes."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 2))
    log_odds = np.log(share / (1 - share)) + (0.0 if trial else 1.5 * (x[:, 0] - 0.5) - 0.1)
    treated = rng.random(n) < 1 / (1 + np.exp(-log_odds))
    control = 0.3 + 0.1 * x[:, 0] + rng.normal(0, 0.05, n)
    effect = {"large": 0.4, "none": 0.0, "some": 0.6 * (rng.random(n) < 0.2)}.get(kind)
    if kind == "skewed":
        control = 0.04 * np.exp(0.3 * x[:, 0] + rng.normal(0, 0.6, n))
        effect = 1.5 * control
    y0, y1 = np.clip(control, 0, 1), np.clip(control + effect, 0, 1)
    made = {"y": np.where(treated, y1, y0), "t": treated.astype(int), "effect": y1 - y0}
    return pd.DataFrame(x, columns=["x1", "x2"]).assign(**made)


def cell(kind: str, n: int, share: float, trial: bool, runs: int) -> dict[str, float]:
    design, rows = "randomised" if trial else "observational", []
    for seed in range(START, START + runs):
        data = population(kind, n, share, trial, seed)
        call = {"epsilon": 1, "bounds": BOUNDS, "design": design, "seed": seed}
        fit, truth = dpe.dp_ate("y ~ t | x1 + x2", data, **call), data["effect"].mean()
        low, high = fit.conf_int()
        cautious = "Small arm" in fit.warnings
        rows.append((fit.estimate - truth, low <= truth <= high, high - low, cautious))
    error, covered, width, cautious = np.array(rows).T
    return {
        "error": round(float(np.sqrt((error**2).mean())), 4),
        "covers %": round(100 * covered.mean(), 1),
        "width": round(float(np.median(width)), 4),
        "caution %": round(100 * cautious.mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    runs, rows = parser.parse_args().runs, []
    for kind, n, share, trial in product(KINDS, (4_000, 50_000), (0.01, 0.03, 0.1), (True, False)):
        about = {"effect": kind, "n": n, "treated %": 100 * share}
        about["design"] = "trial" if trial else "observational"
        rows.append(about | cell(kind, n, share, trial, runs))
        print(rows[-1], flush=True)
    points = 100 * np.sqrt(0.95 * 0.05 / runs)
    notes = (
        f"{runs} runs a cell (standard error of a coverage of 95 %: {points:.1f} points). "
        + "; ".join(f"*{k}*: {v}" for k, v in KINDS.items())
        + ". *warning*: how often the summary said Small arm."
    )
    save("rare_arms", "Few treated records", {"": pd.DataFrame(rows)}, notes)


if __name__ == "__main__":
    main()
