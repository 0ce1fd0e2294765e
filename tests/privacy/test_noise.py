"""Samplers against their distributions, and the price against OpenDP's own map."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import log_ndtr

from dpeffects.errors import OptionError, PrivacyError
from dpeffects.privacy.noise import (
    SecureNoise,
    _log_phi,
    flip_chance,
    gaussian_scale,
    laplace_scale,
)
from dpeffects.seeded import SeededNoise

pytestmark = pytest.mark.real_noise
SOURCES = [SecureNoise(), SeededNoise(20)]
RARE = 1e-8
"""Secure noise is drawn anew in every run. A run makes twelve such tests of it, six of them of
both bits: the chance that one of the eighteen fails without a fault is below 1e-6."""


@pytest.mark.parametrize("source", SOURCES, ids=["secure", "seeded"])
@pytest.mark.parametrize(("sensitivity", "epsilon"), [(2**31, 0.2), (1000, 1.0)])
def test_laplace_noise_on_a_fine_grid_is_laplace(source, sensitivity, epsilon):
    scale = laplace_scale(sensitivity, epsilon)
    drawn = source.laplace(np.full(4000, 7, dtype=np.int64), scale, sensitivity, epsilon)
    assert stats.kstest((drawn - 7) / scale, "laplace").pvalue > RARE


@pytest.mark.parametrize("source", SOURCES, ids=["secure", "seeded"])
def test_laplace_noise_on_a_coarse_grid_is_discrete_laplace(source):
    epsilon = 1.3
    scale = laplace_scale(1, epsilon)
    drawn = source.laplace(np.zeros(6000, dtype=np.int64), scale, 1, epsilon)
    values = np.arange(-5, 6)
    expected = stats.dlaplace(1 / scale).pmf(values)
    observed = np.array([(drawn == v).sum() for v in values])
    rest = len(drawn) - observed.sum()
    test = stats.chisquare([*observed, rest], np.array([*expected, 1 - expected.sum()]) * 6000)
    assert test.pvalue > RARE


@pytest.mark.parametrize("source", SOURCES, ids=["secure", "seeded"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_flips_happen_at_their_rate_for_both_bits(source, epsilon):
    bits = np.tile([True, False], 10_000)
    flipped = source.flip(bits, epsilon) != bits
    expected = 1 / (1 + math.exp(epsilon))
    for bit in (True, False):
        count = int(flipped[bits == bit].sum())
        assert stats.binomtest(count, 10_000, expected).pvalue > RARE


@pytest.mark.parametrize("source", SOURCES, ids=["secure", "seeded"])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_levels_are_kept_and_replaced_at_their_rates(source, epsilon):
    """All sixteen chances of four levels at once: e^eps / (e^eps + 3) and 1 / (e^eps + 3)."""
    codes = np.tile(np.arange(4), 5000)
    drawn = source.respond(codes, 4, epsilon)
    table = np.zeros((4, 4))
    np.add.at(table, (codes, drawn), 1)
    chances = (np.ones((4, 4)) + np.expm1(epsilon) * np.eye(4)) / (math.exp(epsilon) + 3)
    expected = 5000 * chances
    statistic = float(((table - expected) ** 2 / expected).sum())
    assert stats.chi2(12).sf(statistic) > RARE
    assert (source.respond(codes, 4, 700.0) == codes).all()


def test_flip_handles_lengths_that_are_not_whole_bytes():
    for n in (1, 7, 8, 9, 1001):
        assert SecureNoise().flip(np.ones(n, dtype=bool), 700.0).all()
        assert SecureNoise().flip(np.ones(n, dtype=bool), 1.0).shape == (n,)


@given(st.integers(1, 2**50), st.floats(1e-6, 1e4))
def test_scale_never_undercharges(sensitivity, epsilon):
    scale = laplace_scale(sensitivity, epsilon)
    assert Fraction(sensitivity) <= Fraction(scale) * Fraction(epsilon)
    assert scale == pytest.approx(sensitivity / epsilon, rel=1e-10)


@given(st.floats(1e-6, 1e4))
def test_flip_chance_never_undercharges(epsilon):
    q = flip_chance(epsilon)
    assert 0 < q <= 0.5
    assert math.log1p(-q) - math.log(q) <= epsilon


@given(st.floats(2.0**-24, 1e4), st.integers(2, 1000))
def test_chances_of_levels_never_undercharge(epsilon, levels):
    q = flip_chance(epsilon, levels)
    assert 0 < q <= (levels - 1) / levels
    assert 0 <= math.log1p(-q) - math.log(q / (levels - 1)) <= epsilon
    assert levels > 2 or q == flip_chance(epsilon)


@pytest.mark.parametrize("source", SOURCES, ids=["secure", "seeded"])
def test_gaussian_noise_is_gaussian(source):
    scale = 3e7
    drawn = source.gaussian(np.full(3000, -9, dtype=np.int64), scale)
    assert stats.kstest((drawn + 9) / scale, "norm").pvalue > RARE


@pytest.mark.parametrize("source", SOURCES, ids=["secure", "seeded"])
def test_a_coarse_grid_is_refused_for_gaussian_noise(source):
    with pytest.raises(PrivacyError):
        source.gaussian(np.zeros(2, dtype=np.int64), 1000.0)


@given(st.floats(0.01, 20), st.floats(1e-12, 0.1), st.floats(0.1, 1e6))
def test_gaussian_scale_solves_the_analytic_equation(epsilon, delta, sensitivity):
    """Balle and Wang (2018), theorem 8, by the normal distribution function itself."""
    sigma = gaussian_scale(sensitivity, epsilon, delta, 1)

    def spent(s):
        a, b = sensitivity / (2 * s), epsilon * s / sensitivity
        return stats.norm.cdf(a - b) - math.exp(epsilon + stats.norm.logcdf(-a - b))

    assert spent(sigma) <= delta
    assert spent(sigma * 0.9999) > delta * 0.99 or sigma < 1.0001 * sensitivity / epsilon


@pytest.mark.parametrize(
    "x", [9.0, 1.0, 0.0, -1.0, -5.0, -34.99, -35.0, -35.01, -80.0, -1e4, -1e9, -1e200]
)
def test_the_logarithm_of_the_normal_distribution_function(x):
    assert _log_phi(x) == pytest.approx(log_ndtr(x), rel=4e-16, abs=1e-13)


def test_gaussian_scale_at_a_published_point():
    assert gaussian_scale(1.0, 1.0, 1e-6, 1) == pytest.approx(4.2247, abs=1e-4)
    classical = math.sqrt(2 * math.log(1.25 / 1e-6))
    assert gaussian_scale(1.0, 1.0, 1e-6, 1) < classical


def test_opendp_agrees_with_the_price():
    """A scale too small for the price is caught by the library's own privacy map."""
    with pytest.raises(PrivacyError):
        SecureNoise().laplace(np.zeros(3, dtype=np.int64), 0.9, 1, 1.0)


