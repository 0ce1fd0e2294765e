"""Differences in differences: long data to one record for each unit, two periods and more."""

from __future__ import annotations

import duckdb
import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import statsmodels.formula.api as smf

import dpeffects as dpe
from dpeffects.design.panel import Panel, wide_of
from dpeffects.design.sample import AnalysisSample
from dpeffects.errors import DataError, DPEffectsError, OptionError
from dpeffects.formula import parse
from dpeffects.inference.estimate import Unavailable
from tests.refused import refusals
from tests.replay import replay

BOUNDS = {"y": (0, 100), "x": (0, 1), "s": ["a", "b"]}
LONG = {"time": "year", "unit": "id", "bounds": BOUNDS}
TWO = {**LONG, "periods": [2019, 2020]}
FIVE = {**LONG, "periods": [2017, 2018, 2019, 2020, 2021], "start": 2020}
PLENTY = 1e5


def people(n=400, seed=0, years=(2017, 2018, 2019, 2020, 2021), status=False):
    """Long data in a random order; arms differ in their level, and in the change from 2020 on."""
    rng = np.random.default_rng(seed)
    t, x, own = rng.random(n) < 0.4, rng.random(n), rng.normal(size=n)
    rows = []
    for k, year in enumerate(years):
        y = 40 + 6 * t + 5 * own + k + 4 * t * (year >= 2020) + 2 * rng.normal(size=n)
        treated = t & (year >= 2020) if status else t
        about = {"id": np.arange(n), "year": year, "y": y, "t": treated.astype(int)}
        rows.append(pd.DataFrame(about | {"x": x + 0.0 * k, "s": np.where(x > 0.5, "a", "b")}))
    return pd.concat(rows).sample(frac=1.0, random_state=seed, ignore_index=True)


def difference_in_differences(data, year=2020, reference=2019):
    means = data.groupby(["t", "year"])["y"].mean()
    return (means[1, year] - means[1, reference]) - (means[0, year] - means[0, reference])


def dask(data):
    return pytest.importorskip("dask.dataframe").from_pandas(data, npartitions=3)


FRAMES = {
    "pandas": lambda data, folder: data,
    "pandas, nullable": lambda data, folder: data.convert_dtypes(),
    "polars": lambda data, folder: pl.from_pandas(data),
    "pyarrow": lambda data, folder: pa.Table.from_pandas(data, preserve_index=False),
    "polars, lazy": lambda data, folder: pl.from_pandas(data).lazy(),
    "duckdb": lambda data, folder: duckdb.from_df(data),
    "dask": lambda data, folder: dask(data),
    "parquet": lambda data, folder: _file(data, folder / "data.parquet"),
    "csv": lambda data, folder: _file(data, folder / "data.csv"),
}


def _file(data, path):
    (data.to_parquet if path.suffix == ".parquet" else data.to_csv)(path, index=False)
    return str(path)


def wide(data, formula="y ~ t | x + s", strict=False, **given):
    """The wide table in memory, by unit."""
    parsed = parse(formula)
    panel = Panel.asked("id", "year", given.pop("periods", [2019, 2020]), given.pop("start", 2020))
    made = wide_of(data, parsed, BOUNDS, panel, AnalysisSample.asked(parsed, **given), strict)
    frame = nw.from_native(made.data.frame).lazy().collect().to_native()
    if not isinstance(frame, pd.DataFrame):
        frame = nw.from_native(frame).to_arrow().to_pandas(types_mapper=pd.ArrowDtype)
    return frame.astype({"id": int}).set_index("id").sort_index()  # CSV files have texts


# --- one record for each unit -----------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", FRAMES)
def test_units_are_put_together_as_by_hand(kind, tmp_path):
    data = people(60)
    data.loc[data.index[:7], "y"] = np.nan
    found = wide(FRAMES[kind](data, tmp_path))
    values = data.pivot(index="id", columns="year", values="y")
    for year in (2019, 2020):
        np.testing.assert_array_equal(found[f"y_{year}"].astype(float), values[year])
    before = data[data["year"] == 2019].set_index("id").sort_index()
    np.testing.assert_array_equal(found["x"].astype(float), before["x"])
    assert found["s"].tolist() == before["s"].tolist()
    assert found["t"].astype(int).tolist() == before["t"].tolist()
    assert not {"y_2017", "year", "y"} & set(found)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", FRAMES)
