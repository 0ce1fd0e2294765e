"""Tests of effects: p-values against closed forms, and the intervals that go with them."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

import dpeffects as dpe
from dpeffects.errors import OptionError
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable
from dpeffects.inference.hypotheses import Evidence, Hypothesis
from dpeffects.inference.intervals import interval, p_value
from dpeffects.results import Test, Tests

NORMAL = NormalDist()
PLAIN = Estimate(0.3, SamplingVariance(0.01, 0.0, 1.0))
NOISY = Estimate(0.3, SamplingVariance(0.01, 0.004, 0.25), laplace=(0.05, 0.02), gaussian=0.001)
CUT = replace(NOISY, value=1.07, possible=(-1.0, 1.0))
EDGE = replace(NOISY, value=-0.95, possible=(-1.0, 1.0))
SURE = Estimate(0.3, SamplingVariance(0.0, 0.0, 0.0))
ESTIMATES = {"plain": PLAIN, "noisy": NOISY, "cut": CUT, "edge": EDGE, "sure": SURE}


def made(estimate, conf_level=0.95, tests=1, **asked):
    hypothesis = Hypothesis.asked(**asked)
    return Test.of(estimate, hypothesis, conf_level=conf_level, tests=tests, what="effect")


def test_p_values_have_their_closed_forms_without_noise():
    assert made(PLAIN).p_value == pytest.approx(2 * NORMAL.cdf(-3.0), rel=1e-9)
    assert made(PLAIN, null=0.2, alternative="greater").p_value == pytest.approx(
        NORMAL.cdf(-1.0), rel=1e-9
    )
    assert made(PLAIN, null=0.2, alternative="less").p_value == pytest.approx(
        NORMAL.cdf(1.0), rel=1e-9
    )
    assert made(PLAIN, alternative="greater", margin=0.1).p_value == pytest.approx(
        NORMAL.cdf(-4.0), rel=1e-7
    )
    assert made(PLAIN, margin=0.4).p_value == pytest.approx(NORMAL.cdf(-1.0), rel=1e-9)
    assert made(PLAIN, equivalence=(0.2, 0.9)).p_value == pytest.approx(NORMAL.cdf(-1.0), rel=1e-9)


def test_equivalence_is_that_of_statsmodels_in_large_samples():
    from statsmodels.stats.weightstats import zconfint, ztost

    x = np.random.default_rng(3).normal(0.1, 1.0, 400)
    p, *_ = ztost(x, -0.2, 0.2)
    estimate = Estimate(float(x.mean()), SamplingVariance(float(x.var(ddof=1) / 400), 0.0, 9.0))
    found = made(estimate, margin=0.2)
    assert found.p_value == pytest.approx(p, rel=1e-8)
    assert tuple(found.conf_int()) == pytest.approx(zconfint(x, alpha=0.1), rel=1e-8)


@pytest.mark.parametrize("name", ESTIMATES)
def test_a_two_sided_test_is_the_p_value_of_the_interval(name):
    estimate = ESTIMATES[name]
    for null in (-0.9, 0.0, 0.3, 0.95):
        found = made(estimate, null=null, conf_level=0.9)
        assert found.p_value == pytest.approx(p_value(estimate, null), abs=1e-14)
        assert found.conf_int() == interval(estimate, 0.9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("tests", [1, 3])
@pytest.mark.parametrize("conf_level", [0.6, 0.95, 0.999])
@pytest.mark.parametrize("name", ESTIMATES)
def test_p_is_below_alpha_where_the_interval_shows_it(name, conf_level, tests):
    """Numbers around the ends of the interval are looked at, and impossible ones."""
    estimate, low, high = ESTIMATES[name], -0.4, 0.6
    for alternative in ("two-sided", "greater", "less"):
        ends = made(estimate, conf_level, tests, alternative=alternative).conf_int()
        near = [end + off for end in ends for off in (-1e-6, 1e-6) if math.isfinite(end)]
        for null in [*near, -2.0, -1.0 - 1e-6, low, 0.0, high, 1.0 + 1e-6, 2.0]:
            found = made(estimate, conf_level, tests, null=null, alternative=alternative)
            below, above = found.conf_int().lower > null, found.conf_int().upper < null
            out = {"two-sided": below or above, "greater": below, "less": above}[alternative]
            assert (found.p_value < 1 - conf_level) is bool(out) is found.reject, null
    for pair in [(low, high), (-3.0, 3.0), (-3.0, 1.0), (0.29, 0.31), (0.9, 1.5)]:
        found = made(estimate, conf_level, tests, equivalence=pair)
        inside = pair[0] < found.conf_int().lower and found.conf_int().upper < pair[1]
        assert (found.p_value < 1 - conf_level) is inside


@pytest.mark.parametrize("name", ESTIMATES)
def test_the_smallest_effect_excluded_is_the_smallest_margin(name):
    found = made(ESTIMATES[name])
    assert made(ESTIMATES[name], margin=found.equivalence_bound + 1e-6).reject
    assert not made(ESTIMATES[name], margin=max(found.equivalence_bound - 1e-6, 1e-9)).reject
    around = made(ESTIMATES[name], null=0.1)
    assert made(ESTIMATES[name], null=0.1, margin=around.equivalence_bound + 1e-6).reject


def test_one_sided_p_values_are_tails_of_the_error():
    """Against simulated errors: the chance of an estimate that far above the null, or further."""
    rng, scale = np.random.default_rng(1), 0.1
    errors = rng.normal(0.0, 0.1, 400_000) + rng.laplace(0.0, scale, 400_000)
    evidence = Evidence.of(Estimate(0.2, SamplingVariance(0.01, 0.0, 1.0), laplace=(scale,)))
    for null in (-0.3, 0.0, 0.15, 0.2, 0.4):
        assert evidence.above(null) == pytest.approx(np.mean(errors > 0.2 - null), abs=0.003)
        assert evidence.below(null) == pytest.approx(np.mean(errors < 0.2 - null), abs=0.003)


def test_what_has_no_test_says_why():
    found = made(replace(PLAIN, identification="unadjusted"))
    assert "no test of an effect" in str(found.p_value)
    assert found.reject is None
    assert "no test" in found.conclusion
    assert math.isnan(found.tidy()["p_value"][0])
    assert "no test" in str(found)
    assert Test.from_json(found.to_json()) == found
    lacking = made(replace(PLAIN, sampling=Unavailable("nobody asked")))
    assert "nobody asked" in str(lacking)


@pytest.mark.parametrize(
    "asked",
    [
        {"null": math.nan},
        {"null": "0"},
        {"null": True},
        {"alternative": "larger"},
        {"alternative": "equivalence"},
        {"alternative": None},
        {"margin": 0.0},
        {"margin": -1},
        {"margin": math.inf},
        {"equivalence": 0.1},
        {"equivalence": (0.2, 0.1)},
        {"equivalence": (0.1, 0.1)},
        {"equivalence": (1, 2, 3)},
        {"equivalence": (-1, 1), "margin": 1},
        {"equivalence": (-1, 1), "null": 0.5},
        {"equivalence": (-1, 1), "alternative": "less"},
        {"conf_level": 0.5},
        {"conf_level": 1.0},
    ],
)
def test_what_makes_no_hypothesis_is_refused(asked):
    with pytest.raises(OptionError):
        made(PLAIN, **asked)


@pytest.fixture(scope="module")
def fit():
    data = dpe.simulate("confounded", n=2000, seed=1)
    return dpe.dp_ate("outcome ~ treatment | x1 + x2", data, epsilon=2, seed=1)


def test_a_result_is_tested_printed_and_written(fit):
    for asked in (
        {},
        {"null": 0.1, "alternative": "less"},
        {"alternative": "greater", "margin": 0.2},
        {"margin": 0.2, "conf_level": 0.9},
        {"equivalence": (-0.1, 0.4)},
    ):
        found = fit.test(**asked)
        assert Test.from_json(found.to_json()) == found
        text = str(found)
        assert found.guarantee == "void: seeded"
        assert "NOT PRIVATE: a seed was set" in text
        assert "H1: " in text
        assert found.summary().as_latex()
        assert found.summary().as_html()
        assert found.tidy()["term"][0] == "treatment"
        assert found.tidy()["p_value"][0] == found.p_value
    assert fit.test().p_value == fit.p_value
    assert fit.test().conf_int() == fit.conf_int()
    assert "-0.2 or less" in fit.test(alternative="greater", margin=0.2).hypothesis


def test_several_effects_are_adjusted_for_their_number():
    data = dpe.simulate("three_arms", n=2000, seed=1)
    arms = dpe.dp_ate("outcome ~ treatment | x1", data, "clipped_contrast", epsilon=2, seed=1,
                      design="randomised")  # fmt: skip
    assert [t.p_value for t in arms.test()] == pytest.approx(arms.p_values().tolist())
    each = arms.test(simultaneous=False)
    assert [t.p_value for t in each] == pytest.approx(arms.p_values(simultaneous=False).tolist())
    assert np.array([tuple(t.conf_int()) for t in arms.test()]) == pytest.approx(arms.conf_int())
    one = arms.contrast("high - none").test(0.05, "greater")
    assert one.p_value == pytest.approx(
        arms.test(0.05, "greater", simultaneous=False)["high - none"].p_value
    )
    assert arms.test(margin=0.5)[0].tests == 2
    assert Tests.from_json(arms.test().to_json()) == arms.test()
    assert "high - none" in str(arms.test())
    assert len(arms.test().tidy()) == 2


def test_groups_are_tested_and_points_are_not():
    data = dpe.simulate("cate_1", n=3000, seed=1)
    groups = dpe.dp_cate(
        "outcome ~ treatment | x1 + x2", data, release="groups", by="cut(x1, [0, 0.5, 1])",
        epsilon=4, delta=1e-5, seed=1,
    )  # fmt: skip
    assert [t.p_value for t in groups.test()] == pytest.approx(groups.p_values().tolist())
    points = dpe.dp_cate(
        "outcome ~ treatment | x1 + x2", data, release="points",
        at={"x1": [0.2, 0.8], "x2": [0.5, 0.5]}, epsilon=4, delta=1e-5, seed=1,
    )  # fmt: skip
    assert all(t.reject is None for t in points.test())
    assert str(points.test())


@pytest.mark.parametrize("rule", ["ivw", "random"])
def test_sites_are_tested_by_the_law_of_their_interval(rule):
    data = dpe.simulate("confounded", n=900, seed=1)
    releases = [
        dpe.site_release("outcome ~ treatment", data[k::3], method="diff_in_means", site=f"s{k}",
                         epsilon=2, seed=k)
        for k in range(3)
    ]  # fmt: skip
    combined = dpe.combine(releases, rule)
    assert combined.test().p_value == pytest.approx(combined.p_value)
    assert combined.test().conf_int() == combined.conf_int()
    ends = combined.test(alternative="greater").conf_int()
    assert ends.lower == pytest.approx(combined.conf_int(0.9).lower)
    for off, shown in ((-1e-6, True), (1e-6, False)):
        assert combined.test(ends.lower + off, "greater").reject is shown
    margin = combined.test().equivalence_bound
    assert combined.test(margin=margin + 1e-6).reject
    assert not combined.test(margin=margin - 1e-6).reject
    assert Test.from_json(combined.test().to_json()) == combined.test()


def test_evidence_of_another_scale_can_be_tested():
    """A ratio by its logarithm, say: p-values of both sides and intervals are all that is asked."""
    log = Evidence.of(Estimate(math.log(1.5), SamplingVariance(0.04, 0.0, 1.0)))

    def ends(level):
        found = log.interval(level)
        return replace(found, lower=math.exp(found.lower), upper=math.exp(found.upper))

    ratio = Evidence(
        1.5, lambda r: log.above(math.log(r)), lambda r: log.below(math.log(r)), ends, (0, math.inf)
    )
    found = Test.of(ratio, Hypothesis.asked(1.0, "greater"), what="ratio", subject="ratio")
    assert found.p_value == pytest.approx(1 - NORMAL.cdf(math.log(1.5) / 0.2))
    assert found.conf_int().lower == pytest.approx(1.5 * math.exp(-0.2 * NORMAL.inv_cdf(0.95)))
    assert found.hypothesis == "H0: the ratio is 1 or less. H1: the ratio is more than 1."
