"""What a judgement of a paper's statement says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpeffects.lazy import pd
from dpeffects.replication.papers.stored_tables import table

VERDICTS = {True: "comes back", False: "does not", None: "cannot be checked"}


@dataclass(frozen=True)
class ClaimCheck:
    """What was measured for a claim.

    ``holds``: True where the claim comes back, False where it does not, None where it cannot be
    checked; of several things all have to hold. ``why`` explains the last two, and may explain the
    first. Where it has no number of its own, it stands in ``verdicts.toml``.
    """

    measured: str
    holds: Any
    why: str = ""

    def __post_init__(self) -> None:
        known = None if self.holds is None else bool(np.all(self.holds))
        object.__setattr__(self, "holds", known)


def rows(
    name: str, said: str, holds: str | bool, each: str = "", between: str = ", "
) -> ClaimCheck:
    """Judge a table by its rows, or some of them: those of a query after the table's name.

    ``said`` has values of the first row by their columns, ``last``, ``min``, ``max`` and ``sum`` of
    columns, the number ``n`` of rows unless it is a column, and at ``each`` what is said of every
    row. ``holds`` is what has to be true of every row, or whether it is; empty where nobody knows.
    """
    file, _, where = name.partition(": ")
    chosen = table(file) if file else pd.DataFrame()
    chosen = chosen.query(where, engine="python") if where else chosen
    known: dict[str, Any] = {"n": len(chosen)}
    if len(chosen):
        numbers = chosen.select_dtypes("number")
        known |= {"last": chosen.iloc[-1]} | dict(chosen.iloc[0])
        for fold in ("min", "max", "sum"):
            known[fold] = {column: getattr(numbers[column], fold)() for column in numbers}
        known["each"] = between.join(each.format(**row) for _, row in chosen.iterrows())
    true: Any = chosen.eval(holds, engine="python") if isinstance(holds, str) and holds else holds
    return ClaimCheck(said.format(**known), None if holds == "" else true)
