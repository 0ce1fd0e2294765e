"""Rules that combine sites, compared as in papers 002 and 003 (figures 3 to 5 and 8 to 11).

    python benchmarks/sites.py            # 100 repeats: about half an hour on one core; resumes
    python benchmarks/sites.py --fresh    # the same from the start
    python benchmarks/sites.py --table    # only the tables, of the cells on file
    python benchmarks/sites.py --small    # 5 repeats, two sites

Records are dealt out to sites at random (STAR: by the kind of school). Site j has the budget
epsilon_j = alpha^((j-1)/(J-1)) epsilon_1 with epsilon_1 = 1, or 5 for IHDP and Lalonde, and delta =
1e-5. The error is against the non-private estimate from all records (Synth: against the true
effect), as a part of the outcome's range. Methods have the package's shares of the budget and
constants, which are better than the papers'. Noise is seeded.
"""

from __future__ import annotations

import os
import sys
import zlib
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from functools import lru_cache
from multiprocessing import get_context

import numpy as np
import pandas as pd
from report import RESULTS, save

import dpeffects as dpe
from dpeffects.inference.estimate import Unavailable
from dpeffects.sites.error_distribution import Errors
from dpeffects.sites.rules import RULES

ALPHAS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
SHOWN = ("mvagg", "all", "largest", "ivw")
THREE = ("1:1:1", "3:2:1", "9:9:2", "18:1:1")
IHDP = "outcome ~ treatment | C(married) + C(first_born) + C(worked_during)"
AGE = {"age": list(range(16, 56))}
COLUMNS = ["data", "method", "sites", "alpha", "repeats"]


@lru_cache(maxsize=2)
def problem(name: str, repeat: int):
    """Data, formula, bounds beside those declared, epsilon of the first site, true effect."""
    if name == "Synth":
        data = dpe.simulate("multisite", n=10_000, seed=repeat)
        return data, "outcome ~ treatment | x", {}, 1.0, 0.5
    return fixed(name)


@lru_cache(maxsize=2)
def fixed(name: str):
    source, formula, bounds, epsilon = {
        "IST": ("ist", "stroke_14_days ~ treatment", {}, 1.0),
        "STAR": ("star", "math ~ treatment", {}, 1.0),
        "IHDP": (
            "ihdp",
            IHDP,
            {name: [0, 1] for name in ("married", "first_born", "worked_during")},
            5.0,
        ),
        "Lalonde": ("lalonde_original", "earnings_1978 ~ treatment | C(age)", AGE, 5.0),
    }[name]
    data = dpe.load_data(source)
    method = "diff_in_means" if name in ("IST", "STAR") else "smooth_matching"
    truth = dpe.reference(formula, data, method, bounds=bounds).estimate
    return data, formula, bounds, epsilon, truth


def deal(data, treated, sites: str, rng) -> list:
    """Rows of each site; dealt again where a site would have one arm only."""
    if sites == "schools":
        kinds = data.frame["site"].value_counts().index
        return [np.flatnonzero(data.frame["site"] == kind) for kind in kinds]
    parts = np.array([int(part) for part in sites.split(":")])
    cuts = np.round(np.cumsum(parts)[:-1] / parts.sum() * len(data)).astype(int)
    while True:
        rows = np.split(rng.permutation(len(data)), cuts)
        if all(0 < treated[part].mean() < 1 for part in rows):
            return rows


def cell(task) -> list[dict]:
    name, method, sites, alpha, repeats = task
    errors = {rule: [] for rule in SHOWN}
    for repeat in range(repeats):
        data, formula, bounds, epsilon, truth = problem(name, repeat)
        outcome = formula.split(" ~ ")[0]
        low, high = data.bounds[outcome]
        rng = np.random.default_rng([repeat, len(sites)])
        rows = deal(data, data.frame["treatment"].to_numpy(), sites, rng)
        fits = []
        for j, part in enumerate(rows):
            fits.append(
                dpe.dp_ate(
                    formula,
                    dpe.Declared(data.frame.iloc[part], data.bounds),
                    method,
                    epsilon=epsilon * alpha ** (j / (len(rows) - 1)),
                    delta=1e-5 if method == "smooth_matching" else 0.0,
                    bounds=bounds,
                    seed=zlib.crc32(f"{task}, {repeat}, {j}".encode()),
                )
            )
        for rule in SHOWN:
            errors[rule].append(abs(combined(fits, rule) - truth) / (high - low))
    return [
        {"rule": rule, "error": np.mean(found), "sd": np.std(found)}
        for rule, found in errors.items()
    ]


