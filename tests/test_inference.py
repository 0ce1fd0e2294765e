"""The distribution of normal plus Laplace noise computed in other ways; intervals that cover."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from dpeffects.errors import OptionError
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable
from dpeffects.inference.intervals import Interval, cdf, interval, noise_interval, p_value


def quantile(p, variance, laplace=()):
    """The inverse of `cdf`, by the points that intervals end at."""
    dist, points = inference._plain(variance, laplace), np.asarray(p, dtype=float)
    sizes = [dist.upper_point(min(q, 1.0 - q)) for q in points.ravel().tolist()]
    return np.copysign(np.array(sizes).reshape(points.shape), points - 0.5)


def released(value=0.0, v=1.0, s=0.0, largest=1e6, laplace=()):
    return Estimate(value, SamplingVariance(v, s, largest), laplace)


# --- the distribution -----------------------------------------------------------------------

GRID = np.linspace(-9.0, 9.0, 181)


@pytest.mark.parametrize("size", [1e-140, 1e-3, 1.0, 1e8, 1e140])
def test_pure_normal_and_pure_laplace(size):
    assert np.allclose(cdf(GRID * size, size**2), stats.norm.cdf(GRID), atol=1e-12)
    assert np.allclose(cdf(GRID * size, 0.0, [size]), stats.laplace.cdf(GRID), atol=1e-12)


@pytest.mark.parametrize("variance", [1e-6, 1e-2, 1.0, 25.0])
@pytest.mark.parametrize("scale", [1e-3, 0.3, 1.0, 40.0])
def test_normal_plus_one_laplace_against_its_convolution(variance, scale):
    sd = math.sqrt(variance)
    for x in np.array([0.1, 0.7, 2.0, 4.0]) * math.sqrt(variance + 2 * scale**2):

        def integrand(e, x=x):
            ends = np.array([x - scale * e, x + scale * e]) / sd
            return 0.5 * math.exp(-e) * stats.norm.cdf(ends).sum()

        near = [(x + k * sd) / scale for k in (-9, -3, 0, 3, 9)]
        cuts = sorted({min(max(cut, 0.0), 40.0) for cut in (0.0, 5.0, 40.0, *near)})
        want = sum(integrate.quad(integrand, *ends, epsabs=1e-13)[0] for ends in pairwise(cuts))
        assert float(cdf(x, variance, [scale])) == pytest.approx(want, abs=1e-10)
        assert float(cdf(-x, variance, [scale])) == pytest.approx(1.0 - want, abs=1e-10)


@pytest.mark.parametrize("ratio", [0.5, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("zoom", ["wide", "centre"])
def test_two_laplace_scales_against_partial_fractions(ratio, zoom):
    x = np.linspace(0.0, 15.0, 61) * (ratio if zoom == "centre" else 1.0)
    tail = (np.exp(-x) - ratio**2 * np.exp(-x / ratio)) / (2.0 * (1.0 - ratio**2))
    assert np.allclose(cdf(x, 0.0, [1.0, ratio]), 1.0 - tail, atol=1e-10)


@pytest.mark.parametrize("count", [2, 5, 60])
def test_equal_scales_against_a_difference_of_gammas(count):
    one = stats.gamma(count)
    for x in np.array([0.0, 0.5, 1.5, 3.0]) * math.sqrt(2 * count):
        want, _ = integrate.quad(lambda g, x=x: one.pdf(g) * one.cdf(x + g), 0.0, one.isf(1e-14))
        assert float(cdf(x, 0.0, [1.0] * count)) == pytest.approx(want, abs=1e-8)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("variance", "scales"),
    [(1.0, [0.5, 0.5, 0.1]), (0.0, [1.0, 0.7, 1e-3]), (0.04, [1.0, 1e-6]), (4.0, [0.1] * 30)],
)
def test_law_against_simulation(variance, scales):
    draws, rng = 1_000_000, np.random.default_rng(11)
    error = math.sqrt(variance) * rng.standard_normal(draws)
    for scale in scales:
        error += rng.laplace(scale=scale, size=draws)
    for p in (0.005, 0.025, 0.3, 0.6, 0.95, 0.999):
        share = np.mean(error <= float(quantile(p, variance, scales)))
        assert abs(share - p) < 4.5 * math.sqrt(p * (1 - p) / draws)


def test_a_law_without_spread_is_a_step():
    assert cdf([-1.0, 0.0, 1.0], 0.0, [0.0]).tolist() == [0.0, 1.0, 1.0]
    assert quantile([0.01, 0.99], 0.0).tolist() == [0.0, 0.0]


def test_the_ends_of_the_law():
    for scales in ([], [1.0], [1.0] * 500):
        assert cdf([-math.inf, -1e200, 1e200, math.inf], 1.0, scales).tolist() == [0, 0, 1, 1]
    assert math.isnan(cdf(math.nan, 1.0))
    assert float(quantile(0.5 + 1e-15, 1.0, [1.0])) == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(OptionError, match="conf_level"):
        interval(released(), conf_level=1e-15)  # an alpha
    assert interval(released(), conf_level=1 - 1e-12).upper == pytest.approx(
        stats.norm.isf(5e-13), rel=1e-4
    )


def test_quantile_ends_and_bad_input():
    assert quantile([0.0, 0.5, 1.0], 1.0, [1.0]).tolist() == [-math.inf, 0.0, math.inf]
    for variance, scales in ((-1.0, []), (math.nan, []), (1.0, [-1.0]), (1.0, [math.inf])):
        with pytest.raises(OptionError, match="not negative"):
            cdf(0.0, variance, scales)


@settings(max_examples=40, deadline=None)
@given(
    variance=st.floats(0.0, 10.0),
    scales=st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=6),
    p=st.floats(0.001, 0.999),
    unit=st.floats(1e-6, 1e6),
)
def test_law_is_symmetric_equivariant_and_inverts(variance, scales, p, unit):
    x = float(quantile(p, variance, scales))
    assert float(cdf(x, variance, scales)) == pytest.approx(p, abs=1e-9)
    assert float(cdf(-x, variance, scales)) == pytest.approx(1 - p, abs=1e-9)
    moved = cdf(x * unit, variance * unit**2, [b * unit for b in scales])
    assert float(moved) == pytest.approx(p, abs=1e-9)


def test_many_points_keep_their_shape():
    x = np.linspace(-3.0, 3.0, 30_000).reshape(3, 100, 100)
    got = cdf(x, 1.0, [0.5])
    assert got.shape == x.shape
    assert got[1, 2, 3] == pytest.approx(float(cdf(x[1, 2, 3], 1.0, [0.5])), abs=1e-14)
    assert np.all(np.diff(got.ravel()) > 0)


# --- intervals and p-values ----------------------------------------------------------------------


def test_known_variance_gives_the_textbook_interval():
    low, high = interval(released(2.0, v=0.25), conf_level=0.9)
    assert (low, high) == pytest.approx((2.0 - 0.5 * 1.6448536269, 2.0 + 0.5 * 1.6448536269))
    assert p_value(released(1.3, v=0.25)) == pytest.approx(2 * stats.norm.sf(2.6), rel=1e-9)


@pytest.mark.parametrize(
    ("v", "s", "largest"), [(1.0, 0.5, 50.0), (-2.0, 1.0, 50.0), (5.0, 1.0, 2.0), (0.3, 4.0, 9.0)]
)
def test_mixture_against_direct_integration(v, s, largest):
    """The documented density of the variance, integrated by scipy on the variance's own scale."""

    def density(w):
        return ((w / s) ** -0.5 + w / (2 * s)) * math.exp(-abs(v - w) / s)

    def integral(f):
        cuts = sorted({0.0, min(max(v, 0.0), largest), min(max(v, 0.0) + 5 * s, largest), largest})
        return sum(integrate.quad(f, *ends, epsabs=1e-13, limit=400)[0] for ends in pairwise(cuts))

    x = 1.3 * math.sqrt(s)
    tail = integral(lambda w: density(w) * stats.norm.sf(x / math.sqrt(w))) / integral(density)
    assert p_value(released(x, v, s, largest)) == pytest.approx(2 * tail, abs=1e-6)


