"""Slopes of several outcomes from one matrix, and adjusted studies that average what they leave."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpeffects as dpe
from dpeffects.abilities import study as joint
from dpeffects.estimators import outcome_slopes

BOUNDS = {"x": (-3.0, 3.0), "sex": (0, 1), "score": (0.0, 1.0), "event": (0, 1)}
FORMULA = "score + event ~ t | x + sex"


def people(n=20_000, seed=1):
    """One strong confounder, normal within a wide range; effects of 0.05 on both."""
    rng = np.random.default_rng(seed)
    x, sex = np.clip(rng.normal(size=n), -3, 3), rng.integers(0, 2, n)
    t = (rng.random(n) < 1 / (1 + np.exp(-x))).astype(int)
    score = 0.4 + 0.06 * x + 0.03 * sex + 0.05 * t + 0.1 * rng.normal(size=n)
    event = (rng.random(n) < 0.15 + 0.03 * x + 0.05 * t).astype(int)
    score = np.clip(score, 0, 1)
    return pd.DataFrame({"t": t, "x": x, "sex": sex, "score": score, "event": event})


def test_without_noise_effects_are_those_of_a_linear_model():
    """Weights are cut at a clip, and would leave confounding by themselves."""
    data = people()
    fit = dpe.dp_study(FORMULA, data, bounds=BOUNDS, epsilon=1e5, seed=1)
    design = sm.add_constant(data[["t", "x", "sex"]].astype(float))
    for j, name in enumerate(("score", "event")):
        model = sm.OLS(data[name], design).fit(cov_type="HC1")
        assert fit.estimates[j] == pytest.approx(model.params["t"], abs=model.bse["t"])


def test_noise_in_the_model_of_treatment_leaves_little(monkeypatch):
    """A strong confounder at epsilon 1: little is left of it, with slopes or without."""
    data, errors = people(10_000), {}
    crude = float(data.groupby("t")["score"].mean().diff()[1]) - 0.05
    for fits in (True, False):
        with monkeypatch.context() as patch:
            if not fits:
                patch.setattr(joint, "worth", lambda *given: False)
            found = [
                dpe.dp_study(FORMULA, data, bounds=BOUNDS, epsilon=1, seed=seed).estimates[0]
                for seed in range(6)
            ]
        errors[fits] = np.abs(np.mean(found) - 0.05)
    assert crude > 0.04
    assert max(errors.values()) < 0.2 * crude


def test_means_by_arm_are_those_of_everybody_under_either_treatment():
    data, declared = people(), BOUNDS | {"sex": [0, 1], "event": [0, 1]}
    fit = dpe.dp_study(FORMULA, data, bounds=declared, epsilon=1e5, seed=1)
    means = fit.effect_on("event").means.set_index("arm")["mean"]
    assert means["control"] == pytest.approx(0.15 + 0.03 * data["x"].mean(), abs=0.01)
    assert means["treated"] == pytest.approx(0.20 + 0.03 * data["x"].mean(), abs=0.01)


def test_means_over_the_treated_are_observed():
    data = people()
    fit = dpe.dp_study(FORMULA, data, bounds=BOUNDS, epsilon=1e5, seed=1, estimand="ATT")
    means = fit.effect_on("score").means.set_index("arm")["mean"]
    assert means["treated"] == pytest.approx(data["score"][data["t"] == 1].mean(), abs=0.005)


def test_slopes_are_those_of_a_regression_within_arms():
    """At a huge epsilon, but for cut rows, against least squares with an effect of the arm."""
    data, seen = people(), []
    released = joint.release_slopes

    def kept(*given):
        seen.append(released(*given))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint, "release_slopes", kept)
        dpe.dp_study(FORMULA, data, bounds=BOUNDS, epsilon=1e5, flexible=0, seed=1)
    design = sm.add_constant(data[["t", "x", "sex"]].astype(float))
    expected = sm.OLS(data["score"], design).fit().params
    on_x, on_sex = seen[0].slopes[0] / seen[0].standard.sds / [6.0, 1.0]  # of [0, 1]
    assert on_x == pytest.approx(expected["x"], rel=0.25)
    assert on_sex == pytest.approx(expected["sex"], rel=0.25)


def test_slopes_that_noise_would_drown_are_not_asked_for():
    assert not outcome_slopes.worth(500, 10, 20, 0.1)
    assert outcome_slopes.worth(20_000, 4, 3, 0.1)
    data = people(1500)
    fit = dpe.dp_study(FORMULA, data, bounds=BOUNDS, epsilon=0.3, adjust=True, seed=1)
    assert "slopes" not in {charge.share for charge in fit.charges}
