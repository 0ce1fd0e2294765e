"""The default method on populations with known effects: a small benchmarks/coverage.py.

Samples and noise are seeded, so nothing here fails by chance; margins are wide, so that other noise
would pass as well.
"""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm

import dpeffects as dpe
from tests.populations import POPULATIONS, RIGHT, TRIALS

RUNS = 25


def runs(name, method, n, epsilon, estimand="ATE", **options):
    """Shares covered, and the median half-width."""
    population = POPULATIONS[name]
    effect = {"ATE": dpe.dp_ate, "ATT": dpe.dp_att, "ATC": dpe.dp_atc}[estimand]
    truth, found = population.truth[estimand], []
    for seed in range(RUNS):
        fit = effect(
            population.formula,
            population.sample(n, seed),
            method,
            epsilon=epsilon,
            bounds=population.declared,
            seed=seed,
            **options,
        )
        low, high = fit.conf_int(0.95)
        found.append((low <= truth <= high, (high - low) / 2))
    covered, half_width = np.array(found, float).T
    return covered.mean(), np.median(half_width)


@pytest.mark.parametrize("name", [p.name for p in (*RIGHT, *TRIALS)])
def test_least_squares_finds_the_effect_of_a_population(name):
    population = POPULATIONS[name]
    data = population.sample(20_000, 1)
    x = data.drop(columns=["y", "t", "region"], errors="ignore").assign(constant=1.0, t=data["t"])
    if "region" in data:
        x["north"] = data["region"] == "north"
    fit = sm.OLS(data["y"].to_numpy(float), x.astype(float)).fit(cov_type="HC1")
    assert abs(fit.params["t"] - population.truth["ATE"]) < 4 * fit.bse["t"]


def test_truth_of_effects_that_vary():
    """Uniform covariates: the effect on all is its constant, that on the treated is larger."""
    truth = POPULATIONS["varying effects"].truth
    treated = POPULATIONS["varying effects"].facts["treated"]
    assert truth["ATE"] == pytest.approx(0.06, abs=1e-4)
    assert truth["ATT"] > 0.063
    whole = treated * truth["ATT"] + (1 - treated) * truth["ATC"]
    assert whole == pytest.approx(truth["ATE"], abs=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("name", ["three confounders", "few treated", "binary and continuous"])
def test_intervals_of_observational_studies(name):
    """The interval holds, and is much shorter than that of private_ipw."""
    covered, half_width = runs(name, "auto", 4000, 1.0)
    assert covered >= 0.84
    assert half_width < 0.6 * runs(name, "private_ipw", 4000, 1.0)[1]


def test_interval_of_the_effect_on_the_treated():
    covered, _ = runs("varying effects", "auto", 10_000, 4.0, estimand="ATT")
    assert covered >= 0.84


@pytest.mark.sampled(2)
@pytest.mark.parametrize("epsilon", [0.1, 4.0])
def test_a_declared_trial_is_sharper_than_a_difference_in_means(epsilon):
    covered, half_width = runs("trial", "auto", 20_000, epsilon, design="randomised")
    assert covered >= 0.84
    assert half_width < 0.9 * runs("trial", "diff_in_means", 20_000, epsilon)[1]