def combined(fits: list, rule: str) -> float:
    """The estimate of `dpeffects.sites.combination`, without the interval that takes its time."""
    if RULES[rule].needs_variance:
        fits = [f for f in fits if not isinstance(f.released.sampling, Unavailable)]
    n, values = (np.array([getattr(f, what) for f in fits], float) for what in ("n", "estimate"))
    needs = RULES[rule].needs_variance
    variance = Errors.of([f.released for f in fits]).variance if needs else n
    return float(RULES[rule].weights(n, variance) @ values)


def tasks(small: bool):
    repeats = 5 if small else 100
    settings = [("IST", "diff_in_means", s) for s in ("1:1", *THREE)]
    settings.append(("STAR", "diff_in_means", "schools"))
    for name in ("Synth", "IHDP", "Lalonde"):
        for method in ("global_matching", "smooth_matching"):
            settings += [(name, method, s) for s in ("1:1", *THREE)]
    if small:
        settings = [setting for setting in settings if setting[2] in ("1:1", "schools")]
    return [(*setting, alpha, repeats) for setting in settings for alpha in ALPHAS]


def measured(todo, path) -> pd.DataFrame:
    """Run the cells that are not on file yet; every finished cell is kept, so a run can resume."""
    known = set()
    if path.exists():
        known = set(map(tuple, pd.read_csv(path)[COLUMNS].itertuples(index=False)))
    left = [task for task in todo if task not in known]
    workers = int(os.environ.get("WORKERS", os.cpu_count()))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for task, found in zip(left, pool.map(cell, left), strict=True):
            rows = pd.DataFrame([dict(zip(COLUMNS, task, strict=True)) | row for row in found])
            rows.to_csv(path, mode="a", header=not path.exists(), index=False)
            print(*task, *(f"{row['rule']} {row['error']:.4g}" for row in found), flush=True)
    return pd.read_csv(path)


def tables(found: pd.DataFrame) -> dict[str, pd.DataFrame]:
    made = {"How often each rule is best, or within 5 % of it": wins(found)}
    for (name, method), part in found.groupby(["data", "method"], sort=False):
        part = part.assign(cell=[f"{e:.3g} ({s:.2g})" for e, s in part[["error", "sd"]].to_numpy()])
        wide = part.pivot(index=["sites", "alpha"], columns="rule", values="cell")[list(SHOWN)]
        wide = wide.reindex(part["sites"].unique(), level=0).reset_index()
        wide["alpha"] = [str(Fraction(a)) for a in wide["alpha"]]
        made[f"{name}, {method}"] = wide
    return made


def wins(found: pd.DataFrame) -> pd.DataFrame:
    """Per cent of the settings, by the sides of alpha."""
    keys = ["data", "method", "sites", "alpha"]
    wide = found.pivot(index=keys, columns="rule", values="error")[list(SHOWN)]
    good = wide.le(1.05 * wide.min(axis=1), axis=0)
    alpha = wide.index.get_level_values("alpha")
    sides = {"alpha < 1": alpha < 1, "alpha = 1": alpha == 1, "alpha > 1": alpha > 1}
    rows = [
        {"budgets": name, "settings": int(side.sum())}
        | {rule: f"{100 * good.loc[side, rule].mean():.0f} %" for rule in SHOWN}
        for name, side in sides.items()
    ]
    return pd.DataFrame(rows)


def main() -> None:
    small = "--small" in sys.argv
    path = RESULTS / ("sites_small.csv" if small else "sites.csv")
    if "--fresh" in sys.argv:
        path.unlink(missing_ok=True)
    found = pd.read_csv(path) if "--table" in sys.argv else measured(tasks(small), path)
    notes = (
        "Mean absolute error and, in brackets, its standard deviation over the repeats, as parts "
        "of the outcome's range. epsilon_1 is 1 (IST, STAR, Synth) or 5 (IHDP, Lalonde)."
    )
    save("sites", "Rules that combine sites", tables(found), notes)


if __name__ == "__main__":
    main()
