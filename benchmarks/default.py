"""What the default method promises, measured on populations of our own (`tests/populations.py`).

Methods and epsilons are compared on the same samples, with other noise in every cell; where more
epsilon is compared with less, with the same noise too. What ten million rows cost is in `scale`,
attacks are in `audit`, other studies and the noise in `coverage`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from harness import Bar, Cell, Part, Row, Table

import dpeffects as dpe
from dpeffects.inference.estimate import Unavailable
from tests.populations import POPULATIONS, RIGHT, TRIALS, Population, drawn

STUDIES, RANDOMISED = "studies drawn at random", "trials drawn at random"
"""Names that stand for another population in every run."""
METHODS = {
    "auto": ("auto", {}),
    "auto, randomised": ("auto", {"design": "randomised"}),
    "diff_in_means": ("diff_in_means", {}),
    "private_ipw": ("private_ipw", {}),
}
GRID = (*(round(0.1 * 2 ** (k / 2), 3) for k in range(13)), 8.0)
"""Epsilons from 0.1 to 8, each about 1.4 times the one before."""


def cell(part: str, population: str, n: int, method: str, epsilon: float, runs: int) -> Cell:
    made = {"part": part, "population": population, "n": n, "method": method, "estimand": "ATE"}
    return made | {"epsilon": epsilon, "delta": 0.0, "runs": runs}


def trials() -> Iterator[Cell]:
    for population in TRIALS:
        for n in (500, 2000, 20_000):
            for epsilon in (0.1, 0.5, 1.0, 4.0):
                for method, runs in (("auto, randomised", 100), ("diff_in_means", 200)):
                    yield cell("trials", population.name, n, method, epsilon, runs)


def more_epsilon() -> Iterator[Cell]:
    for populations, method in ((RIGHT, "auto"), (TRIALS, "auto, randomised")):
        for population in populations:
            for epsilon in GRID:
                yield cell("epsilon", population.name, 3000, method, epsilon, 15)


def at_random() -> Iterator[Cell]:
    """Another population in every run."""
    for n in (2000, 10_000):
        for epsilon in (0.5, 1.0, 4.0):
            for name, methods in (
                (STUDIES, ("auto", "private_ipw")),
                (RANDOMISED, ("auto, randomised", "diff_in_means")),
            ):
                yield from (cell("drawn", name, n, x, epsilon, 150) for x in methods)


PARTS = ("trials", "epsilon", "drawn")


@lru_cache(maxsize=100)
def sample(name: str, n: int, people: int) -> tuple[Population, pd.DataFrame]:
    made = name in (STUDIES, RANDOMISED)
    population = drawn(people, name == RANDOMISED) if made else POPULATIONS[name]
    return population, population.sample(n, people)


def run(people: int, noise: int, **cell: Any) -> Row:
    method, options = METHODS[cell["method"]]
    effect = {"ATE": dpe.dp_ate, "ATT": dpe.dp_att, "ATC": dpe.dp_atc}[cell["estimand"]]
    population, data = sample(cell["population"], cell["n"], people)
    formula = "y ~ t" if method == "diff_in_means" else population.formula
    given = {"epsilon": cell["epsilon"], "delta": cell["delta"], "bounds": population.declared}
    fit = effect(formula, data, method, **given, **options, seed=noise)
    interval, truth = fit.conf_int(0.95), population.truth[cell["estimand"]]
    low, high = (np.nan, np.nan) if isinstance(interval, Unavailable) else interval
    return {
        "error": fit.estimate - truth,
        "covered": low <= truth <= high,
        "half_width": (high - low) / 2,
        "one_step": any(x.startswith("one_step was chosen") for x in fit.released.notes),
        "variance": fit.noise_variance,
    }


def summary(runs: pd.DataFrame) -> Row:
    """Shares that cover and that used one_step; medians, but for the spread of the estimates."""
    return {
        "covered": runs["covered"].mean(),
        "one_step": runs["one_step"].mean(),
        "half_width": runs["half_width"].median(),
        "error": runs["error"].abs().median(),
        "spread": runs["error"].std(),
        "noise": np.sqrt(runs["variance"].median()),
    }


# Tables


def wide(table: pd.DataFrame, rows: list[str], values: dict[str, str]) -> pd.DataFrame:
    """One row for each of ``rows``, one column for each epsilon and value."""
    order = {name: k for k, name in enumerate([*POPULATIONS, STUDIES, RANDOMISED])}
    found = table.pivot(index=rows, columns="epsilon", values=list(values))
    found = found[[(v, e) for v in values for e in found[v].columns]]
    found.columns = [f"{values[v]}, eps {e:g}".lstrip(", ") for v, e in found.columns]
    found = found.reset_index()
    return found.sort_values(
        rows, key=lambda c: c.map(order) if c.name == "population" else c, kind="stable"
    ).reset_index(drop=True)


def compared(table: pd.DataFrame, mine: str, other: str) -> pd.DataFrame:
    """Cells of the default, with ``ratio``: their half-width over that of another method."""
    by = ["population", "n", "estimand", "epsilon", "delta"]
    theirs = table[table["method"] == other].set_index(by)[["half_width", "covered"]]
    theirs = theirs.rename(columns={"half_width": "other", "covered": "other covered"})
    made = table[table["method"] == mine].join(theirs, on=by)
    made["ratio"] = (made["half_width"] / made["other"]).round(2)
    facts = [POPULATIONS[k].facts if k in POPULATIONS else {} for k in made["population"]]
    without = [f.get("half-width", np.nan) for f in facts] * np.sqrt(1e4 / made["n"])
    made["without"] = [float(f"{w:.3g}") for w in without]
    made["coverage"] = (100 * made["covered"]).round(1)
    made["half_width"] = [float(f"{w:.3g}") for w in made["half_width"]]
    made["R2"] = [round(f.get("R2", np.nan), 2) for f in facts]
    return made


def rises(table: pd.DataFrame) -> pd.DataFrame:
    """For each population: where a half-width is largest against one at a smaller epsilon."""
    rows, several = [], table.groupby(["population", "n"])["epsilon"].transform("nunique") > 1
    for (population, n), found in table[several].groupby(["population", "n"], sort=False):
        found = found.sort_values("epsilon")
        ratio = found["half_width"] / found["half_width"].cummin().shift()
        worst = ratio.idxmax()
        rows.append((population, n, round(ratio[worst], 3), found["epsilon"][worst]))
    return pd.DataFrame(rows, columns=["population", "n", "largest ratio", "at epsilon"])


def missing(table: pd.DataFrame, column: str, said: str) -> list[str]:
    return [
        f"{row.population}, n = {row.n}, {row.estimand}, epsilon {row.epsilon:g}, "
        f"delta {row.delta:g}: {said} {getattr(row, column):g} (one_step in {row.one_step:.0%})"
        for row in table.itertuples()
    ]


def at_most(promise: str, table: pd.DataFrame, column: str, bar: float) -> Bar:
    said = f"{table[column].min():.2f} to {table[column].max():.2f} in {len(table)} cells"
    return Bar(promise, said, missing(table[table[column] > bar], column, column))


def bars_of_trials(made: pd.DataFrame) -> list[Bar]:
    large = made[(made["n"] >= 20_000) & (made["R2"] >= 0.35)]
    found = []
    for epsilon, bar in ((0.1, 0.75), (0.5, 0.9), (4.0, 0.85)):
        promise = f"half-width over diff_in_means, epsilon {epsilon:g}: at most {bar:.2f}"
        if epsilon < 4:
            here = made[made["epsilon"] == epsilon]
            found.append(at_most(f"{promise}, in every trial", here, "ratio", bar))
        here = large[large["epsilon"] == epsilon]
        found.append(at_most(f"{promise}, n >= 20,000 and R2 >= 0.35", here, "ratio", bar))
    found.append(at_most("half-width over diff_in_means: never above 1.02", made, "ratio", 1.02))
    pooled = 100 * float(np.average(made["covered"], weights=made["runs"]))
    runs = int(made["runs"].sum())
    said = f"{pooled:.1f} % of {runs} runs"
    off = [] if 93 <= pooled <= 97 else [f"coverage in trials {pooled:.1f} %"]
    low = missing(made[made["coverage"] < 88], "coverage", "coverage")
    found.append(Bar("coverage in trials, pooled: 93 to 97 %", said, off))
    worst = f"{made['coverage'].min():.1f} to {made['coverage'].max():.1f} % in {len(made)} cells"
    found.append(Bar("coverage in trials: at least 88 % in every cell", worst, low))
    return found


def bars_of_epsilon(made: pd.DataFrame) -> list[Bar]:
    if made.empty:
        return []
    ratio = made["largest ratio"]
    lines = [
        f"{row[0]}, n = {row[1]}: half-width {row[2]:.3f} times a smaller one before, at {row[3]:g}"
        for row in made[ratio > 1.0].itertuples(index=False)
    ]
    said = f"largest ratio {ratio.max():.3f}, above 1.02 in {(ratio > 1.02).sum()} of {len(made)}"
    return [Bar("more epsilon never gives a wider interval: at most 1.00", said, lines)]


def bars_of_drawn(made: pd.DataFrame) -> list[Bar]:
    found = []
    for name, here in made.groupby("population", sort=False):
        pooled = float(here["coverage"].mean())
        said = f"{pooled:.1f} % of {int(here['runs'].sum())} runs"
        said += f", cells {here['coverage'].min():.1f} to {here['coverage'].max():.1f}"
        off = [] if pooled >= 93 else [f"coverage in {name} {pooled:.1f} %"]
        off += missing(here[here["coverage"] < 88], "coverage", "coverage")
        found.append(Bar(f"coverage in {name}: 93 % pooled, 88 % in every cell", said, off))
        bar, other = (0.5, "private_ipw") if name == STUDIES else (0.85, "diff_in_means")
        mean = float(np.exp(np.log(here["half_width"] / here["other"]).mean()))
        promise = f"half-width over {other} in {name}: at most {bar}, geometric mean"
        found.append(Bar(promise, f"{mean:.2f}", [] if mean <= bar else [f"{promise}: {mean:.2f}"]))
    return found


DRAWN = (
    "Another population in every run: coverage in %, median half-width, "
    "over that of private_ipw or diff_in_means"
)


def tables(table: pd.DataFrame) -> tuple[list[Bar], dict[str, pd.DataFrame]]:
    """Every promise, and the tables of all parts on file."""
    bars: list[Bar] = []
    shown: dict[str, pd.DataFrame] = {}
    part = {name: table[table["part"] == name] for name in PARTS}
    both = {"ratio": "ratio", "coverage": "coverage"}
    made = compared(part["trials"], "auto, randomised", "diff_in_means")
    if len(made):
        bars += bars_of_trials(made)
        shown["Trials, declared as such: half-width over that of diff_in_means, coverage in %"] = (
            wide(made, ["population", "R2", "n"], both)
        )
    made = part["epsilon"]
    if len(made):
        made = rises(made)
        bars += bars_of_epsilon(made)
        shown["Largest ratio of a half-width to the smallest one at a smaller epsilon"] = made
    made = pd.concat(
        [
            compared(part["drawn"], "auto", "private_ipw"),
            compared(part["drawn"], "auto, randomised", "diff_in_means"),
        ]
    )
    if len(made):
        bars += bars_of_drawn(made)
        shown[DRAWN] = wide(
            made,
            ["population", "n"],
            {"coverage": "coverage", "half_width": "half-width", "ratio": "ratio"},
        )
    return bars, shown


def page(*made: pd.DataFrame) -> dict[str, pd.DataFrame]:
    known = [{"population": p.name, **p.facts} for p in (*RIGHT, *TRIALS)]
    facts = pd.DataFrame(known).round(4)
    return {**tables(pd.concat(made))[1], "The populations": facts}


NOTES = (
    "Populations and their seeds are in `tests/populations.py`. The results of those with a "
    "name were seen while the method was written; those of populations drawn at random were "
    "not. "
    '"Confounding" is what a plain difference in means is off by, in sd of the outcome; '
    '"without" is the half-width of least squares without privacy (in the last table in '
    "10,000 records): "
    "where it is near that of private_ipw, no method can halve the latter. "
    "The standard error of a coverage of 95 % is 2.2 points in 100 runs."
)
TABLE = Table(
    "The default method",
    (
        Part("Trials", [*trials()], run, summary, runs=100, csv="default_trials"),
        Part(
            "More epsilon",
            [*more_epsilon()],
            run,
            summary,
            runs=15,
            alike=("epsilon",),
            csv="default_epsilon",
        ),
        Part("Drawn at random", [*at_random()], run, summary, runs=150, csv="default_drawn"),
    ),
    NOTES,
    page=page,
    bars=lambda *made: tables(pd.concat(made))[0],
    minutes=9,
)
