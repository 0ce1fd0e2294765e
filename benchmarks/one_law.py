"""Whether p-values and intervals are one distribution: 200 results of each kind and more.

    python benchmarks/one_law.py            # some ten minutes on two cores
    python benchmarks/one_law.py --small    # a quick look, nothing saved

For each kind of result that has an interval and a p-value, results are made of released numbers
that are drawn at random (`tests/laws.py`). A pair is one interval and one p-value of a result at
alpha 0.01, 0.05 or 0.2. It is in order where p < alpha exactly where the interval at 1 - alpha,
which is closed, lacks the value of no effect.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pandas as pd
from report import save

from dpeffects.progress import bar
from tests.dists import ALPHAS, KINDS, stated

SMALL = "--small" in sys.argv
RESULTS = 5 if SMALL else 200
NOTE = (
    "A pair is one interval and one p-value of a result at alpha 0.01, 0.05 or 0.2. It is in order "
    "where p < alpha exactly where the interval at 1 - alpha, which is closed, lacks the value of "
    "no effect. Numbers are drawn at random in the place of released ones."
)


def counted(kind: str) -> dict[str, object]:
    """Make results of a kind and count what is not one distribution."""
    rng, make = np.random.default_rng(2), KINDS[kind][1]
    fits = (make(rng) for _ in range(RESULTS))
    pairs = [pair for fit in fits for alpha in ALPHAS for pair in stated(fit, alpha)]
    return {
        "kind": kind,
        "results": RESULTS,
        "pairs": len(pairs),
        "p < alpha": sum(pair.p_value < pair.alpha for pair in pairs),
        "not one law": sum(not pair.one_law for pair in pairs),
    }


def main() -> None:
    """Make results of all kinds and count."""
    with ProcessPoolExecutor(3) as pool:
        table = pd.DataFrame([*bar(pool.map(counted, KINDS), "kinds", len(KINDS))])
    print(table.to_string(index=False))
    if not SMALL:
        save("one_law", "P-values and intervals are one law", {"": table}, NOTE)


if __name__ == "__main__":
    main()
