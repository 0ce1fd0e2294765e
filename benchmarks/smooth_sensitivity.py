"""Matching on strata: time and memory of its smooth sensitivity, and its noise beside the paper's.

Time: counting records by stratum, the matched difference and both smooth sensitivities, from rows
in memory, in a fresh process for each cell; "as printed" walks all strata for every k up to n, as
the paper's Theorem 1 does (its inner loop vectorised over strata). Noise: Laplace scale of the
released estimate at epsilon = 1 (or 2), delta = 1e-5, in units of B / n. "Paper" splits the budget
in three; the other columns give the whole of it to the estimate.
"""

from __future__ import annotations

import math
import resource
import sys
import time

import numpy as np
from harness import Part, Table, apart, grid

from dpeffects.privacy.budget import Budget, Share
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.exact_matching import MatchedStrata, Smoothing, StratumCounts
from dpeffects.privacy.ledger import CallLedger
from dpeffects.privacy.release import Releaser, Split
from dpeffects.privacy.rows import Rows
from dpeffects.replication.smooth_matching import widest
from dpeffects.seeded import SeededNoise

SIZES = [(10_000, 100), (1_000_000, 1_000), (10_000_000, 10_000), (10_000_000, 1_000_000)]
PATIENCE = 2e9  # the printed algorithm is skipped where n times strata exceeds this
BETA = 0.04
DESIGNS = {
    "4 strata, arms of 100": [(100, 100)] * 4,
    "4 strata, arms of 250": [(250, 250)] * 4,
    "4 strata, 100 against 400": [(100, 400)] * 4,
    "20 strata, arms of 1,000": [(1000, 1000)] * 20,
    "20 strata, one of 30 against 30": [(1000, 1000)] * 19 + [(30, 30)],
    "20 strata, one without controls": [(1000, 1000)] * 19 + [(30, 0)],
}


def peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def printed(counts: StratumCounts, beta: float) -> float:
    """The smooth sensitivity as the paper computes it, every k and every stratum."""
    large = np.maximum(counts.treated, counts.control)
    small = np.minimum(counts.treated, counts.control)
    best = 0.0
    for k in range(counts.n + 1):
        ratio = np.where(k < small, np.ceil((large + k + 1) / np.maximum(small - k, 1)), large + k)
        best = max(best, math.exp(-k * beta) * 4 * (1 + ratio.max()))
    return best


def measure(n: int, strata: int) -> dict[str, object]:
    rng = np.random.default_rng(n + strata)
    index = rng.integers(0, strata, n)
    treated = rng.random(n) < 0.4
    rows = Rows(
        rng.random(n), (0.0, 1.0), treated, lambda: np.ones((n, 1)), 1, lambda: (index, strata)
    )
    releaser = Releaser(Split.of(Budget(1.0), {"a": 1}), CallLedger(Budget(1.0)), SeededNoise(0))
    before, start = peak_mb(), time.perf_counter()
    made = MatchedStrata(Curator(rows, releaser, frozenset()), "means")
    counted = time.perf_counter()
    made.difference_globally("a")
    summed = time.perf_counter()
    made._counts.estimate_sensitivity(BETA)
    made._counts.variance_sensitivity(BETA)
    done = time.perf_counter()
    row = {
        "count (s)": round(counted - start, 3),
        "matched difference (s)": round(summed - counted, 3),
        "smooth sensitivities (s)": round(done - summed, 4),
        "all (s)": round(done - start, 2),
        "more memory (MB)": round(peak_mb() - before),
        "bytes a record": round((peak_mb() - before) * 2**20 / n),
    }
    slow = "not tried"
    if n * strata <= PATIENCE:
        start = time.perf_counter()
        printed(made._counts, BETA)
        slow = f"{time.perf_counter() - start:.2f}"
    return {**row, "as printed (s)": slow}


def least(counts: StratumCounts, price: Share, weights: str) -> float:
    """Noise at the best rate: what a lucky guess of the public numbers gives."""
    found = [widest(price, price.epsilon * r / 20) for r in range(4, 19)]
    return min(counts.estimate_sensitivity(c.beta, weights) / c.rate for c in found if c)


def noise(people: int, seed: int, design: str, epsilon: float) -> dict[str, object]:
    t, c = np.array(DESIGNS[design]).T
    counts, price = StratumCounts(t, c, False), Share(epsilon, 1e-5)
    third = epsilon / 3
    literal = Smoothing(third / 2, third / (2 * math.log(6e5)))
    whole = Smoothing(epsilon / 2, epsilon / (2 * math.log(2e5)))

    def scale(choice: Smoothing, weights: str, paper: bool) -> float:
        return counts.estimate_sensitivity(choice.beta, weights, paper) / choice.rate

    paper = scale(whole, "round_robin", True)
    ours = {w: least(counts, price, w) for w in ("round_robin", "means")}
    return {
        "paper, a third": round(scale(literal, "round_robin", True), 1),
        "paper": round(paper, 1),
        "round robin": round(ours["round_robin"], 1),
        "means": round(ours["means"], 1),
        "paper / means": round(paper / ours["means"], 1),
        "global": round((counts.n + 1) / epsilon),
    }


def run(people: int, seed: int, records: int, strata: int):
    return apart(measure, records, strata)


TABLE = Table(
    "Matching on strata: time and noise",
    (
        Part(
            "Time",
            [{"records": n, "strata": strata} for n, strata in SIZES],
            run,
            small=grid(records=[10_000], strata=[100]),
        ),
        Part("Noise scale, in B / n", grid(epsilon=(1.0, 2.0), design=DESIGNS), noise),
    ),
    alone=True,
    minutes=2,
)
