"""Forecasts by public numbers: more records, more epsilon, a delta are never worse."""

from dataclasses import replace

import pytest

from dpeffects.estimators.default.auto import AutoOptions, choose, plans
from dpeffects.estimators.spec import PublicInfo
from dpeffects.privacy.budget import Budget

EPSILONS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.8, 1.0, 1.6, 2.5, 4.0, 8.0)


def facts(n, columns, epsilon, delta=0.0, outcome=0):
    values = (1, *(2 if j % 3 == 0 else 0 for j in range(columns)), outcome)
    return PublicInfo(n, columns + 1, Budget(epsilon, delta), "sample", 0, values)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("design", ["observational", "randomised"])
@pytest.mark.parametrize(("n", "columns"), [(500, 3), (2000, 10), (2000, 40), (50_000, 10)])
@pytest.mark.parametrize("outcome", [0, 2])
def test_more_epsilon_is_never_worse(design, n, columns, outcome):
    options, last = AutoOptions(design), {}
    for epsilon in EPSILONS:
        found = plans(options, facts(n, columns, epsilon, 0.0, outcome))
        errors = {method.name: forecast.error for forecast, method, _ in found}
        assert all(errors[name] <= 1.005 * before for name, before in last.items())
        last = errors


@pytest.mark.parametrize(("n", "columns", "epsilon"), [(3000, 8, 0.5), (10_000, 30, 1.0)])
def test_a_delta_and_more_records_are_never_worse(n, columns, epsilon):
    options, base = AutoOptions(), facts(n, columns, epsilon)
    plain = plans(options, base)[1][0].error
    with_delta = replace(base, budget=Budget(epsilon, 1e-6))
    assert plans(options, with_delta)[1][0].error <= plain
    assert plans(options, replace(base, n=2 * n))[1][0].error < plain


def test_the_choice_says_what_a_delta_would_buy():
    method, _, why = choose(AutoOptions(), facts(10_000, 30, 1.0))
    assert method.name == "one_step"
    assert "clipped_contrast" not in why  # an unadjusted contrast is no effect
    assert "With delta = 1e-06" in why
    method, _, why = choose(AutoOptions("randomised"), facts(500, 5, 0.1))
    assert method.name == "clipped_contrast"
    assert "delta =" not in why
