"""Noise in the standardised differences of `dp_balance`: how large it is, and how large it is said.

Each line repeats a release on the same records, with seeds; records are those of
`tests/balance/columns.py`.
"""

from __future__ import annotations

from harness import Part, Table

from dpeffects.errors import OptionError
from tests.balance.columns import columns as made
from tests.balance.columns import noise

NAMES = ("covariates", "columns", "n", "epsilon", "delta", "treated")
CELLS = [
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


def run(people: int, noise_of: int, covariates, columns, n, epsilon, delta, treated):
    """Forty releases on the same records."""
    try:
        found = noise(made(covariates, n, columns, treated), 40, epsilon=epsilon, delta=delta)
    except OptionError:
        return {"difference": "refused"}
    row = {}
    for words, name in (("difference", ""), ("weighted", "_adjusted")):
        real, ratio, missing = found[name]
        if missing < 1.0:
            row |= {words: f"{real:.3f}", f"{words}: said / real": f"{ratio:.2f}"}
        if not name:
            row["n/a, %"] = round(100 * missing)
    return row


TABLE = Table(
    "Noise in balance",
    (Part("", [dict(zip(NAMES, cell, strict=True)) for cell in CELLS], run),),
    "40 runs a line. `difference` and `weighted` are the standard deviations of the noise "
    "in standardised mean differences before and after weighting (root mean square over "
    "columns), `said / real` what results state over that, `n/a` the part of differences "
    "that noise left without a denominator. What is empty was not released, because n, "
    "columns and epsilon said that noise would drown it; the budget went to the others.",
    page=lambda lines: {"": lines.fillna("")},
    minutes=3,
)
