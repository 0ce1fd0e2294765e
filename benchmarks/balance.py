"""Noise in the standardised differences of `dp_balance`: how large it is, and how large it is said.

Each line repeats a release on the same records (`tests/balance/columns.py`) forty times.
"""

from __future__ import annotations

from harness import Part, Row, Table, grid

from tests.balance.columns import columns as made
from tests.balance.columns import noise

CELLS = grid(covariates=["normal"], n=[2_000, 20_000], treated=[0.5, 0.06])
CELLS += grid(covariates=["correlated", "indicators", "skewed"], n=[20_000], treated=[0.5])


def run(people: int, seed: int, covariates: str, n: int, treated: float) -> Row:
    """At epsilon 1, with four covariates; weighted only where noise would not drown it."""
    found = noise(made(covariates, n, 4, treated), 40, epsilon=1.0)
    row = {"difference": found[""][0], "difference: said / real": found[""][1]}
    row |= {"weighted": found["_adjusted"][0], "weighted: said / real": found["_adjusted"][1]}
    return {name: round(x, 3) for name, x in row.items()}


TABLE = Table(
    "Noise in balance",
    (Part("", CELLS, run),),
    "Standard deviations of the noise in standardised mean differences before and after weighting "
    "(root mean square over columns), and what results state over that.",
    minutes=1,
)
