"""Regression tables from released moments: how often intervals cover, and how large the noise is.

    python benchmarks/moments.py            # ten minutes on two cores
    python benchmarks/moments.py --small    # a quick look, nothing saved

Five covariates: two numbers (one skewed, correlated with the other), two indicators (one depends on
a number) and a factor of four levels; treatment depends on them. Outcomes are normal, skewed with a
variance that grows with its mean, and an indicator, each in a release of its own. A population of a
million people is made once, and its own regression is the truth; records are drawn from it with
replacement, and noise by the distribution of claims 6 and 26 (`tests/methods/test_moments.py` has
the noise of the sampler, and sums by `dp_moments` itself). Coverage is that of 95 % intervals, in
per cent: a truth is covered where the test of it is not rejected.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from report import save

import dpeffects as dpe
from dpeffects.inference.intervals import p_value, sampling_variance
from dpeffects.inference.moment_regression import regress
from dpeffects.progress import bar

SMALL = "--small" in sys.argv
RUNS, PEOPLE = (20, 200_000) if SMALL else (600, 1_000_000)
SIZE = 100_000
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
    "The standard error of a coverage of 95 % is {se:.1f}. *Noise* is the standard deviation of "
    "the noise over that of the sampling error (medians), for the treatment and for a number. "
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


def setting(outcome: str, n: int, delta: float, square: bool = False) -> dict:
    """Coverage of each coefficient in one setting."""
    names = [*(x for x in BOUNDS if x not in OUTCOMES), outcome]
    everyone = population()[[*names, "t"]]
    bounds, formula = (
        {x: BOUNDS[x] for x in names},
        FORMULA.format(y=f"{outcome} + {SQUARE}" if square else outcome),
    )
    asked = {"epsilon": 1.0, "delta": delta, "bounds": bounds, "seed": 1}
    kept = dpe.dp_moments(formula, everyone.head(n), **asked)
    assert kept.matrix.n == n
    z, variance = columns(kept, everyone), kept.matrix.variance
    d, x = z.shape[1], design(everyone)
    truth = np.linalg.lstsq(x, everyone[outcome].to_numpy(float), rcond=None)[0]
    who, drawn = (np.random.default_rng([k, n, OUTCOMES.index(outcome)]) for k in (1, 2))
    place = {c.name: k for k, c in enumerate(kept.matrix.columns, 1)}
    regressors = [k for name, k in place.items() if name not in (outcome, SQUARE)]
    hits, ratios = [], []
    for _ in range(RUNS):
        rows = z[who.integers(0, len(z), n)]
        entries = (rows.T @ rows + noise(drawn, d, delta, variance))[np.triu_indices(d)]
        fit = regress(
            replace(kept.matrix, entries=tuple(entries)),
            place[outcome],
            regressors,
            place.get(SQUARE),
        )
        assert list(fit.names) == NAMES
        found = [fit.coefficient(name) for name in NAMES]
        pairs = zip(found, truth, fit.lost, strict=True)
        hits.append([np.nan if lost else p_value(x, null) > 0.05 for x, null, lost in pairs])
        ratios.append([np.sqrt(x.gaussian / sampling_variance(x)) for x in found[1:3]])
    cover = dict(zip(NAMES, (100.0 * np.nanmean(hits, axis=0)).round(1), strict=True))
    t, x1 = np.nanmedian(ratios, axis=0).round(2)
    about = {"outcome": outcome, "n": n, "delta": delta, "noise, t": t, "noise, x1": x1}
    return about | cover


def columns(kept: dpe.Moments, frame: pd.DataFrame) -> np.ndarray:
    """z of all people, as the release has it."""
    values = {x: frame[x].to_numpy(float) for x in frame if x != "g"}
    values |= {SQUARE: values["skewed"] ** 2} if "skewed" in values else {}
    values |= {f"g[T.{level}]": (frame["g"] == level).to_numpy(float) for level in "bcd"}
    z = [np.full(len(frame), kept.matrix.constant)]
    for c in kept.matrix.columns:
        z.append(c.size * ((values[c.name] - c.low) / c.width - c.centre))
    return np.column_stack(z)


def main() -> None:
    warnings.simplefilter("ignore")
    cases = [(*case, False) for case in itertools.product(OUTCOMES, [SIZE], (0.0, 1e-6))]
    cases += [("skewed", SIZE, delta, True) for delta in (0.0, 1e-6)]
    with ProcessPoolExecutor(2) as pool:
        each = [pool.submit(setting, *case) for case in cases]
        rows = [x.result() for x in bar(each, "settings")]
    tables = {f"n = {SIZE:,}": pd.DataFrame(rows[:6])}
    tables["The skewed outcome, its square among the columns"] = pd.DataFrame(rows[6:])
    if SMALL:
        print("\n".join(table.to_string() for table in tables.values()))
        return
    title = f"Moments: coverage of regression tables at epsilon 1, {RUNS} runs each"
    save("moments", title, tables, NOTE.format(se=100 * np.sqrt(0.95 * 0.05 / RUNS)))


if __name__ == "__main__":
    main()
