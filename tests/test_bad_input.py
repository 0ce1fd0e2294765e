"""Bad input gets one clear error of our own type, and nothing is charged."""

from __future__ import annotations

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
from tests.cases import each

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


CASES = {
    "missing column": (DataError, "'z'", {"formula": "y ~ t | z"}),
    "misspelt column": (
        DataError,
        "did you mean 'xlong'",
        {
            "formula": "y ~ t | xlng",
            "data": frame(xlong=np.zeros(N)),
        },
    ),
    "NaN outcome": (DataError, "missing values in y", {"data": with_value("y", np.nan)}),
    "NaN covariate": (DataError, "missing values in x", {"data": with_value("x", np.nan)}),
    "NaN treatment": (DataError, "missing values in t", {"data": with_value("t", np.nan)}),
    "infinite outcome": (DataError, "'y' holds infinite", {"data": with_value("y", np.inf)}),
    "infinite covariate": (DataError, "'x' holds infinite", {"data": with_value("x", -np.inf)}),
    "one arm empty": (DataError, "arms is empty", {"data": frame(t=np.ones(N, dtype=int))}),
    "three treatments": (DataError, "0/1", {"data": frame(t=np.arange(N) % 3)}),
    "text treatment": (DataError, "control first", {"data": frame(t=["a", "b"] * (N // 2))}),
    "three treatment levels": (
        OptionError,
        'write method="auto", or compare two',
        {
            "method": "model_folds",
            "data": frame(t=["a", "b", "c", "a"] * (N // 4)),
            "bounds": {**BOUNDS, "t": list("abc")},
        },
    ),
    "unknown treatment level": (
        DataError,
        "outside its declared levels",
        {
            "data": frame(t=["a", "b", "c", "a"] * (N // 4)),
            "bounds": {**BOUNDS, "t": ["a", "b"]},
        },
    ),
    "text outcome": (DataError, "must be numeric", {"data": frame(y=["a"] * N)}),
    "unknown level": (
        DataError,
        "outside its declared levels",
        {
            "formula": "y ~ t | g",
            "data": frame(g=list("abcd") * (N // 4)),
            "bounds": {**BOUNDS, "g": ["a", "b", "c"]},
        },
    ),
    "undeclared levels": (
        BoundsError,
        '"g": ["LEVEL"',
        {
            "formula": "y ~ t | g",
            "data": frame(g=list("ab") * (N // 2)),
        },
    ),
    "category learnt from data": (
        BoundsError,
        '"g": ["LEVEL"',
        {
            "formula": "y ~ t | g",
            "data": frame(g=pd.Categorical(list("ab") * (N // 2))),
        },
    ),
    "levels as a number": (
        DataError,
        "uses it as a number",
        {
            "formula": "y ~ t | log(g)",
            "data": frame(g=np.ones(N)),
            "bounds": {**BOUNDS, "g": [1, 2, 3]},
        },
    ),
    "empty frame": (DataError, "0 rows", {"data": frame().iloc[:0]}),
    "too few rows": (OptionError, "needs 10 rows", {"data": frame().iloc[:8], "as_printed": True}),
    "small arm": (
        OptionError,
        "an arm has 2",
        {
            "data": frame(t=(np.arange(N) < 2).astype(int)),
            "level": "label",
        },
    ),
    "not a frame": (DataError, "frame", {"data": {"y": [1, 2]}}),
    "no data": (DataError, "frame", {"data": None}),
    "negative epsilon": (BudgetError, "positive", {"epsilon": -1}),
    "zero epsilon": (BudgetError, "positive", {"epsilon": 0}),
    "text epsilon": (BudgetError, "number", {"epsilon": "1"}),
    "delta of one": (BudgetError, "delta", {"delta": 1.0}),
    "reversed bounds": (BoundsError, "below upper", {"bounds": {"y": (1, 0), "x": (0, 1)}}),
    "infinite bounds": (BoundsError, "finite", {"bounds": {"y": (0, np.inf), "x": (0, 1)}}),
    "bounds of nothing": (BoundsError, "'yy'", {"bounds": {**BOUNDS, "yy": (0, 1)}}),
    "bounds as text": (BoundsError, "from_data", {"bounds": "data"}),
    "bounds as a list": (BoundsError, "map", {"bounds": [(0, 1)]}),
    "too little budget for bounds": (BoundsError, '"x": (LOWER, UPPER)', {"bounds": {"y": (0, 1)}}),
    "log of zero": (BoundsError, "log", {"formula": "y ~ t | log(x)"}),
    "log of an undeclared column": (
        BoundsError,
        "must be declared",
        {
            "formula": "y ~ t | log(x)",
            "bounds": {"y": (0, 1)},
        },
    ),
    "unknown method": (OptionError, "Did you mean 'private_psm'", {"method": "private_pms"}),
    "unknown option": (OptionError, "Did you mean 'neighbors'", {"neighbours": 3}),
    "bad neighbors": (OptionError, "neighbors", {"neighbors": 0}),
    "bad match limit": (OptionError, "match_limit", {"match_limit": -2}),
    "bad arms": (OptionError, "arms", {"method": "diff_in_means", "arms": "secret"}),
    "bad level": (OptionError, "level", {"level": "row"}),
    "two columns of one name": (
        DataError,
        "two columns named 'x': rename or drop one",
        {"data": pd.concat([frame(), frame()[["x"]]], axis=1)},
    ),
    "text numbers with a range": (
        DataError,
        'it is String: write pandas.to_numeric(data["x"])',
        {"data": frame(x=frame().x.astype(str))},
    ),
    "mixed objects": (
        DataError,
        "or .astype(bool) for true and false",
        {"data": frame(x=mixed())},
    ),
    "mixed objects, undeclared": (
        BoundsError,
        "data['x'].astype(bool)",
        {"data": frame(x=mixed()), "bounds": {"y": (0, 1)}},
    ),
    "mixed objects as treatment": (
        DataError,
        "data['t'].astype(bool)",
        {"data": frame(t=mixed())},
    ),
    "a length of time": (
        DataError,
        "total_seconds",
        {"data": frame(x=pd.to_timedelta(frame().x, unit="D"))},
    ),
    "misspelt share": (OptionError, "Did you mean 'estimate'", {"shares": {"estimat": 1}}),
    "misspelt method": (OptionError, "Did you mean 'one_step'", {"method": "one_stp"}),
    "bad share": (OptionError, "unknown share", {"shares": {"estimates": 1}}),
    "bad variance flag": (OptionError, "variance", {"variance": "no"}),
    "bad seed": (OptionError, "seed", {"seed": -4}),
    "bad ledger": (OptionError, "ledger", {"ledger": 3.0}),
    "no covariates": (OptionError, "clipped_contrast", {"formula": "y ~ t"}),
    "learns from other rows": (FormulaError, "scale", {"formula": "y ~ t | scale(x)"}),
    "runs code": (FormulaError, "import", {"formula": "y ~ t | {__import__('os')}"}),
    "no treatment": (FormulaError, "", {"formula": "y ~ 1"}),
    "not a formula": (FormulaError, "", {"formula": 7}),
}


@each(("error", "says", "change"), CASES.values())
def test_one_clear_error_and_nothing_charged(error, says, change):
    ledger = dpe.Ledger(10.0)
    call = {
        "formula": "y ~ t | x",
        "data": frame(),
        "method": "private_psm",
        "epsilon": 1,
        "bounds": BOUNDS,
        "ledger": ledger,
        **change,
    }
    with pytest.raises(error) as caught:
        dpe.dp_ate(call.pop("formula"), call.pop("data"), **call)
    assert isinstance(caught.value, dpe.DPEffectsError)
    assert says in str(caught.value)
    assert ledger.spends == ()


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
