"""Replay where everything of one unit is replaced: its rows, however many, and what they count."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from tests.calls import AT, DELTA, ENGINES, GROUPS, PLAIN, THREE
from tests.replay import replay

BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (-1, 1), "g": ["a", "b", "c"], "w": (0, 4)}
WHO = 3
"""The unit that is replaced."""


def rows(count, **columns):
    """Rows of the unit, by default at one end of every range."""
    all_columns = {"y": 1.0, "t": 1, "x1": 1.0, "x2": 1.0, "g": "a", "v": 1, "w": 4.0, **columns}
    return pd.DataFrame({name: np.resize(x, count) for name, x in all_columns.items()})


FAR = {"y": 0.0, "t": 0, "x1": 0.0, "x2": -1.0, "g": "b", "v": 2}
PAIRS = {
    "all rows change arm": (rows(3), rows(3, **FAR)),
    "rows in both arms": (rows(40, t=[0, 1], y=[0.0, 1.0], g=list("abc"), x1=[0, 1, 0.5]), rows(1)),
    "leaves the subset": (rows(5, x1=0.9), rows(5, **{**FAR, "x1": 0.1})),
    "loses its outcome": (rows(4, y=[np.nan, 1.0, 0.0, np.nan], t=[0, 1]), rows(2, **FAR)),
    "wild weights": (rows(6, w=[np.inf, -5.0, 0.0, 1e308, 4.0, 1e-300]), rows(2, w=0.0, y=0.0)),
    "wild values": (rows(5, y=[1e300, -1e300], x1=[1e300, -1e300]), rows(1, y=-1e9, x1=-5.0)),
    "changes cluster": (rows(5, v=[1, 2, 3]), rows(5, v=np.iinfo(np.int64).min, y=0.0)),
    "more rows than weights have steps": (rows(70_000), rows(1, **FAR)),
    "many rows": (rows(40_000), rows(3, **{**FAR, "v": [1, 2, 3]})),
}
COUNTING = {
    "unit": {"unit": "u"},
    "max_rows": {"unit": "u", "max_rows": 3, "cluster": "v"},
    "subset": {"unit": "u", "subset": "x1 >= 0.3 & g != 'c'"},
    "weights": {"unit": "u", "max_rows": 2, "weights": "w"},
    "complete": {"unit": "u", "missing": "complete", "check_bounds": True},
    "response": {"unit": "u", "missing": {"y": "weight"}},
}
CALLS = {
    "diff_in_means": ("dp_ate", PLAIN, {"method": "diff_in_means"}),
    "diff_in_means, three arms": ("dp_ate", THREE, {"method": "diff_in_means"}),
    "clipped_contrast": ("dp_att", PLAIN, {"method": "clipped_contrast"}),
    "one_step": ("dp_ate", PLAIN, {"method": "one_step"}),
    "one_step, Gaussian": ("dp_ate", PLAIN, {"method": "one_step", "pool": "all", **DELTA}),
    "one_step, three arms": ("dp_ate", THREE, {"method": "one_step"}),
    "private_ipw, output": (
        "dp_atc",
        PLAIN,
        {"method": "private_ipw", "propensity": "output", **DELTA},
    ),
    "dr_learner, groups": (
        "dp_cate",
        PLAIN,
        {"method": "dr_learner", "release": "groups", "by": GROUPS},
    ),
    "one_step, groups": (
        "dp_cate",
        PLAIN,
        {"method": "one_step", "release": "groups", "by": GROUPS},
    ),
    "r_learner, points": (
        "dp_cate",
        PLAIN,
        {"method": "r_learner", "release": "points", "at": AT, "second_stage": "linear", **DELTA},
    ),
    "balance": ("dp_balance", PLAIN, {"overlap": True, "adjusted": True}),
    "quantiles": ("dp_qte", PLAIN, {}),
    "study": ("dp_study", "y + w ~ t | x1 + g", {"subgroups": "g"}),
    "moments": ("dp_moments", "y + x2 ~ t | x1", {"subgroups": "g"}),
    "compliers": ("dp_late", "y ~ I(x2 > 0) | x1", {"instrument": "t", **DELTA}),
    "study, Gaussian, trial": ("dp_study", "y ~ t", {"design": "randomised", **DELTA}),
}
EACH = [
    (call, asked, pair, engine)
    for k, (call, asked) in enumerate(itertools.product(CALLS, COUNTING))
    for pair in [list(PAIRS)[k % len(PAIRS)]]
    for engine in [["", "", "", "duckdb", "polars"][k % 5]]
]


def others(units=80, seed=0):
    """The rows of all others."""
    rng = np.random.default_rng(seed)
    u = np.repeat(np.arange(units), rng.integers(1, 5, units))
    x1, x2 = rng.random(u.size), rng.uniform(-1, 1, u.size)
    t = (rng.random(u.size) < 0.3 + 0.4 * x1).astype(int)
    y = np.clip(0.3 * x1 + 0.2 * t + 0.4 * rng.random(u.size), 0, 1)
    data = {"y": y, "t": t, "x1": x1, "x2": x2, "g": rng.choice(list("abc"), u.size), "v": u % 13}
    data = pd.DataFrame({**data, "w": rng.uniform(0, 4, u.size), "u": u})
    return data[data["u"] != WHO]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("name", "asked", "pair", "engine"), EACH)
def test_no_unit_moves_a_release_by_more_than_declared(name, asked, pair, engine):
    function, formula, options = CALLS[name]
    given, rest = dict(COUNTING[asked]), others()
    if function in ("dp_cate", "dp_balance"):
        given.pop("cluster", None)
    if formula == THREE or function in ("dp_balance", "dp_qte", "dp_moments", "dp_late"):
        given.pop("cluster", None)
        given = {k: x for k, x in given.items() if not (k == "missing" and function != "dp_ate")}
    if function == "dp_study":
        given.pop("cluster", None)
        given["missing"] = {"y": "available"}
        wild = "weights" in given or pair == "wild weights"  # w is no outcome then
        formula = formula.replace("+ w", "+ x2") if wild else formula
    if pair == "loses its outcome" and "missing" not in given:
        given["missing"] = "complete"
    bounds = {**BOUNDS, **({"t": (0, 1)} if formula == THREE else {})}
    one, other = (part.assign(u=WHO) for part in PAIRS[pair])
    tables = [pd.concat(parts, ignore_index=True) for parts in ([rest, one], [other, rest])]

    def call(data, noise):
        about = {"epsilon": 40.0, "bounds": bounds, "ledger": noise.ledger(), "seed": noise}
        return getattr(dpe, function)(formula, data, **about, **options, **given)

    found = replay(call, *map(ENGINES[engine], tables))
    assert not found.violations
    assert not found.refused
    assert found.largest <= 1.0
