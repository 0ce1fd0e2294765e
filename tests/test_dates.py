"""Dates are days since a declared date: the number that the calendar says, wherever rows are."""

import datetime as dt
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.design.bounds import Bounds
from dpeffects.design.codebook import read_bounds
from dpeffects.errors import BoundsError, DataError
from tests.test_engines import arrow, csv, duckdb_relation, parquet, polars_eager, polars_lazy

FIRST, LAST = dt.date(1999, 12, 30), dt.date(2004, 3, 2)
DAYS = (LAST - FIRST).days
N = 1001
FORMULA = "y ~ t | admitted + I(admitted > 800)"


def table(kind="datetime"):
    """Days before the first and after the last date too, and times of day."""
    rng = np.random.default_rng(7)
    t, y = rng.integers(0, 2, N), rng.random(N)
    day = rng.integers(-40, DAYS + 40, N)
    frame = pd.DataFrame({"y": y, "t": t, "z": y[::-1]})
    if kind == "number":
        return frame.assign(admitted=day.astype(float))
    dates = [FIRST + dt.timedelta(days=int(k)) for k in day]
    if kind == "date":
        return frame.assign(admitted=dates)
    if kind == "text":
        return frame.assign(admitted=[f"{x}T23:59:59" for x in dates])
    minutes = pd.to_timedelta(rng.integers(0, 24 * 60, N), unit="min")
    return frame.assign(admitted=pd.to_datetime(dates) + minutes)


def call(data, dates=(FIRST, LAST), formula=FORMULA, **more):
    more = {"method": "one_step", "epsilon": 4, "seed": 1} | more
    return dpe.dp_ate(formula, data, bounds={"y": (0, 1), "admitted": dates}, **more)


def plain(**more):
    return call(table("number"), (0, DAYS), **more)


@pytest.mark.parametrize("kind", ["datetime", "date", "text"])
def test_dates_are_days_since_the_first(kind):
    fit = call(table(kind))
    assert fit.estimate == plain().estimate
    assert ("admitted", "days from 1999-12-30 to 2004-03-02", "declared") in fit.bounds


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "holder", [polars_eager, arrow, polars_lazy, duckdb_relation, parquet, csv]
)
@pytest.mark.parametrize("kind", ["datetime", "date"])
def test_everywhere_with_the_same_bits(holder, kind, tmp_path):
    assert call(holder(table(kind), tmp_path)).estimate == plain().estimate


def test_on_dask(tmp_path):
    dask = pytest.importorskip("dask.dataframe")
    assert call(dask.from_pandas(table(), npartitions=3)).estimate == plain().estimate


@pytest.mark.parametrize(
    "ends",
    [
        ("1999-12-30", "2004-03-02"),
        (pd.Timestamp(FIRST), pd.Timestamp(LAST)),
        (np.datetime64(FIRST), dt.datetime(2004, 3, 2, 12)),
    ],
)
def test_ways_to_write_a_date(ends):
    assert Bounds.declared({"x": ends}).dates == {"x": "1999-12-30"}
    assert Bounds.declared({"x": ends})["x"] == (0, DAYS)


def test_dates_in_codebooks(tmp_path):
    toml, book = tmp_path / "book.toml", tmp_path / "book.csv"
    toml.write_text("y = [0, 1]\nadmitted = [1999-12-30, 2004-03-02]\n")
    book.write_text("name,lower,upper\ny,0,1\nadmitted,1999-12-30,2004-03-02\n")
    for path in (toml, book):
        found = dpe.dp_ate(FORMULA, table(), "one_step", epsilon=4, seed=1, bounds=path)
        assert found.estimate == plain().estimate
    assert read_bounds(toml)["admitted"] == (FIRST, LAST)


