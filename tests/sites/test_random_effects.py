"""Random effects against quadrature, and their coverage where effects are equal and where not."""

import numpy as np
import pytest
from scipy import stats

from dpeffects.inference.estimate import Estimate, SamplingVariance
from dpeffects.services.sites import combine
from dpeffects.services.sites.error_distribution import SiteErrors
from dpeffects.services.sites.random_effects import random_effects
from tests.sites.examples import releases


def fitted(values, variances):
    pairs = zip(values, variances, strict=True)
    return random_effects(
        np.asarray(values),
        SiteErrors.of([Estimate(y, SamplingVariance(v, 0.0, 1e9)) for y, v in pairs]),
    )


def by_quadrature(values, variances, function):
    """Mean over tau, given the estimates, of a function of the normal mean effect."""
    y, v = np.asarray(values), np.asarray(variances)
    s = np.sqrt(len(v) / np.sum(1 / v))
    nodes, steps = np.polynomial.legendre.leggauss(40)
    ends = np.linspace(0, 16, 65)  # of cells, in log(1 + tau / s)
    x = ((ends[:-1, None] + ends[1:, None]) / 2 + nodes / 8).ravel()
    tau = s * np.expm1(x)
    total = v + tau[:, None] ** 2
    w = 1 / total
    mean = w @ y / w.sum(axis=1)
    apart = stats.norm.pdf(y, mean[:, None], np.sqrt(total)).prod(axis=1) / np.sqrt(w.sum(axis=1))
    weights = np.tile(steps, 64) * (s + tau) ** -1.5 * s * np.exp(x) * apart
    return weights @ function(mean, w.sum(axis=1) ** -0.5) / weights.sum()


CASES = [
    ([0.1, 0.2], [0.01, 0.01]),
    ([0.1, 0.9], [0.01, 0.04]),
    ([0.12, 0.35, -0.08, 0.51, 0.2], [0.01, 0.02, 0.015, 0.04, 0.003]),
    ([5.0, 5.0, 5.0], [1.0, 100.0, 1e4]),
]


@pytest.mark.parametrize(("values", "variances"), CASES)
def test_estimate_and_interval_by_quadrature(values, variances):
    weights, dist = fitted(values, variances)
    estimate = float(weights @ values)
    assert weights.sum() == pytest.approx(1)
    mean = by_quadrature(values, variances, lambda m, s: m)
    assert estimate == pytest.approx(mean, rel=1e-4)
    half = dist.upper_point(0.025)
    inside = by_quadrature(
        values,
        variances,
        lambda m, s: stats.norm.cdf(estimate + half, m, s) - stats.norm.cdf(estimate - half, m, s),
    )
    assert inside == pytest.approx(0.95, abs=2e-4)
    assert dist.tail(half) == pytest.approx(0.025)
    assert dist.unit == dist.upper_point(stats.norm.sf(1))


def test_many_sites_with_one_effect_have_the_interval_of_ivw():
    rng = np.random.default_rng(1)
    variances = rng.uniform(1, 4, 3000)
    weights, dist = fitted(rng.normal(0, np.sqrt(variances)), variances)
    plain = 1.96 / np.sqrt(np.sum(1 / variances))
    assert plain <= dist.upper_point(0.025) < 1.03 * plain
    assert weights == pytest.approx(1 / variances / np.sum(1 / variances), rel=0.1)


def test_sites_far_apart_have_a_student_interval():
    """Known variances do not matter then: the prior's tail is half a degree of freedom."""
    values = np.array([-3.0, 1.0, 0.5, 2.0, 4.0])
    _, dist = fitted(values, np.full(5, 1e-12))
    df = 4.5  # tau^-1.5 times tau^-4 is the density of a Student's t with so many
    scale = np.sqrt(np.sum((values - values.mean()) ** 2) / df / 5)
    assert dist.upper_point(0.025) == pytest.approx(stats.t(df).isf(0.025) * scale, rel=1e-3)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("sites", "widest"), [(2, 3.3), (3, 1.8), (5, 1.4), (10, 1.25)])
def test_coverage_and_width(sites, widest):
    rng = np.random.default_rng(sites)
    variances = np.ones(sites)
    for tau in (0.0, 1.0, 4.0):
        fits = [
            (float(w @ y), dist.upper_point(0.025))
            for y in rng.normal(0, np.sqrt(1 + tau**2), (150, sites))
            for w, dist in [fitted(y, variances)]
        ]
        covered = np.mean([abs(error) <= half for error, half in fits])
        assert covered >= 0.9
        if tau == 0:
            width = np.median([half for _, half in fits]) / (1.96 / np.sqrt(sites))
            assert 1 < width < widest


def test_what_few_sites_cannot_show_stands_first():
    for sites, words in (
        (1, "One site gives no"),
        (2, "Two sites give little"),
        (3, "Three sites give little"),
    ):
        sent = releases([0.1] * sites)
        fit = combine(sent, "random")
        assert fit.warnings.startswith(words)
        top = " ".join(str(fit.summary()).split("estimate")[0].split())
        assert words in top
        assert not combine(sent, "ivw").warnings
    assert not combine(releases([0.1] * 4), "random").warnings
