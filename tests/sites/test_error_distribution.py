"""The distribution of a combination's error, against other ways to compute it."""

import numpy as np
import pytest
from scipy import integrate, stats

from dpeffects.inference.estimate import Estimate, SamplingVariance
from dpeffects.inference.intervals import distribution_of, plausible_variances, sampling_variance
from dpeffects.services.sites import rules as inflation
from dpeffects.services.sites.error_distribution import SiteErrors, WeightedSumDistribution
from dpeffects.services.sites.rules import inflation_ivw, inflation_mvagg, ivw, mvagg

SITES = [
    Estimate(0.0, SamplingVariance(1.0, 0.3, 30.0), (0.5, 0.2)),
    Estimate(0.0, SamplingVariance(-0.2, 1.0, 8.0), (0.1,), gaussian=0.3),
    Estimate(0.0, SamplingVariance(2.0, 0.0, 9.0)),
]
POINTS = np.array([0.0, 0.3, 1.0, 2.5, 6.0, 15.0])


@pytest.mark.parametrize("site", SITES, ids=range(3))
@pytest.mark.parametrize("weight", [1.0, 1e-6, 0.3])
def test_one_site_has_its_ownlaw_of(site, weight):
    dist = WeightedSumDistribution(SiteErrors.of([site]), np.array([weight]))
    assert dist.tail(POINTS * weight) == pytest.approx(distribution_of(site).tail(POINTS), abs=1e-9)


def test_sum_against_simulation():
    """Draw plausible variances, normal errors and noise, and add them up."""
    rng, weights, size = np.random.default_rng(5), np.array([0.5, 0.3, 0.2]), 400_000
    total = np.zeros(size)
    for site, w in zip(SITES, weights, strict=True):
        s = site.sampling
        v, p = plausible_variances(*(np.array([x]) for x in (s.value, s.noise_scale, s.largest)))
        variance = rng.choice(v[0], size, p=p[0]) + site.gaussian
        noise = sum(rng.laplace(scale=b, size=size) for b in site.laplace)
        total += w * (rng.normal(size=size) * np.sqrt(variance) + noise)
    dist = WeightedSumDistribution(SiteErrors.of(SITES), weights)
    assert dist.unit == pytest.approx(total.std(), rel=0.01)
    for q in (0.6, 0.9, 0.975, 0.999):
        x = float(np.quantile(total, q))
        error = np.sqrt(q * (1 - q) / size)
        assert 1 - float(dist.tail(x)) == pytest.approx(q, abs=5 * error)


def test_many_sites_are_like_all_exact():
    """Beyond forty sites the small ones enter as a normal; that is hardly seen."""
    rng = np.random.default_rng(1)
    sites = [
        Estimate(0.0, SamplingVariance(v, 0.3 * v, 20 * v), (np.sqrt(v),))
        for v in np.exp(rng.normal(0, 1, 120))
    ]
    weights = np.full(120, 1 / 120)
    dist, errors = WeightedSumDistribution(SiteErrors.of(sites), weights), SiteErrors.of(sites)
    normal = stats.norm(scale=np.sqrt(weights**2 @ errors.variance))
    assert dist.upper_point(0.025) == pytest.approx(normal.isf(0.025), rel=0.01)


def test_moments_are_those_of_a_single_site():
    errors = SiteErrors.of(SITES)
    assert errors.mean == pytest.approx([sampling_variance(site) for site in SITES])
    nudged = [
        Estimate(
            0.0,
            SamplingVariance(s.sampling.value + 1e-6, s.sampling.noise_scale, s.sampling.largest),
        )
        for s in SITES
    ]
    rise = (SiteErrors.of(nudged).mean - errors.mean) / 1e-6
    assert errors.slope == pytest.approx(rise, abs=1e-4)


def test_excess_kurtosis_of_a_laplace_and_a_normal_error():
    laplace = Estimate(0.0, SamplingVariance(0.0, 0.0, 1.0), (2.0,))
    normal = Estimate(0.0, SamplingVariance(1.0, 0.0, 1.0))
    assert SiteErrors.of([laplace, normal]).excess == pytest.approx([3.0, 0.0])


# --- inflation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("u", [-3.0, -0.5, 0.0, 0.4, 2.0, 9.0])
def test_hidden_part_below_a_jump(u):
    """E[v - r | r < x] for Laplace noise of scale one, by quadrature."""
    density = stats.laplace.pdf
    top, _ = integrate.quad(lambda e: -e * density(e), -60, u, points=[0.0], limit=200)
    assert float(inflation._hidden(np.array(u))) == pytest.approx(top / stats.laplace.cdf(u))


def errors_of(variances, scales):
    rows = zip(variances, scales, strict=True)
    return SiteErrors.of([Estimate(0.0, SamplingVariance(v, s, 50.0)) for v, s in rows])


def test_nothing_is_hidden_where_variances_are_known():
    n, errors = np.array([100.0, 50.0, 10.0]), errors_of([1.0, 1.2, 9.0], [0.0, 0.0, 0.0])
    for factor, rule in ((inflation_mvagg, mvagg), (inflation_ivw, ivw)):
        assert factor(n, errors, rule(n, errors.variance)).tolist() == [1.0, 1.0, 1.0]


def test_nothing_is_hidden_from_one_site():
    n, errors = np.array([100.0]), errors_of([1.0], [0.5])
    for factor in (inflation_mvagg, inflation_ivw):
        assert factor(n, errors, np.ones(1)).tolist() == [1.0]


def test_jumps_are_where_the_best_subset_changes():
    n, v = np.array([400.0, 300.0, 200.0]), np.array([1.0, 1.3, 6.0])
    weights = mvagg(n, v)
    assert (weights > 0).tolist() == [True, True, False]
    leaves, (joins, _) = inflation._leaving(n, v, weights), inflation._joining(n, v, weights)
    first = min(joins[1], leaves[1])
    for step, same in ((-1e-6, True), (1e-6, False)):
        moved = mvagg(n, np.array([1.0, first + step, 6.0]))
        assert ((moved > 0) == (weights > 0)).all() == same


def coverage(n, variances, relative, rule, factor, runs=120):
    """Coverage with known errors given the weights, averaged over draws of released variances."""
    rng, covered = np.random.default_rng(0), []
    scales = relative * variances
    for _ in range(runs):
        noisy = variances + rng.laplace(size=n.size) * scales
        errors = errors_of(noisy, scales)
        weights = rule(n, errors.variance)
        half = WeightedSumDistribution(errors, weights, factor(n, errors, weights)).upper_point(
            0.025
        )
        covered.append(1 - 2 * stats.norm.sf(half / np.sqrt(weights**2 @ variances)))
    return 100 * np.mean(covered)


DESIGNS = {
    "small ones good": (np.array([500.0, 2000.0, 8000.0]), np.ones(3)),
    "at the edge": (np.array([1000.0, 1000.0]), np.array([1.0, 3.0])),
    "uneven": (np.full(6, 1000.0), 2.0 ** np.arange(6)),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("relative", [0.1, 0.3])
def test_intervals_cover_although_weights_were_chosen(design, relative):
    n, variances = DESIGNS[design]
    for rule, factor in ((mvagg, inflation_mvagg), (ivw, inflation_ivw)):
        assert 93 < coverage(n, variances, relative, rule, factor) < 97.5


def test_without_the_factor_they_do_not():
    n, variances = DESIGNS["small ones good"]
    assert coverage(n, variances, 0.3, mvagg, lambda n, e, w: np.ones_like(w)) < 93.2