def test_interval_and_p_value_agree():
    estimate = released(3.0, v=1.0, s=0.7, laplace=(0.5, 0.2))
    low, high = interval(estimate, 0.9)
    assert p_value(estimate, null=low) == pytest.approx(0.1, abs=1e-9)
    assert p_value(estimate, null=high) == pytest.approx(0.1, abs=1e-9)
    assert p_value(estimate, null=3.0) == 1.0


def test_noise_in_the_variance_widens_the_interval():
    half = [interval(released(s=s)).upper for s in (0.0, 1e-9, 0.1, 0.5, 1.0, 3.0)]
    assert half[0] == pytest.approx(half[1], rel=1e-6)
    assert np.all(np.diff(half[1:]) > 0)


@pytest.mark.parametrize("v", [-1e6, -3.0, 0.0])
def test_negative_variance_still_gives_an_interval(v):
    low, high = interval(released(v=v, s=1.0, largest=1e12))
    assert 1.5 < high < 2.5
    assert low == -high


def test_a_huge_bound_on_the_variance_does_not_matter_and_a_small_one_does():
    wide = [interval(released(v=1.0, s=1.0, largest=top)).upper for top in (60.0, 1e15, math.inf)]
    assert wide == pytest.approx([wide[0]] * 3, rel=1e-9)
    assert interval(released(v=9.0, s=1.0, largest=1.0)).upper < 1.959964
    only_noise = released(v=9.0, s=1.0, largest=0.0, laplace=(1.0,))
    assert interval(only_noise).upper == pytest.approx(math.log(20.0))


