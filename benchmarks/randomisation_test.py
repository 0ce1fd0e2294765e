"""The randomisation test: how often it rejects what is true, and its power.

    python benchmarks/randomisation_test.py            # about 10 minutes on one core
    python benchmarks/randomisation_test.py --small    # half a minute; nothing is written

Releases are drawn by their law, which tests check against the kernel's own. Power is compared with
that of Fisher's exact test without privacy, and with that of the p-value of `dp_ate` with
``method="diff_in_means"`` at the same epsilon, whose level is not exact.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import numpy as np
import pandas as pd
from report import save
from scipy.stats import fisher_exact

import dpeffects as dpe
from dpeffects.inference.randomisation import Assignment, Noise, Statistic, _Beyond, p_value

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


def statistic_of(n: int, share: float, epsilon: float, fixed: bool) -> Statistic:
    part = Fraction(share).limit_denominator(100)
    design = Assignment(n, part.numerator, part.denominator, fixed)
    return Statistic(design, Noise(1 / (0.75 * epsilon), 1 / (0.25 * epsilon)))


def release(statistic: Statistic, table: tuple[int, int, int, int], rng: np.random.Generator):
    """Sum and number of successes of a table: treated and control successes, then failures."""

    def noise(scale: float) -> float:
        return float(np.subtract(*rng.geometric(1.0 - math.exp(-1.0 / scale), 2)))

    count = table[0] + table[1] + noise(statistic.noise.count)
    centre = statistic.centre(count)
    total = sum(x * y for x, y in zip(table, statistic.assignment.scores(centre), strict=True))
    return float(total) + noise(statistic.scale(centre)), count


def p_of(statistic: Statistic, total: float, count: float, least: float) -> float:
    """The p-value, or 1 where one number of successes shows that it is above ``least``."""
    here = min(max(round(count), 0), statistic.assignment.n)
    if _Beyond(statistic, statistic.of(total, count), "two-sided")(here) > least:
        return 1.0
    return p_value(statistic, total, count, "two-sided")


def under_the_null(n: int, share: float, epsilon: float, fixed: bool, draws: int) -> list[dict]:
    statistic, rows = statistic_of(n, share, epsilon, fixed), []
    rng, k = np.random.default_rng(n), round(n * share)
    for successes in (0, 1, n // 10, n // 2, n):
        found = []
        for _ in range(draws):
            treated = k if fixed else rng.binomial(n, share)
            a = rng.hypergeometric(successes, n - successes, treated)
            table = (a, successes - a, treated - a, n - successes - treated + a)
            found.append(p_of(statistic, *release(statistic, table, rng), max(ALPHAS)))
        about = {"n": n, "treated": share, "assigned": "number" if fixed else "chance"}
        about |= {"epsilon": epsilon, "successes": successes}
        levels = {f"p <= {a:g}, %": round(100 * np.mean(np.array(found) <= a), 1) for a in ALPHAS}
        rows.append(about | levels)
    return rows


def with_an_effect(
    n: int, share: float, epsilon: float, low: float, high: float, draws: int
) -> dict:
    rng, k = np.random.default_rng(n), round(n * share)
    found: dict[str, list[bool]] = {"Fisher": [], "z": [], "number": [], "chance": []}
    for seed in range(draws):
        treated = np.arange(n) < k
        y = (rng.random(n) < np.where(treated, high, low)).astype(int)
        a, b = int(y[treated].sum()), int(y[~treated].sum())
        table = (a, b, k - a, n - k - b)
        found["Fisher"].append(fisher_exact([[a, k - a], [b, n - k - b]])[1] <= 0.05)
        fit = dpe.dp_ate("y ~ t", pd.DataFrame({"y": y, "t": treated}), "diff_in_means", seed=seed,
                         epsilon=epsilon, bounds={"y": (0, 1)}, design="randomised")  # fmt: skip
        found["z"].append(fit.p_value <= 0.05)
        for name in ("number", "chance"):
            statistic = statistic_of(n, share, epsilon, name == "number")
            if name == "chance":  # the number of treated records varies
                k2 = rng.binomial(n, share)
                a, b = rng.binomial(k2, high), rng.binomial(n - k2, low)
                table = (a, b, k2 - a, n - k2 - b)
            p = p_of(statistic, *release(statistic, table, rng), 0.05)
            found[name].append(p <= 0.05)
    about = {"n": n, "treated": share, "epsilon": epsilon, "risks": f"{low:g}, {high:g}"}
    return about | {name: f"{np.mean(x):.2f}" for name, x in found.items()}


def main() -> None:
    small = "--small" in sys.argv
    nulls, effects = (NULL[:1], EFFECTS[:1]) if small else (NULL, EFFECTS)
    levels = [
        row
        for cell in nulls
        for fixed in (True, False)
        for row in under_the_null(*cell, fixed, 50 if small else 250)
    ]
    power = [with_an_effect(*cell, 20 if small else 150) for cell in effects]
    tables = {
        "How often p-values are small without an effect": pd.DataFrame(levels),
        "Power at 5 %": pd.DataFrame(power),
    }
    for title, table in tables.items():
        print(f"{title}\n{table.to_string(index=False)}\n", flush=True)
    if not small:
        save("randomisation_test", "The randomisation test", tables, NOTE)


NOTE = """250 draws a line in the first table, so that 0.01, 0.05 and 0.1 come out within 1.3, 2.8
and 3.8 per cent in nineteen of twenty lines; 150 in the second. `number` is the test with a fixed
number of treated records, `chance` that where each was treated with a chance, `z` the p-value of a
private difference in means, `Fisher` is Fisher's exact test without privacy."""

if __name__ == "__main__":
    main()