def test_a_period_without_exactly_one_row_is_missing(kind, tmp_path):
    data = people(8)
    at = {
        (i, y): data.index[(data["id"] == i) & (data["year"] == y)][0]
        for i in range(8)
        for y in (2019, 2020)
    }
    again = data.loc[[at[1, 2020]]]  # the same row twice
    other = data.loc[[at[2, 2019]]].assign(y=99.0, x=0.9)
    data = pd.concat([data.drop([at[0, 2020], at[3, 2019]]), again, other])
    data = data[~((data["id"] == 4) & data["year"].isin([2019, 2020]))]  # other periods only
    found = wide(FRAMES[kind](data.reset_index(drop=True), tmp_path))
    assert len(found) == 8
    gone = found.isna()
    assert gone.index[gone["y_2020"]].tolist() == [0, 1, 4]
    assert gone.index[gone["y_2019"]].tolist() == [2, 3, 4]
    assert gone.index[gone["t"]].tolist() == [0, 1, 4]  # of 2020
    assert gone.index[gone["x"]].tolist() == gone.index[gone["s"]].tolist() == [2, 3, 4]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", ["pandas", "polars", "duckdb", "dask"])
def test_all_rows_of_one_unit_change_one_record(kind, tmp_path):
    rng = np.random.default_rng(1)
    data = people(12, status=True)
    rest = data[data["id"] != 5]
    before = wide(FRAMES[kind](data, tmp_path))
    for size in (1, 2, 3, 9):
        rows = pd.DataFrame(
            {
                "id": rng.choice([5, 77]),
                "year": rng.choice([2016, 2019, 2020], size),
                "y": rng.choice([np.nan, np.inf, -1e300, 3.0], size),
                "t": rng.integers(0, 2, size),
                "x": rng.random(size),
                "s": rng.choice(["a", "b"], size),
            }
        )
        changed = pd.concat([rows, rest]).sample(frac=1.0, random_state=size, ignore_index=True)
        after = wide(FRAMES[kind](changed, tmp_path))
        assert len(after) == len(before)
        same = [i for i in before.index if i != 5]
        pd.testing.assert_frame_equal(before.loc[same], after.loc[same])
        assert (before.dtypes == after.dtypes).all()


def test_types_do_not_depend_on_who_is_there():
    data = people(20).assign(k=np.arange(100) % 3, b=np.arange(100) % 2 == 0)
    whole = wide(data, "y ~ t | k + b")
    without = wide(data[~((data["id"] == 3) & (data["year"] == 2019))], "y ~ t | k + b")
    assert (whole.dtypes == without.dtypes).all()
    assert without.loc[3, ["k", "b"]].isna().all()


def test_names_that_are_taken_get_longer():
    data = people(20).assign(y_2019=lambda frame: frame["x"])
    found = wide(data, "y ~ t | y_2019")
    assert {"y_2019", "y_2019_", "y_2020"} <= set(found)
    assert found["y_2019"].between(0, 1).all()
    assert found["y_2019_"].min() > 10


# --- two periods ------------------------------------------------------------------------------


def test_the_estimate_is_that_of_unit_fixed_effects():
    data = people(status=True)
    fit = dpe.dp_did("y ~ t", data, epsilon=PLENTY, **TWO)
    two = data[data["year"].isin([2019, 2020])]
    plain = smf.ols("y ~ t + C(year) + C(id)", two).fit()
    assert fit.estimate == pytest.approx(plain.params["t"], abs=0.02)
    change = two.pivot(index="id", columns="year", values="y")
    arm = two[two["year"] == 2020].set_index("id")["t"].loc[change.index]
    by_arm = (change[2020] - change[2019]).groupby(arm)
    assert fit.std_error == pytest.approx(np.sqrt((by_arm.var() / by_arm.size()).sum()), rel=0.05)
    assert isinstance(fit, dpe.DidEffect)
    assert (fit.estimand, fit.n, fit.guarantee.unit) == ("ATT", 400, "all rows of one id")


