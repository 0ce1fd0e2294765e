"""Whether p-values and intervals are one distribution: 200 results of each kind and more.

For each kind of result that has an interval and a p-value, results are made of released numbers
that are drawn at random (`tests/dists.py`). A pair is one interval and one p-value of a result at
alpha 0.01, 0.05 or 0.2. It is in order where p < alpha exactly where the interval at 1 - alpha,
which is closed, lacks the value of no effect.
"""

from __future__ import annotations

import numpy as np
from harness import Part, Table, grid

from tests.dists import ALPHAS, KINDS, stated


def run(people: int, noise: int, kind: str):
    """Make one result and count what is not one distribution."""
    fit = KINDS[kind][1](np.random.default_rng(noise))
    pairs = [pair for alpha in ALPHAS for pair in stated(fit, alpha)]
    below = sum(pair.p_value < pair.alpha for pair in pairs)
    return {"pairs": len(pairs), "below": below, "off": sum(not pair.one_law for pair in pairs)}


COLUMNS = {
    "results": len,
    "pairs": lambda runs: runs["pairs"].sum(),
    "p < alpha": lambda runs: runs["below"].sum(),
    "not one law": lambda runs: runs["off"].sum(),
}
TABLE = Table(
    "P-values and intervals are one distribution",
    (Part("", grid(kind=KINDS), run, COLUMNS, runs=200, chunk=50),),
    "A pair is one interval and one p-value of a result at alpha 0.01, 0.05 or 0.2. It is in order "
    "where p < alpha exactly where the interval at 1 - alpha, which is closed, lacks the value of "
    "no effect. Numbers are drawn at random in the place of released ones.",
    minutes=4,
)