def test_secure_flips_are_fresh_every_time():
    """Two draws agree in all 500 bits with a chance below 1e-130."""
    bits = np.zeros(500, dtype=bool)
    assert not np.array_equal(SecureNoise().flip(bits, 0.5), SecureNoise().flip(bits, 0.5))


def test_long_vectors_are_noised_in_full():
    """A draw is zero with chance 0.005, so a tenth of zeros, or two equal draws, is below 1e-50."""
    drawn = SecureNoise().laplace(
        np.zeros(120_001, dtype=np.int64), laplace_scale(1, 0.01), 1, 0.01
    )
    assert drawn.size == 120_001
    assert (drawn[:50_000] != 0).mean() > 0.9
    assert (drawn[-1000:] != 0).mean() > 0.9
    assert not np.array_equal(drawn[:40_000], drawn[60_000:100_000])


@pytest.mark.parametrize("source", SOURCES, ids=["secure", "seeded"])
def test_floats_nan_and_overflow_never_reach_a_sampler(source):
    smallest = np.array([-(2**63)], dtype=np.int64)
    for bad in (np.array([0.5]), np.array([np.nan]), np.array([2**61]), smallest):
        with pytest.raises(PrivacyError):
            source.laplace(bad, 1.0, 1, 1.0)


def test_seeded_noise_repeats_and_says_it_is_not_private():
    draws = [SeededNoise(3).laplace(np.zeros(5, dtype=np.int64), 10.0, 1, 1.0) for _ in "ab"]
    assert np.array_equal(*draws)
    assert SeededNoise(3).void == ("seeded",)
    assert SecureNoise().void == ()


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True])
def test_bad_seed(seed):
    with pytest.raises(OptionError):
        SeededNoise(seed)
