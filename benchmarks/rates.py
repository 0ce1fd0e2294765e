"""Rates per person-time: how often intervals cover, and what privacy costs.

Counts are beta-binomial and overdispersed, follow-up is unequal (`simulate("rates")`). Coverage is
that of 95 % intervals by `dp_rate`, in per cent; intervals of a ratio are inverted tests, so that a
ratio is covered where the test of it is not rejected. Errors of the ratio are medians, and those
without privacy are of the same people: plain rates in trials, weights by a logistic regression in
studies.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import statsmodels.api as sm
from harness import Part, Table, grid, median, percent

import dpeffects as dpe
from dpeffects.inference.intervals import p_value

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


def run(people: int, noise: int, events: str, treated: float, n: int, epsilon: float):
    randomised = n == TRIAL
    given = {"treated": treated, "randomised": randomised, **KINDS[events]}
    made = dpe.simulate("rates", n, people, **given)
    frame = made.frame
    one, zero = frame[["mu1", "mu0"]].sum() / frame["years"].sum()
    ratio = one / zero
    formula = f"events ~ treatment{'' if randomised else ' | ' + ' + '.join(COVARIATES)}"
    design = "randomised" if randomised else "observational"
    asked = {"offset": "years", "epsilon": epsilon, "design": design, "seed": noise}
    means = dpe.dp_rate(formula, made, **asked).arm_table.means()
    private = means.treated / means.control if means.control > 0.0 else np.inf
    return {
        "ratio": p_value(means.combined(1.0, -ratio), 0.0) > 0.05,
        "difference": p_value(means.combined(1.0, -1.0), one - zero) > 0.05,
        "error": abs(private - ratio),
        "plain": abs(plain_ratio(frame, randomised) - ratio),
    }


TRIAL, STUDY = 5_000, 20_000
COLUMNS = {
    "ratio covered": percent("ratio"),
    "difference covered": percent("difference"),
    "error of ratio": median("error"),
    "without privacy": median("plain"),
}


def part(title: str, n: int) -> Part:
    cells = grid(events=KINDS, treated=(0.5, 0.1), n=[n], epsilon=(0.5, 1.0, 4.0))
    return Part(title, cells, run, COLUMNS, runs=200)


TABLE = Table(
    "Rates: coverage of 95 % intervals",
    (part("Trials", TRIAL), part("Studies, adjusted for three covariates", STUDY)),
    "The standard error of a coverage of 95 % in 200 runs is 1.5. Each epsilon has the same "
    "people: coverages of one population go together.",
    minutes=5,
)
