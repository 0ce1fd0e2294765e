"""Bad input gets one clear error of our own type, and nothing is charged."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import (
    BoundsError,
    BudgetError,
    DataError,
    FormulaError,
    OptionError,
)
from tests.refused import refusals

BOUNDS = {"y": (0, 1), "x": (0, 1)}


def frame(n=40, **columns):
    rng = np.random.default_rng(0)
    base = {"y": rng.random(n), "t": np.arange(n) % 2, "x": rng.random(n)}
    return pd.DataFrame({**base, **columns})


def with_value(column, value):
    data = frame()
    data[column] = data[column].astype(object) if isinstance(value, str) else data[column]
    data.loc[3, column] = value
    return data


N = 40


def mixed():
    """Objects of which some are true or false, and some are words."""
    return pd.Series(([True, "no"] * len(frame()))[: len(frame())], dtype=object)


CALL = {
    "formula": "y ~ t | x",
    "data": frame(),
    "method": "private_psm",
    "epsilon": 1,
    "bounds": BOUNDS,
}

test_one_clear_error_and_nothing_charged = refusals(
    partial(dpe.dp_ate, **CALL),
    ({"formula": "y ~ t | z"}, "'z'", DataError),
    (
        {"formula": "y ~ t | xlng", "data": frame(xlong=np.zeros(N))},
        "did you mean 'xlong'",
        DataError,
    ),
    ({"data": with_value("y", np.nan)}, "missing values in y", DataError),
    ({"data": with_value("x", np.nan)}, "missing values in x", DataError),
    ({"data": with_value("t", np.nan)}, "missing values in t", DataError),
    ({"data": with_value("y", np.inf)}, "'y' contains infinite", DataError),
    ({"data": with_value("x", -np.inf)}, "'x' contains infinite", DataError),
    ({"data": frame(t=np.ones(N, dtype=int))}, "arms is empty", DataError),
    ({"data": frame(t=np.arange(N) % 3)}, "0/1", DataError),
    ({"data": frame(t=["a", "b"] * (N // 2))}, "control first", DataError),
    (
        {
            "method": "model_folds",
            "data": frame(t=["a", "b", "c", "a"] * (N // 4)),
            "bounds": {**BOUNDS, "t": list("abc")},
        },
        'write method="auto", or declare two',
        OptionError,
    ),
    (
        {"data": frame(t=["a", "b", "c", "a"] * (N // 4)), "bounds": {**BOUNDS, "t": ["a", "b"]}},
        "that are not among its declared levels",
        DataError,
    ),
    ({"data": frame(y=["a"] * N)}, "must be numeric", DataError),
    (
        {
            "formula": "y ~ t | g",
            "data": frame(g=list("abcd") * (N // 4)),
            "bounds": {**BOUNDS, "g": ["a", "b", "c"]},
        },
        "that are not among its declared levels",
        DataError,
    ),
    (
        {"formula": "y ~ t | g", "data": frame(g=list("ab") * (N // 2))},
        re.escape('"g": ["LEVEL"'),
        BoundsError,
    ),
    (
        {"formula": "y ~ t | g", "data": frame(g=pd.Categorical(list("ab") * (N // 2)))},
        re.escape('"g": ["LEVEL"'),
        BoundsError,
    ),
    (
        {
            "formula": "y ~ t | log(g)",
            "data": frame(g=np.ones(N)),
            "bounds": {**BOUNDS, "g": [1, 2, 3]},
        },
        "uses it as a number",
        DataError,
    ),
    ({"data": frame().iloc[:0]}, "0 rows", DataError),
    ({"data": frame().iloc[:8], "as_printed": True}, "needs 10 rows", OptionError),
    (
        {"data": frame(t=(np.arange(N) < 2).astype(int)), "level": "label"},
        "an arm has 2",
        OptionError,
    ),
    ({"data": {"y": [1, 2]}}, "frame", DataError),
    ({"data": None}, "frame", DataError),
    ({"epsilon": -1}, "positive", BudgetError),
    ({"epsilon": 0}, "positive", BudgetError),
    ({"epsilon": "1"}, "number", BudgetError),
    ({"delta": 1.0}, "delta", BudgetError),
    ({"bounds": {"y": (1, 0), "x": (0, 1)}}, "below the upper end", BoundsError),
    ({"bounds": {"y": (0, np.inf), "x": (0, 1)}}, "finite", BoundsError),
    ({"bounds": {**BOUNDS, "yy": (0, 1)}}, "'yy'", BoundsError),
    ({"bounds": "data"}, "from_data", BoundsError),
    ({"bounds": [(0, 1)]}, "must give a range or levels by column name", BoundsError),
    ({"bounds": {"y": (0, 1)}}, re.escape('"x": (LOWER, UPPER)'), BoundsError),
    ({"formula": "y ~ t | log(x)"}, "log", BoundsError),
    ({"formula": "y ~ t | log(x)", "bounds": {"y": (0, 1)}}, "declare its range", BoundsError),
    ({"method": "private_pms"}, "Did you mean 'private_psm'", OptionError),
    ({"neighbours": 3}, "Did you mean 'neighbors'", OptionError),
    ({"neighbors": 0}, "neighbors", OptionError),
    ({"match_limit": -2}, "match_limit", OptionError),
    ({"method": "diff_in_means", "arms": "secret"}, "arms", OptionError),
    ({"level": "row"}, "level", OptionError),
    (
        {"data": frame(x=frame().x.astype(str))},
        re.escape('it is String: write data["x"] == "yes" for 0 and 1'),
        DataError,
    ),
    (
        {"data": frame(x=mixed()), "bounds": {"y": (0, 1)}},
        re.escape("data['x'].astype(bool)"),
        BoundsError,
    ),
    ({"data": frame(x=pd.to_timedelta(frame().x, unit="D"))}, "total_seconds", DataError),
    ({"budget_split": {"estimates": 1}}, "has no share", OptionError),
    ({"variance": "no"}, "variance", OptionError),
    ({"seed": -4}, "seed", OptionError),
    ({"ledger": 3.0}, "ledger", OptionError),
    ({"formula": "y ~ t"}, "clipped_contrast", OptionError),
    ({"formula": "y ~ t | {__import__('os')}"}, "import", FormulaError),
    ({"formula": 7}, "", FormulaError),
)


@pytest.mark.parametrize("name", ["x", "t"])
def test_boolean_objects_are_read_as_bools(name):
    call = {"method": "private_psm", "epsilon": 1, "bounds": BOUNDS, "seed": 1}
    bools = frame()[name] > 0
    one, other = (
        dpe.dp_ate("y ~ t | x", frame(**{name: bools.astype(kind)}), **call)
        for kind in (object, bool)
    )
    assert one.estimate == other.estimate


def test_an_overspend_is_refused_before_the_data_is_read():
    ledger = dpe.Ledger(0.5)
    with pytest.raises(BudgetError, match=r"only \(0\.5"):
        dpe.dp_ate("y ~ t | x", object(), epsilon=1, ledger=ledger)


def test_errors_hold_no_values_of_the_data():
    secret = 123456.789
    data = frame(g=["a"] * 39 + [f"name-{secret}"])
    for change in ({"bounds": {**BOUNDS, "g": ["a", "b", "c"]}}, {"bounds": BOUNDS}):
        with pytest.raises(dpe.DPEffectsError) as caught:
            dpe.dp_ate("y ~ t | x + g", data, epsilon=1, **change)
        assert str(secret) not in str(caught.value)
