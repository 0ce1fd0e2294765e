"""How often 95 % intervals of ratios and odds cover, rare outcomes and small arms included.

"trial": treatment by chance. "confounded": log odds of treatment and of the outcome are linear in
three covariates. "multiplicative": the effect is a factor that is the same for everybody, so that
differences vary. "spending": most outcomes are 0, the others skewed, in [0, 10]; treatment is
confounded. Names have the risk without treatment and the share of treated records.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from harness import Part, Table

import dpeffects as dpe
from dpeffects.inference import scales
from dpeffects.inference.estimate import Unavailable
from tests.populations import Columns, Population, Rng, coin, constant, expit, linear

Mean = Callable[[Columns], np.ndarray]
SIZES = ((2_000, 4.0), (20_000, 0.5))
MEAN = 2.0 * (1.0 - np.exp(-5.0))
"""Mean of what is spent by those who spend anything."""


def covariates(rng: Rng, n: int) -> Columns:
    x3 = np.clip(rng.normal(0.0, 0.4, n), -1.0, 1.0)
    return {"x1": rng.uniform(-1.0, 1.0, n), "x2": rng.integers(0, 2, n), "x3": x3}


def spending(rng: Rng, mean: np.ndarray) -> np.ndarray:
    some = rng.random(len(mean)) < mean / MEAN
    return some * np.minimum(rng.gamma(1.0, 2.0, len(mean)), 10.0)


def made(name: str, treated: float, none: Mean, one: Mean, **more: Any) -> Population:
    """A population by its risks; ``treated`` is the constant in the log odds of treatment."""
    odds = constant(treated) if name.startswith("trial") else linear(treated, 0.8, 0.6, -0.5)
    bounds = {"x1": (-1, 1), "x2": (0, 1), "x3": (-1, 1)}
    more = {"draw": coin, "bounds": bounds, **more}
    return Population(name, covariates, odds, none, lambda x: one(x) - none(x), **more)


def logit(level: float, slope: float = 0.9, times: float = 1.0) -> Mean:
    value = linear(level, slope, 0.5, 0.5)
    return lambda x: times * expit(value(x))


def factor(mean: float) -> Mean:
    value = linear(math.log(mean), 0.7, 0.4)
    return lambda x: np.exp(value(x))


POPULATIONS = {
    population.name: population
    for population in (
        made("trial, 2 %, 50 % treated", 0.0, logit(-4.3), logit(-3.83, 0.6)),
        made("trial, 2 %, 10 % treated", -2.2, logit(-4.3), logit(-3.83, 0.6)),
        made("trial, 20 %, 10 % treated", -2.2, logit(-1.75), logit(-2.13, 0.6)),
        made("confounded, 2 %, 30 % treated", -1.22, logit(-4.3), logit(-3.53, 0.6)),
        made("confounded, 10 %, 10 % treated", -2.7, logit(-2.6), logit(-2.08, 0.6)),
        made("multiplicative, 5 %, 20 % treated", -1.8, factor(0.038), factor(0.061)),
        made(
            "spending, 30 %, 40 % treated",
            -0.74,
            logit(-1.2, times=MEAN),
            logit(-0.63, 0.6, times=MEAN),
            draw=spending,
            outcome=(0, 10),
        ),
    )
}
METHODS = {True: ("clipped_contrast", "diff_in_means"), False: ("auto", "private_ipw")}
"""In trials, and where treatment is confounded."""


@cache
def means(name: str) -> np.ndarray:
    """Mean outcomes with treatment and without it."""
    drawn, x = POPULATIONS[name], covariates(np.random.default_rng(0), 1_000_000)
    none = drawn.control(x)
    return np.array([(none + drawn.effect(x)).mean(), none.mean()])


def within(value: float, interval: Any) -> float:
    if isinstance(interval, Unavailable):
        return np.nan
    return float(interval[0] <= value <= interval[1])


def run(people: int, noise: int, population: str, records: int, epsilon: float, method: str):
    drawn, truth, trial = POPULATIONS[population], means(population), population.startswith("trial")
    given = {"epsilon": epsilon, "seed": noise, "bounds": drawn.declared}
    given |= {"design": "randomised"} if trial else {}
    fit = dpe.dp_ate(drawn.formula, drawn.sample(records, people), method, **given)
    released = fit.released.means
    ratio, odds = scales.ratio(released).interval, truth / (1.0 - truth)
    risk = scales.has_odds(released)
    return {
        "ratio": within(truth[0] / truth[1], ratio),
        "odds": within(odds[0] / odds[1], scales.odds(released).interval) if risk else np.nan,
        "difference": within(truth[0] - truth[1], fit.conf_int()),
        "no upper end": float(not isinstance(ratio, Unavailable) and ratio[1] == math.inf),
        "associated": fit.associated,
    }


def page(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    rows["method"] += np.where(rows.pop("associated") > 0.5, " (association)", "")
    for name in ("ratio", "odds", "difference", "no upper end"):
        rows[name] = ["" if np.isnan(x) else f"{100 * x:.1f} %" for x in rows[name]]
    return {"All draws of records and noise": rows}


CELLS = [
    {"population": name, "records": n, "epsilon": epsilon, "method": method}
    for name in POPULATIONS
    for n, epsilon in SIZES
    for method in METHODS[name.startswith("trial")]
]
NOTES = """\
The methods of a population have the same draws. "no upper end" is the part of the intervals that
end in infinity: the control mean is not bounded away from zero. "difference" is how often the
interval of the difference of the same fits covers. In trials ratios and odds cover as they should,
rare outcomes and small arms included, where the interval of a difference (a normal distribution
around the estimate) may be too short.

Adjusted intervals cover too often where those of the difference do: they allow for confounding that
noise may have left in the models, and private_ipw allows for most. Where the control mean is
hardly larger than its noise (2 % at small n times epsilon) many intervals have no upper end.
diff_in_means spends most on the means, clipped_contrast and auto on their difference: in a trial
with rare outcomes the former has the shorter ratios.
"""


TABLE = Table(
    "Ratios and odds: how often 95 % intervals cover",
    (Part("", CELLS, run, runs=200),),
    NOTES,
    page=page,
    minutes=4.5,
)
