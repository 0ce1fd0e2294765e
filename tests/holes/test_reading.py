"""How rows are read: by what is declared, never by what other rows hold."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import DataError
from dpeffects.files import column_names, read_data

BOUNDS = {
    "y": (0, 1),
    "code": ["410", "250", "E11"],
    "ward": [1, 2],
    "x": (0, 1),
    "on": [False, True],
}
FORMULA = "y ~ t | code + ward + x + on"


def texts(n=200, **columns):
    rng = np.random.default_rng(0)
    made = {
        "y": rng.random(n).round(3),
        "t": rng.choice(["true", "False"], n),
        "code": rng.choice(["410", "250"], n),
        "ward": rng.choice(["1", "2"], n),
        "x": [f" {value:.3e} " for value in rng.random(n)],
        "on": rng.choice(["TRUE", "0"], n),
        "note": rng.choice(["?", "12"], n),
    }
    return pd.DataFrame({**made, **columns})


def on_duckdb(path, monkeypatch):
    pytest.importorskip("duckdb")
    return path


def on_polars(path, monkeypatch):
    pytest.importorskip("polars")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    return path


def in_memory(path, monkeypatch):
    return read_data(str(path))


READERS = [on_duckdb, on_polars, in_memory]


def effect(data, formula=FORMULA, bounds=BOUNDS, **more):
    return dpe.dp_ate(formula, data, "private_ipw", epsilon=1, bounds=bounds, seed=1, **more)


@pytest.mark.parametrize("code", ["250", "E11"])
def test_types_of_a_csv_file_are_those_declared(tmp_path, monkeypatch, code):
    """An engine guessed types from the rows: whether a record with the code E11 was there decided
    whether the column of codes was text, and so whether the call failed."""
    data = texts()
    data.loc[7, "code"] = code
    data.to_csv(tmp_path / "rows.csv", index=False)
    found = []
    for reader in READERS:
        with monkeypatch.context() as patched:
            found.append(effect(reader(tmp_path / "rows.csv", patched)).estimate)
    assert len(set(found)) == 1
    typed = data.assign(
        t=data["t"] == "true",
        ward=data["ward"].astype(int),
        x=data["x"].astype(float),
        on=data["on"] == "TRUE",
    )
    assert effect(typed).estimate == found[0]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ["y", "t", "ward", "x"])
def test_text_where_numbers_are_declared_is_refused(tmp_path, monkeypatch, reader, name):
    """A text among numbers turned the whole column to text, with an error of the engine; now it is
    one line on every reader, before a charge, and without the text."""
    data = texts()
    data[name] = data[name].astype(str)
    data.loc[3, name] = "seven"
    data.to_csv(tmp_path / "rows.csv", index=False)
    ledger = dpe.Ledger(1.0)
    with pytest.raises(
        DataError, match=f"column '{name}' of the CSV file contains text"
    ) as refused:
        effect(reader(tmp_path / "rows.csv", monkeypatch), ledger=ledger)
    assert "seven" not in str(refused.value)
    assert not ledger.charges


@pytest.mark.parametrize("reader", READERS)
def test_missing_values_and_other_levels_of_a_csv_file(tmp_path, monkeypatch, reader):
    """Empty fields are missing; the text NA is a level where it is declared."""
    data = texts()
    data.assign(x=[""] * 5 + list(data["x"][5:])).to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(DataError, match="missing values in x"):
        effect(reader(tmp_path / "rows.csv", monkeypatch))
    data.assign(code=["NA"] * 5 + list(data["code"][5:])).to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(DataError, match="not among its declared levels"):
        effect(reader(tmp_path / "rows.csv", monkeypatch))
    bounds = {**BOUNDS, "code": ["410", "250", "NA"]}
    assert effect(reader(tmp_path / "rows.csv", monkeypatch), bounds=bounds).n == len(data)


@pytest.mark.parametrize("reader", READERS)
def test_levels_in_the_formula_say_what_a_column_is(tmp_path, monkeypatch, reader):
    """Levels written in the formula count as those in the bounds do."""
    texts().to_csv(tmp_path / "rows.csv", index=False)
    data = reader(tmp_path / "rows.csv", monkeypatch)
    formula = "y ~ C(t, levels=['False', 'true']) | C(note, levels=['?', '12']) + x"
    assert effect(data, formula, {"y": (0, 1), "x": (0, 1)}).n == 200


def test_the_header_of_a_wide_file_is_read(tmp_path):
    """Looking for two columns of one name took time with the square of their number."""
    names = [f"c{i}" for i in range(20_000)]
    (tmp_path / "wide.csv").write_text(",".join(names) + "\n")
    assert column_names(str(tmp_path / "wide.csv")) == names
    (tmp_path / "wide.csv").write_text(",".join([*names, "c7"]) + "\n")
    with pytest.raises(DataError, match="two columns named 'c7'"):
        column_names(str(tmp_path / "wide.csv"))


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("role", ["t", "g"])
def test_categories_of_pandas_are_no_declaration(ordered, role):
    """Levels of an ordered categorical made from the data were printed in an exact result."""
    rng = np.random.default_rng(1)
    data = pd.DataFrame(
        {"y": rng.random(40), "t": np.arange(40) % 2, "g": rng.choice(["a", "b"], 40)}
    )
    data["t"] = data["t"].map({0: "no", 1: "yes"})
    data[role] = pd.Categorical(data[role], categories=sorted(set(data[role])), ordered=ordered)
    bounds = {"y": (0, 1), "t": ["no", "yes"], "g": ["a", "b"]}
    assert effect(data, "y ~ t | g", bounds).n == 40
    ledger = dpe.Ledger(1.0)
    with pytest.raises(dpe.DPEffectsError, match="declare") as refused:
        effect(data, "y ~ t | g", {n: b for n, b in bounds.items() if n != role}, ledger=ledger)
    assert "yes" not in str(refused.value)
    assert not ledger.charges


def test_an_enum_of_polars_is_a_declaration():
    """An Enum is a schema: it is never made without a list of its levels."""
    pl = pytest.importorskip("polars")
    data = pl.DataFrame({"y": [0.1, 0.5] * 20, "t": [0, 1] * 20, "g": ["a", "b", "b", "a"] * 10})
    data = data.with_columns(pl.col("g").cast(pl.Enum(["a", "b", "c"])))
    shown = effect(data, "y ~ t | g", {"y": (0, 1)}).bounds
    assert shown[-1] == ("g", "a, b, c", "dtype")


def lazily(frame):
    return pytest.importorskip("polars").from_pandas(frame).lazy()


def in_duckdb(frame):
    duckdb = pytest.importorskip("duckdb")
    return duckdb.from_arrow(pytest.importorskip("polars").from_pandas(frame).to_arrow())


@pytest.mark.parametrize("holder", [lambda frame: frame, lazily, in_duckdb])
def test_levels_of_another_kind_than_the_column(holder):
    """Levels 0 and 1 for a treatment in words ended in a KeyError on engines."""
    data = pd.DataFrame({"y": [0.1, 0.5] * 20, "t": ["no", "yes"] * 20, "g": [1, 2, 2, 1] * 10})
    for formula in (
        "y ~ C(t, levels=[0, 1]) | g",
        "y ~ C(t, levels=['no', 'yes']) | C(g, levels=['1', '2'])",
    ):
        with pytest.raises(DataError, match="of another type than its declared levels"):
            effect(
                holder(data),
                formula,
                {"y": (0, 1), "g": (1, 2)} if "C(g" not in formula else {"y": (0, 1)},
            )


POINTS = "outcome ~ treatment | x1 + x2"


@pytest.mark.parametrize(
    "choose",
    [
        lambda frame: frame,
        lambda frame: frame[["x1", "x2"]],
        lambda frame: frame[["x1", "x2"]].head(3),
        lambda frame: frame.sample(5, random_state=1),
        lambda frame: frame.loc[[3, 9], ["x1", "x2"]],
        lambda frame: frame[frame["x1"] > 0.5].iloc[:4].copy(),
    ],
)
def test_rows_of_the_private_data_are_no_points(choose):
    """Effects at points print the points, and rows of the private table were taken as points."""
    data = dpe.simulate("cate_1", n=300, seed=1)
    ledger = dpe.Ledger(1.0, 1e-5)
    more = {"release": "points", "epsilon": 1, "delta": 1e-5, "ledger": ledger}
    for at in (choose(data.frame), dpe.declare(choose(data.frame), {})):
        with pytest.raises(
            dpe.DPEffectsError, match=r"at contains rows of the private data"
        ) as refused:
            dpe.dp_cate(POINTS, data, at=at, **more)
        assert "\n" not in str(refused.value)
    assert not ledger.charges


def test_a_grid_of_points_is_answered():
    """Points of one's own are taken, as a dict or as a frame with the labels of some records."""
    data = dpe.simulate("cate_1", n=300, seed=1)
    grid = pd.DataFrame({"x1": [0.1, 0.5, 0.9], "x2": [0.5, 0.5, 0.5]})
    for at in (grid, grid.to_dict("list"), grid.set_axis([7, 8, 9])):
        fit = dpe.dp_cate(POINTS, data, release="points", at=at, epsilon=1, delta=1e-5)
        assert len(fit.estimates) == 3


def test_one_parser_reads_formulas():
    """A formula was cut at the first bar: a column named `a|b` broke groups, and was called
    covariates that were not read."""
    rng = np.random.default_rng(2)
    n = 400
    data = pd.DataFrame(
        {
            "a|b": 0.3 * rng.random(n) + 0.6 * (np.arange(n) % 2),
            "t~u": np.arange(n) % 2,
            "x|y": rng.random(n),
            "s": rng.random(n) < 0.5,
        }
    )
    bounds = {"a|b": (0, 1), "x|y": (0, 1)}
    more = {"bounds": bounds, "epsilon": 2, "seed": 1}
    groups = dpe.dp_cate(
        "`a|b` ~ `t~u` | `x|y`", data, release="groups", by="s + cut(`x|y`, [0, 0.5, 1])", **more
    )
    assert len(groups.estimates) == 4
    fit = dpe.dp_ate("`a|b` ~ `t~u`", data, "diff_in_means", **more)
    assert not any("were not read" in note for note in fit.notes)
    assert "treatment was randomised" in " ".join(str(fit.report()).split())
