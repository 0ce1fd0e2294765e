"""Bounds of wide tables: patterns, codebooks in files and frames, and `.` in formulas."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.design.codebook import matched, opened, read_bounds
from dpeffects.errors import BoundsError, FormulaError
from tests.commands.shell import refused, run

N = 400
PLAIN = {"y": (0, 1), "age": (18, 90), "a_hx": [0, 1], "b_hx": [0, 1], "g": ["n", "s"]}
LONG = "y ~ t | age + a_hx + b_hx + g"
TOML = """
y = [0, 1]
age = {range = [18, 90], label = "Age in years", units = "years"}
"*_hx" = {levels = [0, 1]}
g = ["n", "s"]
t = {}
note = {}
"""
CSV = """Variable,Min,Max,Levels,Label
y,0,1,,Died
t,,,,Treated
age,18,90,,"Age, in years"
a_hx,,,0|1,
b_hx,,,"0, 1",
g,,,n; s,Region
note,,,,Free text
elsewhere,0,9,,Not in this extract
"""


def table():
    rng = np.random.default_rng(3)
    draws = {name: rng.integers(0, 2, N) for name in ("y", "t", "a_hx", "b_hx")}
    g = np.array(["n", "s"])[rng.integers(0, 2, N)]
    return pd.DataFrame({**draws, "age": rng.uniform(18, 90, N), "g": g, "note": "text"})


def call(formula=LONG, data=None, bounds=None, **more):
    data = table() if data is None else data
    more = {"method": "one_step", "epsilon": 4, "seed": 1} | more
    return dpe.dp_ate(formula, data, bounds=bounds, **more)


def same(one, other):
    return (one.estimate, one.bounds) == (other.estimate, other.bounds)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table().to_csv("data.csv", index=False)
    table().to_parquet("data.parquet")
    Path("book.toml").write_text(TOML)
    Path("book.csv").write_text(CSV)
    return tmp_path


# --- patterns ---------------------------------------------------------------------------------


def test_a_pattern_declares_the_columns_that_match():
    assert same(call(bounds=PLAIN), call(bounds={**PLAIN, "?_hx": [0, 1]}))
    patterns = {"y": (0, 1), "age": (18, 90), "*_hx": [0, 1], "g": ["n", "s"]}
    assert same(call(bounds=PLAIN), call(bounds=patterns))
    assert same(call(bounds=PLAIN), call(data=dpe.declare(table(), patterns)))
    assert same(call(bounds=PLAIN), call(data=dpe.declare(table(), {"*": (0, 1)}), bounds=PLAIN))
    with pytest.raises(BoundsError, match="for frames only"):
        dpe.declare("data.csv", patterns)


def test_a_name_wins_over_a_pattern_and_patterns_over_lines_that_are_not_filled_in():
    names = ["a_hx", "b_hx"]
    assert matched({"b_hx": (0, 9), "*_hx": [0, 1]}, names) == {"b_hx": (0, 9), "a_hx": [0, 1]}
    assert matched({"*_hx": [0, 1], "b_hx": (0, 9)}, names) == {"a_hx": [0, 1], "b_hx": (0, 9)}


def test_two_patterns_that_differ_are_refused_by_name_where_the_column_is_needed():
    both = {**PLAIN, "a*": (0, 2), "*x": [0, 1]}
    del both["a_hx"]
    with pytest.raises(BoundsError, match=r"'a\*' and '\*x' both match column 'a_hx'"):
        call(bounds=both)
    assert call("y ~ t | age", bounds=both).n == N
    assert call(bounds=both | {"a*": [0, 1]}).n == N


def test_a_pattern_that_matches_nothing_is_refused_with_a_hint():
    with pytest.raises(BoundsError, match=r"matches 'agee\*'; did you mean 'age'"):
        call(bounds={**PLAIN, "agee*": (0, 1)})


@pytest.mark.parametrize("name", ["x*", "x?", "x[1]"])
def test_a_column_with_a_sign_of_patterns_in_its_name_is_that_column(name):
    data = table().rename(columns={"age": name}).assign(x1="text")
    bounds = {**PLAIN, name: (18, 90)}
    del bounds["age"]
    plain = call("y ~ t | age", bounds=PLAIN)
    assert call(f"y ~ t | `{name}`", data, bounds).estimate == plain.estimate


# --- codebooks --------------------------------------------------------------------------------


def test_a_codebook_is_a_toml_file_a_csv_file_or_a_frame(folder):
    plain = call(bounds=PLAIN)
    frame = pd.read_csv("book.csv")
    polars = pytest.importorskip("polars")
    lists = polars.DataFrame(
        {
            "name": ["y", "age", "a_hx", "b_hx", "g"],
            "lower": [0, 18, None, None, None],
            "upper": [1, 90, None, None, None],
            "levels": [None, None, "0|1", "0|1", "n|s"],
        }
    )
    for bounds in ("book.toml", Path("book.csv"), frame, polars.from_pandas(frame), lists):
        assert same(plain, call(bounds=bounds))
        assert same(plain, call(data=dpe.declare(table(), bounds)))
        for data in ("data.csv", "data.parquet"):
            assert same(call(data=data, bounds=PLAIN), call(data=data, bounds=bounds))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("data", ["data.csv", "data.parquet"])
def test_the_command_line_reads_the_same_files(folder, capsys, data):
    given = ["--epsilon", 4, "--seed", 1, "--method", "one_step", "--out"]
    plain = call(data=data, bounds=PLAIN)
    for k, book in enumerate(["book.toml", "book.csv"]):
        for formula in (LONG, "y ~ t | ."):
            out = f"{k}{len(formula)}.json"
            assert run(capsys, "ate", formula, data, "--bounds", book, *given, out)[0] == 0
            found = json.loads(Path(out).read_text())
            assert (found["estimate"], found["formula"]) == (plain.estimate, LONG)


@pytest.mark.parametrize("book", ["book.toml", "book.csv"])
def test_what_is_not_filled_in_is_refused_where_it_is_needed(folder, book):
    with pytest.raises(BoundsError, match=f"{book}: 'note' is not filled in"):
        call("y ~ t | note", bounds=book)


def test_two_numbers_in_a_file_are_a_range_or_levels_as_the_column_is_used(folder):
    Path("pair.toml").write_text("y = [0, 1]\nage = [18, 90]\nt = [0, 1]\na_hx = [0, 1]\n")
    ranges = call("y ~ t | age + a_hx", bounds="pair.toml")
    shown = [("y", "[0, 1]", "declared"), ("age", "[18, 90]", "declared")]
    assert ranges.bounds == (*shown, ("a_hx", "[0, 1]", "declared"))
    factor = call("y ~ t | age + C(a_hx)", bounds="pair.toml")
    assert ("a_hx", "0, 1", "declared") in factor.bounds
    assert read_bounds("pair.toml")["age"] == (18, 90)
    Path("pair.toml").write_text("y = [1, 0]")
    with pytest.raises(BoundsError, match="the lower end must be below the upper end"):
        call("y ~ t", bounds="pair.toml", method="diff_in_means")


def test_a_treatment_of_two_numbers_in_a_file(folder):
    Path("pair.toml").write_text("y = [0, 1]\nt = [2, 1]\n")
    data = table()
    coded = data.assign(t=2 - data.t)
    plain = call("y ~ t", data, {"y": (0, 1)}, method="diff_in_means")
    assert call("y ~ t", coded, "pair.toml", method="diff_in_means").estimate == plain.estimate


def test_a_list_of_two_numbers_is_a_range_of_what_must_be_a_number():
    plain = call("y ~ t | I(age**2)", bounds={**PLAIN, "y": range(2)})
    assert same(plain, call("y ~ t | I(age**2)", bounds={"y": [0, 1], "age": [18, 90]}))
    with pytest.raises(BoundsError, match="use dp_ordinal for ordered levels"):
        call(bounds={**PLAIN, "y": [0, 1, 2]})
    booleans = table().assign(y=lambda d: d.y == 1)
    levels = {**PLAIN, "y": [False, True]}
    for bounds in (PLAIN, levels):
        assert same(call("y ~ t | age", bounds=levels), call("y ~ t | age", booleans, bounds))


BAD = {
    "no names": (pd.DataFrame({"lower": [0], "upper": [1]}), "a column with the names"),
    "no bounds": (pd.DataFrame({"name": ["y"]}), "lower and upper"),
    "two lines": (pd.DataFrame({"name": ["y", "y"], "min": 0, "max": 1}), "two lines for 'y'"),
    "half a range": (pd.DataFrame({"name": ["y"], "min": [0], "max": [None]}), "an upper end"),
    "a slip": (pd.DataFrame({"name": ["yy"], "min": [0], "max": [1]}), "did you mean 'y'"),
    "a dot in a name": ("dots.toml", r'write a column named "y\.1" in quotes'),
    "no file": ("none.toml", "none.toml cannot be read"),
    "a word": ("data", '"from_data"; got'),
}


@pytest.mark.parametrize(("book", "words"), BAD.values(), ids=BAD)
def test_codebooks_that_cannot_be_used(book, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("dots.toml").write_text("y.1 = [0, 1]")
    with pytest.raises(dpe.DPEffectsError, match=words):
        call("y ~ t", bounds=book, method="diff_in_means")


def test_levels_with_labels_and_columns_that_are_ignored():
    book = pd.DataFrame(
        {
            "field": ["y", "sex", "zip", "on"],
            "lower": [0, None, None, None],
            "upper": [1, None, None, None],
            "levels": [None, "1=Male; 2 = Female", "01, 02", "true|false"],
            "range": "see the manual",
        }
    )
    expected = {"y": (0, 1), "sex": [1, 2], "zip": ["01", "02"], "on": [True, False]}
    assert opened(book) == expected


def test_a_plan_reads_codebooks_patterns_and_dots(folder):
    more = {"n": 500, "epsilon": 1, "method": "diff_in_means", "repeats": 2}
    for formula in ("y ~ t | age + g", "y ~ t | g + age"):
        assert dpe.plan(formula, bounds="book.toml", **more).setting.bounds["age"] == (18, 90)
    assert dpe.plan(LONG, bounds="book.toml", **more).setting.bounds["a_hx"] == (0, 1)
    names = {name: x for name, x in PLAIN.items() if name != "b_hx"}
    assert dpe.plan("y ~ t | .", bounds=names, **more).setting.formula == "y ~ t | age + a_hx + g"


# --- the dot ----------------------------------------------------------------------------------


def test_a_dot_is_all_that_is_declared_in_its_order():
    fit = call("y ~ t | .", bounds=PLAIN)
    assert fit.formula == LONG
    assert same(fit, call(bounds=PLAIN))
    assert call("y ~ t | . - age", bounds=PLAIN).formula == "y ~ t | a_hx + b_hx + g"
    patterns = {"g": ["n", "s"], "*_hx": [0, 1], "y": (0, 1)}
    assert call("y ~ t | .", bounds=patterns).formula == "y ~ t | g + a_hx + b_hx"
    assert call("y ~ t | .", dpe.declare(table(), patterns)).formula == "y ~ t | g + a_hx + b_hx"
    assert dpe.dp_balance("y ~ t | .", table(), epsilon=4, bounds=PLAIN, seed=1).formula == LONG
    assert dpe.reference("y ~ t | .", table(), "one_step", bounds=PLAIN).formula == LONG


def test_nothing_that_is_undeclared_is_swept_in():
    data = table().assign(flag=True, other=1.0)
    assert call("y ~ t | .", data, PLAIN).formula == LONG


def test_a_dot_without_declarations_is_refused():
    for bounds in (None, {"y": (0, 1)}, "from_data"):
        with pytest.raises(FormulaError, match="declare the covariates, bounds="):
            call("y ~ t | .", bounds=bounds)


def test_a_long_formula_is_shortened_where_it_is_shown():
    names = [f"history_of_{k}" for k in range(60)]
    data = table().assign(**dict.fromkeys(names, 0))
    bounds = {"y": (0, 1), "history_*": [0, 1]}
    fit = call("y ~ t | .", data, bounds, method="diff_in_means")
    assert fit.formula == "y ~ t | " + " + ".join(names)
    assert "history_of_59 (60 terms)" in " ".join(str(fit.summary()).split())
    assert "history_of_58" not in str(fit.summary())


def test_what_is_refused_on_the_command_line_is_one_line(folder, capsys):
    Path("book.toml").write_text('y = [0, 1]\n"*_zz" = [0, 1]\n')
    given = ["ate", "y ~ t | .", "data.csv", "--epsilon", 1, "--bounds", "book.toml"]
    assert "no column of the data matches '*_zz'" in refused(capsys, *given)
