"""Populations where log odds, outcomes or effects bend: coverage, width and error of the default.

Populations are those of `tests/bent_populations.py`, which have 3 to 20 columns of all types and
declared ranges that are right, or four to six times too wide. Each run of a cell is on the next of
`MANY` populations of its kind, whose seeds nothing was tuned on.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
import pandas as pd
from averages import compared, geometric, over_peer
from harness import Part, Row, Table, grid, mean, percent, rms

import dpeffects as dpe
from tests.bent_populations import KINDS, STREAM, Population, population

FIRST, MANY, PEERS = 1200, 16, 16
"""The first seed, the populations of a kind, and runs of a cell that are also without privacy."""
EPSILONS, TIMES, HAZARD = (0.5, 1.0, 2.0, 4.0), 5.0, 300_000
"""Budgets, times that generous ranges are too wide, records for the truth of life tables."""


def seed_of(kind: str, people: int) -> int:
    return FIRST + KINDS.index(kind) + len(KINDS) * (people % MANY)


@lru_cache(maxsize=8)
def sample(seed: int, n: int, people: int) -> pd.DataFrame:
    return population(seed).draw(n, np.random.default_rng([STREAM, seed, n, people]))


def ask(drawn: Population, data: pd.DataFrame, **given: Any) -> Row:
    about = {"bounds": drawn.bounds, "seed": given.pop("noise"), **given}
    found = compared(drawn.formula, data, "auto", drawn.truths["ATE"], **about)
    return {"population": drawn.seed, **found}


def held_out(people: int, noise: int, kind: str, n: int, epsilon: float, level: str) -> Row:
    seed = seed_of(kind, people)
    given = {"epsilon": epsilon, "level": level, "peer": people < PEERS}
    return ask(population(seed), sample(seed, n, people), noise=noise, **given)


def epsilons(people: int, noise: int, kind: str, n: int) -> list[Row]:
    """The same records and noise, at every epsilon."""
    seed = seed_of(kind, people)
    data = sample(seed, n, people)
    return [{"epsilon": e} | ask(population(seed), data, noise=noise, epsilon=e) for e in EPSILONS]


def ranges(people: int, noise: int, kind: str, n: int) -> Row:
    """The same records and noise, with ranges that are right and too wide."""
    seed = seed_of(kind, people)
    data, tight = sample(seed, n, people), population(seed).tight()
    found = [ask(x, data, noise=noise, epsilon=1.0) for x in (tight, tight.generous(TIMES))]
    return {
        f"{name}, {said}": row.get(name, np.nan)
        for said, row in zip(("tight", "generous"), found, strict=True)
        for name in ("half_width", "cover95")
    }


def of_held_out(runs: pd.DataFrame) -> Row:
    """Half-widths and errors are compared within each population, then averaged over them."""
    groups = runs.groupby("population")
    errors, half = groups["error"].agg(rms), groups["half_width"].median()
    covers = 100 * groups["cover95"].mean()
    return {
        "populations": len(covers),
        "coverage": round(100 * runs["cover95"].mean(), 1),
        "least population": round(covers.min(), 1),
        "populations below 85 %": int((covers < 85).sum()),
        "of them not warned": int(((covers < 85) & (groups["warned"].mean() < 0.9)).sum()),
        "warned": round(100 * runs["warned"].mean(), 1),
        "half-width / 1.96 rmse": round(geometric(half / 1.96 / errors), 2),
        "width over that without privacy": round(over_peer(runs), 2),
        "worst / standard error": round((runs["error"].abs() / runs["std_error"]).max(), 1),
    }


def of_epsilons(runs: pd.DataFrame) -> Row:
    """Steps from an epsilon to twice as much, by the median half-widths of populations."""
    half = runs.pivot_table("half_width", "population", "epsilon", "median")
    steps = (half / half.shift(axis=1)).iloc[:, 1:].stack()
    covers = runs.groupby("epsilon")["cover95"].mean()
    return {
        "steps": len(steps),
        "above 1.02": int((steps > 1.02).sum()),
        "largest ratio": round(steps.max(), 2),
        "geometric mean": round(geometric(steps), 2),
        **{f"coverage, epsilon {e:g}": round(100 * x, 1) for e, x in covers.items()},
    }


def of_ranges(runs: pd.DataFrame) -> Row:
    ratio = runs["half_width, generous"] / runs["half_width, tight"]
    return {
        "times as long": round(geometric(ratio), 2),
        "coverage, tight": round(100 * runs["cover95, tight"].mean(), 1),
        "coverage, generous": round(100 * runs["cover95, generous"].mean(), 1),
    }


BENT = Table(
    "Populations that bend",
    (
        Part(
            "Held out",
            grid(kind=KINDS, n=(10_000, 40_000), epsilon=[1.0], level=["sample"]),
            held_out,
            of_held_out,
            runs=320,
            csv="bent",
        ),
        Part(
            "Label level",
            grid(kind=KINDS, n=[5000], epsilon=[1.0], level=["label"]),
            held_out,
            of_held_out,
            runs=96,
        ),
        Part("More epsilon", grid(kind=KINDS, n=[20_000]), epsilons, of_epsilons, runs=80),
        Part(
            f"Ranges {TIMES:g} times too wide", grid(kind=KINDS, n=[20_000]), ranges, of_ranges, 80
        ),
    ),
    lead=f"Each row has {MANY} populations that nothing was tuned on, in turn: 3 to 20 columns of "
    "all types, declared ranges that are right or four to six times too wide. In *right* log odds, "
    "outcome and effect are linear in the columns, in *effect* the effect is not, in *bent* log "
    "odds or outcome are not. Coverage of the population's effect by nominal 95 % intervals and "
    "warnings in the first lines of a summary in %; half-widths are compared with the error within "
    "each population, and with those of the same call without privacy (geometric means).",
    minutes=8,
)

# Life tables of the same populations


def log_hazard(seed: int, x: np.ndarray) -> np.ndarray:
    """That of the control arm: .8 times the standardised control outcome."""
    middle, spread = scale(seed)
    return 0.8 * np.clip((population(seed).control(x) - middle) / spread, -3, 3) - 0.7


@cache
def scale(seed: int) -> tuple[float, float]:
    x, *_ = population(seed).records(HAZARD, np.random.default_rng([STREAM, seed, 6]))
    control = population(seed).control(x)
    return float(control.mean()), float(control.std())


TERMS = ("risk_difference", "risk_ratio", "rmst_difference")


@cache
def truth(seed: int) -> np.ndarray:
    """Of `TERMS` by time 1."""
    x, *_ = population(seed).records(HAZARD, np.random.default_rng([STREAM, seed, 7]))
    rates = [np.exp(log_hazard(seed, x) - less) for less in (0.4, 0.0)]
    one, none = (-np.expm1(-rate).mean() for rate in rates)
    lived, died = ((-np.expm1(-rate) / rate).mean() for rate in rates)
    return np.array([one - none, one / none, lived - died])


def life_table(people: int, noise: int, kind: str, n: int, epsilon: float) -> Row:
    """Treatment takes .4 off the log hazard; a third are censored at random times before 1."""
    seed = seed_of(kind, people)
    drawn, rng = population(seed), np.random.default_rng([STREAM, seed, n, people])
    x, odds, _, _ = drawn.records(n, rng)
    t = rng.random(n) < odds
    time = rng.exponential(size=n) / np.exp(log_hazard(seed, x) - 0.4 * t)
    end = np.where(rng.random(n) < 1 / 3, rng.random(n), 2.0)
    frame = pd.DataFrame(dict(zip(drawn.names, x.T, strict=True)))
    own = {"t": t.astype(int), "time": np.minimum(time, end), "died": (time <= end).astype(int)}
    formula = f"Surv(time, died) ~ t | {' + '.join(drawn.names)}"
    given = {"horizon": 1.0, "bins": 10, "epsilon": epsilon, "seed": noise}
    bounds = {name: drawn.bounds[name] for name in drawn.names}
    fit = dpe.dp_survival(formula, frame.assign(**own), bounds=bounds, **given)
    found, right = fit.tidy().set_index("term").loc[list(TERMS)], truth(seed)
    inside = (found["conf_low"] <= right) & (right <= found["conf_high"])
    half = (found["conf_high"] - found["conf_low"])[TERMS[2]] / 2
    error = found["estimate"][TERMS[2]] - right[2]
    return {"warned": float(bool(fit.warnings)), "half": half, "error": error, **inside.to_dict()}


TABLES = {
    "bent": BENT,
    "adjusted_tables": Table(
        "Adjusted life tables: how often 95 % intervals cover",
        (
            Part(
                f"All draws of data and noise, {MANY} populations in turn",
                grid(kind=KINDS[::2], n=[10_000], epsilon=(1.0, 4.0)),
                life_table,
                {
                    "half-width of the mean time": mean("half"),
                    "over 1.96 rmse": lambda x: round(x["half"].mean() / 1.96 / rms(x["error"]), 2),
                    "warned": percent("warned"),
                    **{f"covers, {name.replace('_', ' ')}": percent(name) for name in TERMS},
                },
                runs=320,
            ),
        ),
        "Log hazards are those outcomes of the populations of `bent` that come without treatment, "
        "standardised: in *right* they and the log odds of treatment are linear in the covariates. "
        "Where a model is mostly noise, or shrunk, the interval allows for confounding that is "
        "left as strong as it is cautious to believe: such intervals cover more often than they "
        "claim.",
        minutes=2,
    ),
}
