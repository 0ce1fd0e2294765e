"""The rules against brute force and statsmodels."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from statsmodels.stats.meta_analysis import combine_effects

from dpeffects.services.sites.rules import all_sites, heterogeneity, ivw, largest, mvagg


def objective(n, v, subset):
    index = list(subset)
    return float(n[index] ** 2 @ v[index]) / float(n[index].sum()) ** 2


def brute_force(n, v):
    sites = range(len(n))
    subsets = (s for k in range(1, len(n) + 1) for s in combinations(sites, k))
    return min(objective(n, v, subset) for subset in subsets)


def sites(most):
    return st.integers(1, most).flatmap(
        lambda j: st.tuples(
            hnp.arrays(float, j, elements=st.integers(1, 100_000).map(float)),
            hnp.arrays(float, j, elements=st.floats(1e-6, 1e3)),
        )
    )


@given(sites(12))
@settings(max_examples=60, deadline=None)
def test_mvagg_is_the_best_subset(drawn):
    n, v = drawn
    weights = mvagg(n, v)
    chosen = np.flatnonzero(weights)
    assert weights[chosen] == pytest.approx(n[chosen] / n[chosen].sum())
    assert objective(n, v, chosen) == pytest.approx(brute_force(n, v), rel=1e-9)


@pytest.mark.parametrize("j", range(1, 13))
def test_mvagg_is_the_best_subset_of_every_size(j):
    """Sizes and variances over several orders, and nearly tied."""
    rng = np.random.default_rng(j)
    for spread in (0.01, 1.0, 3.0):
        n = np.round(np.exp(rng.normal(6, spread, j))) + 1
        v = np.exp(rng.normal(0, spread, j))
        assert objective(n, v, np.flatnonzero(mvagg(n, v))) == pytest.approx(brute_force(n, v))


@given(sites(8))
@settings(max_examples=30, deadline=None)
def test_mvagg_does_not_depend_on_units_or_order(drawn):
    n, v = drawn
    value = objective(n, v, np.flatnonzero(mvagg(n, v)))
    turned = np.flatnonzero(mvagg(n[::-1], 1e-30 * v[::-1]))
    assert objective(n[::-1], v[::-1], turned) == pytest.approx(value, rel=1e-9)


def test_mvagg_of_a_hundred_thousand_sites_beats_what_else_one_could_try():
    rng = np.random.default_rng(0)
    n, v = rng.integers(10, 10_000, 100_000).astype(float), np.exp(rng.normal(0, 2, 100_000))
    best = objective(n, v, np.flatnonzero(mvagg(n, v)))
    assert best <= objective(n, v, range(n.size))
    for cut in (0.1, 0.5, 0.9):
        assert best <= objective(n, v, np.flatnonzero(n * v <= np.quantile(n * v, cut)))
        assert best <= objective(n, v, np.flatnonzero(v <= np.quantile(v, cut)))


def test_extreme_variances_do_not_overflow():
    n, v = np.array([1e15, 1.0, 10.0]), np.array([1e-120, 1e120, 1.0])
    with np.errstate(all="raise"):
        assert mvagg(n, v).tolist() == [1.0, 0.0, 0.0]
        assert ivw(n, v) == pytest.approx([1.0, 0.0, 0.0])


def test_all_and_largest():
    n, v = np.array([1.0, 3.0, 3.0]), np.ones(3)
    assert all_sites(n, v).tolist() == [1 / 7, 3 / 7, 3 / 7]
    assert largest(n, v).tolist() == [0.0, 1.0, 0.0]


ESTIMATES = np.array([0.12, 0.35, -0.08, 0.51, 0.2])
VARIANCES = np.array([0.01, 0.02, 0.015, 0.04, 0.003])


def test_ivw_and_dersimonian_laird_agree_with_statsmodels():
    reference = combine_effects(ESTIMATES, VARIANCES, method_re="chi2")
    assert ivw(VARIANCES, VARIANCES) == pytest.approx(reference.weights_rel_fe)
    found = heterogeneity(ESTIMATES, VARIANCES, np.zeros(5))
    assert found.tau2 == pytest.approx(reference.tau2)
    assert found.q == pytest.approx(reference.q)
    assert found.i2 == pytest.approx(reference.i2)
    assert found.p_value == pytest.approx(reference.test_homogeneity().pvalue)
    weights = ivw(VARIANCES, VARIANCES + found.tau2)
    assert weights @ ESTIMATES == pytest.approx(reference.mean_effect_re)


def test_equal_sites_do_not_differ():
    found = heterogeneity(np.full(4, 0.3), VARIANCES[:4], np.zeros(4))
    assert (found.q, found.tau2, found.i2, found.p_value) == pytest.approx((0, 0, 0, 1))


def test_heterogeneity_keeps_its_level_under_laplace_noise():
    """The scaled chi-square knows the heavy tails; the plain one rejects too often."""
    rng = np.random.default_rng(3)
    variance = np.array([1.0, 2.0, 0.5])
    draws = rng.laplace(size=(4000, 3)) * np.sqrt(variance / 2)
    excess = np.full(3, 3.0)
    ours = np.mean([heterogeneity(x, variance, excess).p_value < 0.05 for x in draws])
    plain = np.mean([heterogeneity(x, variance, 0 * excess).p_value < 0.05 for x in draws])
    assert 0.035 < ours < 0.06
    assert plain > ours + 0.01
