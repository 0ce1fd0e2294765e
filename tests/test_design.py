"""Frames in: every kind of frame, every form of treatment, every source of bounds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.design import table_reader as design
from dpeffects.errors import BoundsError
from dpeffects.formula import parse
from tests.plain import plain

BOUNDS = {"y": (0, 1), "x": (18, 90), "g": ["a", "b", "c"]}
FORMULA = "y ~ t | x + g + I(x**2) + log(x)"


def frame(n=200):
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "y": rng.random(n),
            "t": rng.integers(0, 2, n),
            "x": rng.uniform(18, 90, n),
            "g": rng.choice(list("abc"), n),
        }
    )


def fit(data, formula=FORMULA, bounds=BOUNDS, **more):
    more = {"method": "private_psm", "epsilon": 2, "level": "label", "seed": 5, **more}
    return dpe.dp_ate(formula, data, bounds=bounds, **more)


def test_pandas_polars_and_pyarrow_give_the_same_numbers():
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    data = frame()
    expected = fit(data).estimate
    assert fit(polars.from_pandas(data)).estimate == expected
    assert fit(pyarrow.Table.from_pandas(data)).estimate == expected
    assert fit(data.astype({"x": "float32", "y": "float32"})).estimate == pytest.approx(expected)


FORMS = {
    "bool": (lambda t: t.astype(bool), {}),
    "float": (lambda t: t.astype(float), {}),
    "declared levels": (lambda t: np.where(t, "drug", "placebo"), {"t": ["placebo", "drug"]}),
    "ordered categorical": (
        lambda t: pd.Categorical(np.where(t, "b", "a"), categories=["a", "b"], ordered=True),
        {"t": ["a", "b"]},
    ),
}


@pytest.mark.parametrize(("change", "more"), FORMS.values(), ids=FORMS.keys())
def test_treatment_forms(change, more):
    data = frame()
    expected = fit(data).estimate
    data["t"] = change(data["t"].to_numpy())
    assert fit(data, bounds={**BOUNDS, **more}).estimate == expected


def test_the_first_level_is_the_reference():
    data = frame()
    data["t"] = np.where(data["t"], "drug", "placebo")
    text = FORMULA.replace("t |", "C(t, levels=['placebo', 'drug']) |")
    turned = FORMULA.replace("t |", "C(t, levels=['drug', 'placebo']) |")
    one = fit(data, text, epsilon=1e6).estimate
    assert fit(data, turned, epsilon=1e6).estimate == pytest.approx(-one, abs=1e-4)


def test_bounds_by_dtype_need_no_declaration():
    data = frame()
    data["y"] = data["y"] > 0.5
    pl = pytest.importorskip("polars")
    data = pl.from_pandas(data).with_columns(pl.col("g").cast(pl.Enum(list("abc"))))
    made = fit(data, "y ~ t | g", bounds=None, level="sample", epsilon=1)
    assert [source for _, _, source in made.bounds] == ["dtype", "dtype"]
    assert made.guarantee.unit == "record"


def test_intervals_cut_outside_the_formula_are_refused():
    """pandas.qcut writes quantiles of the data into the levels."""
    data = frame()
    data["q"] = pd.qcut(data["x"], 4)
    with pytest.raises(BoundsError, match="made outside the formula"):
        fit(data, "y ~ t | q", bounds={"y": (0, 1)}, level="sample")


def test_cut_points_are_a_declaration():
    made = fit(frame(), "y ~ t | cut(x, [18, 40, 90])", bounds={"y": (0, 1)}, level="sample")
    assert made.bounds[-1] == ("x", "[18, 90]", "declared")
    assert "bounds" not in {s.share for s in made.charges}


def test_values_beyond_the_bounds_never_reach_a_function():
    data = frame().assign(x=-5.0)
    parsed = parse("log(y) ~ t | log(x)")
    table = design.read(data, parsed, {"x": (1, 9), "y": (0.5, 2)}, ())
    rows = table.encode()
    assert np.isfinite(rows.outcome).all()
    assert np.isfinite(rows.covariates()).all()


@pytest.mark.parametrize("ends", [(-1e308, 1e308), (0, 1e-200), (0, 1e160)])
def test_absurd_outcome_ranges_are_refused(ends):
    with pytest.raises(BoundsError, match="too wide"):
        fit(frame(), "y ~ t | x", bounds={"y": ends, "x": (0, 1)})


def test_a_polars_enum_declares_its_levels():
    polars = pytest.importorskip("polars")
    data = polars.from_pandas(frame()).with_columns(
        polars.col("g").cast(polars.Enum(["a", "b", "c"]))
    )
    made = fit(data, "y ~ t | g", bounds={"y": (0, 1)}, level="sample")
    assert made.bounds[-1] == ("g", "a, b, c", "dtype")


def test_public_covariates_need_no_bounds_but_private_ones_do():
    data = frame()
    made = fit(data, "y ~ t | x + g", bounds={"y": (0, 1)}, level="label")
    assert {source for _, _, source in made.bounds[1:]} == {"public"}
    with pytest.raises(BoundsError, match='"g": \\["LEVEL"'):
        fit(data, "y ~ t | x + g", bounds={"y": (0, 1)}, level="sample")


def test_clipping_happens_before_anything_else():
    """Values beyond the bounds are as good as values at the bounds, for every column."""
    data = frame()
    data.loc[:20, "y"], data.loc[20:40, "x"] = 7.0, 500.0
    clipped = data.assign(y=data["y"].clip(0, 1), x=data["x"].clip(18, 90))
    for level in ("label", "sample"):
        one, other = (fit(x, level=level, check_bounds=False) for x in (data, clipped))
        assert one.to_dict() == other.to_dict()


def test_private_bounds_find_the_range_and_say_what_it_cost():
    rng = np.random.default_rng(2)
    n = 20_000
    data = pd.DataFrame({"t": rng.integers(0, 2, n), "x": rng.uniform(20, 60, n)})
    data["y"] = rng.uniform(0, 100, n)
    made = dpe.dp_ate("y ~ t | x", data, "private_psm", epsilon=1, seed=1)
    found = {name: (text, source) for name, text, source in made.bounds}
    assert found["y"][1] == found["x"][1] == "private"
    low, high = (float(v) for v in found["y"][0].strip("[]").split(","))
    assert low <= 1
    assert high == 128.0
    cost = [s for s in made.charges if s.share == "bounds"]
    assert len(cost) == 2
    assert sum(s.epsilon for s in cost) == pytest.approx(1 / 3, rel=0.05)
    assert "private" in str(made.summary())
    assert made.estimate == pytest.approx(0, abs=5 * made.std_error)
    assert "effect is that on the clipped outcome" in " ".join(str(made.summary()).split())


def test_columns_that_a_method_does_not_use_cost_nothing():
    data = frame(4000)
    made = dpe.dp_ate("y ~ t | x", data, "diff_in_means", epsilon=1, bounds={"y": (0, 1)}, seed=1)
    assert {s.share for s in made.charges} == {"counts", "estimate", "variance"}
    assert "does not use covariates" in str(made.summary())


def test_a_transformed_outcome_is_named_as_it_is_analysed():
    data = frame().assign(y=lambda d: 1 + d["y"])
    made = fit(data, "log(y) ~ t | x", bounds={"y": (1, 3), "x": (18, 90)})
    assert made.tidy()["outcome"].iloc[0] == "log(y)"
    assert made.bounds[0] == ("log(y)", "[0, 1.09861]", "declared")


def test_declared_frames_carry_their_bounds_and_calls_can_override_them():
    declared = dpe.declare(frame(), BOUNDS)
    assert fit(declared, bounds=None).bounds[0] == ("y", "[0, 1]", "declared")
    assert fit(declared, bounds={"y": (-1, 2)}).bounds[0] == ("y", "[-1, 2]", "declared")


def test_from_data_marks_everything_void():
    made = fit(frame(), "y ~ t | x + g", bounds="from_data", level="sample", seed=None)
    assert made.guarantee.status == "void: bounds read from data"
    assert not made.guarantee.holds
    assert "NOT PRIVATE" in str(made)
    assert made.to_dict()["guarantee"]["status"].startswith("void")
    assert "void" in made.glance()["guarantee"].iloc[0]


def test_the_outcome_may_be_transformed():
    data = frame().assign(y=lambda d: np.exp(d["y"] * 3))
    made = fit(data, "log(y) ~ t | x", bounds={"y": (1, 30), "x": (18, 90)}, epsilon=1e6)
    target = plain("log(y) ~ t | x", data, "private_psm").estimate
    assert made.estimate == pytest.approx(target, abs=0.02)


def test_covariates_are_scaled_to_the_unit_interval():
    data, parsed = frame(), parse(FORMULA)
    table = design.read(data, parsed, BOUNDS, ())
    rows = table.encode().covariates()
    assert rows.shape == (200, 6)
    assert rows.min() >= 0
    assert rows.max() <= 1
    x = (data["x"] - 18) / 72
    assert rows[:, 1] == pytest.approx(x.to_numpy())
