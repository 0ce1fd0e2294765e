"""Label level where the truth bends: coverage and length of intervals, over many populations.

A seed makes a population: 3 to 6 columns, normal, uniform, skewed or two-valued, the shape in two
of them at places drawn at random, in the score, the outcome, or both (a line in the other), and
which effect is asked for. Constants were set on seeds below 1,000; seeds from 1,000 on were run
once.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from harness import Part, Table, mean, percent, rms, root

import dpeffects as dpe

FIRST = 1000
SHAPES = ("lines", "step", "hinge", "product", "u")
SIZES = ((2_000, 0.5), (2_000, 2.0), (5_000, 1.0), (20_000, 1.0))
"""Records and epsilon."""
EFFECT, RANGE = 0.5, (-6.0, 7.0)
CALLS = {"ATE": dpe.dp_ate, "ATT": dpe.dp_att, "ATC": dpe.dp_atc}


def bent(shape: str, a: np.ndarray, b: np.ndarray, places: np.ndarray) -> np.ndarray:
    """A function of two standardised columns with mean 0 and standard deviation 1."""
    value = {
        "lines": a - 0.7 * b,
        "step": (a > places[0]) - 0.7 * (b > places[1]),
        "hinge": np.maximum(a - places[0], 0.0) - 0.7 * np.maximum(places[1] - b, 0.0),
        "product": a * b + 0.3 * a,
        "u": a * a - 0.3 * b,
    }[shape]
    return (value - value.mean()) / value.std()


def population(shape: str, n: int, seed: int) -> tuple[pd.DataFrame, dict[str, tuple], str]:
    """Records, their bounds, and the estimand."""
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(3, 7))
    kinds = [*rng.integers(0, 3, 2), *rng.integers(0, 4, columns - 2)]
    common, each = rng.standard_normal((n, 1)), rng.standard_normal((n, columns))
    z = np.sqrt(0.2) * common + np.sqrt(0.8) * each
    made = [
        (
            lambda x: np.clip(x, -4, 4),
            lambda x: np.tanh(x) * 1.6,
            lambda x: np.minimum(np.exp(0.7 * x) - 1.28, 8.0),
            lambda x: (x > 0.3) * 1.0,
        )[k](z[:, j])
        for j, k in enumerate(kinds)
    ]
    x = np.column_stack(made)
    standard = (x - x.mean(axis=0)) / x.std(axis=0)
    a, b, places = standard[:, 0], standard[:, 1], rng.uniform(-0.7, 0.7, 2)
    where = rng.choice(["both", "score", "outcome"])
    score = bent(shape if where != "outcome" else "lines", a, b, places)
    level = bent(shape if where != "score" else "lines", a, b, places)
    t = rng.random(n) < 1.0 / (1.0 + np.exp(-rng.uniform(0.4, 0.9) * np.clip(score, -3, 3)))
    y = level + 0.4 * standard[:, -1] + EFFECT * t + 0.7 * rng.standard_normal(n)
    data = pd.DataFrame({f"x{j}": x[:, j] for j in range(columns)})
    bounds = {f"x{j}": ((-4, 4), (-2, 2), (-2, 8), (0, 1))[k] for j, k in enumerate(kinds)}
    data["t"], data["y"] = t.astype(int), np.clip(y, *RANGE)
    return data, {**bounds, "y": RANGE}, str(rng.choice(list(CALLS)))


def run(people: int, noise: int, n: int, epsilon: float, shape: str):
    data, bounds, estimand = population(shape, n, FIRST + people)
    formula = "y ~ t | " + " + ".join(name for name in bounds if name != "y")
    given = {"level": "label", "epsilon": epsilon, "bounds": bounds, "seed": noise}
    made = CALLS[estimand](formula, data, **given)
    low, high = made.conf_int()
    error = made.estimate - EFFECT
    return {"covered": low <= EFFECT <= high, "error": error, "half": (high - low) / 2.0}


COLUMNS = {
    "covered, %": percent("covered"),
    "bias": mean("error"),
    "rmse": root("error"),
    "half-width": mean("half"),
    "half-width / 1.96 rmse": lambda x: round(x["half"].mean() / 1.96 / rms(x["error"]), 2),
}
CELLS = [{"n": n, "epsilon": epsilon, "shape": x} for n, epsilon in SIZES for x in SHAPES]
TABLE = Table(
    "Label level where the truth bends", (Part("", CELLS, run, COLUMNS, runs=24),), minutes=4
)
