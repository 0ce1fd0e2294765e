"""Noise in the standardised differences of `dp_balance`: how large it is, and how large it is said.

    python benchmarks/balance.py            # about 5 minutes on one core
    python benchmarks/balance.py --small    # half a minute; nothing is written

Each line repeats a release on the same records, with seeds; records are those of
`tests/balance/columns.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from report import save

from dpeffects.errors import OptionError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.balance.columns import columns, noise

CELLS = [
    # covariates, columns, n, epsilon, delta, share treated
    ("normal", 25, 300, 0.1, 0.0, 0.5),
    ("normal", 2, 300, 1.0, 0.0, 0.5),
    ("normal", 25, 300, 4.0, 0.0, 0.5),
    ("indicators", 10, 300, 4.0, 0.0, 0.5),
    ("normal", 4, 2_000, 1.0, 0.0, 0.5),
    ("indicators", 25, 2_000, 1.0, 0.0, 0.5),
    ("skewed", 10, 2_000, 4.0, 0.0, 0.5),
    ("normal", 4, 2_000, 4.0, 0.0, 0.06),
    ("normal", 4, 20_000, 1.0, 0.0, 0.5),
    ("normal", 10, 20_000, 1.0, 0.0, 0.5),
    ("normal", 10, 20_000, 1.0, 1e-5, 0.5),
    ("correlated", 10, 20_000, 1.0, 0.0, 0.5),
    ("indicators", 10, 20_000, 1.0, 0.0, 0.5),
    ("skewed", 4, 20_000, 1.0, 0.0, 0.5),
    ("normal", 4, 20_000, 1.0, 0.0, 0.06),
    ("normal", 2, 50_000, 0.1, 0.0, 0.5),
    ("indicators", 2, 50_000, 0.1, 0.0, 0.5),
    ("correlated", 25, 50_000, 4.0, 0.0, 0.5),
    ("indicators", 25, 50_000, 4.0, 0.0, 0.5),
]


def line(kind: str, m: int, n: int, epsilon: float, delta: float, share: float) -> dict:
    about = {"covariates": kind, "columns": m, "n": n, "epsilon": epsilon, "delta": delta}
    about["treated, %"] = round(100 * share)
    try:
        found = noise(columns(kind, n, m, share), 40, epsilon=epsilon, delta=delta)
    except OptionError:
        return about | {"difference": "refused"}
    for words, name in (("difference", ""), ("weighted", "_adjusted")):
        real, ratio, missing = found[name]
        if missing < 1.0:
            about |= {words: f"{real:.3f}", f"{words}: said / real": f"{ratio:.2f}"}
        if not name:
            about["n/a, %"] = round(100 * missing)
    return about


def main() -> None:
    rows = []
    for cell in [c for c in CELLS if c[2] <= 2_000] if "--small" in sys.argv else CELLS:
        rows.append(line(*cell))
        print(rows[-1], flush=True)
    if "--small" not in sys.argv:
        notes = (
            "40 runs a line. `difference` and `weighted` are the standard deviations of the noise "
            "in standardised mean differences before and after weighting (root mean square over "
            "columns), `said / real` what results state over that, `n/a` the part of differences "
            "that noise left without a denominator. What is empty was not released, because n, "
            "columns and epsilon said that noise would drown it; the budget went to the others."
        )
        save("balance", "Noise in balance", {"": pd.DataFrame(rows).fillna("")}, notes)


if __name__ == "__main__":
    main()
