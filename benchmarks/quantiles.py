"""Quantile effects from one noisy table: accuracy, other ways to do it, coverage.

    python benchmarks/quantiles.py               # half an hour on one core
    python benchmarks/quantiles.py --small       # a quick look, nothing saved
    python benchmarks/quantiles.py --only coverage   # one of accuracy, alternatives, coverage

Treatment is randomised, and outcomes have wide declared ranges. The error of a difference of
quantiles is that against the population, over that of the sample's own quantiles. Coverage is that
of 95 % intervals by `dp_qte`, of each quantile and, in every fourth run, of all at once.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import numpy as np
import pandas as pd
from report import RESULTS, save

import dpeffects as dpe
from dpeffects.inference.bins import OutcomeRange
from dpeffects.inference.quantiles import Distributions
from dpeffects.inference.tables import ArmTable

Q = (0.1, 0.25, 0.5, 0.75, 0.9)
SMALL = "--small" in sys.argv
ONLY = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
RUNS = int(sys.argv[sys.argv.index("--runs") + 1]) if "--runs" in sys.argv else 200
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


def rooted(errors: list[Array]) -> Array:
    return np.sqrt(np.square(errors).mean(axis=0))


def accuracy(runs: int) -> pd.DataFrame:
    """Error over that without privacy, at n = 10,000 and epsilon 1."""
    rows = []
    for name in POPULATIONS:
        true, private, plain = truth(name), [], []
        for seed in range(runs):
            y, t = drawn(name, 10_000, 0.5, seed)
            fit = asked(name, y, t, 1.0, seed)
            private.append(fit.distributions.difference(Q, 0.0).value - true)
            plain.append(quantiles(y, t) - true)
        own, sample = rooted(private), rooted(plain)
        ratios = np.divide(own, sample, out=np.ones(len(Q)), where=sample > 0.0)
        cells = ["-" if x == 0.0 else f"{r:.2f}" for r, x in zip(ratios, sample, strict=True)]
        rows.append({"outcome": name, **dict(zip(map(str, Q), cells, strict=True)), "bar": 1.25})
    return pd.DataFrame(rows)


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


def alternatives(runs: int) -> pd.DataFrame:
    """The same errors of other ways, with noise of numpy."""
    ways = {"one stage": one_stage, "binary tree": tree, "exponential mechanism": exponential}
    names = ["log-normal costs", "earnings, a third zero", "narrow, far apart"]
    rows = []
    for name, (way, function) in itertools.product(names, ways.items()):
        true, private, plain = truth(name), [], []
        scale = OutcomeRange(*map(float, POPULATIONS[name][1]))
        for seed in range(runs):
            y, t = drawn(name, 10_000, 0.5, seed)
            private.append(function(np.random.default_rng(seed), y, t, scale, 1.0) - true)
            plain.append(quantiles(y, t) - true)
        ratio = rooted(private) / np.maximum(rooted(plain), 1e-9)
        shown = ["-" if r > 1e6 else f"{r:.2f}" for r in ratio]
        rows.append({"outcome": name, "way": way, **dict(zip(map(str, Q), shown, strict=True))})
    return pd.DataFrame(rows)


def coverage(runs: int) -> pd.DataFrame:
    """How often intervals hold."""
    rows = []
    cases = [(10_000, 1.0, 0.5), (2_000, 0.5, 0.5), (2_000, 1.0, 0.1), (20_000, 4.0, 0.1)]
    for name, (n, epsilon, treated) in itertools.product(POPULATIONS, cases):
        true, held, together = truth(name), [], []
        for seed in range(runs):
            fit = asked(name, *drawn(name, n, treated, 10_000 + seed), epsilon, seed)
            slack = 1e-9 * (fit.upper - fit.lower)
            ends = fit.distributions.difference(Q, 1.959964)
            held.append((ends.lower - slack <= true) & (true <= ends.upper + slack))
            if seed % 4:
                continue
            low, high = fit.conf_int(simultaneous=True).T
            together.append(np.all((low - slack <= true) & (true <= high + slack)))
        each = [f"{x:.3f}" for x in np.mean(held, axis=0)]
        row = {"outcome": name, "n": n, "epsilon": epsilon, "treated": treated}
        rows.append(row | dict(zip(map(str, Q), each, strict=True)) | {"all": np.mean(together)})
        print(rows[-1], flush=True)
    return pd.DataFrame(rows).round(3)


PARTS = {
    "accuracy": accuracy,
    "alternatives": lambda runs: alternatives(min(runs, 60)),
    "coverage": coverage,
}
TITLES = {
    "accuracy": "Error over that of the sample's quantiles, n = 10,000, epsilon 1",
    "alternatives": "The same for other ways to spend epsilon 1",
    "coverage": "Coverage of 95 % intervals, of each quantile and of all at once",
}

NOTES = (
    "A quantile at a lump of records is without error in samples of this size (-). Quantiles of "
    "whole numbers are whole numbers: their intervals cover more often than they claim, and so do "
    "those in bins that are much denser than their neighbours. A first stage of a fifth of epsilon "
    "says where the bins are; ways without one have bins that are too coarse where outcomes are "
    "concentrated, or noise of many levels or releases, and no intervals (at most 60 runs)."
)


def main() -> None:
    tables = {}
    for part, make in PARTS.items():
        if SMALL and ONLY in ("", part):
            print(make(5).to_string())
        if SMALL:
            continue
        path = RESULTS / f"quantiles_{part}.csv"
        if ONLY in ("", part):
            make(RUNS).to_csv(path, index=False)
        if path.exists():
            tables[TITLES[part]] = pd.read_csv(path)
    if not SMALL:
        title = f"Quantile effects from one noisy table ({RUNS} runs a setting)"
        save("quantiles", title, tables, NOTES)


if __name__ == "__main__":
    main()
