"""Populations with known effects, on which the default method is judged.

`RIGHT` are observational studies in which the log odds of treatment and the mean outcome of each
arm are linear in the formula's terms, with one effect for all. `WRONG` are those in which something
is not so, most of them once with plain terms and once with terms that help. `TRIALS` are trials.
`STRATA` have discrete terms only, for exact matching; in the last of them that leaves confounding
within strata. Their results were seen while the method was written; those of populations `drawn` at
random were not, before it was finished.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd

Columns = dict[str, np.ndarray]
Rng = np.random.Generator


@dataclass(frozen=True, eq=False)
class Population:
    """How records come about.

    ``control`` is the mean outcome without treatment, ``effect`` what treatment adds to it, both
    functions of the covariates; ``draw`` makes outcomes of given means, within their bounds.
    """

    name: str
    covariates: Callable[[Rng, int], Columns]
    log_odds: Callable[[Columns], Any]
    control: Callable[[Columns], Any]
    effect: Callable[[Columns], Any]
    draw: Callable[[Rng, np.ndarray], np.ndarray]
    outcome: tuple[float, float] = (0, 1)
    bounds: Mapping[str, Any] = field(default_factory=dict)
    terms: str = ""

    @property
    def formula(self) -> str:
        return f"y ~ t | {self.terms or ' + '.join(self.bounds)}"

    @property
    def declared(self) -> dict[str, Any]:
        """Bounds of every column."""
        return {"y": self.outcome, **self.bounds}

    def sample(self, n: int, seed: int) -> pd.DataFrame:
        """Draw n records; populations that differ in their terms alone share their samples."""
        rng = np.random.default_rng([crc32(self.name.split(",")[0].encode()), n, seed])
        columns = self.covariates(rng, n)
        treated = rng.random(n) < expit(self.log_odds(columns))
        mean = self.control(columns) + treated * self.effect(columns)
        y = np.clip(self.draw(rng, mean), *self.outcome)
        return pd.DataFrame({"y": y, "t": treated.astype(int), **columns})

    @property
    def null(self) -> Population:
        """The same with no effect."""
        return replace(self, name=f"{self.name}, no effect", effect=constant(0.0))

    @cached_property
    def truth(self) -> dict[str, float]:
        """Average effects, by two million records; exact where there is one effect for all."""
        one = self.effect(self.covariates(np.random.default_rng(0), 1))
        if np.ndim(one) == 0:
            return dict.fromkeys(("ATE", "ATT", "ATC"), float(one))
        found = dict.fromkeys(("ATE", "ATT", "ATC"), 0.0)
        sizes = dict(found)
        for block in range(20):
            columns = self.covariates(np.random.default_rng([block, 20]), 100_000)
            odds = np.broadcast_to(expit(self.log_odds(columns)), 100_000)
            for estimand, weight in (("ATE", 1 + 0 * odds), ("ATT", odds), ("ATC", 1 - odds)):
                found[estimand] += float(np.sum(weight * self.effect(columns)))
                sizes[estimand] += float(np.sum(weight))
        return {estimand: found[estimand] / sizes[estimand] for estimand in found}

    @cached_property
    def facts(self) -> dict[str, float]:
        """What least squares finds without privacy in 100,000 records.

        Number of covariates, share treated, R^2 within arms; "confounding" is what a plain
        difference in means is off by, in sd of the outcome, and "half-width" that of the 95 %
        interval, robust to heteroscedasticity, in 10,000 records.
        """
        n, data = 100_000, self.sample(100_000, 0)
        y, t = data["y"].to_numpy(float), data["t"].to_numpy(float)
        x = pd.get_dummies(data.drop(columns=["y", "t"]), drop_first=True).to_numpy(float)
        arms = np.column_stack([t, 1 - t])
        within = residual(y, arms)
        left = residual(y, np.column_stack([arms, x]))
        unexplained = residual(t, np.column_stack([np.ones(n), x]))
        error = np.sqrt(np.sum((unexplained * left) ** 2)) / np.sum(unexplained**2)
        apart = y[t == 1].mean() - y[t == 0].mean() - self.truth["ATE"]
        return {
            "covariates": x.shape[1],
            "treated": float(t.mean()),
            "R2": float(1 - np.sum(left**2) / np.sum(within**2)),
            "confounding": float(apart / y.std()),
            "half-width": float(1.96 * error * np.sqrt(n / 10_000)),
        }


def residual(values: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """What least squares leaves."""
    return values - columns @ np.linalg.lstsq(columns, values, rcond=None)[0]


def expit(z: Any) -> Any:
    return 1 / (1 + np.exp(-np.asarray(z, float)))


def linear(constant: float, *slopes: float, **named: float) -> Callable[[Columns], np.ndarray]:
    """A linear function, of x1, x2, ... and of columns by name."""
    by_name = {f"x{j}": slope for j, slope in enumerate(slopes, 1)} | named

    def value(columns: Columns) -> np.ndarray:
        terms = [slope * columns[name] for name, slope in by_name.items()]
        return constant + np.sum(terms, axis=0)

    return value


def constant(value: float) -> Callable[[Columns], float]:
    return lambda columns: value


def named(values: np.ndarray) -> Columns:
    return {f"x{j}": column for j, column in enumerate(values, 1)}


def normal(p: int, rho: float = 0.0) -> Callable[[Rng, int], Columns]:
    """Normal covariates cut at 3, each correlated with the one before it."""

    def columns(rng: Rng, n: int) -> Columns:
        z = rng.standard_normal((p, n))
        for j in range(1, p):
            z[j] = rho * z[j - 1] + np.sqrt(1 - rho**2) * z[j]
        return named(np.clip(z, -3, 3))

    return columns


def uniform(p: int) -> Callable[[Rng, int], Columns]:
    return lambda rng, n: named(rng.uniform(-1, 1, (p, n)))


def ranges(p: int, largest: float) -> dict[str, tuple[float, float]]:
    return {f"x{j}": (-largest, largest) for j in range(1, p + 1)}


def around(width: float) -> Callable[[Rng, np.ndarray], np.ndarray]:
    """Noise like a bell, within half a width of the mean; its sd is 0.19 widths."""
    return lambda rng, mean: mean + width * (rng.beta(3, 3, len(mean)) - 0.5)


def coin(rng: Rng, mean: np.ndarray) -> np.ndarray:
    return (rng.random(len(mean)) < mean).astype(int)


def multiple(sigma: float) -> Callable[[Rng, np.ndarray], np.ndarray]:
    """The mean times a skewed factor of mean 1."""
    return lambda rng, mean: mean * rng.lognormal(-(sigma**2) / 2, sigma, len(mean))


def patients(rng: Rng, n: int) -> Columns:
    """Columns in units of their own, within ranges much wider than they fill."""
    return {
        "age": np.clip(rng.normal(57, 13, n), 18, 100),
        "bmi": np.clip(20 + 8 * rng.gamma(2.0, 0.5, n), 10, 70),
        "pressure": np.clip(rng.normal(134, 17, n), 60, 250),
        "smoker": (rng.random(n) < 0.22).astype(int),
        "diabetic": (rng.random(n) < 0.12).astype(int),
    }


def households(rng: Rng, n: int) -> Columns:
    """Five binary columns, three skewed ones, four regions."""
    rates = (0.1, 0.25, 0.4, 0.6, 0.85)
    binary = {f"b{j}": (rng.random(n) < rate).astype(int) for j, rate in enumerate(rates, 1)}
    skewed = {f"s{j}": np.clip(rng.gamma(1.5, 0.08, n), 0, 1) for j in range(1, 4)}
    regions = np.array(["east", "north", "south", "west"])
    return {**binary, **skewed, "region": rng.choice(regions, n, p=[0.1, 0.3, 0.4, 0.2])}


def _household_slopes(const: float, binary: float, skewed: float, north: float) -> Any:
    slopes = {f"b{j}": binary * (-1) ** (j // 3) for j in range(1, 6)}
    slopes |= {f"s{j}": skewed for j in range(1, 4)}
    base = linear(const, **slopes)
    return lambda columns: base(columns) + north * (columns["region"] == "north")


RIGHT = (
    Population(
        "three confounders",
        uniform(3),
        linear(0.1, 0.9, -0.6, 0.5),
        linear(0.45, 0.12, -0.08, 0.06),
        constant(0.05),
        around(0.5),
        bounds=ranges(3, 1),
    ),
    Population(
        "ten covariates",
        normal(10),
        linear(-0.3, 0.4, 0.3, -0.3, 0.2, 0.2, -0.1, 0.1),
        linear(0.4, 0.03, 0.03, -0.02, 0.01, 0, 0, 0.01, 0.03, -0.02, 0.01),
        constant(-0.04),
        around(0.5),
        bounds=ranges(10, 3),
    ),
    Population(
        "twenty-five covariates",
        normal(25, 0.2),
        linear(0.2, *[0.15, 0.1, -0.1, 0.15, 0.05] * 5),
        linear(0.5, *[0.015, 0.01, -0.01, 0.02, 0.0] * 5),
        constant(0.03),
        around(0.4),
        bounds=ranges(25, 3),
    ),
    Population(
        "rare outcome",
        uniform(6),
        linear(-0.4, 0.7, -0.5, 0.4, 0.3),
        linear(0.05, 0.02, -0.012, 0.008, 0, 0.005),
        constant(0.012),
        coin,
        bounds=ranges(6, 1),
    ),
    Population(
        "common binary outcome",
        uniform(5),
        linear(0.0, 1.0, 0.6, -0.6),
        linear(0.4, 0.12, 0.08, -0.06, 0.08),
        constant(-0.06),
        coin,
        bounds=ranges(5, 1),
    ),
    Population(
        "few treated",
        normal(5, 0.3),
        linear(-2.58, 0.5, -0.3, 0.3),
        linear(0.35, 0.04, -0.03, 0.02, 0.02, -0.01),
        constant(0.06),
        around(0.45),
        bounds=ranges(5, 3),
    ),
    Population(
        "skewed costs",
        uniform(6),
        linear(0.2, 0.8, 0.5, -0.5, 0.3),
        linear(6000, 1500, 900, -600, 0, 600),
        constant(700),
        multiple(0.7),
        outcome=(0, 100_000),
        bounds=ranges(6, 1),
    ),
    Population(
        "correlated confounders",
        normal(8, 0.7),
        linear(0.0, 0.3, 0.2, 0.2, 0.1, 0.1),
        linear(0.5, 0.02, 0.02, 0.01, 0.02, 0.01, 0.01),
        constant(0.0),
        around(0.4),
        bounds=ranges(8, 3),
    ),
    Population(
        "offsetting confounders",
        normal(6, -0.2),
        linear(0.3, 0.5, 0.5, 0.4, 0.4),
        linear(0.45, 0.05, -0.05, 0.04, -0.04, 0.02),
        constant(0.03),
        around(0.4),
        bounds=ranges(6, 3),
    ),
    Population(
        "binary and continuous",
        households,
        _household_slopes(-0.9, 0.6, 1.5, 0.4),
        _household_slopes(0.35, 0.06, 0.2, 0.04),
        constant(0.04),
        around(0.4),
        bounds={
            **{f"b{j}": (0, 1) for j in range(1, 6)},
            **{f"s{j}": (0, 1) for j in range(1, 4)},
            "region": ["east", "north", "south", "west"],
        },
    ),
    Population(
        "patients in natural units",
        patients,
        linear(-4.2, age=0.02, bmi=0.03, pressure=0.015, smoker=0.4, diabetic=0.5),
        linear(35, age=0.25, bmi=0.4, pressure=0.55, smoker=4, diabetic=5),
        constant(-6),
        around(60),
        outcome=(60, 250),
        bounds={
            "age": (18, 100),
            "bmi": (10, 70),
            "pressure": (60, 250),
            "smoker": [0, 1],
            "diabetic": [0, 1],
        },
    ),
    Population(
        "most treated, nothing to find",
        uniform(4),
        linear(1.4, 0.9, -0.7, 0, 0.5),
        linear(0.55, 0.1, -0.06, 0.06, 0.04),
        constant(0.0),
        around(0.5),
        bounds=ranges(4, 1),
    ),
)


def _sine(columns: Columns) -> np.ndarray:
    return np.sin(3 * columns["x1"]) - 0.5 * np.cos(4 * columns["x2"]) + 0.4 * columns["x3"]


def _steps(columns: Columns) -> np.ndarray:
    return 1.0 * (columns["x1"] > 0.4) - 0.8 * (columns["x2"] < -0.5) + 0.4 * columns["x3"]


def _product(columns: Columns) -> np.ndarray:
    return 1.2 * columns["x1"] * columns["x2"] + 0.5 * columns["x3"]


def _square(columns: Columns) -> np.ndarray:
    return 1.5 * (columns["x1"] ** 2 - 0.33) + 0.6 * columns["x2"]


def _curved(name: str, curve: Callable[[Columns], np.ndarray], helped: str, terms: str):
    """Treatment and outcome follow the same curve: once with plain terms, once with better ones."""
    plain = Population(
        name,
        uniform(5),
        curve,
        lambda columns: 0.45 + 0.06 * curve(columns) + 0.03 * columns["x4"],
        constant(0.04),
        around(0.4),
        bounds=ranges(5, 1),
    )
    return plain, replace(plain, name=f"{name}, {helped}", terms=terms)


_SPLINES = " + ".join(
    f"bs({x}, knots=[-0.5, 0, 0.5], lower_bound=-1, upper_bound=1)" for x in ("x1", "x2")
)
WRONG = (
    *_curved("sines", _sine, "with bs()", f"{_SPLINES} + x3 + x4 + x5"),
    *_curved(
        "thresholds",
        _steps,
        "with cut()",
        "cut(x1, [-1, 0, 0.4, 1]) + cut(x2, [-1, -0.5, 0, 1]) + x3 + x4 + x5",
    ),
    *_curved("product", _product, "with x1:x2", "x1 + x2 + x1:x2 + x3 + x4 + x5"),
    *_curved("square", _square, "with I(x1**2)", "x1 + I(x1**2) + x2 + x3 + x4 + x5"),
    Population(
        "varying effects",
        uniform(5),
        linear(-0.2, 0.9, -0.6, 0.4),
        linear(0.4, 0.08, -0.06, 0.04, 0.04),
        linear(0.06, 0.06, 0.04),
        around(0.4),
        bounds=ranges(5, 1),
    ),
    Population(
        "varying effects on few treated",
        normal(4),
        linear(-1.8, 0.5, 0.4),
        linear(0.4, 0.03, 0.03, 0.02),
        linear(0.05, 0.02, -0.01),
        around(0.4),
        bounds=ranges(4, 3),
    ),
)

TRIALS = (
    Population(
        "trial",
        normal(5, 0.2),
        constant(0.0),
        linear(0.45, 0.05, 0.04, -0.03, 0.04, 0.02),
        constant(0.04),
        around(0.5),
        bounds=ranges(5, 3),
    ),
    Population(
        "trial with idle covariates",
        normal(5),
        constant(0.0),
        constant(0.45),
        constant(0.03),
        around(0.5),
        bounds=ranges(5, 3),
    ),
    Population(
        "trial with fifteen covariates",
        normal(15),
        constant(0.0),
        linear(0.5, *[0.025, -0.02, 0.02] * 5),
        constant(0.05),
        around(0.45),
        bounds=ranges(15, 3),
    ),
    Population(
        "trial with a binary outcome",
        uniform(4),
        constant(0.0),
        linear(0.3, 0.15, 0.1),
        constant(0.05),
        coin,
        bounds=ranges(4, 1),
    ),
    Population(
        "trial with skewed costs",
        uniform(4),
        constant(0.0),
        linear(6000, 2500, 1500, -500),
        constant(-500),
        multiple(0.7),
        outcome=(0, 100_000),
        bounds=ranges(4, 1),
    ),
    Population(
        "trial with one in four treated",
        normal(6),
        constant(-np.log(3.0)),
        linear(0.4, 0.04, 0.04, 0.03, -0.03, 0.02),
        constant(0.05),
        around(0.4),
        bounds=ranges(6, 3),
    ),
)

_HALVES = " + ".join(f"cut(x{j}, [-1, 0, 1])" for j in range(1, 4))
STRATA = (
    Population(
        "four strata",
        lambda rng, n: {f"b{j}": (rng.random(n) < 0.5).astype(int) for j in (1, 2)},
        linear(-0.4, b1=0.9, b2=-0.4),
        linear(0.4, b1=0.12, b2=0.08),
        constant(0.05),
        around(0.5),
        bounds={"b1": [0, 1], "b2": [0, 1]},
    ),
    Population(
        "four regions and two answers",
        lambda rng, n: {k: x for k, x in households(rng, n).items() if k in ("b3", "b4", "region")},
        lambda columns: (
            linear(-0.5, b3=0.7, b4=-0.5)(columns) + 0.5 * (columns["region"] == "north")
        ),
        lambda columns: (
            linear(0.3, b3=0.1, b4=0.05)(columns) + 0.1 * (columns["region"] == "north")
        ),
        constant(-0.05),
        coin,
        bounds={"b3": [0, 1], "b4": [0, 1], "region": ["east", "north", "south", "west"]},
    ),
    Population(
        "effects that differ between strata",
        lambda rng, n: {f"b{j}": (rng.random(n) < 0.4).astype(int) for j in range(1, 4)},
        linear(-0.9, b1=0.8, b2=0.6),
        linear(0.4, b1=0.1, b2=0.06, b3=0.05),
        linear(0.02, b1=0.08),
        around(0.4),
        bounds={f"b{j}": [0, 1] for j in range(1, 4)},
    ),
    replace(RIGHT[0], name="three confounders, cut in two", terms=_HALVES),
)

POPULATIONS = {p.name: p for p in (*RIGHT, *WRONG, *TRIALS, *STRATA)}
POPULATIONS |= {p.null.name: p.null for p in POPULATIONS.values()}


def drawn(seed: int, randomised: bool = False) -> Population:
    """A population drawn at random: models right, outcomes in [0, 1], one effect for all."""
    rng = np.random.default_rng([20_261_116, seed])
    p, rho = int(rng.integers(3, 21)), rng.uniform(-0.3, 0.6)
    kinds = rng.choice(["normal", "uniform", "binary", "skewed"], p)
    cuts = rng.uniform(-1.2, 1.2, p)

    def covariates(rng: Rng, n: int) -> Columns:
        columns = normal(p, rho)(rng, n)
        for (name, z), kind, cut in zip(columns.items(), kinds, cuts, strict=True):
            made = {"uniform": 1.7 * np.tanh(z), "binary": (z > cut).astype(int)}
            columns[name] = made.get(kind, np.exp(0.8 * z) if kind == "skewed" else z)
        return columns

    pilot = np.array(list(covariates(np.random.default_rng(seed), 20_000).values()), float)
    middle, spread = pilot.mean(axis=1), pilot.std(axis=1)

    def index(slopes: np.ndarray, sd: float, mean: float) -> Callable[[Columns], np.ndarray]:
        """A linear function with this mean and sd."""
        scaled = slopes / spread * sd / np.std(slopes / spread @ pilot)
        return linear(mean - float(scaled @ middle), *scaled)

    towards = rng.standard_normal(p)
    aligned = rng.uniform(-0.9, 0.9)
    outwards = aligned * towards + np.sqrt(1 - aligned**2) * rng.standard_normal(p)
    kind, mean, r2 = rng.choice(["bell", "binary", "skewed"]), rng.uniform(0.3, 0.6), rng.uniform()
    mean = mean / 4 if kind == "skewed" else mean
    sd = (0.03 + 0.05 * r2) * (4 * mean if kind == "skewed" else 1)
    odds = index(towards, rng.uniform(0.2, 1.0), rng.uniform(-1.6, 0.8))
    draws = {"bell": around(0.5), "binary": coin, "skewed": multiple(0.5)}
    top = {"normal": (-3, 3), "uniform": (-1.7, 1.7), "binary": (0, 1), "skewed": (0, 12)}
    return Population(
        f"drawn {seed}",
        covariates,
        constant(0.0) if randomised else odds,
        index(outwards, sd, mean),
        constant(rng.uniform(-0.06, 0.06)),
        draws[kind],
        bounds={f"x{j}": top[kind] for j, kind in enumerate(kinds, 1)},
    )
