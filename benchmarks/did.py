"""Difference in differences: how often intervals cover, and what privacy costs.

    python benchmarks/did.py            # ten minutes on two idle cores
    python benchmarks/did.py --small    # a quick look, nothing saved

Long data of two periods, one row for each unit and period, all rows of a unit protected. Outcomes
of a unit are correlated; "skewed" ones are log-normal. Trends of treated and controls are parallel,
and levels are not; with covariates, trends are parallel for the same covariates only. Coverage is
that of 95 % intervals by `dp_did`, in per cent. Errors are root mean squares, over that of the
difference in differences without privacy on the same people (with covariates, by regression).
With five periods "all covered" is how often all four intervals cover at once, "mean covered" the
mean of two effects, and "pre-trends found" how often they are, at 5 %, where there are none.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pandas as pd
from report import save

import dpeffects as dpe
from dpeffects.progress import bar

SMALL = "--small" in sys.argv
RUNS = 5 if SMALL else 60
NOTE = (
    "The standard error of a coverage of 95 % is 2.8. Each epsilon has the same people: coverages "
    "of one population go together."
)
EPSILONS = (0.5, 1.0, 4.0)
EFFECT = 2.0
BOUNDS = {"y": (0, 100), "x1": (0, 1), "x2": (0, 1)}


def panel(
    n: int, treated: float, rho: float, skewed: bool, adjusted: bool, seed: int
) -> pd.DataFrame:
    """Long data of two periods, in a random order of the rows."""
    rng = np.random.default_rng(10_000 + seed)
    x1, x2 = rng.random(n), rng.random(n)
    odds = np.log(treated / (1 - treated)) + (2.0 * (x1 - 0.5) if adjusted else 0.0)
    t = rng.random(n) < 1.0 / (1.0 + np.exp(-odds))
    same, own = rng.normal(size=n), rng.normal(size=(2, n))
    error = np.sqrt(rho) * same + np.sqrt(1.0 - rho) * own
    error = np.exp(error) - np.exp(0.5) if skewed else 2.0 * error
    trend = np.array([[0.0], [1.0]]) * (3.0 + (8.0 * x1 if adjusted else 0.0))
    y = 40.0 + 5.0 * t + 3.0 * error + trend
    y[1] += EFFECT * t
    rows = [
        pd.DataFrame({"id": np.arange(n), "year": year, "y": y[k], "t": t, "x1": x1, "x2": x2})
        for k, year in enumerate((2019, 2020))
    ]
    return pd.concat(rows).sample(frac=1.0, random_state=seed, ignore_index=True)


def plain(long: pd.DataFrame, adjusted: bool) -> float:
    """The difference in differences without privacy."""
    wide = long.pivot(index="id", columns="year", values="y")
    rest = long[long["year"] == 2019].set_index("id").loc[wide.index]
    change = (wide[2020] - wide[2019]).to_numpy()
    names = ["t", "x1", "x2"] if adjusted else ["t"]
    matrix = np.column_stack([np.ones(len(change)), rest[names].to_numpy(float)])
    return float(np.linalg.lstsq(matrix, change, rcond=None)[0][1])


def setting(n: int, treated: float, rho: float, skewed: bool, adjusted: bool) -> list[dict]:
    """Coverage and error in one population, for each epsilon."""
    formula = "y ~ t | x1 + x2" if adjusted else "y ~ t"
    found: dict[float, list] = {epsilon: [] for epsilon in EPSILONS}
    for seed in range(RUNS):
        long = panel(n, treated, rho, skewed, adjusted, seed)
        without = plain(long, adjusted) - EFFECT
        asked = {"time": "year", "unit": "id", "periods": [2019, 2020], "bounds": BOUNDS}
        for epsilon in EPSILONS:
            fit = dpe.dp_did(formula, long, epsilon=epsilon, seed=seed, **asked)
            low, high = fit.conf_int()
            hit = low <= EFFECT <= high
            found[epsilon].append([hit, fit.estimate - EFFECT, high - low, without])
    rows = []
    for epsilon, runs in found.items():
        hits, error, width, without = np.array(runs, float).T
        size, of_plain = (float(np.sqrt((x**2).mean())) for x in (error, without))
        rows.append(
            {
                "units": n,
                "treated": f"{100 * treated:.0f} %",
                "rho": rho,
                "outcome": "skewed" if skewed else "normal",
                "epsilon": epsilon,
                "covered": round(100.0 * hits.mean(), 1),
                "width": round(float(np.median(width)), 3),
                "error": round(size, 3),
                "over non-private": round(size / of_plain, 2),
            }
        )
    return rows


def five_periods(n: int, treated: float, rho: float) -> list[dict]:
    """Coverage of an event study, for each epsilon."""
    found: dict[float, list] = {epsilon: [] for epsilon in EPSILONS}
    truth = np.array([0.0, 0.0, EFFECT, EFFECT])
    for seed in range(RUNS):
        rng = np.random.default_rng(20_000 + seed)
        t, same = rng.random(n) < treated, rng.normal(size=n)
        about, frames = {"id": np.arange(n), "t": t}, []
        for year in range(2017, 2022):
            error = np.sqrt(rho) * same + np.sqrt(1.0 - rho) * rng.normal(size=n)
            y = 40.0 + 5.0 * t + 6.0 * error + (year - 2017) + EFFECT * t * (year >= 2020)
            frames.append(pd.DataFrame(about | {"year": year, "y": y}))
        long, years = pd.concat(frames, ignore_index=True), list(range(2017, 2022))
        asked = {"time": "year", "unit": "id", "periods": years, "start": 2020}
        asked |= {"bounds": {"y": (0, 100)}, "change": (-50, 50)}
        for epsilon in EPSILONS:
            fit = dpe.dp_did("y ~ t", long, epsilon=epsilon, seed=seed, **asked)
            low, high = fit.conf_int().T
            first, last = fit.period().conf_int()
            hits = (low <= truth).all() and (truth <= high).all(), first <= EFFECT <= last
            width = np.median(high - low)
            found[epsilon].append([*hits, fit.pretrends().p_value < 0.05, width])
    names = ("all covered", "mean covered", "pre-trends found")
    rows = []
    for epsilon, runs in found.items():
        *shares, width = np.mean(np.array(runs, float), axis=0).tolist()
        about = {"units": n, "treated": f"{100 * treated:.0f} %", "rho": rho, "epsilon": epsilon}
        about |= {name: round(100.0 * x, 1) for name, x in zip(names, shares, strict=True)}
        rows.append(about | {"width": round(width, 3)})
    return rows


def main() -> None:
    warnings.simplefilter("ignore")
    cases = {
        "Parallel trends": [
            (n, treated, *errors, False)
            for n, treated in itertools.product((2_000, 10_000), (0.5, 0.05))
            for errors in ((0.2, False), (0.8, False), (0.8, True))
        ],
        "Parallel trends for the same covariates": [
            (10_000, treated, 0.5, False, True) for treated in (0.5, 0.1)
        ],
        "Five periods": [(5_000, treated, 0.5) for treated in (0.5, 0.1)],
    }
    tables = {}
    for name, settings in cases.items():
        rows = []
        with ProcessPoolExecutor(2) as pool:
            run = five_periods if name == "Five periods" else setting
            each = [pool.submit(run, *case) for case in settings]
            for found in bar(each, name):
                rows += found.result()
        tables[name] = pd.DataFrame(rows)
        if SMALL:
            print(tables[name].to_string())
        else:
            title = f"Difference in differences: coverage of 95 % intervals, {RUNS} runs each"
            save("did", title, tables, NOTE)


if __name__ == "__main__":
    main()
