"""Encodings: the columns formulaic makes, their ranges, and the scaling to [0, 1]."""

import numpy as np
import pandas as pd
import pytest
from formulaic import model_matrix
from hypothesis import given, settings
from hypothesis import strategies as st

from dpeffects.errors import BoundsError, DataError, FormulaError
from dpeffects.formula import parse
from dpeffects.formula.encoding import Encoding
from tests.cases import each

LEVELS = {"a": ("u", "v", "w"), "b": ("p", "q"), "c": (False, True)}
BOUNDS = {"x": (1.0, 9.0), "z": (-2.0, 2.0)}
N = 60


def sample(seed=0, n=N):
    rng = np.random.default_rng(seed)
    numbers = {name: rng.uniform(*ends, n) for name, ends in BOUNDS.items()}
    codes = {name: rng.integers(0, len(levels), n) for name, levels in LEVELS.items()}
    return numbers, codes


def frame(numbers, codes):
    factors = {
        name: pd.Categorical.from_codes(code, categories=list(LEVELS[name]))
        for name, code in codes.items()
    }
    return pd.DataFrame({**numbers, **factors})


def encode(covariates, seed=0):
    """Our unscaled matrix as a frame, and formulaic's."""
    numbers, codes = sample(seed)
    encoding = Encoding.build(parse(f"y ~ t | {covariates}"), LEVELS)
    ours = pd.DataFrame(encoding.raw_matrix(numbers, codes, rows=N), columns=encoding.names)
    theirs = model_matrix(covariates, frame(numbers, codes)).astype(float)
    return ours, theirs


SAME_NAMES = [
    "1",
    "x",
    "x - 1",
    "x + z + x:z",
    "log(x) + log(x):z",
    "I(x ** 2)",
    "a",
    "a - 1",
    "0 + a + b",
    "0 + b + a + a:b",
    "a*b",
    "a:b",
    "a:b - 1",
    "a + a:b",
    "b:a + a",
    "a:x",
    "x + a:x",
    "x*a",
    "a:x + b:x - 1",
    "a*b*c",
    "(a + b + x)**2",
    "a:b:x + a:z",
    "c:x + c",
    "bs(x, knots=[3, 5], degree=3, lower_bound=1, upper_bound=9, include_intercept=False)",
    "bs(x, knots=[3, 5], degree=2, lower_bound=1, upper_bound=9, include_intercept=True)",
    "bs(x, knots=[], degree=1, lower_bound=1, upper_bound=9, include_intercept=True) - 1",
    "a*bs(x, knots=[4], degree=2, lower_bound=1, upper_bound=9, include_intercept=False)",
]


@each("covariates", SAME_NAMES)
def test_formulaic_agrees(covariates):
    ours, theirs = encode(covariates)
    assert list(ours.columns) == list(theirs.columns)
    np.testing.assert_allclose(ours, theirs, atol=1e-12)


terms = st.lists(st.sampled_from("abcxz"), min_size=1, max_size=3, unique=True).map(":".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(terms, min_size=1, max_size=5), st.booleans(), st.integers(0, 9))
def test_formulaic_agrees_on_random_designs(chosen, intercept, seed):
    ours, theirs = encode(" + ".join(chosen) + ("" if intercept else " - 1"), seed)
    assert list(ours.columns) == list(theirs.columns)
    np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_splines_are_clipped_and_include_both_ends():
    spline = "bs(x, knots=[3], degree=3, lower_bound=2, upper_bound=8, include_intercept=True)"
    encoding = Encoding.build(parse(f"y ~ t | {spline} - 1"), {})
    basis = encoding.raw_matrix({"x": np.array([-5.0, 2.0, 8.0, 50.0])}, {})
    np.testing.assert_array_equal(basis[:, 0], [1, 1, 0, 0])
    np.testing.assert_array_equal(basis[:, -1], [0, 0, 1, 1])
    np.testing.assert_allclose(basis.sum(axis=1), 1)


def test_cut():
    values = np.array([-3.0, 0.0, 30.0, 30.5, 50.0, 50.1, 90.0, 200.0])
    encoding = Encoding.build(parse("y ~ t | cut(x, [0, 30, 50, 90]) - 1"), {})
    base = "cut(x, [0, 30, 50, 90])"
    assert encoding.names == (f"{base}[[0, 30]]", f"{base}[(30, 50]]", f"{base}[(50, 90]]")
    bins = pd.cut(np.clip(values, 0, 90), [0, 30, 50, 90], include_lowest=True)
    np.testing.assert_array_equal(encoding.raw_matrix({"x": values}, {}), pd.get_dummies(bins))
    reduced = Encoding.build(parse("y ~ t | cut(x, [0, 30, 50, 90])"), {})
    assert reduced.names == ("Intercept", f"{base}[T.(30, 50]]", f"{base}[T.(50, 90]]")


def test_levels_from_the_formula_and_from_the_declaration_are_one_factor():
    encoding = Encoding.build(parse("y ~ t | a + C(a) + C(a, levels=['u', 'v', 'w'])"), LEVELS)
    assert encoding.names == ("Intercept", "a[T.v]", "a[T.w]")
    assert encoding.numeric_columns == ()


