"""Neighbours where rows do not count alike, and the calls that read them.

Columns beside those of `tests.neighbours` are whose row it is (id), a village v and a weight w.
With ``unit="id"`` neighbours differ in all rows of one person; else in one record, whose weight,
village or place in a subset changes, or which is missing a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tests.calls import DELTA, THREE, Call, ate, att, cate
from tests.neighbours import BOUNDS, Pair, frame

BOTH = {**BOUNDS, "w": (0, 4)}
ENDS = {"y": (0.0, 1.0), "x1": (0.0, 1.0), "x2": (-1.0, 1.0), "g": ("a", "c"), "t": (False, True)}


def people(n: int, seed: int) -> pd.DataFrame:
    """n rows of about half as many persons in a few villages; person 0 has none of them."""
    rng = np.random.default_rng(seed)
    return frame(n, seed).assign(
        id=rng.integers(1, n // 2 + 1, n),
        v=rng.integers(0, max(n // 12, 2), n),
        w=rng.choice([0.0, 0.5, 1.0, 4.0, 9.0], n),
    )


def row(end: int, **other: Any) -> dict[str, Any]:
    """A row of person 0 with all values at one end."""
    return {**{name: ends[end] for name, ends in ENDS.items()}, **PLACE, **other}


PLACE = {"z": 0.5, "site": "north", "id": 0, "v": 0, "w": 4.0}
Rows = list[dict[str, Any]]


def _each(level: str) -> Rows:
    return [row(0, t=t, g=level, y=y) for t in (False, True) for y in (0.0, 1.0)]


PERSONS: dict[str, tuple[Rows, Rows]] = {
    "one row at the other end": ([row(0)], [row(1)]),
    "one row against many": ([row(0)], [row(1)] * 7),
    "many rows, all extreme": ([row(1)] * 5, [row(0)] * 5),
    "far more than anybody": ([row(0)], [row(1)] * 150),
    "rows in all arms and levels": ([row(1)], [*_each("a"), *_each("b"), *_each("c")]),
    "the same values in another arm": ([row(1, t=True)] * 3, [row(1, t=False)] * 3),
    "another village": ([row(1, v=0)] * 3, [row(1, v=1)] * 3),
    "a village of its own": ([row(1, v=0)] * 3, [row(0, v=10**9)] * 3),
    "all over the villages": ([row(1, v=0)] * 4, [row(1, v=k) for k in (0, 1, 2, -5)]),
    "far outside the bounds": (
        [row(0, y=-1e9, x1=1e6, x2=-1e300)] * 2,
        [row(1, y=1e9, x1=-50.0, x2=1e300)] * 3,
    ),
    "another name": ([row(1)] * 2, [row(0, id=-7)]),
    "some rows do not count": (
        [row(1, w=0.0, x1=0.0), row(1)],
        [row(0, w=4.0), row(0, w=0.0), row(0, w=1e9)],
    ),
    "no row counts": ([row(1, w=0.0, x1=0.0)] * 2, [row(1)] * 2),
}
RECORDS: dict[str, tuple[Rows, Rows]] = {
    "all at the other end": ([row(0)], [row(1)]),
    "another arm": ([row(1, t=True)], [row(1, t=False)]),
    "another village": ([row(1, v=0)], [row(1, v=1)]),
    "a village of its own": ([row(1, v=0)], [row(0, v=10**9)]),
    "a weight from nothing to the most": ([row(1, w=0.0)], [row(1, w=4.0)]),
    "a weight far beyond the bound": ([row(1, w=1e300)], [row(0, w=-1e300)]),
    "inside the subset or not": ([row(1, x1=0.0)], [row(1, x1=1.0)]),
}
MISSING: dict[str, tuple[Rows, Rows]] = {
    "an outcome is missing": ([row(1)], [row(1, y=np.nan)]),
    "another outcome is missing": ([row(0, y=np.nan)], [row(1, t=True)]),
    "a covariate is missing": ([row(1)], [row(1, x1=np.nan)]),
    "everything is missing": ([row(1)], [row(0, y=np.nan, x1=np.nan, x2=np.nan)]),
}

SOME_MISSING = {"y": "complete", "x1": "indicator", "x2": "complete"}
SAMPLES: dict[str, tuple[Mapping[str, Any], Mapping[str, tuple[Rows, Rows]]]] = {
    "unit": ({"unit": "id"}, PERSONS),
    "unit, max_rows": ({"unit": "id", "max_rows": 3}, PERSONS),
    "unit, cluster": ({"unit": "id", "cluster": "v"}, PERSONS),
    "unit of clusters": ({"unit": "id", "cluster": "id"}, PERSONS),
    "cluster": ({"cluster": "v"}, RECORDS),
    "cluster, declared": ({"cluster": "v", "clusters": 5}, RECORDS),
    "weights": ({"weights": "w"}, RECORDS),
    "subset": ({"subset": "x1 > 0.4 | w == 4"}, RECORDS),
    "complete": ({"missing": SOME_MISSING}, MISSING | RECORDS),
    "response": ({"missing": {"y": "weight", "x1": "indicator", "x2": "indicator"}}, MISSING),
    "everything": (
        {
            "unit": "id",
            "max_rows": 2,
            "weights": "w",
            "subset": "x1 > 0.1",
            "cluster": "v",
            "missing": SOME_MISSING,
        },
        PERSONS | MISSING,
    ),
}
METHODS: dict[str, Call] = {
    "auto": ate("auto", n=300, epsilon=4.0),
    "clipped_contrast": att("clipped_contrast", n=200, epsilon=4.0),
    "diff_in_means": ate("diff_in_means", n=200, epsilon=4.0),
    "diff_in_means, found bounds": ate("diff_in_means", 1500, "", ("g", "z"), epsilon=30.0),
    "diff_in_means, checked bounds": ate("diff_in_means", 1500, epsilon=20.0, check_bounds=True),
    "diff_in_means, three arms": ate("diff_in_means", 300, THREE, epsilon=8.0),
    "clipped_contrast, three arms": ate("clipped_contrast", 300, THREE, epsilon=8.0),
    "one_step, three arms": ate("one_step", 600, THREE, epsilon=20.0),
    "private_ipw, three arms": ate("private_ipw", 400, THREE, epsilon=20.0),
    "one_step": ate("one_step", n=600, epsilon=8.0),
    "one_step, Gaussian": att("one_step", n=600, epsilon=8.0, pool="all", **DELTA),
    "regression": ate("regression", n=600, epsilon=60.0, flexible=1),
    "private_ipw": ate("private_ipw", n=300, epsilon=8.0),
    "private_psm": ate("private_psm", n=600, epsilon=8.0),
    "private_ipw, output": att("private_ipw", n=300, epsilon=8.0, propensity="output", **DELTA),
    "r_learner": cate("r_learner", n=200, epsilon=8.0),
    "r_learner, groups": cate("r_learner", n=200, epsilon=8.0, release="groups", by="g"),
    "one_step, groups": cate("one_step", n=600, epsilon=8.0, release="groups", by="g"),
    "dr_learner": cate("dr_learner", n=200, epsilon=8.0),
    "dr_learner, kernel noise": cate("dr_learner", n=200, epsilon=8.0, noise="kernel"),
    "balance": Call("dp_balance", n=300, given={"adjusted": True, "epsilon": 20.0}),
    "balance, differences": Call("dp_balance", n=300, given={"adjusted": False, "epsilon": 8.0}),
}


def asked(method: str, sample: str) -> Call:
    """A method with the arguments of a sample, those that its function takes."""
    call, arguments = METHODS[method], SAMPLES[sample][0]
    if call.function not in ("dp_ate", "dp_att"):
        arguments = {k: v for k, v in arguments.items() if not k.startswith("cluster")}
    given = {**call.given, **arguments}
    declared = (*call.declared, "w") if "weights" in arguments else call.declared
    return Call(call.function, call.method, call.formula, call.n, declared, given)


def counted_pair(sample: str, name: str, n: int, seed: int = 0) -> Pair:
    """Two tables that differ in the rows of one person, or in one record."""
    base, rows = people(n, seed), SAMPLES[sample][1][name]
    if "missing" in SAMPLES[sample][0]:
        rng = np.random.default_rng(seed)
        for column in ("y", "x1", "x2"):
            base.loc[rng.random(n) < 0.1, column] = np.nan
    tables = []
    for own in rows:
        both = pd.concat([base, pd.DataFrame(own)], ignore_index=True)
        order = np.random.default_rng(len(tables)).permutation(len(both))
        tables.append(both.iloc[order].reset_index(drop=True))
    return Pair(name, *tables, 0, BOTH)
