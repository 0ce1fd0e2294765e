"""Expressions: values against numpy, ranges by interval arithmetic, domains from bounds alone."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpeffects.errors import BoundsError, DataError, FormulaError
from dpeffects.formula import parse
from dpeffects.formula.expression import (
    FUNCTIONS,
    Binary,
    Call,
    Column,
    Compare,
    Cut,
    Number,
    Pair,
    Unary,
    columns,
    evaluate,
    needs_domain,
    source,
)
from dpeffects.formula.ranges import range_of
from tests.cases import each

X = np.array([0.5, 1.0, 2.0, 4.0])
Z = np.array([-1.0, 3.0, 0.25, 2.0])


def read(text):
    return parse(f"{{{text}}} ~ t").outcome


VALUES = [
    ("x", X),
    ("+x", X),
    ("-x", -X),
    ("--x", X),
    ("x + z * 2", X + 2 * Z),
    ("(x + z) * 2", (X + Z) * 2),
    ("x - z - 1", X - Z - 1),
    ("x - (z - 1)", X - (Z - 1)),
    ("x / z / 2", X / Z / 2),
    ("x / (z / 2)", X / (Z / 2)),
    ("-x ** 2", -(X**2)),
    ("(-x) ** 2", X**2),
    ("(-2) ** 3 * x", -8 * X),
    ("x ** -0.5", X**-0.5),
    ("x ** 3", X**3),
    ("z > 0", (Z > 0) * 1.0),
    ("0 < z", (Z > 0) * 1.0),
    ("3 >= z", (Z <= 3) * 1.0),
    ("z == 3", (Z == 3) * 1.0),
    ("z != 3", (Z != 3) * 1.0),
    ("(x > 0.5) * (x <= 2)", np.array([0.0, 1.0, 1.0, 0.0])),
    ("I(x) + I(z)", X + Z),
    ("log(1 + x)", np.log(1 + X)),
    ("abs(z)", np.abs(Z)),
    *((f"{name}(x)", getattr(np, name)(X)) for name in FUNCTIONS),
]


@each(("text", "expected"), VALUES)
def test_values(text, expected):
    value = evaluate(read(text), {"x": X, "z": Z})
    assert value.dtype == np.float64
    np.testing.assert_allclose(value, expected, rtol=1e-15)


def test_integer_and_boolean_columns_are_numbers():
    data = {"x": np.array([1, 2]), "z": np.array([True, False])}
    np.testing.assert_array_equal(evaluate(read("x / 2 + z"), data), [1.5, 1.0])


def test_missing_column():
    with pytest.raises(DataError, match="`w`"):
        evaluate(read("w + 1"), {"x": X})


BOUNDS = {"x": (1, 4), "z": (-2, 3), "zero": (0, 5), "same": (2, 2)}
RANGES = [
    ("x", (1, 4)),
    ("-x", (-4, -1)),
    ("x + z", (-1, 7)),
    ("x - z", (-2, 6)),
    ("x * z", (-8, 12)),
    ("z * z", (0, 9)),
    ("z / x", (-2, 3)),
    ("1 / x", (0.25, 1)),
    ("x / -x", (-4, -0.25)),
    ("z ** 2", (0, 9)),
    ("x ** 2", (1, 16)),
    ("z ** 3", (-8, 27)),
    ("z ** 0", (1, 1)),
    ("(-x) ** -1", (-1, -0.25)),
    ("x ** -2", (1 / 16, 1)),
    ("(-x) ** -2", (1 / 16, 1)),
    ("x ** 0.5", (1, 2)),
    ("zero ** 0.5", (0, math.sqrt(5))),
    ("x ** -0.5", (0.5, 1)),
    ("abs(z)", (0, 3)),
    ("abs(x)", (1, 4)),
    ("abs(-x)", (1, 4)),
    ("z > 1", (0, 1)),
    ("undeclared > 1", (0, 1)),
    ("(z > 1) * x", (0, 4)),
    ("sqrt(zero)", (0, math.sqrt(5))),
    ("log(1 + zero)", (0, math.log(6))),
    ("exp(z)", (math.exp(-2), math.exp(3))),
    ("same", (2, 2)),
]


@each(("text", "expected"), RANGES)
def test_ranges(text, expected):
    assert range_of(read(text), BOUNDS) == pytest.approx(expected, rel=1e-15)


def test_several_columns_lie_in_the_unit_interval():
    for text in ("C(g)", "cut(u, [0, 1, 2])", "bs(u, knots=[1], lower_bound=0, upper_bound=2)"):
        (term,) = parse(f"y ~ t | {text}").terms
        assert range_of(term[0], {}) == (0.0, 1.0)


DOMAINS = [
    (
        "log(zero)",
        r"term `log\(zero\)`: the declared lower bound of `zero` is 0; declare a positive",
    ),
    ("log(zero)", r"or write log\(1 \+ x\)"),
    ("log2(zero)", r"or write log2\(1 \+ x\)"),
    ("log(z)", "lower bound of `z` is -2"),
    ("log1p(z)", "above -1"),
    ("sqrt(z)", "lower bound of 0 or more"),
    ("1 / zero", "`zero` ranges from 0 to 5 .* divides by 0; declare bounds that exclude 0"),
    ("x / (z - 1)", "`z - 1` ranges from -3 to 2"),
    ("z ** -1", "divides by 0"),
    ("z ** 0.5", "lower bound of 0 or more"),
    ("zero ** -0.5", "lower bound above 0"),
    ("1 + log(x - 1)", r"term `I\(1 \+ log\(x - 1\)\)`: in `log\(x - 1\)`, `x - 1` ranges from 0"),
    ("log(zero) > 1", "the declared lower bound"),
    ("exp(exp(exp(x)))", "infinite values; narrow"),
    ("x ** 1000", "infinite values; narrow"),
    ("x + unknown", "no bounds are declared for `unknown`"),
]


@pytest.mark.parametrize(("text", "message"), DOMAINS)
def test_domains_are_checked_from_bounds_alone(text, message):
    with pytest.raises(BoundsError, match=message):
        range_of(read(text), BOUNDS)


def test_domains_inside_cut_and_splines():
    (term,) = parse("y ~ t | cut(log(zero), [0, 1, 2])").terms
    with pytest.raises(BoundsError, match=r"cut\(log\(zero\), .*in `log\(zero\)`"):
        range_of(term[0], BOUNDS)


@pytest.mark.parametrize("bad", [(3, 1), (math.nan, 1), (0, math.inf)])
def test_bad_bounds(bad):
    with pytest.raises(BoundsError):
        range_of(Column("x"), {"x": bad})


NEEDS = [
    ("x + z", set()),
    ("log(x + w) + z", {"x", "w"}),
    ("sqrt(x)", {"x"}),
    ("exp(x) + abs(z)", set()),
    ("x / z", {"z"}),
    ("x / 2", set()),
    ("x ** 2 + z ** 0", set()),
    ("x ** -1 + z ** 0.5", {"x", "z"}),
    ("log(x) > 1", {"x"}),
]


@pytest.mark.parametrize(("text", "expected"), NEEDS)
def test_needs_domain(text, expected):
    assert needs_domain(read(text)) == expected


def test_a_column_of_one_value_has_that_as_its_range():
    assert range_of(Column("x"), {"x": (2.0, 2.0)}) == (2.0, 2.0)


def test_two_numbers_as_one_are_told_apart_again():
    pair = Pair(Column("x"), Column("z"), (4.0, 10.0))
    x, z = np.array([0.0, 4.0, 1.0]), np.array([10.0, 0.0, 3.0])
    first, second = pair.apart(pair.together(x, z))
    for found, exact in ((first, x / 4.0), (second, z / 10.0)):
        assert found[:2].tolist() == exact[:2].tolist()  # the ends are ends
        assert found == pytest.approx(exact, abs=2.0**-26)


def test_columns_are_listed_once_in_order():
    assert columns(read("b + a * b + log(`a b`)")) == ("b", "a", "a b")


def test_cut_labels():
    assert Cut(Column("x"), (0.0, 30.0, 50.5)).labels == ("[0, 30]", "(30, 50.5]")


# Random trees over three columns.
numbers = st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.1, 1.0, 2.0, 3.0, 7.5]).map(Number)
names = st.sampled_from(["x", "z", "odd name"])


def grow(children):
    powers = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0]).map(Number)
    compared = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    return st.one_of(
        children.filter(lambda x: not isinstance(x, Number)).map(lambda x: Unary("-", x)),
        st.builds(Binary, st.sampled_from(["+", "-", "*", "/"]), children, children),
        st.builds(Binary, st.just("**"), children, powers),
        st.builds(Call, st.sampled_from(sorted(FUNCTIONS)), children),
        children.filter(lambda x: not isinstance(x, Number)).flatmap(
            lambda x: st.builds(Compare, compared, st.just(x), numbers)
        ),
    )


expressions = st.recursive(names.map(Column) | numbers, grow, max_leaves=6)
intervals = st.tuples(st.floats(-5, 5), st.floats(-5, 5)).map(lambda ends: tuple(sorted(ends)))


@settings(max_examples=200, deadline=None)
@given(expressions, intervals, intervals, intervals, st.integers(0, 2**32 - 1))
def test_no_value_leaves_its_range(expr, x, z, odd, seed):
    bounds = {"x": x, "z": z, "odd name": odd}
    try:
        lower, upper = range_of(expr, bounds)
    except BoundsError:
        assume(False)
    rng = np.random.default_rng(seed)
    spread = {n: np.r_[b, rng.uniform(*b, 40), np.clip(0, *b)] for n, b in bounds.items()}
    data = {n: rng.permutation(values) for n, values in spread.items()}
    with np.errstate(all="ignore"):
        values = evaluate(expr, data)
    # The same functions give the ends; only their last digits may differ.
    slack = 1e-12 * max(abs(lower), abs(upper)) + 1e-300
    assert np.isfinite(values).all()
    assert (values >= lower - slack).all()
    assert (values <= upper + slack).all()


@settings(max_examples=100, deadline=None)
@given(st.recursive(names.map(Column), grow, max_leaves=4))
def test_what_needs_no_domain_fails_by_overflow_only(expr):
    assume(not needs_domain(expr))
    bounds = dict.fromkeys(columns(expr), (-5.0, 5.0))
    message = ""
    try:
        range_of(expr, bounds)
    except BoundsError as error:
        message = str(error)
    assert not message or "infinite" in message


@settings(max_examples=100, deadline=None)
@given(expressions)
def test_source_reads_back(expr):
    assume(columns(expr))
    (term,) = parse(f"y ~ t | {source(expr)}").terms
    assert term == (expr,)


def test_clip_brings_an_expression_between_two_numbers():
    term = parse("y ~ t | clip(x - z, -2, 3)").terms[0][0]
    assert source(term) == "clip(x - z, -2, 3)"
    columns = {"x": np.array([-9.0, 0.5, 9.0, np.nan]), "z": np.array([0.0, 1.0, 2.0, 0.0])}
    np.testing.assert_array_equal(evaluate(term, columns), [-2.0, -0.5, 3.0, np.nan])
    assert range_of(term, {"x": (-10, 10), "z": (0, 1)}) == (-2.0, 3.0)
    assert range_of(term, {"x": (0, 1), "z": (0, 1)}) == (-1.0, 1.0)
    for wrong in ("clip(x)", "clip(x, 3, 2)", "clip(x, z, 3)"):
        with pytest.raises(FormulaError, match=r"clip|number"):
            parse(f"y ~ t | {wrong}")
