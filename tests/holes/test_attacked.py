"""Calls that failed after their first charge because of what was in the rows, or never ended."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import DataError

BOUNDS = {"y": (0, 1), "x": (0, 1)}


def frame(n=200):
    rng = np.random.default_rng(3)
    t, x = rng.integers(0, 2, n), rng.random(n)
    data = {"y": rng.random(n), "t": t, "x": x, "h": rng.choice([0.5, 0.1], n)}
    return pd.DataFrame(data | {"g": rng.choice(["a", "b"], n), "b": rng.integers(0, 2, n)})


def refused_for_free(formula, data, bounds, **given):
    ledger = dpe.Ledger(10.0)
    with pytest.raises(DataError) as caught:
        dpe.dp_ate(formula, data, "private_ipw", epsilon=1, bounds=bounds, ledger=ledger, **given)
    assert ledger.charges == ()
    assert ledger.spent == (0, 0)
    return str(caught.value)


@pytest.mark.parametrize("way", ["decimal", "single", "duckdb decimal"])
def test_levels_that_an_engine_finds_and_the_reader_does_not_are_refused_for_free(way):
    """An engine said that all values were declared levels, by its own comparison of decimals and
    single precision; the reader of rows said after two charges that some were not, if a record
    with the level 0.1 was there."""
    pl, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    data = frame()
    lazy = {
        "decimal": pl.from_pandas(data).with_columns(pl.col("h").cast(pl.Decimal(3, 1))).lazy(),
        "single": pl.from_pandas(data).with_columns(pl.col("h").cast(pl.Float32)).lazy(),
        "duckdb decimal": duckdb.sql("select * replace (h::decimal(3, 1) as h) from data"),
    }
    said = refused_for_free("y ~ t | x + C(h)", lazy[way], {**BOUNDS, "h": [0.5, 0.1]})
    assert "'h' has values that are not among its declared levels" in said


def test_a_collation_does_not_let_levels_pass_that_are_not_declared():
    """A DuckDB column with a collation equals levels in other letters; the reader of rows failed
    after the first charges if one record was written in capitals."""
    duckdb = pytest.importorskip("duckdb")
    data = frame()
    data.loc[7, "g"] = "A"
    rows = duckdb.sql("select * replace (g collate nocase as g) from data")
    said = refused_for_free("y ~ t | x + C(g)", rows, {**BOUNDS, "g": ["a", "b"]})
    assert "'g' has values that are not among its declared levels" in said


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_arms_of_another_type_are_refused_for_free(engine):
    """A bool treatment with the levels 0 and 1 passed the engine's check, and the call failed
    after its first charges."""
    pl, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    data = frame().astype({"t": bool})
    lazy = duckdb.from_df(data) if engine == "duckdb" else pl.from_pandas(data).lazy()
    refused_for_free("y ~ t | x", lazy, {**BOUNDS, "t": [0, 1]})


@pytest.mark.parametrize("levels", [[0, 1], [False, True]])
def test_groups_of_a_csv_file_are_read_as_they_are_declared(levels, tmp_path):
    """Groups by a column of a CSV file that the formula does not have were read as text: the call
    failed after its first charges, and for numbers only if a record said "true"."""
    pytest.importorskip("duckdb")
    path, data, by = tmp_path / "data.csv", frame(), "b + cut(h, [0, 0.3, 1])"
    texts = data.assign(h=data["h"].astype(object))
    texts.loc[3, "h"], data.loc[3, "h"] = "true", 1.0
    texts.to_csv(path, index=False)
    bounds = {**BOUNDS, "b": levels}
    given = {"release": "groups", "by": by, "epsilon": 1, "seed": 1, "bounds": bounds}
    found = dpe.dp_cate("y ~ t | x", str(path), **given)
    held = dpe.dp_cate("y ~ t | x", data.assign(b=data["b"].astype(type(levels[0]))), **given)
    assert found.tidy()["estimate"].tolist() == held.tidy()["estimate"].tolist()


def test_a_column_that_formula_and_groups_read_in_two_ways_is_refused_for_free(tmp_path):
    """The text of a CSV file on an engine has one type; groups by another one failed after the
    first charges."""
    pytest.importorskip("duckdb")
    path, ledger = tmp_path / "data.csv", dpe.Ledger(10.0)
    frame().to_csv(path, index=False)
    given = {"release": "groups", "by": "C(b, levels=['0', '1'])", "epsilon": 1, "ledger": ledger}
    with pytest.raises(DataError, match="read as number by the formula and as text by the groups"):
        dpe.dp_cate("y ~ t | x + b", str(path), bounds={**BOUNDS, "b": (0, 1)}, **given)
    assert ledger.charges == ()


def test_arithmetic_that_a_user_lets_raise_does_not_end_a_call():
    """With np.seterr(all="raise") a score that underflows, which depends on the rows, ended a call
    after its first charge."""
    rng, rows = np.random.default_rng(5), 300
    x = rng.random(rows)
    data = pd.DataFrame({"y": rng.random(rows), "t": (x > 0.5).astype(int), "x": x})
    given = {"epsilon": 90, "bounds": BOUNDS, "penalty": 1e-9, "variance": False}
    with np.errstate(all="raise"):
        fit = dpe.dp_ate("y ~ t | x", data, "private_psm", as_printed=True, seed=1, **given)
        assert np.geterr()["under"] == "raise"
    assert fit.n == rows


@pytest.mark.parametrize("method", ["private_psm", "private_ipw"])
def test_rows_that_change_from_one_look_to_the_next_are_refused(method):
    """A random sample on an engine is another one at each look: the solver never ended.

    (That two samples of 1000 of 20,000 have as many treated again and again is no chance that
    matters: a call takes many looks, and one that differs is enough.)
    """
    duckdb = pytest.importorskip("duckdb")
    data = frame(20_000)
    rows = duckdb.sql("select * from data using sample reservoir(1000 rows)")
    assert data.shape[0] == 20_000
    with pytest.raises(DataError, match="gives other rows each time"):
        dpe.dp_ate("y ~ t | x", rows, method, epsilon=1, bounds=BOUNDS, seed=1)


class Leaves:
    """A model that ends the program where it sees the outcome 0.7."""

    def fit(self, x, y):
        if 0.7 in y:
            raise SystemExit
        self.mean = y.mean()
        return self

    def predict(self, x):
        return np.full(len(x), self.mean)


@pytest.mark.parametrize("method", ["sample_aggregate", "model_folds"])
def test_a_learner_that_ends_the_program_does_not_end_the_call(method):
    """SystemExit in a learner, which a record can lead to, was not taken as a block that failed."""
    data = frame()
    data.loc[11, "y"] = 0.7
    given = {"estimator": "regression", "outcome": Leaves(), "epsilon": 1, "bounds": BOUNDS}
    assert dpe.dp_ate("y ~ t | x", data, method, seed=1, **given).n == 200


@pytest.mark.parametrize("lazy", [False, True])
def test_integers_of_128_bits_are_numbers(lazy):
    """numpy has no integers of 128 bits: a polars column of them ended a call with an error of
    polars, and on an engine after the first charges."""
    pl = pytest.importorskip("polars")
    data = pl.from_pandas(frame()).with_columns(pl.col("b").cast(pl.Int128))
    given = {"epsilon": 1, "bounds": {**BOUNDS, "b": (0, 1)}, "seed": 1}
    fit = dpe.dp_ate("y ~ t | x + b", data.lazy() if lazy else data, "private_ipw", **given)
    assert fit.estimate == dpe.dp_ate("y ~ t | x + b", frame(), "private_ipw", **given).estimate
