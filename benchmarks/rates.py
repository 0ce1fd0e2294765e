"""Rates per person-time: how often intervals cover, and what privacy costs.

    python benchmarks/rates.py            # a quarter of an hour on two cores
    python benchmarks/rates.py --small    # a quick look, nothing saved

Counts are beta-binomial and overdispersed, follow-up is unequal (`simulate("rates")`). Coverage is
that of 95 % intervals by `dp_rate`, in per cent; intervals of a ratio are inverted tests, so that a
ratio is covered where the test of it is not rejected. Errors of the ratio are medians, and those
without privacy are of the same people: plain rates in trials, weights by a logistic regression in
studies.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pandas as pd
import statsmodels.api as sm
from report import save

import dpeffects as dpe
from dpeffects.inference.intervals import p_value
from dpeffects.progress import bar

SMALL = "--small" in sys.argv
RUNS = 10 if SMALL else 200
NOTE = (
    "The standard error of a coverage of 95 % is 1.5. Each epsilon has the same people: coverages "
    "of one population go together."
)
EPSILONS = (0.5, 1.0, 4.0)
COVARIATES = ["x1", "x2", "x3"]
KINDS = {
    "common": {"rate": 0.2},
    "rare": {"rate": 0.02, "most": 4},
    "overdispersed": {"rate": 0.2, "dispersion": 4.0},
}


def plain_ratio(frame: pd.DataFrame, randomised: bool) -> float:
    """The ratio without privacy."""
    treated, weight = frame["treatment"] == 1, np.ones(len(frame))
    if not randomised:
        x = sm.add_constant(frame[COVARIATES])
        e = sm.Logit(frame["treatment"], x).fit(disp=0).predict(x)
        weight = np.where(treated, 1.0 / e, 1.0 / (1.0 - e))
    sums = [
        (weight * own * frame["events"]).sum() / (weight * own * frame["years"]).sum()
        for own in (treated, ~treated)
    ]
    return float(sums[0] / max(sums[1], 1e-12))


def setting(kind: str, treated: float, n: int, randomised: bool) -> list[dict]:
    """Coverage in one population, for each epsilon."""
    right = " | " + " + ".join(COVARIATES)
    formula = f"events ~ treatment{'' if randomised else right}"
    found: dict[float, list] = {epsilon: [] for epsilon in EPSILONS}
    for seed in range(RUNS):
        made = dpe.simulate("rates", n, seed, treated=treated, randomised=randomised, **KINDS[kind])
        frame = made.frame
        one, zero = frame[["mu1", "mu0"]].sum() / frame["years"].sum()
        ratio = one / zero
        plain = abs(plain_ratio(frame, randomised) - ratio)
        design = "randomised" if randomised else "observational"
        for epsilon in EPSILONS:
            asked = {"offset": "years", "epsilon": epsilon, "design": design, "seed": seed}
            means = dpe.dp_rate(formula, made, **asked).arm_table.means()
            nulls = (means.combined(1.0, -ratio), 0.0), (means.combined(1.0, -1.0), one - zero)
            hits = [p_value(combined, null) > 0.05 for combined, null in nulls]
            private = means.treated / means.control if means.control > 0.0 else np.inf
            found[epsilon].append([*hits, abs(private - ratio), plain])
    rows = []
    for epsilon, runs in found.items():
        each = np.array(runs, float)
        about = {"events": kind, "treated": f"{100 * treated:.0f} %", "n": n, "epsilon": epsilon}
        cover = (100.0 * each[:, :2].mean(axis=0)).round(1)
        about |= {"ratio covered": cover[0], "difference covered": cover[1]}
        errors = np.median(each[:, 2:], axis=0).round(3)
        rows.append(about | {"error of ratio": errors[0], "without privacy": errors[1]})
    return rows


def main() -> None:
    warnings.simplefilter("ignore")
    tables = {}
    for name, n in (("Trials", 5_000), ("Studies, adjusted for three covariates", 20_000)):
        rows, cases = [], list(itertools.product(KINDS, (0.5, 0.1)))
        with ProcessPoolExecutor(2) as pool:
            each = [pool.submit(setting, *case, n, name == "Trials") for case in cases]
            for found in bar(each, name):
                rows += found.result()
        tables[name] = pd.DataFrame(rows)
        if SMALL:
            print(tables[name].to_string())
        else:
            title = f"Rates: coverage of 95 % intervals, {RUNS} runs each"
            save("rates", title, tables, NOTE)


if __name__ == "__main__":
    main()
