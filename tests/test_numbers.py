"""Numbers for people: digits that follow from the error, one format a row, zero on its side."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpeffects.inference import Estimate, Hypothesis, Interval
from dpeffects.inference.estimate import SamplingVariance
from dpeffects.results import Test, Tests
from dpeffects.results.number_format import number, numbers, to_error, with_ends
from dpeffects.results.scaled import _said
from tests.releases import half_unit

SIZES = st.floats(-1e6, 1e6, allow_nan=False)
ERRORS = st.floats(1e-12, 1e12)


def side(text):
    """Whether a shown number is below zero, zero or above."""
    value = float(text)
    return (value > 0.0) - (value < 0.0)


@settings(max_examples=300, deadline=None)
@given(ERRORS, SIZES, SIZES, st.floats(1.0, 10.0))
@example(0.0131, 1.99, 0.0, 1.96)  # an end just above zero
@example(0.0996, 0.3, 0.0, 2.0)  # two digits of the error are 0.10
@example(5e3, 1e-9, 0.0, 2.0)  # far smaller than its error
@example(5009784736.0, 0.99609375, 0.0, 1.0)  # written with a power of ten
def test_nothing_moves_by_more_than_half_a_unit(error, far, offset, reach):
    value = far * error + offset
    low, high = value - reach * error, value + reach * error
    shown = to_error((value, error), error, ends=(low, high))
    for text, x in zip(shown, (value, error, low, high), strict=True):
        assert abs(float(text) - x) <= half_unit(error) + 1e-14 * abs(x)
    for text, end in zip(shown[2:], (low, high), strict=True):
        if abs(end) > 1e-4 * error:
            assert side(text) == math.copysign(1, end)


@settings(max_examples=300, deadline=None)
@given(ERRORS, SIZES, st.floats(1.0, 10.0))
def test_a_row_has_one_format(error, far, reach):
    value = far * error
    shown = to_error((value, error), error, ends=(value - reach * error, value + reach * error))
    exponents = {"e" in text for text in shown if text != "0"}
    assert len(exponents) == 1
    if not exponents.pop():
        assert len({len(text.partition(".")[2]) for text in shown}) == 1


@pytest.mark.parametrize(
    ("values", "error", "ends", "shown"),
    [
        ((0.174193, 0.022299), 0.022299, (0.130486, 0.2179), "0.174 0.022 0.130 0.218"),
        ((0.0268, 0.0131), 0.0131, (0.0004, 0.0525), "0.0268 0.0131 0.0004 0.0525"),
        ((-0.02, 0.0131), 0.0131, (-0.05, -0.00001), "-0.02000 0.01310 -0.05000 -0.00001"),
        ((0.2, 0.1), 0.1, (0.0, 0.4), "0.20 0.10 0.00 0.40"),  # an end that is zero
        ((7600.4, 7331.0), 7331.0, (-6769.1, 21969.0), "7600 7300 -6800 22000"),
        ((0.0, 0.01), 0.01, (-1e-17, 0.02), "0.000 0.010 0.000 0.020"),  # but for a last bit
        ((1.5, math.nan), math.nan, (0.25, math.inf), "1.500 n/a 0.250 inf"),
        ((2.0, 9.0), 9.0, (-1.0, 1.0), "2.00 9.00 -1.00 1.00"),  # cut to what is possible
        ((3.0, 0.0), 0.0, (3.0, 3.0), "3 0 3 3"),
        ((1.5e12, 2.2e10), 2.2e10, (1.4e12, math.inf), "1.5000e+12 2.20e+10 1.4000e+12 inf"),
        ((math.nan, math.nan), math.nan, (math.nan, math.nan), "n/a n/a n/a n/a"),
        ((-math.inf, 1.0), 1.0, (), "-inf 1.0"),
    ],
)
def test_rows(values, error, ends, shown):
    assert to_error(values, error, ends=ends) == tuple(shown.split())


def test_an_interval_stands_in_for_an_error():
    assert with_ends(0.51234, 0.41234, 0.61234) == ("0.512", "0.412", "0.612")
    assert with_ends(3.0, -2.0, math.inf) == ("3.00", "-2.00", "inf")
    assert with_ends(3.0, -2.0, 5.0) == ("3", "-2", "5")


@given(st.floats(-1e9, 1e9, allow_nan=False), st.integers(2, 6))
def test_significant_digits(value, digits):
    assert float(number(value, digits)) == pytest.approx(value, rel=0.51 * 10.0 ** (1 - digits))


def test_a_column_of_charges_shows_each_of_them():
    assert numbers([0.579494, 0.017779, 0.402727, 1.0], 4) == ("0.579", "0.018", "0.403", "1.000")
    assert numbers([0.0004, 0.9996, 1.0], 4) == ("0.0004", "0.9996", "1")


@settings(max_examples=300, deadline=None)
@given(st.floats(1e-6, 1e6), SIZES, st.floats(0.01, 5.0), st.booleans())
@example(0.0021, -4.47, 1.547, True)  # -0.0094 and the limit -0.00615
def test_a_limit_on_its_own_never_claims_more_than_its_number(error, far, reach, less):
    value = far * error
    limit = value + reach * error if less else value - reach * error
    ends = (-math.inf, limit) if less else (limit, math.inf)
    text = with_ends(value, *ends, error)[2 if less else 1]
    over = float(text) - limit if less else limit - float(text)
    assert -1e-6 * error - 1e-12 * abs(limit) <= over < error / 20


@settings(max_examples=200, deadline=None)
@given(
    st.floats(-0.999, 0.999),
    st.floats(1e-3, 0.5),
    st.sampled_from(["two-sided", "greater", "less"]),
    st.sampled_from([0.9, 0.95, 0.999]),
)
@example(-0.0094, 0.0021, "less", 0.95)
def test_printed_limits_of_a_test_are_near_the_true_ones(value, error, alternative, level):
    """The effect has a range, [-1, 1], whose ends are no limit of a one-sided test."""
    estimate = Estimate(value, SamplingVariance(error**2, 0.0, 1.0), possible=(-1.0, 1.0))
    asked = Hypothesis.asked(alternative=alternative)
    found = Test.of(estimate, asked, conf_level=level, what="effect")
    for summary in (found.summary(), Tests((found,)).summary()):
        for x, end, other in zip(found.interval, ("greater", "less"), ("low", "high"), strict=True):
            if alternative in (end, "two-sided"):
                shown = [float(text) for text in re.findall(r"-?\d+\.\d+", str(summary))]
                assert min(abs(y - x) for y in shown) < error / 20 + 1e-12, (other, str(summary))
    if alternative != "two-sided":
        limit = found.interval[0 if alternative == "greater" else 1]
        said = re.search(r"interval +at (least|most) (-?\d+(\.\d+)?) ", str(found.summary()))
        assert said[1] == ("least" if alternative == "greater" else "most")
        said = float(said[2])
        assert (limit - said if alternative == "greater" else said - limit) > -1e-9


@settings(max_examples=100, deadline=None)
@given(st.floats(0.001, 0.9), st.floats(1.0, 500.0))
def test_the_lower_end_of_a_ratio_keeps_two_digits(low, far):
    words = _said("ratio", "x", (1.5, Interval(low, low + far, 0.95)), 0.5, ())
    said = float(re.search(r"from ([0-9.]+)", words)[1])
    assert said == pytest.approx(low, rel=0.0501)
