"""The randomisation test: how often it rejects what is true, and its power.

Releases are drawn by their distribution, which tests check against the kernel's own. Power is
compared with that of Fisher's exact test without privacy, and with that of the p-value of `dp_ate`
with ``method="diff_in_means"`` at the same epsilon, whose level is not exact.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pandas as pd
from harness import Part, Table
from scipy.stats import fisher_exact

import dpeffects as dpe
from dpeffects.inference.randomisation_distribution import (
    CENTRES,
    Assignment,
    RandomisationStatistic,
    _Beyond,
    p_value,
)

ALPHAS = (0.01, 0.05, 0.1)
NULL = [
    # n, share treated, epsilon
    (20, 0.5, 1.0),
    (20, 0.2, 0.05),
    (100, 0.5, 0.2),
    (500, 0.3, 1.0),
    (2000, 0.5, 1.0),
]
EFFECTS = [
    # n, share treated, epsilon, risks of controls and treated
    (100, 0.5, 1.0, 0.30, 0.60),
    (200, 0.5, 1.0, 0.30, 0.50),
    (200, 0.5, 0.3, 0.30, 0.60),
    (1000, 0.5, 1.0, 0.40, 0.50),
    (1000, 0.5, 0.2, 0.40, 0.50),
    (1000, 0.5, 1.0, 0.05, 0.10),
    (1000, 0.2, 1.0, 0.20, 0.32),
    (2000, 0.5, 1.0, 0.02, 0.045),
]


def statistic_of(n: int, share: float, epsilon: float, fixed: bool) -> RandomisationStatistic:
    part = Fraction(share).limit_denominator(100)
    design = Assignment(n, part.numerator, part.denominator, fixed)
    return RandomisationStatistic(design, 1 / (0.75 * epsilon), 1 / (0.25 * epsilon))


def release(
    statistic: RandomisationStatistic, table: tuple[int, int, int, int], rng: np.random.Generator
):
    """Sum and number of successes of a table: treated and control successes, then failures."""

    def noise(scale: float) -> float:
        return float(np.subtract(*rng.geometric(1.0 - math.exp(-1.0 / scale), 2)))

    count = table[0] + table[1] + noise(statistic.count)
    centre = statistic.centre(count)
    total = sum(x * y for x, y in zip(table, statistic.assignment.scores(centre), strict=True))
    return float(total) + noise(statistic.scale(centre)), count


def under_the_null(people, noise, n, treated, epsilon, assigned, draws) -> list[dict]:
    """How often the statistic is beyond its critical value at the true number of successes.

    A p-value is the largest over a confidence set, which hardly ever lacks that number.
    """
    share, fixed = treated, assigned == "number"
    statistic, rows = statistic_of(n, share, epsilon, fixed), []
    rng, design = np.random.default_rng([people, n]), statistic.assignment
    for m in (0, 1, n // 10, n // 2, n):
        treated = np.full(draws, design.treated) if fixed else rng.binomial(n, share, draws)
        a = rng.hypergeometric(m, n - m, treated) if 0 < m < n else treated * (m == n)
        tables = np.stack([a, m - a, treated - a, n - m - treated + a])
        w = np.abs(statistics(statistic, tables, rng))
        about = {"successes": m}
        for alpha in ALPHAS:
            found = 100 * np.mean(w >= critical(statistic, m, alpha) * (1 - 1e-12))
            about[f"{alpha:g}, %"] = f"{found:.2f}"
        rows.append(about)
    return rows


def statistics(
    statistic: RandomisationStatistic, tables: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Statistics of many releases."""

    def noise(scale: float) -> np.ndarray:
        return np.subtract(*rng.geometric(1.0 - math.exp(-1.0 / scale), (2, tables.shape[1])))

    counts = tables[0] + tables[1] + noise(statistic.count)
    buckets, which = np.unique([statistic.bucket(x) for x in counts], return_inverse=True)
    best, sd = (x[which] for x in statistic.spreads(buckets))
    totals = np.zeros(len(counts))
    for code in np.unique(best):
        sums = np.array(statistic.assignment.scores(CENTRES[code])) @ tables
        totals = np.where(best == code, sums + noise(statistic.scale(CENTRES[code])), totals)
    return totals / sd


