"""Plans against real runs: half-widths, and power at the effect called mde.

"told" plans know what is true of the data: the outcome's mean and spread, the share of treated
records, how much covariates explain of outcome and treatment, how they spread. "given" ones know
the first three only, and "default" ones nothing. Half-widths are over the median of real runs: on
the bundled data with fresh noise, on populations with fresh samples too. Power is that of real
runs on populations with the effect that the plan called mde, in half of them downwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from harness import Part, Table, grid
from sklearn.linear_model import LogisticRegression

import dpeffects as dpe
from dpeffects.design.bounds import Bounds, declare
from dpeffects.design.table_reader import read
from dpeffects.formula import parse
from dpeffects.inference.estimate import Unavailable
from tests.populations import POPULATIONS, RIGHT, TRIALS, Population, constant, drawn, residual

RUNS, MANY = 8, 16
"""Real runs of a plan, and how many columns are many."""
METHODS = ("auto", "diff_in_means", "clipped_contrast", "private_ipw", "private_psm")
BUNDLED = {"lalonde": True, "ihdp_trial": True, "birthweight": False, "lalonde_cps": False}
BUNDLED |= {"confounded": False, "acic2016": False}
"""Data sets, and whether it is a trial."""
NAMED = POPULATIONS | {f"drawn {k}": drawn(k) for k in (0, 1)}
PLANNED = [p.name for p in (*RIGHT[::3], RIGHT[2], *TRIALS[::3], TRIALS[2])]
PLANNED += ["drawn 0", "drawn 1"]
SIZES = ((1000, 1.0), (5000, 2.0))
"""Records and epsilon, for these populations in turn."""
POWER = (
    ("three confounders", 5000, 1.0, ("auto", "private_ipw")),
    ("rare outcome", 10_000, 1.0, ("auto", "private_ipw")),
    ("skewed costs", 5000, 2.0, ("auto", "private_ipw")),
    ("trial", 1000, 1.0, ("auto", "diff_in_means")),
    ("trial with a binary outcome", 1000, 0.5, ("auto", "diff_in_means")),
)


@dataclass(frozen=True)
class Study:
    """Data to plan for: a frame, or a population that it is drawn from."""

    formula: str
    bounds: dict[str, Any]
    trial: bool
    source: Any

    def sample(self, n: int, seed: int) -> pd.DataFrame:
        return self.source.sample(n, seed) if isinstance(self.source, Population) else self.source

    def told(self) -> dict[str, Any]:
        """What is true of the data, as arguments of a plan."""
        frame, formula = self.sample(50_000, 99), parse(self.formula)
        rows = read(declare(frame, self.bounds), formula, None, ()).encode(None)
        x = rows.covariates()
        z = ((x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-12))[:, x.std(axis=0) > 1e-9]
        t, y = rows.treated.astype(float), rows.outcome
        arms = np.column_stack([t, 1 - t])
        within, left = residual(y, arms), residual(y, np.column_stack([arms, z]))
        known, bounds = {}, Bounds.declared(self.bounds)
        for name in (c for c in formula.covariate_columns if not bounds.is_levels(c)):
            low, high = bounds.interval(name)
            sd = float(frame[name].astype(float).clip(low, high).std()) / (high - low)
            known[name] = min(max(sd, 0.001), 0.5)
        said = {"outcome_mean": float(y.mean()), "treated_share": float(t.mean())}
        if len(np.unique(y)) > 2:
            said["outcome_sd"] = float(within.std())
        said |= {"r2": float(1 - left @ left / (within @ within)), "covariate_sd": known}
        if not self.trial:
            said["confounding"] = float(np.std(z @ LogisticRegression(C=1e4).fit(z, t).coef_[0]))
        return said

    def plan(self, method: str, n: int, epsilon: float, **told: Any) -> Any:
        design = "randomised" if self.trial else "observational"
        given = {"n": n, "epsilon": epsilon, "bounds": self.bounds, "method": method}
        return dpe.plan(self.formula, design=design, **given, **told).rows[0]

    def run(self, method: str, data: pd.DataFrame, epsilon: float, seed: int) -> Any:
        asks = self.trial and method in ("auto", "clipped_contrast")
        options = {"design": "randomised"} if asks else {}
        given = {"epsilon": epsilon, "bounds": self.bounds, "seed": seed}
        return dpe.dp_ate(self.formula, data, method, **given, **options).conf_int()


@cache
def study_of(name: str) -> tuple[Study, dict[str, Any]]:
    """A study, and what is true of it."""
    if name in NAMED:
        found = NAMED[name]
        study = Study(found.formula, found.declared, name.startswith("trial"), found)
        return study, study.told()
    formula = dpe.data_info(name).formula
    data = dpe.simulate(name, seed=1) if name == "confounded" else dpe.load_data(name)
    known = {c: data.bounds[c] for c in parse(formula).columns if c in data.bounds}
    bounds = {c: list(b) if data.bounds.is_levels(c) else tuple(b) for c, b in known.items()}
    study = Study(formula, bounds, BUNDLED[name], data.frame)
    return study, study.told()


def half_widths(people: int, noise: int, data: str, n: int, epsilon: float, method: str):
    """Plans over the median of real runs."""
    study, told = study_of(data)
    n = n or len(study.source)
    given = {k: told[k] for k in ("outcome_mean", "outcome_sd", "treated_share") if k in told}
    try:
        planned = [study.plan(method, n, epsilon, **told)]
        planned += [study.plan(method, n, epsilon, repeats=4, **few) for few in (given, {})]
        real = [study.run(method, study.sample(n, s), epsilon, noise + s) for s in range(RUNS)]
    except dpe.DPEffectsError as error:
        return {"remark": str(error)}
    known = [i for i in real if not isinstance(i, Unavailable)]
    width = float(np.median([(i.upper - i.lower) / 2 for i in known]))
    names = ("told", "given", "default")
    ratios = {k: round(p.half_width / width, 2) for k, p in zip(names, planned, strict=True)}
    row = {"columns": len(parse(study.formula).covariate_columns), "records": n}
    row |= {"half-width, real": float(f"{width:.3g}")}
    return {**row, **ratios, "remark": planned[0].remark}


@cache
def mde(data: str, n: int, epsilon: float, method: str) -> float:
    study, told = study_of(data)
    return study.plan(method, n, epsilon, **told).mde


def power(people: int, noise: int, data: str, n: int, epsilon: float, method: str):
    """Whether a study finds the effect that a plan called mde, in half of them downwards."""
    (study, told), population = study_of(data), NAMED[data]
    size = mde(data, n, epsilon, method)
    if np.isnan(size):  # a method that plans no interval here
        return {"mde": size, "power": np.nan}
    effect = size * (-1) ** people
    shift = (population.truth["ATE"] - effect) * told["treated_share"]
    there = replace(
        population,
        effect=constant(effect),
        control=lambda columns: population.control(columns) + shift,
    )
    low, high = study.run(method, there.sample(n, people), epsilon, noise)
    return {"mde": size, "power": low > 0 if effect > 0 else high < 0}


def page(cells: pd.DataFrame, tests: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Tables by heading, the short ones first."""
    found = cells.groupby("method")[["told", "given", "default"]]
    summary = found.quantile([0.1, 0.5, 0.9]).unstack().round(2)
    summary.columns = [f"{name}, {100 * q:.0f} %" for name, q in summary.columns]
    cells = cells.drop(columns="n")
    return {
        "Half-widths, planned over real: quantiles over cells": summary.reset_index(),
        "Power at the mde effect": tests.round({"mde": 4, "power": 2}),
        "The default with many columns": cells[
            (cells["columns"] >= MANY) & (cells["method"] == "auto")
        ],
        "Half-widths by cell": cells,
    }


CELLS = grid(data=BUNDLED, n=[0], epsilon=(1.0, 3.0), method=METHODS)
for _k, _name in enumerate(PLANNED):
    _n, _epsilon = SIZES[_k % 2]
    CELLS += grid(data=[_name], n=[_n], epsilon=[_epsilon], method=METHODS)
TESTS = []
for _name, _n, _epsilon, _methods in POWER:
    TESTS += grid(data=[_name], n=[_n], epsilon=[_epsilon], method=_methods)
TABLE = Table(
    "Plans against real runs",
    (
        Part("Half-widths", CELLS, half_widths, small=CELLS[:3]),
        Part("Power", TESTS, power, runs=100),
    ),
    "An outcome with the range (0, 1) and no standard deviation is planned as one of 0 and 1, "
    "which most of these populations' outcomes are not: hence the wide default plans.",
    page=page,
    minutes=3,
)