def test_noise_interval_is_the_laplace_quantile():
    assert noise_interval(released(5.0, laplace=(2.0,))).upper == pytest.approx(
        5 + 2 * math.log(20)
    )


def half_widths(ratio, scales, at):
    """Half-widths of 95 % intervals as a function of the released variance, by interpolation."""
    knots = 1.0 + ratio * np.sort(
        np.r_[np.linspace(-14, 14, 57), np.linspace(-1.5, 1.5, 13) / ratio]
    )
    known = [interval(released(v=v, s=ratio, laplace=scales)).upper for v in knots]
    return np.interp(at, knots, known)


# Above s / v = 1 intervals that keep their level for every variance must cover too often for the
# small ones (see `interval`), so the ceiling is that of the method, not of the nominal level.
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("ratio", "scales", "ceiling"),
    [
        (0.1, (), 0.955),
        (0.25, (), 0.955),
        (0.5, (), 0.965),
        (1.0, (), 0.985),
        (3.0, (), 1.0),
        (0.1, (1.0,), 0.955),
        (0.5, (1.0,), 0.965),
        (1.0, (1.0,), 0.975),
        (3.0, (1.0,), 0.99),
        (0.5, (0.7, 0.7), 0.965),
    ],
)
def test_coverage(ratio, scales, ceiling):
    draws, rng = 40_000, np.random.default_rng(5)
    error = rng.standard_normal(draws) + sum(rng.laplace(scale=b, size=draws) for b in scales)
    variance = 1.0 + rng.laplace(scale=ratio, size=draws)
    covered = np.mean(np.abs(error) <= half_widths(ratio, scales, variance))
    slack = 4 * math.sqrt(0.05 * 0.95 / draws)
    assert 0.948 - slack < covered < ceiling + slack


# --- what is missing or wrong --------------------------------------------------------------------


def test_unavailable_variance_passes_its_reason_on():
    estimate = Estimate(1.0, Unavailable("not released"), laplace=(1.0,))
    for statistic in (
        interval,
        p_value,
        inference.sampling_variance,
        inference.total_variance,
        inference.std_error,
    ):
        assert statistic(estimate) == Unavailable("not released")
    assert isinstance(noise_interval(estimate), Interval)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_numbers_give_no_interval(value):
    assert isinstance(interval(released(value)), Unavailable)
    assert isinstance(interval(released(v=value)), Unavailable)
    assert isinstance(p_value(released(laplace=(value,))), Unavailable)
    assert isinstance(noise_interval(released(value)), Unavailable)


@pytest.mark.parametrize("level", [0, 1, 95, -0.5, math.nan, "0.95", None, True])
def test_bad_levels(level):
    with pytest.raises(OptionError, match="level"):
        interval(released(), level)
    with pytest.raises(OptionError, match="level"):
        noise_interval(released(), level)


def test_bad_null():
    with pytest.raises(OptionError, match="null"):
        p_value(released(), null=math.nan)


@given(
    v=st.floats(-1e6, 1e6),
    scales=st.lists(st.floats(0.0, 1e3), max_size=4).map(tuple),
)
def test_std_error_is_never_below_the_noise(v, scales):
    estimate = released(v=v, laplace=scales)
    noise = sum(2 * b**2 for b in scales)  # b * b may differ in the last bit
    assert inference.std_error(estimate) >= math.sqrt(noise)
    assert inference.total_variance(estimate) == pytest.approx(max(v, 0.0) + noise)


def test_interval_unpacks_and_prints():
    low, high = Interval(1.0, 2.5, 0.95)
    assert (low, high) == (1.0, 2.5)
    assert str(Interval(1.0, 2.5, 0.95)) == "[1, 2.5] (95 %)"