def test_with_covariates_trends_are_parallel_for_the_same_ones():
    data = people(3000, seed=3)
    rng = np.random.default_rng(5)
    x = data.set_index("id")["x"].groupby(level=0).first()
    arm = pd.Series(rng.random(3000) < 0.2 + 0.6 * x, index=x.index).astype(int)
    data["t"] = data["id"].map(arm)
    data["y"] = 40 + (data["year"] == 2020) * (10 * data["x"] + 3 * data["t"])
    data["y"] += rng.normal(size=len(data))
    fit = dpe.dp_did("y ~ t | x", data, epsilon=200, **TWO)
    assert fit.estimate == pytest.approx(3.0, abs=0.4)
    assert difference_in_differences(data) > 4.5
    assert fit.adjusted
    assert "given the covariates" in fit.assumes


@pytest.mark.sampled(7)
@pytest.mark.parametrize("kind", [kind for kind in FRAMES if kind not in ("pandas", "dask")])
@pytest.mark.parametrize("formula", ["y ~ t", "y ~ t | x + s"])
def test_the_same_bits_wherever_the_rows_are(kind, formula, tmp_path):
    data = people(150)
    given = {**TWO, "epsilon": 8, "seed": 1, "missing": "complete"}
    data = data.drop(data.index[data["year"] == 2019][:9])
    one = dpe.dp_did(formula, data, **given)
    two = dpe.dp_did(formula, FRAMES[kind](data, tmp_path), **given)
    assert (one.estimate, one.conf_int()) == (two.estimate, two.conf_int())


def test_wide_and_long_data_give_the_same():
    data = people(status=True)
    table = data.pivot(index="id", columns="year", values="y").add_prefix("y")
    table["t"] = data[data["year"] == 2020].set_index("id")["t"]
    bounds = {"y20*": (0, 100)}
    one = dpe.dp_did("y ~ t", data, epsilon=1, seed=1, **TWO)
    two = dpe.dp_did("y2020 ~ t", table, before="y2019", bounds=bounds, epsilon=1, seed=1)
    assert one.estimate == two.estimate
    assert two.outcome == "I(y2020 - y2019)"
    assert two.guarantee.unit == "record"
    several = dpe.dp_did(
        "y2020 + y2021 ~ t",
        table,
        before=["y2017", "y2018", "y2019"],
        bounds=bounds,
        epsilon=1,
        seed=1,
    )
    study = dpe.dp_did("y ~ t", data, epsilon=1, seed=1, **FIVE)
    assert several.estimates.tolist() == study.estimates.tolist()
    assert several.labels == ("y2017", "y2018", "y2020", "y2021")


def test_without_covariates_it_is_no_association():
    fit = dpe.dp_did("y ~ t", people(), epsilon=4, seed=1, **TWO)
    assert not fit.associated
    assert not isinstance(fit.p_value, Unavailable)
    assert fit.bias_variance < fit.noise_variance + fit.sampling_variance
    assert "design" not in fit.options


def test_expressions_are_taken_in_each_period():
    data = people()
    logs = dpe.dp_did("log(y + 1) ~ t", data, epsilon=PLENTY, **TWO)
    assert logs.outcome == "I(log(y_2020 + 1) - log(y_2019 + 1))"
    by_hand = difference_in_differences(data.assign(y=np.log(data["y"] + 1)))
    assert logs.estimate == pytest.approx(by_hand, abs=0.002)
    above = dpe.dp_did("I(y > 45) ~ t", data, epsilon=PLENTY, **TWO)
    by_hand = difference_in_differences(data.assign(y=data["y"] > 45))
    assert above.estimate == pytest.approx(by_hand, abs=0.002)


