"""Treatments that are computed: the same answers as for a column with their values."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.design import table_reader as design
from dpeffects.design.sample import AnalysisSample
from dpeffects.errors import DataError, DPEffectsError, FormulaError, OptionError
from dpeffects.formula import parse
from tests.test_engines import csv, duckdb_relation, parquet, polars_eager, polars_lazy
from tests.test_missing import dask

N = 1200
BOUNDS = {"y": (0.0, 1.0), "x": (-2.0, 2.0)}
LABELS = ["[0, 1]", "(1, 5]", "(5, 20]"]


def frame(seed=0):
    rng = np.random.default_rng(seed)
    dose = rng.choice([-1.0, 0.0, 0.5, 1.0, 1.5, 5.0, 5.5, 20.0, 30.0], N)
    data = pd.DataFrame(
        {
            "y": rng.random(N) * 0.5 + 0.02 * np.clip(dose, 0, 20),
            "x": rng.normal(size=N),
            "dose": dose,
            "age": rng.integers(10, 90, N),
        }
    )
    data["high"] = (data["dose"] > 1).astype(int)
    data["both"] = ((data["dose"] > 1) & (data["age"] >= 40)).astype(int)
    data["some"] = ((data["dose"] > 1) | (data["age"] >= 40)).astype(int)
    edges = [-np.inf, 1, 5, np.inf]
    data["arm"] = pd.cut(data["dose"], edges, labels=LABELS).astype(str)
    data["arm2"] = np.where(data["dose"] > 5, "(5, 20]", "[0, 5]")
    return data


SAME = [
    ("I(dose > 1)", "high"),
    ("I(1 < dose)", "high"),
    ("I(1 - (dose <= 1))", "high"),
    ("I((dose > 1) * (age >= 40))", "both"),
    ("I((dose > 1) + (age >= 40) - (dose > 1) * (age >= 40))", "some"),
    ("I((dose > 1) + (age >= 40) > 0)", "some"),
    ("I(log(2 + dose) > 1.09861228866811)", "high"),
    ("cut(dose, [0, 5, 20])", "C(arm2, levels=['[0, 5]', '(5, 20]'])"),
    ("cut(dose / 1, [0, 5, 20])", "C(arm2, levels=['[0, 5]', '(5, 20]'])"),
]
NOT_IN_NUMBERS = ("formula", "treatment", "bounds", "notes", "id", "made")


def numbers(fit):
    return {k: v for k, v in fit.to_dict().items() if k not in NOT_IN_NUMBERS}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("computed", "column"), SAME)
def test_two_arms(computed, column):
    data = frame()
    for method, covariates in (("diff_in_means", ""), ("private_ipw", " | x")):
        given = {"epsilon": 2, "bounds": BOUNDS, "seed": 1, "method": method}
        one = dpe.dp_ate(f"y ~ {computed}{covariates}", data, **given)
        other = dpe.dp_ate(f"y ~ {column}{covariates}", data, **given)
        assert numbers(one) == numbers(other)
        assert parse(one.formula).treatment == parse(f"y ~ {one.treatment}").treatment


ENGINES = [polars_eager, polars_lazy, duckdb_relation, parquet, csv, dask]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "formula",
    ["y ~ I(dose > 1)", "y ~ I((dose > 1) * (age >= 40)) | x", "y ~ cut(dose, [0, 1, 5])"],
)
def test_engines_give_the_same_numbers(engine, formula, tmp_path):
    data = frame()
    method = "one_step" if "|" in formula else "diff_in_means"
    given = {"epsilon": 2, "bounds": BOUNDS, "seed": 1, "method": method}
    expected = dpe.dp_ate(formula, data, **given).to_dict()
    assert dpe.dp_ate(formula, engine(data, tmp_path), **given).to_dict() == expected
    table = design.read(engine(data, tmp_path), parse(formula), BOUNDS, ())
    memory = design.read(data, parse(formula), BOUNDS, ())
    assert table.arm_counts == memory.arm_counts


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engine", [None, polars_lazy, duckdb_relation])
def test_three_arms(engine, tmp_path):
    data = frame()
    given = {"epsilon": 5, "bounds": BOUNDS, "seed": 1, "method": "private_psm"}
    expected = dpe.dp_ate(f"y ~ C(arm, levels={LABELS}) | x", data, **given)
    data = data if engine is None else engine(data, tmp_path)
    fit = dpe.dp_ate("y ~ cut(dose, [0, 1, 5, 20]) | x", data, **given)
    if engine is None:
        assert numbers(fit) == numbers(expected)
    assert fit.arms == tuple(LABELS)
    assert fit.labels == ("(1, 5] - [0, 1]", "(5, 20] - [0, 1]")
    table = design.read(data, parse("y ~ cut(dose, [0, 1, 5, 20])"), BOUNDS, ())
    counts = frame()["arm"].value_counts()
    assert table.arm_counts == tuple(counts[label] for label in LABELS)


@pytest.mark.parametrize("engine", [None, polars_lazy, duckdb_relation, dask])
def test_missing_doses(engine, tmp_path):
    data = frame()
    gone = np.arange(N) % 7 == 0
    data.loc[gone, "dose"] = np.nan
    given = data if engine is None else engine(data, tmp_path)

    def counts(treatment, **missing):
        sample = AnalysisSample(policies=missing)
        return design.read(given, parse(f"y ~ {treatment}"), BOUNDS, (), sample=sample).arm_counts

    high = int((data["dose"] > 1).sum())
    with pytest.raises(DataError, match="missing values in dose\\. Say how to treat them"):
        counts("I(dose > 1)")
    assert counts("I(dose > 1)", dose="complete") == (N - high, high)
    assert counts("I(1 - (dose > 1))", dose="complete") == (
        high + gone.sum(),
        N - high - gone.sum(),
    )
    assert sum(counts("cut(dose, [0, 1, 5, 20])", dose="complete")[1:]) == high
    assert counts("is_na(dose)") == (N - gone.sum(), gone.sum())
    either = high + gone.sum()
    assert counts("I((dose > 1) + is_na(dose) > 0)") == (N - either, either)


@pytest.mark.parametrize("engine", [None, polars_lazy, duckdb_relation])
def test_what_is_refused_of_the_data(engine, tmp_path):
    def read(data, treatment):
        data = data if engine is None else engine(data, tmp_path)
        design.read(data, parse(f"y ~ {treatment}"), BOUNDS, ())

    with pytest.raises(DataError, match="'dose' contains infinite values"):
        read(frame().assign(dose=np.inf), "I(dose > 1)")
    with pytest.raises(DataError, match="one of the two arms is empty"):
        read(frame(), "I(dose > 100)")
    with pytest.raises(DataError, match="one of the 4 arms is empty"):
        read(frame(), "cut(dose, [0, 1, 5, 100, 200])")
    with pytest.raises(DataError, match="column 'arm' must be numeric"):
        read(frame(), "I(arm > 1)")


def test_a_dose_is_refused_with_what_to_write():
    advice = r"write two arms, I\(dose > 1\), or several, cut\(dose, \[0, 1, 5\]\)"
    for treatment in (
        "log(dose)",
        "I(dose * 2)",
        "I((dose > 1) + (age > 3))",
        "I(dose * (age > 3))",
    ):
        with pytest.raises(FormulaError, match=advice):
            parse(f"y ~ {treatment}")
    with pytest.raises(FormulaError, match="three points or more"):
        parse("y ~ cut(dose, [0, 1])")
    data = frame()
    for bounds in ({"dose": (0, 20)}, {"dose": (0.0, 0.5)}):
        with pytest.raises(DataError, match=f"'dose' is declared with a range: .*{advice}"):
            dpe.dp_ate("y ~ dose", data, "diff_in_means", epsilon=1, bounds=BOUNDS | bounds)
    with pytest.raises(DataError, match=r"'dose' must be 0/1, .* write I\(dose > 1\)"):
        dpe.dp_ate("y ~ dose", data, "diff_in_means", epsilon=1, bounds=BOUNDS)
    fit = dpe.dp_ate("y ~ high", data, "diff_in_means", epsilon=1, bounds=BOUNDS | {"high": (0, 1)})
    assert np.isfinite(fit.estimate)


def test_the_columns_of_a_treatment_stand_nowhere_else():
    for formula in ("y ~ I(dose > 1) | dose", "y ~ cut(dose, [0, 1, 5]) | log(dose)"):
        with pytest.raises(
            FormulaError, match="the treatment `dose` is also used in the covariates"
        ):
            parse(formula)
    with pytest.raises(FormulaError, match="the treatment `age` is also used in the outcome"):
        parse("age ~ I((dose > 1) * (age > 3))")
    formula = parse("y ~ I((dose > 1) * (age > 3)) | x")
    assert formula.columns == ("y", "dose", "age", "x")
    assert formula.treatment_columns == ("dose", "age")
    assert str(formula) == "y ~ I((dose > 1) * (age > 3)) | x"


def test_other_parts_know_computed_treatments():
    data = frame()
    with pytest.raises(OptionError, match="plan simulates the treatment"):
        dpe.plan("y ~ I(dose > 1)", n=1000, epsilon=1, bounds=BOUNDS)
    reference = dpe.reference("y ~ I(dose > 1)", data, "diff_in_means", bounds=BOUNDS)
    high = data["dose"] > 1
    assert reference.estimate == pytest.approx(data["y"][high].mean() - data["y"][~high].mean())
    cate = {"method": "r_learner", "epsilon": 50, "delta": 1e-6, "seed": 1, "bounds": BOUNDS}
    fit = dpe.dp_cate("y ~ I(dose > 1) | x", data, **cate)
    assert np.isfinite(fit.effect({"x": [0.5]})).all()
    assert numbers(
        dpe.dp_balance("y ~ I(dose > 1) | x", data, epsilon=2, bounds=BOUNDS, seed=1)
    ) == (numbers(dpe.dp_balance("y ~ high | x", data, epsilon=2, bounds=BOUNDS, seed=1)))
    groups = {**cate, "release": "groups", "by": "cut(x, [-2, 0, 2])"}
    assert len(dpe.dp_cate("y ~ I(dose > 1) | x", data, **groups).effects) == 2
    with pytest.raises(DPEffectsError):
        dpe.dp_cate("y ~ cut(dose, [0, 1, 5, 20]) | x", data, **cate)
