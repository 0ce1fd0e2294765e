"""Few treated records: error and coverage of the default where 1, 3 or 10 % are treated.

Two covariates, outcomes in [0, 1], epsilon 1. Seeds are those of nothing else in the package.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from harness import Part, Table, grid, median, percent, root, standard_error

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


def run(people: int, noise: int, effect: str, n: int, treated: float, design: str):
    data = population(effect, n, treated, design == "randomised", START + people)
    call = {"epsilon": 1, "bounds": BOUNDS, "design": design, "seed": noise}
    fit, truth = dpe.dp_ate("y ~ t | x1 + x2", data, **call), data["effect"].mean()
    low, high = fit.conf_int()
    found = {"error": fit.estimate - truth, "covers": low <= truth <= high, "width": high - low}
    return found | {"caution": "Small arm" in fit.warnings}


DESIGNS = ("randomised", "observational")
TABLE = Table(
    "Few treated records",
    (
        Part(
            "",
            grid(effect=KINDS, n=(4_000, 50_000), treated=(0.01, 0.03, 0.1), design=DESIGNS),
            run,
            {
                "error": root("error"),
                "covers %": percent("covers"),
                "width": median("width"),
                "caution %": percent("caution", 0),
            },
            runs=100,
        ),
    ),
    f"Standard error of a coverage of 95 % in 100 runs: {standard_error(100)} points. "
    + "; ".join(f"*{k}*: {v}" for k, v in KINDS.items())
    + ". *caution*: how often the summary said Small arm.",
    minutes=2,
)