def test_outcomes_that_are_true_or_false_have_a_range():
    data = people()
    high = data.assign(y=data["y"] > 45)
    fit = dpe.dp_did("y ~ t", high, epsilon=PLENTY, **TWO | {"bounds": None})
    assert fit.estimate == pytest.approx(difference_in_differences(high), abs=0.002)
    assert fit.bounds[0][1:] == ("[-1, 1]", "dtype")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("periods", [["before", "after"], [False, True], [0, 1], [-0.5, 0.5]])
def test_periods_of_all_kinds(periods):
    data = people(years=(2019, 2020))
    data["year"] = data["year"].map(dict(zip((2019, 2020), periods, strict=True)))
    for frame in (data, pl.from_pandas(data), pl.from_pandas(data).lazy(), duckdb.from_df(data)):
        fit = dpe.dp_did("y ~ t", frame, epsilon=1, seed=1, **LONG, periods=periods)
        assert fit.n == 400
    if isinstance(periods[0], str):
        categories = data.astype({"year": "category"})
        assert dpe.dp_did("y ~ t", categories, epsilon=1, seed=1, **LONG, periods=periods) == fit


def test_one_treated_unit_and_no_variation_at_all():
    data = people(status=True)
    lone = data.assign(t=((data["id"] == 7) & (data["year"] == 2020)).astype(int))
    fit = dpe.dp_did("y ~ t", lone, epsilon=1, seed=1, **TWO)
    low, high = fit.conf_int()
    assert low <= fit.estimate <= high
    constant = dpe.dp_did("y ~ t", data.assign(y=50.0), epsilon=1, seed=1, **TWO)
    low, high = constant.conf_int()
    assert low <= 0.0 <= high


def test_complete_units_count():
    data = people(1000)
    data = data.drop(data.index[data["year"] == 2020][:200])
    again = data[data["year"] == 2019].iloc[:100]
    fit = dpe.dp_did(
        "y ~ t", pd.concat([data, again]), epsilon=PLENTY, missing={"y": "complete"},
        **TWO,
    )  # fmt: skip
    gone = set(range(1000)) - set(data[data["year"] == 2020]["id"]) | set(again["id"])
    assert f"about {1000 - len(gone)} " in fit.sample["size"]
    rest = data[~data["id"].isin(gone)]
    assert fit.estimate == pytest.approx(difference_in_differences(rest), abs=0.05)


def test_subsets_weights_and_clusters_are_those_before_treatment():
    data = people(2000)
    data["w"] = np.where(data["year"] == 2019, 1.0 + (data["x"] > 0.5), 0.0)
    data["village"] = data["id"] % 50
    old = data.assign(x=np.where(data["year"] == 2019, data["x"], 1.0))
    fit = dpe.dp_did("y ~ t", old, epsilon=PLENTY, subset="x < 0.5", **TWO)
    assert fit.estimate == pytest.approx(difference_in_differences(data[data["x"] < 0.5]), abs=0.05)
    given = {**TWO, "bounds": {**BOUNDS, "w": (0, 2)}, "epsilon": 50}
    weighted = dpe.dp_did("y ~ t", data, weights="w", **given)
    twice = pd.concat([data, data[data["x"] > 0.5].assign(id=lambda x: x["id"] + 5000)])
    assert weighted.estimate == pytest.approx(difference_in_differences(twice), abs=0.2)
    clustered = dpe.dp_did("y ~ t", data, cluster="village", clusters=50, **given)
    assert "village" in clustered.sample["cluster"]


# --- refusals ---------------------------------------------------------------------------------

WRONG = {
    "no periods": ({"periods": None}, "periods must be a list"),
    "one period": ({"periods": [2020]}, "periods must be a list"),
    "a column": ({"periods": np.arange(30)}, "periods"),
    "another order": ({"periods": [2020, 2019]}, "in increasing order"),
    "twice": ({"periods": [2020, 2020]}, "each named once"),
    "texts": ({"periods": ["2019", "2020"]}, "periods= are text"),
    "a mixture": ({"periods": [2019, "2020"]}, "all numbers or all text"),
    "start": ({"start": 2019}, "first period under treatment"),
    "no unit": ({"unit": None}, "write unit=... too"),
    "no such time": ({"time": "yaer"}, "did you mean 'year'"),
    "the same": ({"time": "id"}, "the same column"),
    "both": ({"before": "x"}, "before is for wide data"),
    "label": ({"level": "label"}, "covariates and treatment are public"),
    "max_rows": ({"max_rows": 2}, "one record"),
    "a method": ({"method": "diff_in_means"}, "estimates ATE, not ATT"),
    "change": ({"change": (5, -5)}, "must be the range of the change"),
}


