"""Coverage of nominal 95 % intervals for two to ten sites combined, by simulation.

    python benchmarks/sites_coverage.py            # 500 runs: a quarter of an hour on one core
    python benchmarks/sites_coverage.py --fresh    # from the start; otherwise a run resumes
    python benchmarks/sites_coverage.py --table    # only the table, of the cells on file
    python benchmarks/sites_coverage.py --small    # 100 runs

Three sites of unequal size (500, 2,000 and 8,000 records, or 400, 800 and 1,600), two of 2,000 and
8,000, five and ten, with unequal or equal budgets, in the designs of coverage.py: a true effect of
0.1 everywhere, or effects that differ between sites (normal around 0.1 with standard deviation 0.01
or 0.05), for which rule="random" is meant. Noise is seeded.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pandas as pd
from coverage import BOUNDS, sample
from report import RESULTS, save
from scipy.stats import norm

import dpeffects as dpe
from dpeffects.inference.estimate import Estimate, SamplingVariance
from dpeffects.services.sites import SiteRelease, combine
from dpeffects.services.sites.error_distribution import SiteErrors, WeightedSumDistribution
from dpeffects.services.sites.rules import inflation_ivw, inflation_mvagg, ivw, mvagg

RULES = ("ivw", "mvagg", "all", "largest", "random")
SIZES, SMALL, TWO = (500, 2000, 8000), (400, 800, 1600), (2000, 8000)
FIVE = (500, 1000, 2000, 4000, 8000)
MORE, EQUAL, LESS, LITTLE = (0.3, 1.0, 2.0), (1.0, 1.0, 1.0), (2.0, 1.0, 0.3), (0.5, 0.4, 0.3)
DIFF = ("randomised", "diff_in_means", "y ~ t", {})
SMOOTH = ("strata", "smooth_matching", "y ~ t | a", {"delta": 1e-5})
GLOBAL = ("strata", "global_matching", "y ~ t | a", {})
DESIGNS = {
    "diff_in_means, larger sites spend more": (DIFF, False, SIZES, MORE, 0.0),
    "the same, binary outcome": (DIFF, True, SIZES, MORE, 0.0),
    "diff_in_means, equal budgets": (DIFF, False, SIZES, EQUAL, 0.0),
    "diff_in_means, larger sites spend less": (DIFF, False, SIZES, LESS, 0.0),
    "diff_in_means, small sites, small budgets": (DIFF, False, SMALL, LITTLE, 0.0),
    "the same, binary outcome, small sites": (DIFF, True, SMALL, LITTLE, 0.0),
    "smooth_matching, larger sites spend more": (SMOOTH, True, SIZES, MORE, 0.0),
    "smooth_matching, equal budgets": (SMOOTH, False, SIZES, EQUAL, 0.0),
    "global_matching, larger sites spend more": (GLOBAL, False, SIZES, MORE, 0.0),
    "two sites": (DIFF, False, TWO, EQUAL[:2], 0.0),
    "five sites": (DIFF, False, FIVE, EQUAL[:1] * 5, 0.0),
    "ten sites": (DIFF, False, FIVE * 2, EQUAL[:1] * 10, 0.0),
    "two sites, effects differ little": (DIFF, False, TWO, EQUAL[:2], 0.01),
    "three sites, effects differ little": (DIFF, False, SIZES, EQUAL, 0.01),
    "five sites, effects differ little": (DIFF, False, FIVE, EQUAL[:1] * 5, 0.01),
    "two sites, effects differ": (DIFF, False, TWO, EQUAL[:2], 0.05),
    "three sites, effects differ": (DIFF, False, SIZES, EQUAL, 0.05),
    "five sites, effects differ": (DIFF, False, FIVE, EQUAL[:1] * 5, 0.05),
    "ten sites, effects differ": (DIFF, False, FIVE * 2, EQUAL[:1] * 10, 0.05),
}
EVEN = (
    ("mvagg, uneven", mvagg, inflation_mvagg, np.full(10, 1000.0), 2.0 ** np.arange(10)),
    (
        "mvagg, small ones good",
        mvagg,
        inflation_mvagg,
        np.array([500.0, 2000.0, 8000.0]),
        np.ones(3),
    ),
    ("mvagg, thirty equal", mvagg, inflation_mvagg, np.full(30, 1000.0), np.ones(30)),
    ("ivw, uneven", ivw, inflation_ivw, np.full(10, 1000.0), 2.0 ** np.arange(10)),
    ("ivw, small ones good", ivw, inflation_ivw, np.array([500.0, 2000.0, 8000.0]), np.ones(3)),
    ("ivw, thirty equal", ivw, inflation_ivw, np.full(30, 1000.0), np.ones(30)),
)
"""Rule, allowance for chosen weights, records and sampling variances."""
COLUMNS = ["design", "runs", "rule", "covered", "width", "used", "rejected"]


def release(design, binary: bool, epsilon: float, n: int, j: int, run: int, shift: float):
    kind, method, formula, options = design
    seed = 20 * run + j
    data = sample(kind, binary, n, seed)
    if shift:
        data["y"] = (data["y"] + shift * data["t"]).clip(0, 1)
    fit = dpe.dp_ate(formula, data, method, epsilon=epsilon, bounds=BOUNDS, seed=seed, **options)
    return SiteRelease.from_result(fit, f"site {j}")


def cell(task) -> pd.DataFrame:
    name, runs = task
    design, binary, sizes, budgets, spread = DESIGNS[name]
    rows = []
    for run in range(runs):
        shifts = np.random.default_rng([run, 7]).normal(0.0, spread, len(sizes))
        sites = [
            release(design, binary, epsilon, n, j, run, shift)
            for j, (n, epsilon, shift) in enumerate(zip(sizes, budgets, shifts, strict=True))
        ]
        for rule in RULES:
            fit = combine(sites, rule)
            low, high = fit.conf_int()
            rows.append(
                {
                    "rule": rule,
                    "covered": low <= 0.1 <= high,
                    "width": high - low,
                    "used": len(fit.used),
                    "rejected": fit.heterogeneity.p_value < 0.05,
                }
            )
    made = pd.DataFrame(rows).groupby("rule", sort=False)
    out = made.agg({"covered": "mean", "width": "median", "used": "mean", "rejected": "mean"})
    return out.reset_index().assign(design=name, runs=runs)[COLUMNS]


def with_and_without(runs: int) -> pd.DataFrame:
    """Coverage without and with the allowance for chosen weights, errors being normal."""
    rows = []
    for name, rule, allowance, n, variance in EVEN:
        row = {"rule and sites": name}
        for relative in (0.15, 0.25, 0.35, 0.5):
            rng, covered = np.random.default_rng(0), []
            for _ in range(runs):
                covered.append(pair(rng, rule, allowance, n, variance, relative))
            low, high = 100 * np.mean(covered, axis=0)
            row[f"s / v = {relative}"] = f"{low:.1f}, {high:.1f}"
        rows.append(row)
        print(row, flush=True)
    return pd.DataFrame(rows)


def pair(rng, rule, allowance, n, variance, relative) -> list[float]:
    """Coverage, given one draw of the released variances: exact, the errors being normal."""
    scale = relative * variance
    noisy = variance + scale * rng.laplace(size=n.size)
    rows = zip(noisy, scale, 20 * variance, strict=True)
    errors = SiteErrors.of([Estimate(0.0, SamplingVariance(*row)) for row in rows])
    weights = rule(n, errors.variance)
    sd = np.sqrt(weights**2 @ variance)
    factors = np.ones_like(n), allowance(n, errors, weights)
    halves = [
        WeightedSumDistribution(errors, weights, factor).upper_point(0.025) for factor in factors
    ]
    return [1 - 2 * norm.sf(half / sd) for half in halves]


def measured(todo, path) -> pd.DataFrame:
    """Run the designs that are not on file yet; every finished one is kept."""
    known = set()
    if path.exists():
        known = set(map(tuple, pd.read_csv(path)[COLUMNS[:2]].itertuples(index=False)))
    left = [task for task in todo if task not in known]
    workers = int(os.environ.get("WORKERS", os.cpu_count()))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for found in pool.map(cell, left):
            found.to_csv(path, mode="a", header=not path.exists(), index=False)
            print(found.to_string(header=False), flush=True)
    return pd.read_csv(path)


def main() -> None:
    small = "--small" in sys.argv
    runs = 100 if small else 500
    path = RESULTS / ("sites_coverage_small.csv" if small else "sites_coverage.csv")
    if "--fresh" in sys.argv:
        path.unlink(missing_ok=True)
    todo = [(name, runs) for name in DESIGNS]
    found = pd.read_csv(path) if "--table" in sys.argv else measured(todo, path)
    effect = RESULTS / f"{path.stem}_allowance.csv"
    if not effect.exists() or "--fresh" in sys.argv:
        with_and_without(runs // 4).to_csv(effect, index=False)
    allowed = pd.read_csv(effect)
    order = [name for name in DESIGNS if name in set(found["design"])]
    wide = found.assign(covered=(100 * found["covered"]).round(1)).pivot(
        index="design", columns="rule", values="covered"
    )
    wide = wide.loc[order, list(RULES)]
    test = found[found["rule"] == "mvagg"].set_index("design").loc[order]
    wide["sites used by mvagg"] = test["used"].round(2)
    wide["Q rejects at 5 %"] = (100 * test["rejected"]).round(1)
    widths = found.pivot(index="design", columns="rule", values="width").loc[order, list(RULES)]
    widths = widths.map(lambda w: f"{w:.3g}")
    se = 100 * np.sqrt(0.95 * 0.05 / runs)
    notes = (
        f"{runs} runs a design: the standard error of a coverage of 95 % is {se:.1f} points. "
        'rule="random" averages over how far effects may differ, so it covers too much where they '
        "do not. Where they do, it alone is for their mean: the other rules' intervals are for a "
        "weighted mean of these sites' effects, and the coverage of 0.1 is not theirs to keep. "
        "The last table is for normal errors without noise, where the allowance matters most, at "
        "several ratios of the noise scale s of a released variance to the variance v; sites are "
        "ten of equal size with variances 1, 2, 4, ... (uneven), three of 500, 2,000 and 8,000 "
        "records and equal variances (small ones good), or thirty equal ones."
    )
    shown = {
        "Coverage, per cent": wide.reset_index(),
        "Median width": widths.reset_index(),
        "Without and with the allowance for chosen weights": allowed,
    }
    save("sites_coverage", "Coverage of 95 % intervals of sites combined", shown, notes)


if __name__ == "__main__":
    main()
