"""The doubly robust estimator: right when one model is wrong, plain when adjusting does not pay."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import OptionError

FORMULA = "y ~ t | x1 + x2"
BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (0, 1)}


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
    return call(FORMULA, frame, "private_aipw", **more)


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
    assert made.options["regression"]


@pytest.mark.parametrize(
    ("call", "estimand"), [(dpe.dp_att, "ATT"), (dpe.dp_atc, "ATC"), (dpe.dp_ate, "ATE")]
)
def test_estimands_differ_where_effects_do(call, estimand):
    """The effect grows with x1, so the treated gain more; truth from the potential outcomes."""
    rng = np.random.default_rng(5)
    n = 60_000
    x = rng.random((n, 2))
    t = rng.random(n) < 1 / (1 + np.exp(-log_odds(x)))
    effect = 0.3 * x[:, 0]
    frame = pd.DataFrame({"t": t, "x1": x[:, 0], "x2": x[:, 1]})
    frame["y"] = 0.2 + 0.2 * x[:, 0] + effect * t + 0.2 * rng.random(n)
    truth = {"ATT": effect[t].mean(), "ATC": effect[~t].mean(), "ATE": effect.mean()}[estimand]
    made = fit(frame, call, epsilon=1e5)
    assert made.estimand == estimand
    assert made.estimate == pytest.approx(truth, abs=max(4 * made.std_error, 0.003))


def test_it_does_not_adjust_where_that_costs_more_than_it_gains():
    made = dpe.dp_ate(
        dpe.data_info("lalonde").formula, dpe.load_data("lalonde"), "private_aipw", epsilon=0.5
    )
    assert "NOT ADJUSTED" in str(made).splitlines()[2]
    assert made.glance()["caution"].iloc[0].startswith("NOT ADJUSTED")
    plain = dpe.dp_ate(
        dpe.data_info("lalonde").formula, dpe.load_data("lalonde"), "diff_in_means", epsilon=0.5
    )
    assert made.noise_variance == pytest.approx(plain.noise_variance, rel=0.5)
    forced = fit(sample(4000, 1, log_odds, linear), adjust="all")
    assert "NOT ADJUSTED" not in str(forced)
    assert forced.options["blocks"] > 1


def test_scores_that_are_noise_are_called_so_and_the_interval_allows_for_what_they_hide():
    """Randomised treatment: there is no propensity to find, so that the model is all noise."""
    frame = sample(5000, 2, lambda x: 0 * x[:, 0], linear)
    made = [fit(frame, seed=s, epsilon=2.0) for s in range(12)]
    hardly = [m for m in made if m.released.caution.startswith("HARDLY ADJUSTED")]
    assert len(hardly) > 6
    sure = fit(frame, adjust="none", epsilon=2.0)
    for m in hardly:
        low, high = m.conf_int()
        assert low < 0.1 < high
        assert m.std_error > sure.std_error


def test_the_plan_depends_on_public_numbers_only():
    """Other data of the same size and formula: the same blocks, shares and mechanisms."""
    one = fit(sample(20_000, 1, log_odds, linear))
    two = fit(sample(20_000, 2, bent_log_odds, bent, effect=-0.2))
    assert one.options == two.options
    assert [(s.label, s.epsilon) for s in one.spends] == [(s.label, s.epsilon) for s in two.spends]


def test_confounding_is_removed_at_epsilon_one():
    errors, plain = [], []
    for seed in range(4):
        data = dpe.simulate("confounded", seed=seed)
        formula = dpe.data_info("confounded").formula
        errors.append(dpe.dp_ate(formula, data, "private_aipw", epsilon=1, seed=seed).estimate)
        plain.append(dpe.dp_ate(formula, data, "diff_in_means", epsilon=1, seed=seed).estimate)
    assert np.mean(np.abs(np.array(errors) - 0.1)) < np.mean(np.abs(np.array(plain) - 0.1)) / 4


def test_gaussian_noise_where_there_is_a_delta():
    made = fit(sample(20_000, 1, log_odds, linear), delta=1e-5, adjust="all", regression=True)
    mechanisms = {s.label: s.mechanism for s in made.spends}
    assert mechanisms["outcome regression"] == "Gaussian"
    assert 0 < made.guarantee.delta <= 1e-5
    assert np.isfinite(made.std_error)


@pytest.mark.parametrize(
    "options",
    [
        {"adjust": "some"},
        {"confounding": 2},
        {"confounding": "much"},
        {"blocks": 0},
        {"blocks": 2.5},
        {"regression": "yes"},
        {"level": "label"},
    ],
)
def test_bad_options(options):
    ledger = dpe.Ledger(5)
    with pytest.raises(OptionError):
        fit(sample(100, 1, log_odds, linear), ledger=ledger, **options)
    assert ledger.spends == ()


def test_the_reference_takes_columns_that_say_the_same():
    data = dpe.simulate("confounded", n=1000, seed=1)
    bounds = {"outcome": (0, 1), "x1": data.bounds["x1"], "copy": data.bounds["x1"]}
    both = dpe.declare(data.frame.assign(copy=data.frame["x1"]), bounds)
    one = dpe.reference("outcome ~ treatment | x1", data, "private_aipw").estimate
    two = dpe.reference("outcome ~ treatment | x1 + copy", both, "private_aipw")
    assert two.estimate == pytest.approx(one)


def test_moments_of_many_columns_are_released_with_a_delta():
    """More numbers than a pool of Gaussian noise takes used to fail after the first charge."""
    rng = np.random.default_rng(0)
    names = [f"x{j}" for j in range(230)]
    data = pd.DataFrame(rng.random((300, 230)), columns=names)
    data["t"], data["y"] = rng.random(300) < 0.5, rng.random(300)
    given = {"bounds": dict.fromkeys(["y", *names], (0, 1)), "blocks": 2, "regression": True}
    formula = f"y ~ t | {' + '.join(names)}"
    fit = dpe.dp_ate(formula, data, epsilon=5, delta=1e-6, seed=1, **given)
    mechanisms = {spend.label: spend.mechanism for spend in fit.spends}
    assert mechanisms["outcome regression"] == "Wishart"