test_what_is_refused = refusals(
    lambda **given: dpe.dp_did("y ~ t", people(50), epsilon=1, **TWO | given),
    *WRONG.values(),
    error=DPEffectsError,
)


def test_what_else_is_refused():
    data = people(50)
    with pytest.raises(OptionError, match="\\(long data\\)"):
        dpe.dp_did("y ~ t", data, epsilon=1, bounds=BOUNDS)
    with pytest.raises(OptionError, match="other columns than the outcome"):
        dpe.dp_did("y ~ t", data, before="y", epsilon=1, bounds=BOUNDS)
    three = data.assign(t=data["id"] % 3)
    with pytest.raises(OptionError, match="compares two arms"):
        dpe.dp_did("y ~ t", three, epsilon=1, **TWO | {"bounds": {**BOUNDS, "t": [0, 1, 2]}})
    with pytest.raises(OptionError, match="no change"):
        dpe.dp_did("Surv(y, t) ~ s", data, epsilon=1, **TWO)
    with pytest.raises(DataError, match="numeric or bool"):
        dpe.dp_did("s ~ t", data, epsilon=1, **TWO)
    with pytest.raises(OptionError, match="cannot have another role"):
        dpe.dp_did("y ~ t | year", data, epsilon=1, **TWO)
    with pytest.raises(DataError, match="missing values, but every row"):
        dpe.dp_did("y ~ t", data.assign(id=data["id"].where(data["id"] > 3)), epsilon=1, **TWO)
    dated = data.assign(year=pd.to_datetime(data["year"], format="%Y"))
    with pytest.raises(DataError, match="contains dates"):
        dpe.dp_did("y ~ t", dated, epsilon=1, **TWO)
    with pytest.raises(OptionError, match="method cannot be set here"):
        dpe.dp_did("y ~ t", data, "one_step", epsilon=1, **FIVE)


@pytest.mark.parametrize("kind", ["pandas", "polars", "polars, lazy", "duckdb", "csv"])
def test_incomplete_units_are_refused_by_default(kind, tmp_path):
    data = people(50)
    for wrong in (data.drop(data.index[data["year"] == 2020][0]), pd.concat([data, data[:300]])):
        frame = FRAMES[kind](wrong.reset_index(drop=True), tmp_path)
        with pytest.raises(DataError, match="'id' have no row, or more than one"):
            dpe.dp_did("y ~ t", frame, epsilon=1, **TWO)
    with pytest.raises(DataError, match="missing values in"):
        dpe.dp_did("y ~ t", data.assign(y=data["y"].where(data["id"] > 0)), epsilon=1, **TWO)


# --- neighbours -------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("formula", "periods"), [("y ~ t", "two"), ("y ~ t | x + s", "two"), ("y ~ t", "five")]
)
@pytest.mark.parametrize("engine", ["pandas", "duckdb"])
def test_replay_on_units_with_other_rows(formula, periods, engine, tmp_path):
    data = people(200)
    odd = pd.DataFrame(
        {"id": 3, "year": [2020, 2020, 2019, 2016], "y": [1e9, np.nan, -1e9, 0.0], "t": 1}
    ).assign(x=-5.0, s="a")
    rest = data[data["id"] != 3]
    for changed in (odd, odd.iloc[[0, 2]].assign(id=900), odd.iloc[[3]]):
        other = pd.concat([changed, rest]).sample(frac=1.0, random_state=2, ignore_index=True)
        found = replay(
            lambda frame, noise: dpe.dp_did(
                formula,
                FRAMES[engine](frame, tmp_path),
                epsilon=8.0,
                missing="complete",
                ledger=noise.ledger(),
                seed=noise,
                **(TWO if periods == "two" else FIVE),
            ),
            data,
            other,
        )
        assert found.violations == ()
        assert (found.refused, found.failed) == ("", "")
        assert found.largest <= 1.0


