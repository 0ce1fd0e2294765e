"""One-step estimation: what it is without noise, with one wrong model, and what it pays for."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpeffects as dpe
from tests.plain import plain

FORMULA = "y ~ t | x1 + x2"
BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (0, 1)}
ASKED = {"method": "one_step", "flexible": 0}


def sample(n, seed, propensity, outcome, effect=0.1):
    """Outcomes in [0, 1]; ``propensity`` and ``outcome`` are functions of the covariates."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 2))
    t = rng.random(n) < 1 / (1 + np.exp(-propensity(x)))
    y = 0.25 + outcome(x) + effect * t + 0.2 * (rng.random(n) - 0.5)
    return pd.DataFrame({"y": y, "t": t, "x1": x[:, 0], "x2": x[:, 1]})


def linear(x):
    return 0.3 * x[:, 0] + 0.1 * x[:, 1]


def bent(x):
    return 0.4 * x[:, 0] ** 4 + 0.1 * x[:, 1]


def log_odds(x):
    return 2.0 * (x[:, 0] - 0.5)


def bent_log_odds(x):
    return 6.0 * (np.abs(x[:, 0] - 0.5) - 0.25) + 2.0 * (x[:, 0] - 0.5)


def fit(frame, call=dpe.dp_ate, **more):
    more = {"epsilon": 1.0, "bounds": BOUNDS, "seed": 1, **more}
    return call(FORMULA, frame, "one_step", **more)


def test_without_noise_it_agrees_with_regression_and_with_weighting():
    """Linear models, confounding: least squares and AIPW by statsmodels, on the same records."""
    frame = sample(20_000, 3, log_odds, linear)
    made = fit(frame, epsilon=1e6)
    columns = sm.add_constant(frame[["t", "x1", "x2"]].astype(float))
    squares = sm.OLS(frame["y"], columns).fit()
    unadjusted = frame.groupby("t")["y"].mean().diff().iloc[-1]
    assert abs(unadjusted - 0.1) > 10 * squares.bse["t"]
    for target in (squares.params["t"], plain(FORMULA, frame, bounds=BOUNDS).estimate):
        assert made.estimate == pytest.approx(target, abs=squares.bse["t"])
    sampling = np.sqrt(made.std_error**2 - made.released.bias_variance)
    assert sampling == pytest.approx(squares.bse["t"], rel=0.1)


def test_a_trial_is_sharpened_by_covariates():
    """Declared: the standard error is that of least squares, far below that of the means."""
    frame = sample(20_000, 4, lambda x: 0 * x[:, 0], lambda x: 0.5 * x[:, 0])
    made = fit(frame, epsilon=1e6, design="randomised")
    columns = sm.add_constant(frame[["t", "x1", "x2"]].astype(float))
    squares = sm.OLS(frame["y"], columns).fit()
    plain = sm.OLS(frame["y"], sm.add_constant(frame["t"].astype(float))).fit()
    assert squares.bse["t"] < 0.5 * plain.bse["t"]
    assert made.estimate == pytest.approx(squares.params["t"], abs=squares.bse["t"])
    assert made.std_error == pytest.approx(squares.bse["t"], rel=0.1)


@pytest.mark.parametrize(
    ("propensity", "outcome"),
    [(log_odds, linear), (log_odds, bent), (bent_log_odds, linear)],
    ids=["both right", "outcome model wrong", "propensity model wrong"],
)
def test_one_right_model_is_enough(propensity, outcome):
    frame = sample(40_000, 3, propensity, outcome)
    plain = frame.groupby("t")["y"].mean().diff().iloc[-1]
    made = fit(frame, epsilon=1e5)
    assert abs(plain - 0.1) > 0.02
    assert made.estimate == pytest.approx(0.1, abs=max(4 * made.std_error, 0.004))


def test_a_score_that_bends_is_named():
    frame = sample(40_000, 3, bent_log_odds, linear)
    assert "not linear in x1" in fit(frame, epsilon=4, flexible=0).released.warnings
    for other in (frame, sample(40_000, 3, log_odds, linear)):  # with squares, and straight
        assert "not linear" not in fit(other, epsilon=4).released.warnings


@pytest.mark.sampled(2)
@pytest.mark.parametrize("steep", [2, 6, 20, 1000])
def test_arms_that_hardly_overlap_are_a_caution(steep):
    """The part of treatment that is explained: 1 - E e(1 - e) / (p (1 - p)) of the true score."""
    frame = sample(20_000, 3, lambda x: steep * (x[:, 0] - 0.5), linear)
    e = 1 / (1 + np.exp(-steep * (frame["x1"] - 0.5)))
    explained = 1 - np.mean(e * (1 - e)) / (np.mean(e) * (1 - np.mean(e)))
    for made in (fit(frame), fit(frame, dpe.dp_cate, release="groups", by="cut(x2, [0, 0.5, 1])")):
        said = re.search(r"Little overlap: the covariates explain about (\d+) %", made.warnings)
        assert bool(said) == (explained > 0.6)
        assert not said or 100 * explained == pytest.approx(int(said[1]), abs=15)
        assert ("Little overlap" in str(made.summary("short"))) == bool(said)


