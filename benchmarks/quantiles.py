"""Quantile effects from one noisy table: accuracy, other ways to do it, coverage.

Treatment is randomised, and outcomes have wide declared ranges. The error of a difference of
quantiles is that against the population, over that of the sample's own quantiles. Coverage is that
of 95 % intervals by `dp_qte`, of each quantile and, in every fourth run, of all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pandas as pd
from harness import Part, Table, grid, rms

import dpeffects as dpe
from dpeffects.inference.bins import OutcomeRange
from dpeffects.inference.quantiles import Distributions
from dpeffects.inference.tables import ArmTable

Q = (0.1, 0.25, 0.5, 0.75, 0.9)
Array = np.ndarray
Generator = np.random.Generator


def log_normal(rng: Generator, t: Array) -> Array:
    return np.exp(rng.normal(7.6, 1.2, t.size) + 0.15 * t)


def earnings(rng: Generator, t: Array) -> Array:
    """About as those of the NSW trial in 1978: many have none."""
    none = rng.random(t.size) < np.where(t, 0.25, 0.35)
    return np.where(none, 0.0, rng.gamma(1.3, 6000.0, t.size) * np.where(t, 1.1, 1.0))


def pareto(rng: Generator, t: Array) -> Array:
    return np.minimum(1000.0 * (rng.pareto(1.5, t.size) + 1.0) * np.where(t, 1.1, 1.0), 1e6)


def heaped(rng: Generator, t: Array) -> Array:
    """A third of the costs are told in thousands."""
    y = log_normal(rng, t)
    return np.where(rng.random(t.size) < 0.3, np.round(y, -3), y)


def signed(rng: Generator, t: Array) -> Array:
    return np.clip(2.0 * rng.standard_t(3, t.size) + 0.5 * t, -1000.0, 1000.0)


def narrow(rng: Generator, t: Array) -> Array:
    """Far from both ends of the range, and arms far apart."""
    return np.clip(rng.normal(50.0, 5.0, t.size) + 30.0 * t, 0.0, 1000.0)


def two_peaks(rng: Generator, t: Array) -> Array:
    peak = np.where(rng.random(t.size) < 0.6, 10.0, 40.0)
    return np.clip(peak + rng.normal(0.0, 1.5, t.size) + t, 0.0, 100.0)


def visits(rng: Generator, t: Array) -> Array:
    """Whole numbers."""
    more = rng.random(t.size) < 0.2 * t
    return np.minimum(rng.negative_binomial(1.2, 0.2, t.size) + more, 365)


POPULATIONS: dict[str, tuple[Callable[[Generator, Array], Array], tuple[float, float]]] = {
    "log-normal costs": (log_normal, (0, 1e6)),
    "earnings, a third zero": (earnings, (0, 200_000)),
    "Pareto, index 1.5": (pareto, (0, 1e6)),
    "costs, heaped": (heaped, (0, 1e6)),
    "t with 3 degrees": (signed, (-1000, 1000)),
    "narrow, far apart": (narrow, (0, 1000)),
    "two peaks": (two_peaks, (0, 100)),
    "visits (whole numbers)": (visits, (0, 365)),
}


def quantiles(y: Array, t: Array) -> Array:
    one, other = (np.quantile(y[a], Q, method="inverted_cdf") for a in (t, ~t))
    return one - other


@cache
def truth(name: str) -> Array:
    """Of five times a million of records."""
    rng, found = np.random.default_rng(99), []
    for _ in range(5):
        t = np.arange(1_000_000) % 2 == 0
        found.append(quantiles(POPULATIONS[name][0](rng, t), t))
    return np.median(found, axis=0)


def drawn(name: str, n: int, treated: float, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng([seed, n])
    t = rng.random(n) < treated
    return POPULATIONS[name][0](rng, t), t


def asked(name: str, y: Array, t: Array, epsilon: float, seed: int) -> dpe.QuantileEffects:
    bounds = {"y": POPULATIONS[name][1]}
    data = pd.DataFrame({"y": y, "t": t})
    given = {"bounds": bounds, "design": "randomised", "seed": seed}
    return dpe.dp_qte("y ~ t", data, epsilon=epsilon, quantiles=Q, **given)


def accuracy(people: int, noise: int, outcome: str):
    """Errors with privacy and without, at n = 10,000 and epsilon 1."""
    true, (y, t) = truth(outcome), drawn(outcome, 10_000, 0.5, people)
    found = asked(outcome, y, t, 1.0, noise).distributions.difference(Q, 0.0).value
    return errors(found - true, quantiles(y, t) - true)


def errors(private: Array, plain: Array) -> dict[str, float]:
    pairs = zip(map(str, Q), private, plain, strict=True)
    return {name: x for q, a, b in pairs for name, x in ((q, a), (f"plain {q}", b))}


def ratios(runs: pd.DataFrame) -> dict[str, str]:
    """Roots of mean squares; a quantile at a lump of records has no error without privacy."""
    pairs = {str(q): (rms(runs[str(q)]), rms(runs[f"plain {q}"])) for q in Q}
    return {q: f"{a / b:.2f}" if 1e6 * b > a else "-" for q, (a, b) in pairs.items()}


# --- other ways -----------------------------------------------------------------------------------


def one_stage(rng: Generator, y: Array, t: Array, scale: OutcomeRange, epsilon: float) -> Array:
    """All of the budget on the public grid."""
    ends = scale.grid()
    counts = [np.bincount(np.searchsorted(ends, y[a]), minlength=ends.size + 1) for a in (t, ~t)]
    noisy = counts + rng.laplace(scale=2.0 / epsilon, size=(2, ends.size + 1))
    table = ArmTable(noisy, (8.0 / epsilon**2,) * 2)
    return Distributions(table, ends, scale).difference(Q, 0.0).value


def tree(rng: Generator, y: Array, t: Array, scale: OutcomeRange, epsilon: float) -> Array:
    """A binary tree of counts over 1,024 bins of the logarithm; each level has its part."""
    depth = 10
    top = max(abs(scale.lower), abs(scale.upper))
    edges = np.geomspace(top * 2.0**-20, top, 2**depth)
    found = []
    for a in (t, ~t):
        leaves = np.bincount(np.searchsorted(edges, y[a]).clip(0, 2**depth - 1), minlength=2**depth)
        levels = [leaves.reshape(2**k, -1).sum(axis=1) for k in range(1, depth + 1)]
        noisy = [x + rng.laplace(scale=2.0 * depth / epsilon, size=x.size) for x in levels]
        up = np.zeros(2**depth)
        for k in range(2**depth):
            at, total = k + 1, 0.0
            for level in range(depth, 0, -1):
                if at % 2:
                    total += noisy[level - 1][at - 1]
                at //= 2
            up[k] = total if k + 1 < 2**depth else noisy[0].sum()
        share = np.maximum.accumulate(up / max(noisy[0].sum(), 1.0))
        found.append(edges[np.searchsorted(share, Q).clip(0, 2**depth - 1)])
    return found[0] - found[1]


def exponential(rng: Generator, y: Array, t: Array, scale: OutcomeRange, epsilon: float) -> Array:
    """Each quantile of each arm by the exponential mechanism, on a logarithmic scale."""
    low = max(abs(scale.lower), abs(scale.upper)) * 2.0**-20
    found = []
    for a in (t, ~t):
        own = np.sort(np.log(np.maximum(y[a], low)))
        edges = np.concatenate([[np.log(low)], own, [np.log(scale.upper)]])
        widths = np.log(np.maximum(np.diff(edges), 1e-300))
        rank, each = np.arange(edges.size - 1), epsilon / (2 * len(Q))
        picked = []
        for p in Q:
            score = widths - each * np.abs(rank - p * own.size) / 2.0
            k = int(np.argmax(score + rng.gumbel(size=score.size)))
            picked.append(np.exp(rng.uniform(edges[k], edges[k + 1])))
        found.append(np.array(picked))
    return found[0] - found[1]


WAYS = {"one stage": one_stage, "binary tree": tree, "exponential mechanism": exponential}


def alternatives(people: int, noise: int, outcome: str, way: str):
    """The same errors of other ways, with noise of numpy."""
    true, (y, t) = truth(outcome), drawn(outcome, 10_000, 0.5, people)
    scale = OutcomeRange(*map(float, POPULATIONS[outcome][1]))
    found = WAYS[way](np.random.default_rng(noise), y, t, scale, 1.0)
    return errors(found - true, quantiles(y, t) - true)


def coverage(people: int, noise: int, outcome: str, n: int, epsilon: float, treated: float):
    """Which intervals hold."""
    true = truth(outcome)
    fit = asked(outcome, *drawn(outcome, n, treated, 10_000 + people), epsilon, noise)
    slack = 1e-9 * (fit.upper - fit.lower)
    ends = fit.distributions.difference(Q, 1.959964)
    held = (ends.lower - slack <= true) & (true <= ends.upper + slack)
    found = dict(zip(map(str, Q), held, strict=True))
    if people % 4 == 0:
        low, high = fit.conf_int(simultaneous=True).T
        found["all"] = float(np.all((low - slack <= true) & (true <= high + slack)))
    return found


NOTES = (
    "A quantile at a lump of records is without error in samples of this size (-); the bar for the "
    "others is 1.25. Quantiles of "
    "whole numbers are whole numbers: their intervals cover more often than they claim, and so do "
    "those in bins that are much denser than their neighbours. A first stage of a fifth of epsilon "
    "says where the bins are; ways without one have bins that are too coarse where outcomes are "
    "concentrated, or noise of many levels or releases, and no intervals."
)
SOME = ["log-normal costs", "earnings, a third zero", "narrow, far apart"]
SIZES = [(10_000, 1.0, 0.5), (2_000, 0.5, 0.5), (2_000, 1.0, 0.1), (20_000, 4.0, 0.1)]
CELLS = [
    {"outcome": name, "n": n, "epsilon": epsilon, "treated": treated}
    for name in POPULATIONS
    for n, epsilon, treated in SIZES
]
TABLE = Table(
    "Quantile effects from one noisy table",
    (
        Part(
            "Error over that of the sample's quantiles, n = 10,000, epsilon 1",
            grid(outcome=POPULATIONS),
            accuracy,
            ratios,
            runs=200,
        ),
        Part(
            "The same for other ways to spend epsilon 1",
            grid(outcome=SOME, way=WAYS),
            alternatives,
            ratios,
            runs=60,
        ),
        Part(
            "Coverage of 95 % intervals, of each quantile and of all at once",
            CELLS,
            coverage,
            lambda runs: {name: round(runs[name].mean(), 3) for name in (*map(str, Q), "all")},
            runs=200,
        ),
    ),
    NOTES,
    minutes=5,
)