# --- more than two periods ----------------------------------------------------------------------


def test_periods_are_compared_with_the_last_before_treatment():
    data = people(1000, status=True)
    fit = dpe.dp_did("y ~ t", data, epsilon=PLENTY, **FIVE)
    assert isinstance(fit, dpe.EventStudy)
    assert (fit.labels, fit.reference, fit.leads) == (("2017", "2018", "2020", "2021"), "2019", 2)
    ever = data.assign(t=data.groupby("id")["t"].transform("max"))
    for label, estimate in zip(fit.labels, fit.estimates, strict=True):
        by_hand = difference_in_differences(ever, int(label))
        assert estimate == pytest.approx(by_hand, abs=0.02)
        change = ever.pivot(index="id", columns="year", values="y")
        arm = ever.groupby("id")["t"].first()
        by_arm = (change[int(label)] - change[2019]).groupby(arm)
        error = np.sqrt((by_arm.var() / by_arm.size()).sum())
        assert fit.period(label).std_error == pytest.approx(error, rel=0.03)
    mean = fit.period()
    assert mean.estimate == pytest.approx(fit.estimates[2:].mean())
    late = change[[2020, 2021]].mean(axis=1) - change[2019]
    by_arm = late.groupby(arm)
    assert mean.std_error > np.sqrt((by_arm.var() / by_arm.size()).sum())
    assert mean.std_error < max(fit.period(x).std_error for x in ("2020", "2021"))


def test_trends_before_treatment_are_tested():
    flat = dpe.dp_did("y ~ t", people(2000), epsilon=20, seed=1, **FIVE)
    found = flat.pretrends()
    assert found.periods == 2
    assert found.p_value > 0.05
    early = flat.period("2017"), flat.period("2018")
    assert found.p_value == pytest.approx(min(1.0, 2 * min(x.p_value for x in early)))
    ends = [abs(end) for x in early for end in x.conf_int(0.975)]
    assert found.largest == pytest.approx(max(ends))
    assert "PRE-TRENDS DIFFER" not in str(flat.summary())
    data = people(2000)
    steep = data.assign(y=data["y"] + 2 * data["t"] * (data["year"] - 2019))
    fit = dpe.dp_did("y ~ t", steep, epsilon=20, seed=1, **FIVE)
    assert fit.pretrends().p_value < 0.001
    assert "PRE-TRENDS DIFFER" in fit.warnings
    assert "PRE-TRENDS DIFFER" in str(fit.summary())
    none = dpe.dp_did("y ~ t", data, epsilon=20, seed=1, **FIVE | {"start": 2018})
    assert none.leads == 0
    assert isinstance(none.pretrends(), Unavailable)


def test_trends_that_are_parallel_for_the_same_covariates_only():
    data = people(8000, seed=4)
    arm = (np.random.default_rng(8).random(8000) < 0.2 + 0.5 * _of_units(data, "x")).astype(int)
    data["t"] = data["id"].map(arm)
    after = data["year"] >= 2020
    data["y"] = 40 + (data["year"] - 2019) * 4 * data["x"] + 3 * data["t"] * after
    data["y"] += np.random.default_rng(9).normal(size=len(data))
    given = {**FIVE, "epsilon": 20, "seed": 1, "change": (-20, 20)}
    plain, adjusted = (dpe.dp_did(f"y ~ t{x}", data, **given) for x in ("", " | x"))
    assert "PRE-TRENDS DIFFER" in plain.warnings
    assert "PRE-TRENDS DIFFER" not in adjusted.warnings
    np.testing.assert_allclose(adjusted.estimates, [0, 0, 3, 3], atol=0.35)
    assert "given the covariates" in adjusted.assumes
    assert adjusted.period().adjusted
    assert dpe.EventStudy.from_json(adjusted.to_json()) == adjusted


def _of_units(data, name):
    return data.groupby("id")[name].first()