@pytest.mark.parametrize("seed", range(3))
def test_few_treated_records_have_scores_as_rare_as_they_are(seed):
    """Lines do not fit these outcomes: weights of 40 to 50 treated records have to mend it."""
    made = fit(sample(100_000, seed, lambda x: 6 * (x[:, 0] - 0.5) - 9, bent), epsilon=1e5)
    assert abs(made.estimate - 0.1) < 1.7 * made.std_error < 0.1


def test_three_arms_that_hardly_overlap_are_a_caution():
    rng = np.random.default_rng(3)
    x = rng.random((20_000, 2))
    for noise, said in ((0.0, True), (1.0, False)):
        arm = np.digitize(x[:, 0] + noise * rng.normal(size=len(x)), [1 / 3, 2 / 3])
        frame = pd.DataFrame({"y": 0.2 + linear(x), "t": arm, "x1": x[:, 0], "x2": x[:, 1]})
        made = fit(frame, bounds={**BOUNDS, "t": [0, 1, 2]})
        assert ("Little overlap" in made.warnings) == said


@pytest.mark.parametrize(
    ("call", "estimand"), [(dpe.dp_att, "ATT"), (dpe.dp_atc, "ATC"), (dpe.dp_ate, "ATE")]
)
def test_intervals_allow_for_effects_that_vary(call, estimand):
    """The effect grows with x1, so the treated gain more; truth from the potential outcomes.

    Overlap weights are those of another population: the interval allows for the difference.
    """
    rng = np.random.default_rng(5)
    n = 60_000
    x = rng.random((n, 2))
    t = rng.random(n) < 1 / (1 + np.exp(-log_odds(x)))
    effect = 0.1 * x[:, 0]
    frame = pd.DataFrame({"t": t, "x1": x[:, 0], "x2": x[:, 1]})
    frame["y"] = 0.2 + 0.2 * x[:, 0] + effect * t + 0.2 * rng.random(n)
    truth = {"ATT": effect[t].mean(), "ATC": effect[~t].mean(), "ATE": effect.mean()}[estimand]
    made = fit(frame, call, epsilon=1e5)
    assert made.estimand == estimand
    low, high = made.conf_int(0.99)
    assert low < truth < high


def test_confounding_is_removed_at_epsilon_one():
    errors, plain = [], []
    for seed in range(4):
        data = dpe.simulate("confounded", seed=seed)
        formula = dpe.data_info("confounded").formula
        errors.append(dpe.dp_ate(formula, data, "one_step", epsilon=1, seed=seed).estimate)
        plain.append(dpe.dp_ate(formula, data, "diff_in_means", epsilon=1, seed=seed).estimate)
    assert np.mean(np.abs(np.array(errors) - 0.1)) < np.mean(np.abs(np.array(plain) - 0.1)) / 4


def test_a_rare_condition_is_adjusted_for_whoever_declares_it():
    """One record in 33 has it, is treated far more often and fares worse; its column is 0 or 1."""
    rng, n, others = np.random.default_rng(3), 20_000, [f"x{j}" for j in range(8)]
    rare = rng.random(n) < 0.03
    t = rng.random(n) < 1 / (1 + np.exp(1.5 - 2.0 * rare))
    y = 10.0 + t - 2.0 * rare + rng.normal(size=n)
    frame = pd.DataFrame({"y": y, "t": t, "rare": rare * 1.0})
    frame[others] = rng.random((n, 8))
    bounds = {"y": (4, 16), "rare": (0, 1)} | dict.fromkeys(others, (0, 1))
    formula = f"y ~ t | rare + {' + '.join(others)}"
    errors = [
        dpe.dp_ate(formula, frame, epsilon=2, bounds=bounds, seed=seed, **ASKED).estimate - 1.0
        for seed in range(4)
    ]
    assert np.abs(errors).max() < 0.1  # without adjusting it is 0.18 off


@pytest.mark.parametrize("pool", ["none", "models", "all"])
def test_gaussian_noise_where_a_delta_pays_for_it(pool):
    made = fit(sample(20_000, 1, log_odds, linear), delta=1e-6, pool=pool, check_bounds=False)
    gaussian = {s.share for s in made.charges if s.mechanism.startswith("discrete Gaussian")}
    every = {s.share for s in made.charges}
    assert gaussian == {"none": set(), "models": {"spread", "models"}, "all": every}[pool]
    assert (made.guarantee.delta > 0) == (pool != "none")
    assert made.guarantee.delta <= 1e-6
    assert np.isfinite(made.std_error)


def test_effects_by_group_are_adjusted_for_products():
    """Confounding by a product of columns, which lines do not see, is removed in each group."""

    def product(x):
        return 8.0 * (x[:, 0] - 0.5) * (x[:, 1] - 0.5)

    frame = sample(20_000, 5, lambda x: 1.5 * product(x), lambda x: 0.1 * product(x))
    frame["half"] = np.where(np.arange(20_000) % 2, "a", "b")
    about = {"release": "groups", "by": "half", "bounds": {**BOUNDS, "half": ["a", "b"]}}
    with_products = fit(frame, dpe.dp_cate, **about)
    lines = fit(frame, dpe.dp_cate, flexible=0, **about)
    assert (np.abs(lines.tidy()["estimate"] - 0.1) > 0.03).all()
    assert (np.abs(with_products.tidy()["estimate"] - 0.1) < 0.015).all()
