"""Synthetic records by a library: columns cut to cells at public points, noise drawn elsewhere.

Encoded covariates lie in [0, 1] and the outcome in its range, so cells of equal width are known
beforehand. What a column could hold by its type and bounds (an indicator, few whole numbers) gets
one cell a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.ledgers.composition import largest_rho
from dpeffects.privacy.curator import Curator
from dpeffects.replication.unproved.generators import environment
from dpeffects.replication.unproved.unproved_releases import charge_library, library_seed, varying

Records = tuple[FloatArray, BoolArray, FloatArray]
"""Covariates in [0, 1]^d, treated, outcome."""


@dataclass(frozen=True)
class Coding:
    """Coding of [0, 1], one a value or of equal width.

    Examples
    --------
    >>> two, wide = Coding.of(2, 4), Coding.of(0, 4)
    >>> two.codes(np.array([0.0, 1.0])), wide.codes(np.array([0.0, 0.3, 1.0]))
    (array([0, 1]), array([0, 1, 3]))
    >>> two.values(np.array([0, 1])), wide.values(np.array([0, 3]))
    (array([0., 1.]), array([0.125, 0.875]))
    """

    size: int
    one_each: bool

    @classmethod
    def of(cls, values: int, most: int) -> Coding:
        """Coding for a column that could take so many values (0: a continuum)."""
        return cls(values, True) if 0 < values <= most else cls(most, False)

    def codes(self, x: FloatArray) -> IntArray:
        """Cell of each number."""
        return np.minimum(np.floor(x * self.size), self.size - 1).astype(np.int64)

    def values(self, codes: IntArray) -> FloatArray:
        """The number that stands for a cell: its value, or its middle."""
        if self.one_each:
            return np.asarray(codes / max(self.size - 1, 1))
        return np.asarray((codes + 0.5) / self.size)


def synthetic_records(
    curator: Curator, generator: str, workload: str, cells: tuple[int, int], share: str
) -> tuple[Records, int]:
    """Release as many synthetic records as there are records.

    ``cells`` are the most for a covariate and for the outcome. Also returns the number of tables
    that the library measured.
    """
    rows, (lower, upper) = curator._rows, curator.outcome_range
    x = rows.covariates()
    known = curator.values
    used = varying(curator)
    scales = {f"x{j}": Coding.of(known[j], cells[0]) for j in used}
    scales |= {"t": Coding(2, True), "y": Coding.of(known[-1], cells[1])}
    columns = {f"x{j}": x[:, j] for j in used}
    columns |= {"t": rows.treated.astype(np.float64), "y": (rows.outcome - lower) / (upper - lower)}
    codes = {name: scales[name].codes(v).tolist() for name, v in columns.items()}
    library = f"{environment.LIBRARY}: {generator.upper()}"
    price = charge_library(curator, "synthetic records", library, share)
    answer = environment.ask(
        {
            "generator": generator,
            "workload": tables(used, workload),
            "codes": codes,
            "sizes": {name: scales[name].size for name in columns},
            "rho": largest_rho(price.epsilon, price.delta),
            "seed": library_seed(curator),
        }
    )
    made = {name: scales[name].values(np.array(v)) for name, v in answer["codes"].items()}
    out = np.empty_like(x)
    for j in range(curator.width):
        out[:, j] = made[f"x{j}"] if j in used else x[0, j]  # the same for every record
    records = out, made["t"] > 0.5, lower + (upper - lower) * made["y"]
    return records, len(answer["tables"])


def tables(used: Sequence[int], workload: str) -> list[list[str]]:
    """Columns of the tables that AIM is asked to get right.

    Examples
    --------
    >>> tables([1, 2], "pairs")
    [['t', 'y', 'x1'], ['t', 'y', 'x2'], ['x1', 'x2']]
    """
    found = [["t", "y", f"x{j}"] for j in used]
    if workload == "pairs":
        found += [[f"x{i}", f"x{j}"] for i in used for j in used if i < j]
    return found