def test_an_outcome_of_dates_and_groups_of_dates(tmp_path):
    bounds = {"y": (0, 1), "z": (0, 1), "admitted": (FIRST, LAST)}
    asked = {"epsilon": 4, "delta": 1e-6, "seed": 1, "release": "groups"}
    asked["by"] = "cut(admitted, [0, 500, 1500])"
    numbers = dpe.dp_cate(
        "y ~ t | z", table("number"), bounds=bounds | {"admitted": (0, DAYS)}, **asked
    )
    for holder in (lambda data, _: data, polars_lazy, csv):
        found = dpe.dp_cate("y ~ t | z", holder(table(), tmp_path), bounds=bounds, **asked)
        assert found.tidy()["estimate"].tolist() == numbers.tidy()["estimate"].tolist()
    formula = {"formula": "admitted ~ t", "method": "diff_in_means"}
    assert call(table(), **formula).estimate == plain(**formula).estimate


def test_points_may_be_dates_and_a_saved_function_knows_them(tmp_path):
    bounds = {"y": (0, 1), "admitted": (FIRST, LAST)}
    fit = dpe.dp_cate("y ~ t | admitted", table(), epsilon=4, delta=1e-6, bounds=bounds, seed=1)
    day = FIRST + dt.timedelta(days=700)
    fit.save(tmp_path / "fit.json")
    for found in (fit, dpe.load_cate(tmp_path / "fit.json")):
        expected = found.effect({"admitted": [700.0]})
        for at in ([day], [str(day)], [pd.Timestamp(day)], np.array([day], "datetime64[D]")):
            assert found.effect({"admitted": at}) == expected
    points = dpe.dp_cate(
        "y ~ t | admitted",
        table(),
        epsilon=4,
        delta=1e-6,
        bounds=bounds,
        seed=1,
        release="points",
        at={"admitted": [day]},
    )
    assert points.points == {"admitted": [str(day)]}
    assert points.to_json()


def with_zone(data):
    return data.assign(admitted=data.admitted.dt.tz_localize("UTC"))


def with_gap(data, gap):
    return data.assign(admitted=data.admitted.where(data.index != 3, gap))


BAD = {
    "undeclared": (table(), None, BoundsError, r'bounds=\{"admitted": \("2020-01-01"'),
    "a zone": (with_zone(table()), (FIRST, LAST), DataError, "tz_localize"),
    "a zone, undeclared": (with_zone(table()), None, BoundsError, "contains dates"),
    "NaT": (with_gap(table(), pd.NaT), (FIRST, LAST), DataError, "missing values in admitted"),
    "None": (with_gap(table("date"), None), (FIRST, LAST), DataError, "missing values in admitted"),
    "text": (with_gap(table("text"), "30.12.1999"), (FIRST, LAST), DataError, "is not a date"),
    "no date": (with_gap(table("date"), 3), (FIRST, LAST), DataError, "contains other values"),
    "a number": (
        table("number"),
        (FIRST, LAST),
        DataError,
        "with dates in bounds=, but it is Float64",
    ),
    "numbers": (table(), (0, 9), BoundsError, "contains dates"),
    "reversed": (table(), (LAST, FIRST), BoundsError, "first date must be before"),
    "mixed": (table(), (FIRST, 9), BoundsError, "two numbers"),
    "no such day": (table(), ("2020-02-30", "2020-03-01"), BoundsError, "two dates"),
}


@pytest.mark.parametrize(("data", "ends", "error", "words"), BAD.values(), ids=BAD)
def test_what_cannot_be_used_is_refused_before_anything_is_charged(data, ends, error, words):
    ledger = dpe.Ledger(9)
    bounds = {"y": (0, 1)} | ({"admitted": ends} if ends else {})
    with pytest.raises(error, match=words):
        dpe.dp_ate("y ~ t | admitted", data, "one_step", epsilon=1, bounds=bounds, ledger=ledger)
    assert not ledger.charges


def test_a_plan_has_days():
    bounds = {"y": (0, 1), "admitted": (FIRST, LAST)}
    study = dpe.plan("y ~ t | admitted", n=500, epsilon=1, bounds=bounds, method="diff_in_means")
    assert study.setting.bounds["admitted"] == (0, DAYS)


def test_missing_dates_on_an_engine(tmp_path):
    pytest.importorskip("polars")
    for holder in (polars_lazy, csv):
        with pytest.raises(DataError, match="missing values in admitted"):
            call(holder(with_gap(table(), pd.NaT), Path(tmp_path)))
