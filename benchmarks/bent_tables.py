"""Tables and studies where covariates bend, or have ranges that are too wide: error and coverage.

Populations are those of `populations.py` with seeds below 1,000. For life tables the log hazard is
.8 times the standardised control outcome, and treatment takes .4 off it; a third of the records are
censored at random times before 1. Each cell has the restricted mean difference (`dp_survival`) or
the difference of medians (`dp_qte`), with the public rule and with lines only.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from harness import Part, Table, first, mean, percent, root
from populations import STREAM, population

import dpeffects as dpe

LARGE = 300_000
BENT, STRAIGHT = (8, 29, 38, 167), (36, 54, 57, 51)
CELLS = [
    {"of": kind, "seed": seed, "n": n, "ranges": wide, "rule": rule}
    for kind, seeds, n, ranges in (
        ("restricted mean", BENT, 20_000, (1.0,)),
        ("restricted mean", STRAIGHT, 10_000, (1.0, 5.0)),
        ("median", BENT[:2], 20_000, (1.0,)),
    )
    for seed in seeds
    for wide in ranges
    for rule in ("public rule", "lines only")
]
NOTE = (
    "Ranges: how many times too wide those of the covariates are. Unadjusted: the difference "
    "without adjustment less the truth. Half-width: of 95 % intervals, on average. Medians are in "
    "units of the outcome's standard deviation."
)


def log_hazard(seed: int, x: np.ndarray) -> np.ndarray:
    middle, spread = scale(seed)
    return 0.8 * np.clip((population(seed).control(x) - middle) / spread, -3, 3) - 0.7


@cache
def scale(seed: int) -> tuple[float, float]:
    x, *_ = population(seed).records(LARGE, np.random.default_rng([STREAM, seed, 6]))
    control = population(seed).control(x)
    return float(control.mean()), float(control.std())


def lived(rate: np.ndarray) -> np.ndarray:
    return -np.expm1(-rate) / rate


@cache
def truth(kind: str, seed: int) -> tuple[float, float, float]:
    """The truth, the difference without adjustment, and the unit of both."""
    rng = np.random.default_rng([STREAM, seed, 7])
    x, odds, both, _ = population(seed).records(LARGE, rng)
    if kind == "median":
        t = rng.random(LARGE) < odds
        one, zero = np.median(both, axis=0)[::-1]
        return one - zero, np.median(both[t, 1]) - np.median(both[~t, 0]), both[:, 0].std()
    hazard = log_hazard(seed, x)
    one, zero = lived(np.exp(hazard - 0.4)), lived(np.exp(hazard))
    crude = np.average(one, weights=odds) - np.average(zero, weights=1 - odds)
    return float((one - zero).mean()), float(crude), 1.0


def run(people: int, noise: int, of: str, seed: int, n: int, ranges: float, rule: str):
    drawn = population(seed).tight() if ranges == 1.0 else population(seed).tight().generous(ranges)
    rng = np.random.default_rng([STREAM, seed, n, people])
    given: dict[str, Any] = {"epsilon": 1.0, "seed": noise, "bounds": drawn.bounds}
    given |= {"flexible": None if rule == "public rule" else 0}
    if of == "median":
        fit: Any = dpe.dp_qte(drawn.formula, drawn.draw(n, rng)[0], quantiles=0.5, **given)
        row = fit.tidy().iloc[0]
    else:
        x, odds, _, _ = drawn.records(n, rng)
        t = rng.random(n) < odds
        time = rng.exponential(size=n) / np.exp(log_hazard(seed, x) - 0.4 * t)
        end = np.where(rng.random(n) < 1 / 3, rng.random(n), 2.0)
        frame = pd.DataFrame(dict(zip(drawn.names, x.T, strict=True)))
        own = {"t": t.astype(int), "time": np.minimum(time, end)}
        frame = frame.assign(**own, died=(time <= end).astype(int))
        given["bounds"] = {name: drawn.bounds[name] for name in drawn.names}
        formula = f"Surv(time, died) ~ t | {' + '.join(drawn.names)}"
        fit = dpe.dp_survival(formula, frame, horizon=1.0, bins=10, **given)
        row = fit.tidy().set_index("term").loc["rmst_difference"]
    right, crude, unit = truth(of, seed)
    return {
        "added": str(fit.details.get("terms added", "nothing")),
        "unadjusted": (crude - right) / unit,
        "error": (row["estimate"] - right) / unit,
        "half": (row["conf_high"] - row["conf_low"]) / 2 / unit,
        "covered": row["conf_low"] <= right <= row["conf_high"],
        "told": "No interactions" in fit.warnings,
    }


def page(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    about = [f"{k}, {population(k).description.split(';')[0]}" for k in rows["seed"]]
    return {"": rows.assign(population=about).drop(columns="seed")}


COLUMNS = {
    "added": first("added"),
    "unadjusted": mean("unadjusted"),
    "bias": mean("error", 2),
    "error": root("error"),
    "half-width": mean("half"),
    "covered": percent("covered", 0),
    "told": percent("told", 0),
}
TABLE = Table(
    "Tables where covariates bend",
    (Part("", CELLS, run, COLUMNS, runs=6, alike=("rule",), chunk=1),),
    NOTE,
    page=page,
    minutes=1,
)