@pytest.mark.parametrize("kind", ["polars", "polars, lazy", "duckdb", "csv"])
def test_event_studies_have_the_same_bits_everywhere(kind, tmp_path):
    data = people(150)
    one = dpe.dp_did("y ~ t", data, epsilon=2, seed=1, **FIVE)
    two = dpe.dp_did("y ~ t", FRAMES[kind](data, tmp_path), epsilon=2, seed=1, **FIVE)
    assert one.estimates.tolist() == two.estimates.tolist()


def test_a_range_of_changes_makes_less_noise():
    data = people(1000)
    given = {"epsilon": 1, "seed": 1, **FIVE}
    usual, narrow = (dpe.dp_did("y ~ t", data, change=x, **given) for x in (None, (-20, 20)))
    assert usual.bounds[0][1:] == ("[-100, 100]", "declared")
    assert narrow.bounds[0][1:] == ("[-20, 20]", "declared")
    noise = [fit.effects[0].noise_variance for fit in (usual, narrow)]
    assert noise[0] == pytest.approx(25 * noise[1], rel=0.05)
    values = data.pivot(index="id", columns="year", values="y")
    change = (values[2020] - values[2019]).clip(-1.5, 2.5)
    means = change.groupby(data.groupby("id")["t"].first()).mean()
    for periods in (TWO, FIVE):
        fit = dpe.dp_did("y ~ t", data, epsilon=PLENTY, change=(-1.5, 2.5), **periods)
        found = fit.estimate if periods is TWO else fit.period("2020").estimate
        assert found == pytest.approx(means[1] - means[0], abs=0.01)
    fit = dpe.dp_did("y ~ t", data, change=[-20, 20], epsilon=1, **TWO)
    assert fit.outcome == "clip(y_2020 - y_2019, -20, 20)"
    assert "outcome [-20, 20] declared" in str(fit.summary()).replace("\u00a0", " ")


# --- words and files ----------------------------------------------------------------------------


def test_the_summary_says_what_parallel_trends_means():
    two = dpe.dp_did("y ~ t", people(), epsilon=1, seed=1, **TWO)
    five = dpe.dp_did("y ~ t", people(), epsilon=1, seed=1, **FIVE)
    for fit in (two, five, five.period()):
        text = " ".join(str(fit.summary()).split())
        assert "ifferences in differences" in text or "ifference in differences" in text
        assert (
            "without treatment, the mean outcome of the treated would have changed by as much as "
            "that of the controls" in text
        )
        assert "randomised" not in text
        assert "randomised" not in str(fit.report())
        again = type(fit).from_json(fit.to_json())
        assert again == fit
        assert str(again.summary()) == str(fit.summary())


def test_an_event_study_is_drawn():
    fit = dpe.dp_did("y ~ t", people(), epsilon=2, seed=1, **FIVE)
    axes = fit.plot()
    assert [text.get_text() for text in axes.get_xticklabels()] == list(fit.periods)
    points = next(line for line in axes.lines if line.get_gid() == "estimate")
    assert points.get_ydata().tolist() == fit.estimates.tolist()
    assert points.get_xdata().tolist() == [0, 1, 3, 4]
    assert dpe.plots.event_study(fit, simultaneous=False).get_ylabel() == (
        "Difference in the change of y (95% CI)"
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rho", [0.2, 0.8])
def test_intervals_cover(rho):
    hits, n = 0, 1500
    for seed in range(40):
        rng = np.random.default_rng(1000 + seed)
        t, own = rng.random(n) < 0.3, rng.normal(size=n)
        frames = []
        for k in (0, 1):
            error = np.sqrt(rho) * own + np.sqrt(1 - rho) * rng.normal(size=n)
            about = {"id": range(n), "year": 2019 + k, "t": t}
            frames.append(pd.DataFrame(about).assign(y=50 + 5 * t + 4 * error + 2 * k * t))
        given = {**TWO, "bounds": {"y": (0, 100)}}
        fit = dpe.dp_did("y ~ t", pd.concat(frames), epsilon=1, seed=seed, **given)
        low, high = fit.conf_int()
        hits += low <= 2.0 <= high
    assert hits >= 35
