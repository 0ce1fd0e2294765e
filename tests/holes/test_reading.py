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
    return read_data(str(path), BOUNDS)


def without_bounds(path, monkeypatch):
    return read_data(str(path))


READERS = [on_duckdb, on_polars, in_memory, without_bounds]


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
    with pytest.raises(DataError, match=f"column '{name}' of the CSV file holds text") as refused:
        effect(reader(tmp_path / "rows.csv", monkeypatch), ledger=ledger)
    assert "seven" not in str(refused.value)
    assert not ledger.spends


@pytest.mark.parametrize("reader", READERS)
def test_missing_values_and_other_levels_of_a_csv_file(tmp_path, monkeypatch, reader):
    """Empty fields are missing; the text NA is a level where it is declared."""
    data = texts()
    data.assign(x=[""] * 5 + list(data["x"][5:])).to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(DataError, match="missing values in x"):
        effect(reader(tmp_path / "rows.csv", monkeypatch))
    data.assign(code=["NA"] * 5 + list(data["code"][5:])).to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(DataError, match="outside its declared levels"):
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
