"""Missing values that a column may have are read with the same bits from every kind of frame."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.design import table_reader as design
from dpeffects.design.sample import AnalysisSample
from dpeffects.errors import DataError, DPEffectsError, FormulaError
from dpeffects.formula import parse
from dpeffects.results.conditional import load_cate
from tests.plain import raw
from tests.test_engines import csv, duckdb_relation, parquet, polars_file, polars_lazy

N = 400
BOUNDS = {
    "y": (0.0, 1.0),
    "x": (-2.0, 3.0),
    "k": (0, 5),
    "g": ["a", "b", "c"],
    "j": [1, 2, 3],
    "t": ["no", "yes"],
}
COVARIATES = ("x", "k", "b", "g", "j")
DAY = datetime.date(2020, 2, 3)


def read(data, formula, bounds, public, missing=None):
    """Read a table with what becomes of missing values, by column."""
    return design.read(data, formula, bounds, public, sample=AnalysisSample(policies=missing or {}))


def columns(seed=0, share=0.2):
    """Lists with None where a value is missing."""
    rng = np.random.default_rng(seed)
    full = {
        "y": rng.random(N),
        "t": rng.choice(["no", "yes"], N),
        "x": rng.uniform(-3, 4, N),
        "k": rng.integers(0, 6, N),
        "b": rng.random(N) < 0.4,
        "g": rng.choice(list("abc"), N),
        "j": rng.integers(1, 4, N),
        "d": np.array([DAY] * N),
    }
    gone = {name: rng.random(N) < share for name in full}
    return {
        name: [None if hole else v for v, hole in zip(values.tolist(), gone[name], strict=True)]
        for name, values in full.items()
    }


def pandas_plain(data):
    """As people have them: NaN among floats, objects where pandas has no other way."""
    return pd.DataFrame(data)


def pandas_nullable(data):
    types = {"y": "Float64", "x": "Float64", "k": "Int64", "b": "boolean", "j": "Int64"}
    types |= {"t": "string", "g": "string"}
    return pd.DataFrame(data).astype({"d": "datetime64[ns]"}).astype(types)


def pandas_mixed(data):
    """NaN, NA, NaT and None side by side."""
    frame = pd.DataFrame(data, dtype=object)
    signs = [None, np.nan, pd.NA]
    for name in ("t", "g", "b"):
        for place, row in enumerate(np.flatnonzero(frame[name].isna())):
            frame.loc[row, name] = signs[place % 3]
    return frame.astype({"y": float, "x": float, "k": float, "j": float, "d": "datetime64[ns]"})


def pandas_arrow(data):
    pytest.importorskip("pyarrow")
    return pandas_nullable(data).convert_dtypes(dtype_backend="pyarrow")


def polars_null(data):
    return pytest.importorskip("polars").DataFrame(data)


def polars_nan(data):
    """Half of what is missing among floats is NaN."""
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(data)
    half = pl.int_range(pl.len()) % 2 == 0
    nan = [pl.when(half & pl.col(n).is_null()).then(np.nan).otherwise(n).alias(n) for n in "xy"]
    return frame.with_columns(nan)


def arrow(data):
    return pytest.importorskip("pyarrow").table(data)


MEMORY = [pandas_plain, pandas_nullable, pandas_mixed, pandas_arrow, polars_null, polars_nan, arrow]


def dask(data, folder):
    dd = pytest.importorskip("dask.dataframe")
    return dd.from_pandas(data, npartitions=3)


ENGINES = [polars_lazy, polars_file, duckdb_relation, parquet, csv, dask]


def everything(rows):
    return (rows.covariates, rows.outcome, rows.treated)


def sorted_rows(table):
    """All that a row function can see, in an order that is the same everywhere."""
    parts = table.encode().gather(everything, "covariates", "outcome", "treated")
    matrix = np.column_stack([np.asarray(part, dtype=np.float64) for part in parts])
    return matrix[np.lexsort(matrix.T)]


FORMULA = "y ~ t | x + k + b + g + C(j, levels=[1, 2, 3])"
POLICY = {
    **dict.fromkeys(COVARIATES, "indicator"),
    "y": "complete",
    "t": "weight",
}


def expected(data):
    """The encoded rows, by hand."""
    y, x, k = (np.array(data[n], dtype=float) for n in ("y", "x", "k"))
    b = np.array([np.nan if v is None else float(v) for v in data["b"]])
    scaled = [(np.clip(x, -2, 3) + 2) / 5, k / 5, b]
    made = [np.ones(N), *(np.where(np.isnan(v), 0.5, v) for v in scaled)]
    for name, levels in (("g", "bc"), ("j", (2, 3))):
        made += [np.array([v == level for v in data[name]]) for level in (*levels, None)]
    made += [np.array([v is None for v in data[name]]) for name in ("x", "k", "b")]
    made += [np.where(np.isnan(y), 0.5, y), np.array([v == "yes" for v in data["t"]])]
    matrix = np.column_stack(made).astype(float)
    return matrix[np.lexsort(matrix.T)]


@pytest.mark.parametrize("holder", MEMORY)
def test_frames_in_memory(holder):
    data = columns()
    table = read(holder(data), parse(FORMULA), BOUNDS, (), missing=POLICY)
    names = "Intercept x k b g[T.b] g[T.c] g[T.(missing)] j[T.2] j[T.3] j[T.(missing)]"
    names = (*names.split(), "is_na(x)", "is_na(k)", "is_na(b)")
    assert table.design.encoding.names == names
    np.testing.assert_array_equal(sorted_rows(table), expected(data))
    assert sum(table.arm_counts) == N


@pytest.mark.parametrize("engine", ENGINES)
def test_engines(engine, tmp_path):
    data = columns()
    frame = pandas_nullable(data)
    bounds = {**BOUNDS, "b": (0, 1)} if engine is csv else BOUNDS
    table = read(engine(frame, tmp_path), parse(FORMULA), bounds, (), missing=POLICY)
    np.testing.assert_array_equal(sorted_rows(table), expected(data))
    memory = read(frame, parse(FORMULA), BOUNDS, (), missing=POLICY)
    assert table.arm_counts == memory.arm_counts


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["y", "t", *COVARIATES])
@pytest.mark.parametrize("engine", [None, polars_lazy, duckdb_relation])
def test_a_column_without_a_policy_refuses_missing_values_by_name(name, engine, tmp_path):
    frame = pandas_nullable(columns())
    data = frame if engine is None else engine(frame, tmp_path)
    policy = {k: how for k, how in POLICY.items() if k != name}
    with pytest.raises(DataError, match=rf"missing values in {name}\."):
        read(data, parse(FORMULA), BOUNDS, (), missing=policy)
    with pytest.raises(DataError, match=rf"missing values in {name}\."):
        read(data, parse(FORMULA), BOUNDS, (), missing=policy | {name: "error"})


@pytest.mark.parametrize("engine", [None, polars_lazy, duckdb_relation])
def test_infinite_values_and_other_levels_stay_refused(engine, tmp_path):
    def changed(change):
        data = columns()
        change(data)
        frame = pandas_nullable(data)
        data = frame if engine is None else engine(frame, tmp_path)
        read(data, parse(FORMULA), BOUNDS, (), missing=POLICY)

    for name, value, words in (
        ("x", np.inf, "'x' contains infinite"),
        ("g", "other", "'g' has values that are not among its declared levels"),
        ("j", 7, "'j' has values that are not among its declared levels"),
        ("t", "maybe", "'t' has values that are not among its declared levels"),
    ):
        with pytest.raises(DataError, match=words):
            changed(lambda data, name=name, value=value: data[name].__setitem__(3, value))


@pytest.mark.parametrize("engine", [None, polars_lazy, duckdb_relation])
def test_a_treatment_of_numbers_must_be_0_or_1_where_it_is_there(engine, tmp_path):
    data = pandas_plain(columns()).assign(t=[0.0, 1.0, np.nan, 1.0] * (N // 4))
    for value, fine in ((0.0, True), (0.5, False), (np.inf, False)):
        data.loc[0, "t"] = value
        given = data if engine is None else engine(data, tmp_path)
        bounds = {"y": (0.0, 1.0)}
        policy = {"t": "complete", "y": "complete"}
        if fine:
            table = read(given, parse("y ~ t"), bounds, (), missing=policy)
            assert table.arm_counts == (N // 2, N // 2)
        else:
            with pytest.raises(DataError, match="'t' must be 0/1"):
                read(given, parse("y ~ t"), bounds, (), missing=policy)


WRITTEN = "y ~ t | x + is_na(x) + is_na(d) + g + is_na(g) + x:is_na(k)"


@pytest.mark.parametrize("holder", MEMORY)
def test_is_na_in_a_formula_is_a_policy(holder):
    data = columns()
    policy = {"y": "complete", "t": "complete"}
    table = read(holder(data), parse(WRITTEN), BOUNDS, (), missing=policy)
    assert table.design.encoding.names == (
        *("Intercept", "x", "is_na(x)", "is_na(d)", "g[T.b]", "g[T.c]", "is_na(g)", "x:is_na(k)"),
    )
    rows = table.encode().covariates()
    for j, name in ((2, "x"), (3, "d"), (6, "g")):
        np.testing.assert_array_equal(rows[:, j], [v is None for v in data[name]])
    gone = np.array([v is None for v in data["g"]])
    assert (rows[gone, 4:6] == 0).all()  # the first level
    assert table.design.values[2:4] == (2, 2)
    assert table.design.formula.flags == {"x", "d", "g", "k"}


@pytest.mark.parametrize("engine", ENGINES)
def test_is_na_on_engines(engine, tmp_path):
    policy = {"y": "complete", "t": "complete"}
    frame = pandas_nullable(columns())
    table = read(engine(frame, tmp_path), parse(WRITTEN), BOUNDS, (), missing=policy)
    memory = read(frame, parse(WRITTEN), BOUNDS, (), missing=policy)
    np.testing.assert_array_equal(sorted_rows(table), sorted_rows(memory))


def test_the_terms_that_a_policy_adds():
    def terms(text, **missing):
        frame = pandas_nullable(columns(share=0))
        table = read(frame, parse(text), BOUNDS, (), missing=missing)
        assert str(parse(table.design.formula.source)) == str(table.design.formula)
        return str(table.design.formula).partition("|")[2].strip()

    assert terms("y ~ t | x", x="indicator") == "x + is_na(x)"
    assert terms("y ~ t | x + is_na(x)", x="indicator") == "x + is_na(x)"
    assert terms("y ~ t | x*k", x="indicator") == "x + k + is_na(x) + x:k"
    assert terms("y ~ t | k + k:is_na(x)", x="indicator") == "k + is_na(x) + k:is_na(x)"
    assert terms("y ~ t | k + g", x="indicator", g="indicator") == "k + g"
    assert terms("y ~ t | log(3 + x)", x="indicator") == "log(3 + x) + is_na(x)"
    assert terms("y ~ t | x + k", x="complete", k="error") == "x + k"
    assert terms("y ~ t", x="indicator") == ""


def test_whole_numbers_with_missing_values_are_not_whole():
    """The middle of a range of whole numbers need not be one."""
    frame, bounds = pandas_nullable(columns(share=0)), {**BOUNDS, "k": range(6)}
    for missing, values in (({}, (1, 6, 2, 0)), ({"k": "indicator"}, (1, 0, 2, 2, 0))):
        table = read(frame, parse("y ~ t | k + b"), bounds, (), missing=missing)
        assert table.design.values == values


def test_strata_of_missing_values():
    data = columns()
    policy = {"y": "complete", "t": "complete", "g": "indicator"}
    table = read(pandas_plain(data), parse("y ~ t | g + is_na(d)"), BOUNDS, (), missing=policy)
    index, count = table.encode().strata()
    assert count == 8
    wanted = [
        ("abc".find(g) if g else 3) * 2 + (d is None)
        for g, d in zip(data["g"], data["d"], strict=True)
    ]
    np.testing.assert_array_equal(index, wanted)
    assert table.design.strata().labels()[-1] == "g (missing), is_na(d) True"


def test_whether_an_outcome_is_missing_is_an_outcome():
    data = columns()
    full = pandas_plain(data).assign(t=np.arange(N) % 2)
    fit = dpe.dp_ate("is_na(y) ~ t", full, "diff_in_means", epsilon=1e6, seed=1)
    gone = full["y"].isna()
    assert fit.estimate == pytest.approx(
        gone[full.t == 1].mean() - gone[full.t == 0].mean(), abs=1e-3
    )
    assert fit.outcome == "is_na(y)"


def test_public_ranges_and_levels_are_those_of_values_that_are_there():
    data = pandas_nullable(columns())
    table = read(
        data, parse(FORMULA), {"t": ["no", "yes"]}, ("outcome", "covariates"), missing=POLICY
    )
    bounds = table.design.bounds
    assert bounds["g"] == ("a", "b", "c", "(missing)")
    assert bounds["x"] == (data["x"].min(), data["x"].max())


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ({"q": "complete"}, "column 'q' that is not in the formula"),
        ({"x": "drop"}, "must be one of error, indicator, complete, weight, got 'drop'"),
        ({"y": "indicator"}, 'is the outcome: write "complete"'),
        ({"t": "indicator"}, 'is the treatment: write "complete"'),
    ],
)
def test_policies_that_cannot_be(missing, words):
    with pytest.raises(DPEffectsError, match=words):
        AnalysisSample.asked(parse(FORMULA), missing=missing)


def test_is_na_keeps_the_rules_of_formulas():
    for text, words in (
        ("y ~ t | x + is_na(t)", "the treatment `t` is also used in the covariates"),
        ("y ~ t | x + is_na(y)", "the outcome `y` is also used in the covariates"),
        ("y ~ t | is_na(x + 1)", "is_na\\(\\) takes a column"),
        ("y ~ t | isna(x)", "write is_na\\(x\\)"),
        ("y ~ t | is_na(x, z)", "one argument"),
    ):
        with pytest.raises(FormulaError, match=words):
            parse(text)
    assert str(parse("y ~ t | is_na(`a b`):x + I(1 - is_na(z))")) == (
        "y ~ t | I(1 - is_na(z)) + is_na(`a b`):x"
    )


CATE = {"method": "r_learner", "epsilon": 50, "delta": 1e-6, "seed": 1}


@pytest.fixture(scope="module")
def function():
    full = pandas_plain(columns()).assign(t=np.arange(N) % 2, y=0.5)
    full = full.assign(g=full["g"].fillna("a"), d=pd.to_datetime(full["d"]))
    bounds = {k: BOUNDS[k] for k in "yxg"}
    return dpe.dp_cate("y ~ t | x + is_na(x) + g + is_na(d)", full, **CATE, bounds=bounds)


@pytest.mark.filterwarnings("ignore:.*clipped to it")
@pytest.mark.parametrize("holder", MEMORY)
def test_new_points_may_miss_what_the_fit_may(holder, function, tmp_path):
    """An effect function, read back from a file, at points of every kind of frame."""
    fit = load_cate(function.save(tmp_path / "f.json"))
    data = columns(seed=3)
    data["g"] = [g or "b" for g in data["g"]]
    wanted = fit.effect(pandas_plain(data))
    np.testing.assert_array_equal(fit.effect(holder(data)), wanted)
    filled = [0.5 if x is None else x for x in data["x"]]
    there = np.array([x is not None for x in data["x"]])
    same = fit.effect(pandas_plain({**data, "x": filled}))
    np.testing.assert_array_equal(same[there], wanted[there])
    assert (same[~there] != wanted[~there]).all()
    with pytest.raises(DataError, match=r"missing values in g\."):
        fit.effect({"x": [None], "g": [None], "d": [None]})


def test_points_with_missing_values_are_kept_with_the_result():
    full = pandas_plain(columns()).assign(t=np.arange(N) % 2, y=0.5)
    fit = dpe.dp_cate(
        "y ~ t | x + is_na(x)",
        full,
        release="points",
        at={"x": [0.5, None]},
        bounds={k: BOUNDS[k] for k in "yx"},
        **CATE,
    )
    assert fit.labels == ("x 0.5", "x missing")
    assert type(fit).from_json(fit.to_json()) == fit


def test_the_reference_fills_as_the_private_method_does():
    data = pandas_plain(columns()).assign(t=np.arange(N) % 2)
    data["y"] = data["y"].fillna(0.5)
    table = read(data, parse("y ~ t | x + is_na(x)"), BOUNDS | {"t": [0, 1]}, ())
    _, rows = raw(table)
    gone = data["x"].isna()
    np.testing.assert_array_equal(rows[:, 1], data["x"].fillna(0.5))
    np.testing.assert_array_equal(rows[:, 2], gone)


def test_a_function_of_what_is_missing_is_shown_like_any_other(tmp_path):
    full = pandas_plain(columns(share=0)).assign(t=np.arange(N) % 2, y=0.5)
    names = "y ~ t | x + is_na(x) + is_na(d) + C(j, levels=[1, 2, 3, '(missing)'])"
    bounds = {k: BOUNDS[k] for k in "yx"}
    fit = dpe.dp_cate(names, full, **CATE, bounds=bounds)
    assert "(missing)" in str(fit.summary())
    assert "j (missing)" in set(fit.tidy()["term"])
    assert len(fit.curve("d")) == 2
    curve = fit.curve("j", at={"x": None})
    assert curve["j"].tolist() == [1, 2, 3, "(missing)"]
    at = {"x": [None] * 2, "d": [DAY] * 2, "j": [3, None]}
    np.testing.assert_array_equal(fit.effect(at), curve["effect"].iloc[2:])


def test_what_is_missing_is_a_stratum_of_its_own():
    data = columns()
    policy = {"y": "complete", "t": "complete", "x": "indicator"}
    formula = parse("y ~ t | cut(x, [-2, 0, 3]) + g + is_na(g)")
    table = read(pandas_plain(data), formula, BOUNDS, (), policy)
    index, count = table.encode().strata()
    x = [2 if v is None else int(v > 0) for v in data["x"]]
    g = [3 if v is None else "abc".index(v) for v in data["g"]]
    assert count == 12
    np.testing.assert_array_equal(index, np.array(x) * 4 + g)
    labels = table.design.strata().labels()
    assert labels[3] == "x [-2, 0], g missing"
    assert labels[-1] == "x missing, g missing"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("engine", [None, polars_lazy, duckdb_relation, csv])
def test_groups_of_missing_values(engine, tmp_path):
    data = pandas_plain(columns()).assign(t=np.arange(N) % 2, y=0.5, x=0.1)
    bounds = {k: BOUNDS[k] for k in "yxg"}

    def groups(word, frame):
        given = {**CATE, "bounds": bounds, "release": "groups", "by": "g", "missing": {"g": word}}
        return dpe.dp_cate("y ~ t | x", frame, **given)

    frame = data if engine is None else engine(data, tmp_path)
    assert groups("indicator", frame).labels == ("g a", "g b", "g c", "g (missing)")
    assert groups("complete", frame).labels == ("g a", "g b", "g c")
    if engine is not None:
        for word in ("indicator", "complete"):
            assert groups(word, frame).to_dict() == groups(word, data).to_dict()
