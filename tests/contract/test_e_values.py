"""E-values of outcomes of 0 and 1 are those of the released risks and of their ratio's interval."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import dpeffects as dpe
from dpeffects.inference.estimate import ArmMeans, MeansVariance, SamplingVariance, Unavailable
from dpeffects.results.sensitivity import e_value
from tests.dists import ABOUT, with_means
from tests.kinds_of_summaries import CALL, made, people

BOUNDS = (("y", "[0, 1]", "declared"),)


def of_risks(treated, control, n=2000):
    """A result that released these risks, without noise."""
    own = tuple(
        MeansVariance(SamplingVariance(risk * (1 - risk) / n, 0.0, 1.0), 1.0 - k, float(k))
        for k, risk in enumerate((treated, control))
    )
    means = ArmMeans(treated, control, own, possible=(0.0, 1.0), design=(1 / n, 1 / n, 0.0))
    released = replace(means.combined(1.0, -1.0), means=means, possible=(-1.0, 1.0))
    return dpe.Result(released=released, **ABOUT, bounds=BOUNDS)


@pytest.mark.parametrize(
    ("treated", "control", "expected"),
    [
        (0.39, 0.1, 7.26),  # VanderWeele and Ding (2017): a risk ratio of 3.9
        (0.1073, 0.01, 20.95),  # smoking and lung cancer, 10.73
        (0.1, 0.39, 7.26),  # a protective effect is inverted
        (0.03, 0.01, 5.45),  # 3 + sqrt(6)
        (0.2, 0.2, 1.0),
    ],
)
def test_e_values_by_hand(treated, control, expected):
    found = of_risks(treated, control).sensitivity()
    assert found.figures()["e_value"] == pytest.approx(expected, abs=0.005)
    assert not found.approximate


@pytest.mark.parametrize(("limit", "expected"), [(1.8, 3.0), (8.02, 15.52), (1 / 1.8, 3.0)])
def test_e_values_of_limits_by_hand(limit, expected):
    assert e_value(limit) == pytest.approx(expected, abs=0.005)


def test_the_limit_is_that_of_the_interval_of_the_ratio():
    for treated, control in ((0.3, 0.1), (0.02, 0.01), (0.1, 0.3)):
        fit = of_risks(treated, control)
        low, high = fit.effect("ratio").conf_int()
        figures = fit.sensitivity().figures()
        nearest = low if treated > control else high
        assert figures["risk_ratio_limit"] == pytest.approx(nearest)
        assert figures["e_value_limit"] == pytest.approx(e_value(nearest))
    unclear = of_risks(0.101, 0.1).sensitivity().figures()
    assert unclear["e_value_limit"] == 1.0


def test_e_values_agree_with_the_ratio_whatever_was_released():
    rng = np.random.default_rng(1)
    for _ in range(30):
        fit = dpe.Result(released=with_means(rng), **ABOUT, bounds=BOUNDS)
        found, ratio = fit.sensitivity(), fit.effect("ratio")
        figures = found.figures()
        str(found.summary())
        means = fit.released.means
        if 0.0 < means.control < 1.0 and 0.0 <= means.treated <= 1.0:
            assert figures["risk_ratio"] == pytest.approx(ratio.estimate)
        elif means.control <= 0.0:
            assert isinstance(figures["risk_ratio"], Unavailable)
        limit = figures["risk_ratio_limit"]
        assert ratio.conf_int().lower <= limit <= ratio.conf_int().upper or limit == 1.0
        assert (limit == 1.0) == (ratio.p_value >= 0.05) or figures["tipping_bias"] == 0.0


def test_where_no_mean_is_released_the_approximation_is_named():
    fit = of_risks(0.3, 0.1)
    without = replace(fit, released=replace(fit.released, means=None)).sensitivity()
    assert without.approximate
    assert without.figures()["risk_ratio"] == pytest.approx(math.exp(0.91 * 0.2 / 0.25))
    assert "approximate" in str(without.summary())
    assert "approximate" in str(without.summary("short"))
    assert "approximate" not in str(fit.sensitivity().summary())
    given = fit.sensitivity(control_risk=0.2)
    assert given.figures()["risk_ratio"] == pytest.approx(2.0)


def test_arms_subsets_and_studies_have_the_e_values_of_their_risks():
    data = people().assign(bad=(people()["y"] > 0.5).astype(int))
    asked = {**CALL, "bounds": {**CALL["bounds"], "bad": (0, 1)}, "design": "randomised"}
    arms = dpe.dp_ate("bad ~ arm", data, **asked)
    study = dpe.dp_study("bad ~ t", data, **asked)
    for fit in (arms.contrast(arms.labels[0]), study.effect_on(study.labels[0])):
        assert fit.released.means is not None
        figures = fit.sensitivity().figures()
        assert figures["risk_ratio"] == pytest.approx(fit.effect("ratio").estimate)
    assert made("adjusted").sensitivity().figures()["e_value"] >= 1.0
