"""Models of folds: options, the estimates it gives, its intervals."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeRegressor

import dpeffects as dpe
from tests.plain import plain
from tests.refused import refusals

BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (0, 1)}
FORMULA = "y ~ t | x1 + x2"
EFFECT = 0.15


def frame(n=400, seed=0):
    """Treatment and outcome both rise with x1: unadjusted, the effect is twice as large."""
    rng = np.random.default_rng(seed)
    x1, x2 = rng.random((2, n))
    t = rng.random(n) < 0.2 + 0.6 * x1
    y = 0.1 + 0.5 * x1 + EFFECT * t + 0.2 * (rng.random(n) - 0.5)
    return pd.DataFrame({"y": y, "t": t, "x1": x1, "x2": x2})


def run(n=1500, seed=0, **given):
    call = {"epsilon": 50.0, "bounds": BOUNDS, "folds": 31, "seed": seed, **given}
    return dpe.dp_ate(FORMULA, frame(n, seed), "model_folds", **call)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("average", ["estimates", "predictions"])
@pytest.mark.parametrize("estimator", ["aipw", "ipw", "regression"])
def test_confounding_is_adjusted_for(average, estimator):
    fits = [run(average=average, estimator=estimator, seed=s).estimate for s in range(3)]
    assert abs(np.mean(fits) - EFFECT) < 0.04
    raw = plain("y ~ t", frame(1500), "diff_in_means").estimate
    assert raw > EFFECT + 0.05


def test_it_nears_the_reference_as_noise_goes():
    fit = run(6000, epsilon=1e5, folds=11)
    reference = plain(FORMULA, frame(6000), "model_folds", clip=0.1)
    assert fit.estimate == pytest.approx(reference.estimate, abs=0.005)
    assert fit.std_error == pytest.approx(reference.std_error, rel=0.5)


@pytest.mark.long
@pytest.mark.parametrize(
    "given",
    [{}, {"estimator": "regression"}, {"average": "predictions"}],
    ids=["estimates", "regression", "predictions"],
)
def test_intervals_cover(given):
    """At 80 %, over both large and small noise."""
    hits = [
        low <= EFFECT <= high
        for seed in range(40)
        for low, high in [run(800, seed, epsilon=2.0 + 60 * (seed % 2), **given).conf_int(0.8)]
    ]
    assert np.mean(hits) >= 0.7


def test_averages_of_predictions_without_weights_have_no_variance_and_pay_for_none():
    fit = run(average="predictions", estimator="regression", epsilon=1.0)
    assert "error of the models" in str(fit.std_error)
    assert [charge.share for charge in fit.charges] == ["count", "estimate"]


def test_any_learner_will_do():
    given = {"outcome": DecisionTreeRegressor(max_depth=3), "propensity": LogisticRegression()}
    fit = run(**given)
    assert abs(fit.estimate - EFFECT) < 0.06
    assert "DecisionTreeRegressor" in str(fit.summary())
    assert run(600, folds=5, outcome=RandomForestRegressor(5)).n == 600


def test_the_global_generator_is_left_alone_and_does_not_matter():
    np.random.seed(1)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    one = run(400, folds=5, outcome=RandomForestRegressor(3)).estimate
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    assert run(400, folds=5, outcome=RandomForestRegressor(3)).estimate == one


def test_a_narrow_range_of_effects_divides_the_noise():
    wide, narrow = (run(epsilon=1.0, effect_range=r) for r in (None, (-0.25, 0.25)))
    assert 1.5 < np.sqrt(wide.noise_variance / narrow.noise_variance) < 4.0


def test_folds_without_an_arm_are_no_failure():
    data = frame(200).assign(t=np.arange(200) == 7)  # most folds have controls only
    for given in ({}, {"average": "predictions"}, {"estimator": "regression"}):
        fit = dpe.dp_ate(FORMULA, data, "model_folds", epsilon=1.0, bounds=BOUNDS, **given)
        assert np.isfinite(fit.estimate)


test_refusals = refusals(
    partial(run, 200, epsilon=1.0),
    ({"folds": 1}, "folds must be"),
    ({"folds": 51}, "at most 50 folds"),
    ({"average": "medians"}, "average must be one of"),
    ({"estimator": "dml"}, "estimator must be one of"),
    ({"clip": 0.5}, "clip must be"),
    ({"clip": 0.0}, "clip must be"),
    ({"effect_range": (1, 0)}, "effect_range"),
    ({"effect_range": (-1, 1), "average": "predictions"}, "effect_range has no meaning"),
    ({"outcome": 3}, "outcome"),
    ({"outcome": DecisionTreeRegressor(), "estimator": "ipw"}, "outcome has no meaning"),
    ({"propensity": LogisticRegression(), "estimator": "regression"}, "propensity has no"),
)