def critical(statistic: RandomisationStatistic, successes: int, alpha: float) -> float:
    """The least statistic whose chance, or that of a larger one, is at most alpha."""
    low, high = 0.0, 60.0
    for _ in range(45):
        middle = (low + high) / 2
        small = _Beyond(statistic, middle, "two-sided")(successes) <= alpha
        low, high = (low, middle) if small else (middle, high)
    return high


def rejects(statistic: RandomisationStatistic, releases: np.ndarray) -> np.ndarray:
    """Whether p-values are at most 0.05: by the least statistic, between five released counts."""
    knots = np.unique(np.quantile(releases[:, 1], [0.0, 0.25, 0.5, 0.75, 1.0]).round())
    least = []
    for count in knots:
        unit, ends = 1.0 / statistic.of(1.0, count), (1.5, 4.5)
        for _ in range(9):
            middle = sum(ends) / 2
            small = p_value(statistic, middle * unit, count, "two-sided") <= 0.05
            ends = (ends[0], middle) if small else (middle, ends[1])
        least.append(ends[1])
    found = np.array([abs(statistic.of(total, count)) for total, count in releases])
    return found >= np.interp(releases[:, 1], knots, least)


def with_an_effect(people, noise, n, treated, epsilon, low, high, draws) -> dict:
    share = treated
    rng, k = np.random.default_rng([people, n]), round(n * share)
    a, b = rng.binomial(k, high, draws), rng.binomial(n - k, low, draws)
    fisher = [
        fisher_exact([[i, k - i], [j, n - k - j]])[1] <= 0.05 for i, j in zip(a, b, strict=True)
    ]
    z = []
    for seed in range(draws // 10):
        y = np.repeat([1, 0, 1, 0], [a[seed], k - a[seed], b[seed], n - k - b[seed]])
        data = pd.DataFrame({"y": y, "t": np.arange(n) < k})
        fit = dpe.dp_ate("y ~ t", data, "diff_in_means", seed=noise + seed, epsilon=epsilon,
                         bounds={"y": (0, 1)}, design="randomised")  # fmt: skip
        z.append(fit.p_value <= 0.05)
    about = {"Fisher": f"{np.mean(fisher):.2f}", "z": f"{np.mean(z):.2f}"}
    for name in ("number", "chance"):
        statistic = statistic_of(n, share, epsilon, name == "number")
        treated = np.full(draws, k) if name == "number" else rng.binomial(n, share, draws)
        a, b = rng.binomial(treated, high), rng.binomial(n - treated, low)
        tables = np.stack([a, b, treated - a, n - treated - b], axis=1).tolist()
        releases = np.array([release(statistic, tuple(table), rng) for table in tables])
        about[name] = f"{np.mean(rejects(statistic, releases)):.2f}"
    return about


NOTE = """500,000 draws a line in the first table, so 1, 5 and 10 per cent come out within 0.03,
0.06 and 0.08 in nineteen of twenty lines: the statistic against its critical value at the true
number of successes. P-values are larger than that, by the largest over a confidence set. 2,000 in
the second table, 200 for `z`. `number` is the test with a fixed number of treated records, `chance`
that where each was treated with a chance, `z` the p-value of a private difference in means,
`Fisher` is Fisher's exact test without privacy."""


NAMES = ("n", "treated", "epsilon", "low", "high")
LEVELS = [
    dict(zip(NAMES, cell, strict=False)) | {"assigned": assigned, "draws": 500_000}
    for cell in NULL
    for assigned in ("number", "chance")
]
POWER = [dict(zip(NAMES, cell, strict=True)) | {"draws": 2000} for cell in EFFECTS]
TABLE = Table(
    "The randomisation test",
    (
        Part(
            "How often the test rejects without an effect",
            LEVELS,
            under_the_null,
            by=("successes",),
            small=[LEVELS[0] | {"draws": 20_000}],
        ),
        Part("Power at 5 %", POWER, with_an_effect, small=[POWER[0] | {"draws": 200}]),
    ),
    NOTE,
    minutes=3,
)