def test_a_column_with_levels_is_a_category():
    formula = parse("y ~ t | g + C(g, levels=[1, 2, 3])")
    assert Encoding.build(formula, formula.levels).names == ("Intercept", "g[T.2]", "g[T.3]")


def test_ranges():
    encoding = Encoding.build(parse("y ~ t | x + z + x:z + a:z + I(z**2)"), LEVELS)
    expected = {
        "Intercept": (1, 1),
        "x": (1, 9),
        "z": (-2, 2),
        "I(z ** 2)": (0, 4),
        "x:z": (-18, 18),
        "a[T.v]:z": (-2, 2),
        "a[T.w]:z": (-2, 2),
    }
    assert encoding.names == tuple(expected)
    np.testing.assert_array_equal(encoding.ranges(BOUNDS), list(expected.values()))


def test_matrix_is_the_raw_matrix_scaled_by_its_ranges():
    numbers, codes = sample()
    encoding = Encoding.build(parse("y ~ t | (x + z + a)**2 + log(x)"), LEVELS)
    lower, upper = encoding.ranges(BOUNDS).T
    raw, scaled = encoding.raw_matrix(numbers, codes), encoding.matrix(numbers, codes, BOUNDS)
    np.testing.assert_array_equal(scaled[:, 0], 1)
    np.testing.assert_allclose(
        scaled[:, 1:], ((raw - lower) / np.maximum(upper - lower, 1e-300))[:, 1:], atol=1e-14
    )
    assert scaled.dtype == np.float64
    assert scaled.flags.f_contiguous


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20),
    st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)).map(sorted),
)
def test_every_value_lies_in_the_unit_interval(values, ends):
    encoding = Encoding.build(parse("y ~ t | x + I(x**3 - x) + x:I(x**2) + I(x / 3)"), {})
    matrix = encoding.matrix({"x": np.array(values)}, {}, {"x": tuple(ends)})
    assert (matrix >= 0).all()
    assert (matrix <= 1).all()


def test_no_width_gives_zero():
    encoding = Encoding.build(parse("y ~ t | x"), {})
    matrix = encoding.matrix({"x": np.array([3.0, 3.0])}, {}, {"x": (3, 3)})
    np.testing.assert_array_equal(matrix, [[1, 0], [1, 0]])


def test_out_is_filled_and_returned():
    numbers, codes = sample()
    encoding = Encoding.build(parse("y ~ t | x + a"), LEVELS)
    out = np.full((N, 4), np.nan)
    assert encoding.matrix(numbers, codes, BOUNDS, out=out) is out
    np.testing.assert_array_equal(out, encoding.matrix(numbers, codes, BOUNDS))
    before = {name: values.copy() for name, values in numbers.items()}
    encoding.matrix(numbers, codes, BOUNDS)
    for name, values in before.items():  # the caller's columns are left alone
        np.testing.assert_array_equal(numbers[name], values)


def test_intercept_alone():
    encoding = Encoding.build(parse("y ~ t"), {})
    np.testing.assert_array_equal(encoding.matrix({}, {}, {}, rows=3), np.ones((3, 1)))
    with pytest.raises(DataError, match="common length"):
        encoding.matrix({}, {}, {})


BAD_DATA = [
    ({"x": np.ones(2)}, {"a": np.array([0, 3])}, "not one of its levels"),
    ({"x": np.ones(2)}, {"a": np.array([-1, 0])}, "not one of its levels"),
    ({"x": np.ones(2)}, {"a": np.zeros(3, int)}, "common length"),
    ({"x": np.ones(2)}, {}, "no categorical column `a`"),
    ({}, {"a": np.zeros(2, int)}, "no numeric column `x`"),
]


@pytest.mark.parametrize(("numbers", "codes", "message"), BAD_DATA)
def test_bad_data(numbers, codes, message):
    encoding = Encoding.build(parse("y ~ t | x + a"), LEVELS)
    with pytest.raises(DataError, match=message):
        encoding.matrix(numbers, codes, BOUNDS)


def test_levels_must_be_declared_once():
    with pytest.raises(BoundsError, match="the levels of `g` are not declared"):
        Encoding.build(parse("y ~ t | C(g)"), LEVELS)
    with pytest.raises(BoundsError, match="declares other levels"):
        Encoding.build(parse("y ~ t | C(a, levels=['u', 'v'])"), LEVELS)


def test_domains_are_checked_with_the_ranges():
    encoding = Encoding.build(parse("y ~ t | a:log(z)"), LEVELS)
    with pytest.raises(BoundsError, match=r"log\(z\)"):
        encoding.ranges(BOUNDS)
    wide = Encoding.build(parse("y ~ t | x:z"), {})
    with pytest.raises(BoundsError, match="infinite"):
        wide.ranges({"x": (-1e200, 1e200), "z": (-1e200, 1e200)})


def test_very_many_columns_are_refused():
    levels = dict.fromkeys("abc", tuple(range(30)))
    with pytest.raises(
        FormulaError, match="24389 columns, which makes 27000 in all, and 10000 are the most"
    ):
        Encoding.build(parse("y ~ t | a:b:c"), levels)
