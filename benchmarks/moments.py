"""Regression tables from released moments: how often intervals cover, and how large the noise is.

Five covariates: two numbers (one skewed, correlated with the other), two indicators (one depends on
a number) and a factor of four levels; treatment depends on them. Outcomes are normal, skewed with a
variance that grows with its mean, and an indicator, each in a release of its own. A population of a
million people is made once, and its own regression is the truth; records are drawn from it with
replacement, and noise by the distribution of claims 6 and 26 (`tests/methods/test_moments.py` has
the noise of the sampler, and sums by `dp_moments` itself). Coverage is that of 95 % intervals, in
per cent: a truth is covered where the test of it is not rejected.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from harness import Part, Table, grid, standard_error

import dpeffects as dpe
from dpeffects.inference.intervals import p_value, sampling_variance
from dpeffects.inference.moment_regression import regress

PEOPLE, SIZE = 1_000_000, 100_000
SQUARE = "I(skewed ** 2)"
OUTCOMES = ("normal", "skewed", "indicator")
FORMULA = "{y} ~ t | x1 + x2 + b1 + b2 + g"
BOUNDS = {
    "normal": (-5, 6),
    "skewed": (0, 12),
    "indicator": (0, 1),
    "x1": (-4, 4),
    "x2": (-4, 7),
    "b1": (0, 1),
    "b2": (0, 1),
    "g": ["a", "b", "c", "d"],
}
NAMES = ["(Intercept)", "t", "x1", "x2", "b1", "b2", "g[T.b]", "g[T.c]", "g[T.d]"]
NOTE = (
    f"The standard error of a coverage of 95 % in 300 runs is {standard_error(300)}. "
    "*Noise* is the standard deviation of the noise over that of the sampling error (medians), for "
    "the treatment and for a number. "
    "Standard errors are classical, but for the indicator; with the square of an outcome they are "
    "robust."
)


def people(n: int, seed: int) -> pd.DataFrame:
    """Records with three outcomes, clipped to their bounds."""
    rng = np.random.default_rng(seed)
    x1 = rng.normal(size=n)
    x2 = 0.5 * x1 + rng.exponential(size=n) - 1.0
    b1 = rng.random(n) < 1.0 / (1.0 + np.exp(1.0 - 0.8 * x1))
    b2 = rng.random(n) < 0.15
    g = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    t = rng.random(n) < 1.0 / (1.0 + np.exp(0.5 - 0.4 * x1 - 0.5 * b1))
    line = 0.3 * t + 0.4 * x1 - 0.2 * x2 + 0.5 * b1 + 0.3 * b2
    line += np.array([0.0, 0.2, -0.3, 0.5])[g]
    found = {
        "normal": line + rng.normal(size=n),
        "skewed": np.exp(0.5 * line) * rng.gamma(1.0, 1.0, n),
        "indicator": rng.random(n) < np.clip(0.25 + 0.12 * line, 0.02, 0.98),
        "x1": x1,
        "x2": x2,
    }
    inside = {name: np.clip(x, *BOUNDS[name]).astype(float) for name, x in found.items()}
    inside["indicator"] = inside["indicator"].astype(int)
    more = {"t": t.astype(int), "b1": b1.astype(int), "b2": b2.astype(int)}
    return pd.DataFrame(inside | more | {"g": np.array(["a", "b", "c", "d"])[g]})


def design(frame: pd.DataFrame) -> np.ndarray:
    """Regressors, in the order of the table."""
    levels = [frame["g"] == level for level in "bcd"]
    columns = [np.ones(len(frame)), *(frame[x] for x in ("t", "x1", "x2", "b1", "b2")), *levels]
    return np.column_stack(columns).astype(float)


@cache
def population() -> pd.DataFrame:
    return people(PEOPLE, 1)


def noise(rng: np.random.Generator, d: int, delta: float, variance: float) -> np.ndarray:
    """Noise of a matrix: Gaussian, or the difference of two Wisharts."""
    if delta:
        drawn = rng.normal(size=(d, d)) * np.sqrt(variance / 2.0)
        return drawn + drawn.T
    one, other = rng.normal(size=(2, d, d + 1))
    return (one @ one.T - other @ other.T) * np.sqrt(variance / (2.0 * (d + 1)))


def columns(kept: dpe.Moments, frame: pd.DataFrame) -> np.ndarray:
    """z of all people, as the release has it."""
    values = {x: frame[x].to_numpy(float) for x in frame if x != "g"}
    values |= {SQUARE: values["skewed"] ** 2} if "skewed" in values else {}
    values |= {f"g[T.{level}]": (frame["g"] == level).to_numpy(float) for level in "bcd"}
    z = [np.full(len(frame), kept.matrix.constant)]
    for c in kept.matrix.columns:
        z.append(c.size * ((values[c.name] - c.low) / c.width - c.centre))
    return np.column_stack(z)


@cache
def released(outcome: str, delta: float, square: bool):
    """A release, all people as it has them, and what a regression in them says."""
    names, everyone = [*(x for x in BOUNDS if x not in OUTCOMES), outcome], population()
    bounds = {x: BOUNDS[x] for x in names}
    formula = FORMULA.format(y=f"{outcome} + {SQUARE}" if square else outcome)
    asked = {"epsilon": 1.0, "delta": delta, "bounds": bounds, "seed": 1}
    kept = dpe.dp_moments(formula, everyone[[*names, "t"]].head(SIZE), **asked)
    truth = np.linalg.lstsq(design(everyone), everyone[outcome].to_numpy(float), rcond=None)[0]
    return kept, columns(kept, everyone[[*names, "t"]]), truth


def run(people: int, noise_seed: int, outcome: str, delta: float, square: bool):
    """Which coefficients are covered, and the noise over the sampling error of two of them."""
    kept, z, truth = released(outcome, delta, square)
    rows = z[np.random.default_rng(people).integers(0, len(z), SIZE)]
    drawn = noise(np.random.default_rng(noise_seed), z.shape[1], delta, kept.matrix.variance)
    entries = tuple((rows.T @ rows + drawn)[np.triu_indices(z.shape[1])])
    place = {c.name: k for k, c in enumerate(kept.matrix.columns, 1)}
    regressors = [k for name, k in place.items() if name not in (outcome, SQUARE)]
    matrix = replace(kept.matrix, entries=entries)
    fit = regress(matrix, place[outcome], regressors, place.get(SQUARE))
    assert list(fit.names) == NAMES
    found = [fit.coefficient(name) for name in NAMES]
    one, other = (float(np.sqrt(x.gaussian / sampling_variance(x))) for x in found[1:3])
    pairs = zip(NAMES, found, truth, fit.lost, strict=True)
    hits = {
        name: np.nan if lost else float(p_value(x, true) > 0.05) for name, x, true, lost in pairs
    }
    return {"noise, t": one, "noise, x1": other, **hits}


def summary(runs: pd.DataFrame) -> dict[str, float]:
    noise = {name: runs[name].median().round(2) for name in ("noise, t", "noise, x1")}
    return noise | {name: (100.0 * runs[name].mean()).round(1) for name in NAMES}


TABLE = Table(
    "Moments: coverage of regression tables at epsilon 1",
    tuple(
        Part(
            title,
            grid(outcome=outcomes, delta=(0.0, 1e-6), square=[square]),
            run,
            summary,
            runs=300,
            chunk=20,
        )
        for title, outcomes, square in (
            (f"n = {SIZE:,}", OUTCOMES, False),
            ("The skewed outcome, its square among the columns", ["skewed"], True),
        )
    ),
    NOTE,
    minutes=7,
)
