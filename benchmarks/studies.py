"""Whole studies from one release: noise, family-wise coverage, and how near plans come."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from harness import Part, Row, grid, over, percent, rounded
from known_truth import LOT, SE, Asked, covariates, part, run, table

import dpeffects as dpe
from tests.balance import columns as tables_one

SD, RARE, NORMAL = 0.15, 0.03, NormalDist()


def asked_of(kind: str, outcomes: int) -> tuple[str, dict[str, Any]]:
    """Outcomes are "normal", or all others "rare"; every second pair has an effect."""
    bounds = {f"y{j}": [0, 1] if kind == "rare" and j % 2 == 0 else (0, 1) for j in range(outcomes)}
    return f"{' + '.join(bounds)} ~ t", {"bounds": bounds, **LOT}


def trial(people: int, kind: str, n: int, outcomes: int = 20, treated: float = 0.5) -> Asked:
    """People of a trial with many outcomes, half of them with an effect."""
    rng, (formula, options) = np.random.default_rng([people, 77]), asked_of(kind, outcomes)
    t = rng.random(n) < treated
    frame, truth = {"t": t * 1}, {}
    for j, (y, ends) in enumerate(options["bounds"].items()):
        z, effect = rng.standard_normal(n), 0.3 * (j % 4 > 1)
        if ends == [0, 1]:
            cuts = [NORMAL.inv_cdf(1.0 - RARE * (1.0 + x)) for x in (0.0, effect)]
            frame[y], truth[y] = (z > np.where(t, cuts[1], cuts[0])) * 1, RARE * effect
        else:
            frame[y], truth[y] = 0.47 + SD * (np.clip(z, -3, 3) + effect * t), SD * effect
    return Asked("dp_study", formula, pd.DataFrame(frame), truth, options, {})


@cache
def planned(kind: str, n: int, epsilon: float, treated: float) -> pd.Series:
    """Half-widths of a plan that knows the truth."""
    formula, asked = asked_of(kind, 20)
    rare = {y: ends == [0, 1] for y, ends in asked["bounds"].items()}
    asked |= {"outcome_mean": {y: 1.15 * RARE if x else 0.49 for y, x in rare.items()}}
    asked |= {"outcome_sd": {y: 0.986 * SD for y, x in rare.items() if not x}}
    plan = dpe.plan_study(formula, n=n, epsilon=epsilon, treated_share=treated, **asked)
    return plan.tidy().set_index("term")["half_width"]


def family(runs: pd.DataFrame) -> Row:
    """Coverage of families, and median half-widths over those of the plan."""
    half, cell = runs.groupby("term")["width"].median() / 2.0, runs.attrs
    ratio = half / planned(*(cell[name] for name in ("kind", "n", "epsilon", "treated")))
    covered = round(100.0 * runs.groupby("run")["covered"].min().mean(), 1)
    return {"covered": covered, "against the plan": f"{ratio.min():.2f} to {ratio.max():.2f}"}


def noise_of(people: int, noise: int, kind: str, outcomes: int) -> Row:
    """Noise and standard errors of outcomes at once, and how many times that of single calls."""
    asked = trial(5, kind, 10_000, outcomes)
    fit = dpe.dp_study(asked.formula, asked.data, epsilon=1.0, seed=noise, **asked.options)
    joint = fit.tidy().iloc[0]
    row = {name: rounded(joint[name]) for name in ("noise_sd", "std_error")}
    for method in ("diff_in_means", "auto"):
        given = {"epsilon": 1.0 / outcomes, "bounds": asked.options["bounds"], **LOT}
        fits = [dpe.dp_ate("y0 ~ t", asked.data, method, **given, seed=noise + k) for k in range(5)]
        size = np.median([math.sqrt(x.noise_variance) for x in fits])
        row[f"{method}: noise"] = round(size / joint["noise_sd"], 2)
    return row | {"noise is": ", ".join(dict.fromkeys(x.mechanism for x in fit.charges))}


KINDS = ("normal", "rare")
FAMILIES = grid(kind=KINDS, n=[10_000], epsilon=(1.0, 4.0), treated=[0.5])
FAMILIES += grid(kind=["rare"], n=[10_000], epsilon=[1.0], treated=[0.1])
# --- treatments that were not randomised ----------------------------------------------------------


def adjusted(people: int, confounders: str, n: int) -> Asked:
    """Three outcomes, one of them rare: that of a simulator, with more noise, and a risk by it."""
    made = dpe.simulate(confounders, n, people)
    frame, rng = made.frame, np.random.default_rng([people, n, 11])
    effect = float((frame["mu1"] - frame["mu0"]).mean())
    b = np.clip(frame["outcome"] + rng.normal(0.0, 0.3, n), -1, 2)
    frame = frame.assign(b=b, died=(rng.random(n) < 0.1 * frame["outcome"]).astype(int))
    formula = f"outcome + b + died ~ treatment | {covariates(made)}"
    truth = {"outcome": effect, "b": effect, "died": 0.1 * effect}
    options = {"bounds": {**made.bounds, "b": (-1, 2), "died": [0, 1]}}
    return Asked("dp_study", formula, frame, truth, options)


def beside(people: int, noise: int, confounders: str, n: int, epsilon: float) -> list[Row]:
    """One study, and a call for each outcome with a third of epsilon."""
    asked = adjusted(people, confounders, n)
    rows = run(lambda seed: asked, people, noise, epsilon)
    for k, row in enumerate(rows, 1):
        given = {"epsilon": epsilon / 3, "seed": noise + k, **asked.options}
        formula = asked.formula.replace("outcome + b + died", row["term"])
        single = dpe.dp_ate(formula, asked.data, **given)
        row["separate"] = single.estimate - asked.truth[row["term"]]
    return rows


def balance(people: int, noise: int, covariates: str, n: int, treated: float) -> Row:
    """Noise in `dp_balance` at epsilon 1, in 40 releases on four covariates of the same records."""
    made = tables_one.columns(covariates, n, 4, treated)
    found = tables_one.noise(made, 40, epsilon=1.0)
    said = {"difference": found[""], "weighted": found["_adjusted"]}
    row = {name: rounded(x[0]) for name, x in said.items()}
    return row | {f"{name}: said / real": rounded(x[1]) for name, x in said.items()}


BALANCE = grid(covariates=["normal"], n=[2_000, 20_000], treated=[0.5, 0.06])
BALANCE += grid(covariates=["correlated", "indicators", "skewed"], n=[20_000], treated=[0.5])
ERRORS = {
    "error, study": over("error", "plain"),
    "error, separate": over("separate", "plain"),
    "covered": percent("covered"),
}
CELLS = grid(confounders=("confounded", "survey"), n=[10_000], epsilon=[1.0])
TABLES = {
    "study": table(
        "Studies from one release: noise, coverage and plans",
        f"{SE} Noise: standard deviations in an effect, in ranges of the outcome, n = 10,000; of "
        "separate calls with their part of epsilon, how many times as much. Families: all at once. "
        "Against the plan, which knows the truth: median half-widths over planned ones.",
        1.5,
        Part("Noise in an effect, epsilon 1", grid(kind=KINDS, outcomes=(1, 5, 20, 100)), noise_of),
        part("Families of 20 outcomes", trial, FAMILIES, family),
    ),
    "adjusted_studies": table(
        "Adjusted studies",
        f"{SE} Errors: root mean squares over those of the study without noise. Separate: calls of "
        "`dp_ate` with a third of epsilon. Covered: intervals that hold for all three at once.",
        2,
        Part("Error and coverage", CELLS, beside, ERRORS, runs=300, by=("term",)),
    ),
    "balance": table(
        "Noise in balance",
        "Standard deviations of the noise in standardised mean differences before and after "
        "weighting (root mean square over columns), and what results state over that.",
        0.5,
        Part("", BALANCE, balance),
    ),
}
