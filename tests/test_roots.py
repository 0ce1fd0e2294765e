"""Roots are those that scipy finds, and take no more steps than bisection."""

import math

import pytest
from scipy.optimize import brentq

from dpeffects.roots import root

FUNCTIONS = [
    (lambda x: x * x - 2.0, 0.0, 2.0),
    (lambda x: math.exp(-x) - 0.025, 0.0, 64.0),
    (lambda x: 0.5 * math.erfc(x) - 1e-9, 0.0, 8.0),
    (lambda x: math.atan(x - 3.0), -100.0, 1e6),
    (lambda x: (x - 1.0) ** 9, 0.0, 3.0),
    (lambda x: math.copysign(1.0, x - 1.25), 0.0, 3.0),
    (lambda x: x, 0.0, 1.0),
    (lambda x: x - 1.0, 0.0, 1.0),
    (lambda x: 1e-300 * (x - 7.0), 0.0, 10.0),
]


@pytest.mark.parametrize(("function", "low", "high"), FUNCTIONS)
@pytest.mark.parametrize("turned", [False, True])
def test_roots_are_those_of_scipy(function, low, high, turned):
    calls = []

    def counted(x):
        calls.append(x)
        return -function(x) if turned else function(x)

    found = root(counted, low, high, xtol=1e-11)
    assert found == pytest.approx(brentq(function, low, high, xtol=1e-13, maxiter=999), abs=3e-11)
    assert len(calls) <= 3 + 2 * math.log2((high - low) / 1e-11)
    assert all(low <= x <= high for x in calls)


def test_coarse_roots_take_few_steps():
    calls = []
    found = root(lambda x: calls.append(x) or x**3 - 5.0, 0.0, 10.0, xtol=0.0, rtol=1e-3)
    assert found == pytest.approx(5 ** (1 / 3), rel=1e-3)
    assert len(calls) < 12


def test_without_a_change_of_sign_there_is_no_root():
    with pytest.raises(ValueError, match="different signs"):
        root(lambda x: x * x + 1.0, -1.0, 1.0)
