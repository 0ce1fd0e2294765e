"""Regression tables from released moments: how often intervals cover, and how large the noise is.

    python benchmarks/moments.py            # ten minutes on two cores
    python benchmarks/moments.py --small    # a quick look, nothing saved

Five covariates: two numbers (one skewed, correlated with the other), two indicators (one depends on
a number) and a factor of four levels; treatment depends on them. The outcome is normal, skewed with
a variance that grows with its mean, or an indicator. Truths are the coefficients in ten million
people. Coverage is that of 95 % intervals by `dp_moments(...).regression(...)`, in per cent; people
and noise have seeds of their own.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import numpy as np
import pandas as pd
from report import save

import dpeffects as dpe
from dpeffects.progress import bar

SMALL = "--small" in sys.argv
RUNS = 20 if SMALL else 300
SIZES = (100_000, 20_000)
OUTCOMES = ("normal", "skewed", "indicator")
FORMULA = "{y} ~ t | x1 + x2 + b1 + b2 + g"
BOUNDS = {
    "normal": (-5, 6),
    "skewed": (0, 12),
    "indicator": (0, 1),
    "x1": (-4, 4),
    "x2": (-4, 7),
    "b1": (0, 1),
    "b2": (0, 1),
    "g": ["a", "b", "c", "d"],
}
NAMES = ["(Intercept)", "t", "x1", "x2", "b1", "b2", "g[T.b]", "g[T.c]", "g[T.d]"]
NOTE = (
    "The standard error of a coverage of 95 % is {se:.1f}. *Noise* is the standard deviation of "
    "the noise over that of the sampling error (medians). The other half of the budget's cost is "
    "in `Moments.worth`, from public numbers alone."
)


def people(n: int, seed: int) -> pd.DataFrame:
    """Records with three outcomes, clipped to their bounds."""
    rng = np.random.default_rng(seed)
    x1 = rng.normal(size=n)
    x2 = 0.5 * x1 + rng.exponential(size=n) - 1.0
    b1 = rng.random(n) < 1.0 / (1.0 + np.exp(1.0 - 0.8 * x1))
    b2 = rng.random(n) < 0.15
    g = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    t = rng.random(n) < 1.0 / (1.0 + np.exp(0.5 - 0.4 * x1 - 0.5 * b1))
    line = 0.3 * t + 0.4 * x1 - 0.2 * x2 + 0.5 * b1 + 0.3 * b2
    line += np.array([0.0, 0.2, -0.3, 0.5])[g]
    found = {
        "normal": line + rng.normal(size=n),
        "skewed": np.exp(0.5 * line) * rng.gamma(1.0, 1.0, n),
        "indicator": rng.random(n) < np.clip(0.25 + 0.12 * line, 0.02, 0.98),
        "x1": x1,
        "x2": x2,
    }
    inside = {name: np.clip(x, *BOUNDS[name]).astype(float) for name, x in found.items()}
    inside["indicator"] = inside["indicator"].astype(int)
    more = {"t": t.astype(int), "b1": b1.astype(int), "b2": b2.astype(int)}
    return pd.DataFrame(inside | more | {"g": np.array(["a", "b", "c", "d"])[g]})


def design(frame: pd.DataFrame) -> np.ndarray:
    """Regressors, in the order of the table."""
    levels = [frame["g"] == level for level in "bcd"]
    columns = [np.ones(len(frame)), *(frame[x] for x in ("t", "x1", "x2", "b1", "b2")), *levels]
    return np.column_stack(columns).astype(float)


@cache
def truths() -> pd.DataFrame:
    """Coefficients in ten million people."""
    gram, with_outcomes = np.zeros((9, 9)), np.zeros((9, 3))
    for seed in range(10):
        frame = people(1_000_000, 10**6 + seed)
        x = design(frame)
        gram += x.T @ x
        with_outcomes += x.T @ frame[list(OUTCOMES)].to_numpy(float)
    return pd.DataFrame(np.linalg.solve(gram, with_outcomes), NAMES, list(OUTCOMES))


def setting(outcome: str, n: int, delta: float) -> dict:
    """Coverage of each coefficient in one setting."""
    truth, asked = truths()[outcome].to_numpy(), {"epsilon": 1.0, "delta": delta}
    kept = [*(x for x in BOUNDS if x not in OUTCOMES), outcome]
    asked["bounds"] = {name: BOUNDS[name] for name in kept}
    hits, ratios = [], []
    for seed in range(RUNS):
        frame = people(n, 2 * seed + 1)[[*kept, "t"]]
        moments = dpe.dp_moments(FORMULA.format(y=outcome), frame, **asked, seed=10**7 + seed)
        table = moments.regression(f"{outcome} ~ t + x1 + x2 + b1 + b2 + g").tidy()
        assert table["term"].tolist() == NAMES
        low, high = table["conf_low"].to_numpy(), table["conf_high"].to_numpy()
        hits.append(np.where(np.isnan(low), np.nan, (low <= truth) & (truth <= high)))
        ratios.append(table["noise_sd"] / table["sampling_se"])
    cover = dict(zip(NAMES, (100.0 * np.nanmean(hits, axis=0)).round(1), strict=True))
    noise = np.nanmedian(ratios, axis=0)
    about = {"outcome": outcome, "n": n, "delta": delta, "noise, t": noise[1].round(2)}
    return about | {"noise, x1": noise[2].round(2)} | cover


def main() -> None:
    warnings.simplefilter("ignore")
    tables = {}
    for n in SIZES:
        cases = list(itertools.product(OUTCOMES, [n], (0.0, 1e-6)))
        with ProcessPoolExecutor(2) as pool:
            each = [pool.submit(setting, *case) for case in cases]
            tables[f"n = {n:,}"] = pd.DataFrame([x.result() for x in bar(each, f"n = {n}")])
    if SMALL:
        print("\n".join(table.to_string() for table in tables.values()))
        return
    title = f"Moments: coverage of regression tables at epsilon 1, {RUNS} runs each"
    save("moments", title, tables, NOTE.format(se=100 * np.sqrt(0.95 * 0.05 / RUNS)))


if __name__ == "__main__":
    main()
