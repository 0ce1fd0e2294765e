"""Rates per person-time: how often intervals cover, and what privacy costs.

    python benchmarks/rates.py            # some ten minutes on one core
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

import numpy as np
import pandas as pd
import statsmodels.api as sm
from report import save

import dpeffects as dpe
from dpeffects.inference.intervals import p_value
from dpeffects.progress import bar

SMALL = "--small" in sys.argv
RUNS = 40 if SMALL else 400
COVARIATES = ["x1", "x2", "x3"]
KINDS = {
    "common": {"rate": 0.2},
    "rare": {"rate": 0.02, "most": 4},
    "overdispersed": {"rate": 0.2, "dispersion": 4.0},
}
TERMS = {"treated": (1.0, 0.0), "control": (0.0, 1.0), "difference": (1.0, -1.0)}


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


def setting(kind: str, treated: float, n: int, epsilons: tuple, randomised: bool) -> list[dict]:
    """Coverage in one population, for each epsilon."""
    right = " | " + " + ".join(COVARIATES)
    formula = f"events ~ treatment{'' if randomised else right}"
    found: dict[float, list] = {epsilon: [] for epsilon in epsilons}
    for seed in range(RUNS):
        made = dpe.simulate("rates", n, seed, treated=treated, randomised=randomised, **KINDS[kind])
        frame = made.frame
        one, zero = (
            frame["mu1"].sum() / frame["years"].sum(),
            frame["mu0"].sum() / frame["years"].sum(),
        )
        truths = {"treated": one, "control": zero, "difference": one - zero}
        plain = abs(plain_ratio(frame, randomised) - one / zero)
        design = "randomised" if randomised else "observational"
        for epsilon in epsilons:
            asked = {"offset": "years", "epsilon": epsilon, "design": design, "seed": seed}
            means = dpe.dp_rate(formula, made, **asked).table.means()
            hits = [p_value(means.combined(*c), truths[x]) > 0.05 for x, c in TERMS.items()]
            hits.append(p_value(means.combined(1.0, -one / zero)) > 0.05)
            ratio = means.treated / means.control if means.control > 0.0 else np.inf
            found[epsilon].append([*hits, abs(ratio - one / zero), plain])
    rows = []
    for epsilon, runs in found.items():
        each = np.array(runs, float)
        about = {"events": kind, "treated": f"{100 * treated:.0f} %", "n": n, "epsilon": epsilon}
        cover = (100.0 * each[:, :4].mean(axis=0)).round(1)
        about |= dict(zip((*TERMS, "ratio"), cover, strict=True))
        errors = np.median(each[:, 4:], axis=0).round(3)
        rows.append(about | {"error of ratio": errors[0], "without privacy": errors[1]})
    return rows


def main() -> None:
    warnings.simplefilter("ignore")
    tables = {}
    for name, sizes, epsilons in (
        ("Trials", (2_000, 10_000), (0.5, 1.0, 4.0)),
        ("Studies, adjusted for three covariates", (10_000, 40_000), (1.0, 4.0)),
    ):
        rows, randomised = [], name == "Trials"
        cases = list(itertools.product(KINDS, (0.5, 0.1), sizes))
        for kind, treated, n in bar(cases, name):
            rows += setting(kind, treated, n, epsilons, randomised)
        tables[name] = pd.DataFrame(rows)
    page = f"Rates: coverage of 95 % intervals, {RUNS} runs each"
    if SMALL:
        print({name: table.to_string() for name, table in tables.items()})
        return
    save("rates", page, tables, "The standard error of a coverage of 95 % is 1.1.")


if __name__ == "__main__":
    main()
