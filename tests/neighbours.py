"""Neighbouring tables on which glue code goes wrong: pairs that differ in one record.

Columns are an outcome y, a treatment t, covariates x1, x2 (numbers), g (a level), z (a number that
one pair needs) and a site. Where a column is public, both tables have its first value; where all
that a pair changes is public, the outcome goes from one end of its range to the other.

In pairs of `TYPES` columns have the types that pandas makes of their values, so that the value of
one record decides on the type of all.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from dpeffects.formula import expression

BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (-1, 1), "g": ["a", "b", "c"], "z": (0, 1)}
SITES = ["north", "south"]
_UNDEFINED = 0.4140625
"""`undefined` makes the root of this NaN, as that of a difference is which the last bit decides."""
_ROLES = {"t": "treatment"} | dict.fromkeys(("x1", "x2", "g", "z", "d"), "covariates")

Changes = Mapping[str, tuple[Any, Any]]
"""Values of the record by column, in one table and in the other."""


@dataclass(frozen=True)
class Pair:
    """Two tables that differ in one record, and how a formula reads them.

    ``outcome`` is the left side of the formula, and ``term`` is added to the right side, where a
    pair needs its own. ``missing`` says that values are missing.
    """

    name: str
    one: pd.DataFrame
    other: pd.DataFrame
    record: int
    bounds: Mapping[str, Any]
    outcome: str = ""
    term: str = ""
    missing: bool = False

    def ordered(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Records in the same order."""
        return self.one, self.other

    def unordered(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Sorted by the outcome but for the record, which comes first in one table and in the
        middle of the other, as where a private column sorts them: half of the places move."""
        rest = self.one["y"].drop(self.record).sort_values(kind="stable").index.to_numpy()
        places = np.insert(rest, len(rest) // 2, self.record)
        return self.one.loc[[self.record, *rest]], self.other.loc[places]


def frame(n: int = 60, seed: int = 0) -> pd.DataFrame:
    """Confounded records."""
    rng = np.random.default_rng(seed)
    x1, x2 = rng.random(n), rng.uniform(-1, 1, n)
    t = rng.random(n) < 0.3 + 0.4 * x1
    y = np.clip(0.3 * x1 + 0.2 * t + 0.4 * rng.random(n), 0, 1)
    data = {"y": y, "t": t, "x1": x1, "x2": x2, "g": rng.choice(list("abc"), n)}
    return pd.DataFrame(data | {"z": rng.random(n), "site": np.resize(SITES, n)})


def undefined() -> Any:
    """Return a context in which sqrt is NaN at one value within the declared ranges."""
    right = expression.FUNCTIONS["sqrt"]

    def apply(values: Any) -> Any:
        return np.where(values == _UNDEFINED, np.nan, right.apply(values))

    return mock.patch.dict(expression.FUNCTIONS, {"sqrt": replace(right, apply=apply)})


def places(one: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    """Place in the second table of each record of the first; records are named by the index."""
    return other.index.get_indexer(one.index)


def pair(name: str, n: int, public: Iterable[str] = (), seed: int = 0) -> Pair:
    """Return one of `PAIRS` on n records, different in private columns only."""
    data, record = frame(n, seed), int(np.random.default_rng(seed).integers(n))
    changes, more = PAIRS[name](data, record)
    bounds, inferred = {**BOUNDS, **more.pop("bounds", {})}, more.pop("inferred", None)
    private = {c: v for c, v in changes.items() if _ROLES.get(c) not in set(public)}
    if not private:
        private = {"y": bounds["y"]}
    one, other = data.copy(), data.copy()
    for column, (first, second) in {
        **{c: (v[0],) * 2 for c, v in changes.items()},
        **private,
    }.items():
        for table, value in ((one, first), (other, second)):
            if inferred is None:
                table.loc[record, column] = value
            else:
                values = [*table[column].tolist()[:record], value, *table[column][record + 1 :]]
                table[column] = inferred(values) if column in changes else values
    return Pair(name, one, other, record, bounds, **more)


# --- the pairs: each changes the table that both start from, and says how the record differs ------


def _far_outside(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    far = {"y": (1e9, -1e9), "x1": (1e6, -50.0), "x2": (-1e300, 1e300)}
    return {**far, "g": ("a", "b"), "t": (True, False)}, {}


def _end_to_end(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    return {"y": (0.0, 1.0)}, {}


def _nan_outcome(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    return {"y": (_UNDEFINED, 1.0)}, {"outcome": "sqrt(y)"}


def _nan_covariate(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    return {"z": (_UNDEFINED, 1.0), "y": (0.0, 1.0)}, {"term": "sqrt(z)"}


def _last_treated(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    data["t"] = False
    return {"t": (True, False), "y": (1.0, 0.0)}, {}


def _last_control(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    data["t"] = True
    return {"t": (False, True), "y": (1.0, 0.0)}, {}


def _one_treated(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    data["t"] = np.arange(len(data)) == j
    return {"y": (0.0, 1.0), "x1": (0.0, 1.0), "x2": (1.0, -1.0), "g": ("a", "c")}, {}


def _one_control(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    data["t"] = np.arange(len(data)) != j
    return {"y": (1.0, 0.0), "x1": (1.0, 0.0), "x2": (1.0, -1.0), "g": ("b", "a")}, {}


def _constant(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    data["x1"], data["x2"], data["g"] = 0.5, 0.0, "a"
    out = {"x1": (0.5, 1.0), "x2": (0.0, 1.0), "g": ("a", "c")}
    return {**out, "t": (True, False), "y": (0.0, 1.0)}, {}


def _duplicates(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    data["t"] = np.arange(len(data)) // 2 % 2 == 0
    data["y"] = np.where(data["t"], 1.0, 0.0)
    data["x1"], data["x2"], data["g"] = 0.25, -0.5, "b"
    return {"y": (1.0, 0.0), "t": (True, False), "x1": (0.25, 0.75), "x2": (-0.5, 1.0)}, {}


def _separated(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    data["t"] = data["x1"] > 0.5
    data["x2"] = np.where(data["t"], 1.0, -1.0)
    data["g"] = np.where(data["t"], "a", "b")
    same = {"x1": (1.0, 1.0), "x2": (1.0, 1.0), "g": ("a", "a")}
    return {**same, "t": (True, False), "y": (1.0, 0.0)}, {}


def _collinear(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    data["x2"] = 2.0 * data["x1"] - 1.0
    data["g"] = np.array(list("abc"))[np.minimum((3 * data["x1"]).astype(int), 2)]
    off = {"x1": (0.0, 1.0), "x2": (-1.0, -1.0), "g": ("a", "a")}
    return {**off, "t": (False, True), "y": (0.0, 1.0)}, {}


def _emptied(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    data["g"] = np.where(data["g"] == "c", "b", data["g"])
    return {"g": ("c", "a"), "t": (True, False), "y": (1.0, 0.0)}, {}


def _leaves_its_match(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    """The worst case of exact matching: a pair loses its treated record to a crowd of controls."""
    index = (np.arange(len(data)) - j) % len(data)
    data["t"], data["y"] = (index == 0) | (index == 2), (index != 1).astype(float)
    data["g"], data["x1"] = np.select([index < 2, index < 4], ["a", "c"], "b"), 0.25
    return {"g": ("a", "b"), "y": (1.0, 0.0)}, {}


def _tiny_range(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    tiny = 2.0**-300
    data["y"] *= tiny
    return {"y": (5e-324, tiny), "x1": (5e-324, 1.0)}, {"bounds": {"y": (0.0, tiny)}}


def _cut_points(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    n = len(data)
    data["x1"] = np.resize([0.0, -0.0, 0.5, np.nextafter(0.5, 0.0), 1.0], n)
    data["x2"], data["y"] = np.resize([0.0, -0.0, 1.0, -1.0], n), np.resize([-0.0, 0.0, 1.0], n)
    edge = {"x1": (0.5, np.nextafter(0.5, 1.0)), "x2": (0.0, -0.0)}
    return {**edge, "y": (-0.0, 1.0), "t": (True, False)}, {}


def _integer_edges(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    lowest, highest = -(2**63), 2**63 - 1
    data["y"] = np.resize([lowest, highest, 2**53 + 1, -(2**53) - 1, 0], len(data))
    data["t"] = data["t"].astype(np.int8)
    more = {"bounds": {"y": (float(lowest), float(2**63))}}
    return {"y": (lowest, highest), "t": (1, 0)}, more


def _large_offset(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    data["y"] = 1e16 + 2.0 * np.rint(4.0 * data["y"])
    bounds = {"y": (1e16, 1e16 + 8.0)}
    return {"y": (1e16, 1e16 + 8.0), "t": (True, False)}, {"bounds": bounds}


# --- pairs in which the value of one record decides on the type of its column ---------------------


ZERO_ONE = {"bounds": {"t": (0, 1)}}


def _whole(data: pd.DataFrame) -> None:
    """Outcome, treatment and covariates of whole numbers."""
    data["y"], data["t"] = (data["y"] > 0.4).astype(int), data["t"].astype(int)
    data["x1"], data["z"] = (data["x1"] > 0.5).astype(int), (data["z"] > 0.5).astype(int)
    data["x2"] = np.rint(data["x2"]).astype(int)


def _gap_in_integers(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    _whole(data)
    gap = {"y": (1, None), "t": (1, None), "x1": (1, None), "x2": (0, None)}
    return gap, {**ZERO_ONE, "inferred": pd.Series, "missing": True}


def _half_in_integers(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    _whole(data)
    half = {"y": (1, 0.5), "x1": (1, 0.5), "x2": (0, 33.5), "z": (0, 0.5)}
    return half, {**ZERO_ONE, "inferred": pd.Series}


def _gap_in_bools(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    _whole(data)
    for column in ("y", "t", "x1"):
        data[column] = data[column] == 1
    gap = {"y": (True, None), "t": (True, None), "x1": (False, None)}
    return gap, {**ZERO_ONE, "inferred": pd.Series, "missing": True}


def _mixed(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    _whole(data)
    mixed = {"y": (1, 0.25), "x1": (1, 0.75), "z": (1, 0.5)}
    return mixed, {**ZERO_ONE, "inferred": lambda values: pd.Series(values, dtype=object)}


def _new_category(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    data["g"] = np.where(data["g"] == "c", "b", data["g"])
    data["site"] = pd.Categorical(data["site"])
    return {"g": ("a", "c")}, {"inferred": pd.Categorical}


def _no_date(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    data["d"] = [datetime.date(2020, 1, 1 + k % 28) for k in range(len(data))]
    more = {"bounds": {"d": ("2020-01-01", "2020-01-31")}, "term": "d", "missing": True}
    gap = {"d": (datetime.date(2020, 1, 31), pd.NaT), "y": (0.0, 1.0)}
    return gap, {**more, "inferred": lambda values: pd.Series(values).convert_dtypes()}


def _wider_integers(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    _whole(data)
    wide = {"y": (1, 2**40), "x1": (1, 300), "x2": (0, -(2**20)), "z": (1, 70_000)}
    return wide, {
        **ZERO_ONE,
        "inferred": lambda values: pd.to_numeric(pd.Series(values), downcast="integer"),
    }


def _halves_for_gaps(data: pd.DataFrame, j: int) -> tuple[Changes, dict[str, Any]]:
    """The types of pandas that may be missing, which are made of the values as well."""
    _whole(data)
    half = {"y": (None, 0.5), "x1": (None, 0.5), "x2": (0, -0.5)}
    made = lambda values: pd.Series(values, dtype=object).convert_dtypes()  # noqa: E731
    return half, {**ZERO_ONE, "inferred": made, "missing": True}


Change = Callable[[pd.DataFrame, int], tuple[Changes, dict[str, Any]]]
TYPES: dict[str, Change] = {
    "a gap in integers": _gap_in_integers,
    "a half among integers": _half_in_integers,
    "a gap in bools": _gap_in_bools,
    "mixed objects": _mixed,
    "a new category": _new_category,
    "no date": _no_date,
    "wider integers": _wider_integers,
    "a half in place of a gap": _halves_for_gaps,
}
PAIRS: dict[str, Change] = {
    "far outside the bounds": _far_outside,
    "outcome from end to end": _end_to_end,
    "not a number in the outcome": _nan_outcome,
    "not a number in a covariate": _nan_covariate,
    "the last treated leaves": _last_treated,
    "the last control leaves": _last_control,
    "one treated": _one_treated,
    "one control": _one_control,
    "constant covariates": _constant,
    "duplicates": _duplicates,
    "separated arms": _separated,
    "collinear covariates": _collinear,
    "a stratum emptied": _emptied,
    "a match lost to a crowd": _leaves_its_match,
    "a tiny range": _tiny_range,
    "cut points and negative zero": _cut_points,
    "edges of integers": _integer_edges,
    "a large offset": _large_offset,
    **TYPES,
}
