"""Noise in the standardised differences of `dp_balance`: how large it is, and how large it is said.

Each line repeats a release on the same records (`tests/balance/columns.py`) forty times.
"""

from __future__ import annotations

from harness import Part, Row, Table

from tests.balance.columns import columns as made
from tests.balance.columns import noise

NAMES = ("covariates", "columns", "n", "epsilon", "treated")
CELLS = [
    ("indicators", 10, 300, 4.0, 0.5),
    ("normal", 4, 2_000, 1.0, 0.5),
    ("normal", 4, 20_000, 1.0, 0.5),
    ("normal", 4, 20_000, 1.0, 0.06),
    ("correlated", 10, 20_000, 1.0, 0.5),
    ("indicators", 10, 20_000, 1.0, 0.5),
    ("skewed", 4, 20_000, 1.0, 0.5),
]


def run(
    people: int, seed: int, covariates: str, columns: int, n: int, epsilon: float, treated: float
) -> Row:
    found = noise(made(covariates, n, columns, treated), 40, epsilon=epsilon)
    row: dict[str, str] = {}
    for words, name in (("difference", ""), ("weighted", "_adjusted")):
        real, ratio, missing = found[name]
        said = [f"{real:.3f}", f"{ratio:.2f}"] if missing < 1.0 else ["", ""]
        row |= dict(zip((words, f"{words}: said / real"), said, strict=True))
    return row


TABLE = Table(
    "Noise in balance",
    (Part("", [dict(zip(NAMES, cell, strict=True)) for cell in CELLS], run),),
    "Standard deviations of the noise in standardised mean differences before and after weighting "
    "(root mean square over columns), and what results state over that. What is empty was not "
    "released, because n, columns and epsilon said that noise would drown it.",
    minutes=1.5,
)
