"""Difference in means: against closed forms and statsmodels, and its intervals by simulation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import OptionError
from dpeffects.inference.estimate import Unavailable
from tests.plain import plain


def trial(n, seed, binary=False, share=0.4):
    rng = np.random.default_rng(seed)
    t = rng.random(n) < share
    y = 0.2 + 0.1 * t + rng.beta(2, 3, n) * 0.7
    y = (rng.random(n) < y).astype(float) if binary else y
    return pd.DataFrame({"y": y, "t": t})


def fit(data, seed=None, **more):
    more = {"epsilon": 1.0, "bounds": {"y": (0, 1)}, **more}
    return dpe.dp_ate("y ~ t", data, "diff_in_means", seed=seed, **more)


def test_lalonde_at_a_large_epsilon_is_the_textbook_number():
    nsw = dpe.load_data("lalonde")
    wide = {"earnings_1978": (0, 100_000)}
    made = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=1e6, bounds=wide)
    assert made.estimate == pytest.approx(1794.34, abs=0.5)
    assert made.std_error == pytest.approx(671.0, rel=0.01)  # unequal-variance standard error


def test_noise_variance_of_public_arms_is_the_papers_formula():
    """Paper 003, section III-A1: 2 B^2 (1/N_t^2 + 1/N_c^2) / epsilon_1^2."""
    data = trial(1000, 3)
    made = fit(data, arms="public", variance=False, epsilon=0.7)
    n_t = int(data["t"].sum())
    expected = 2 * (1 / n_t**2 + 1 / (1000 - n_t) ** 2) / 0.7**2
    assert made.noise_variance == pytest.approx(expected, rel=1e-6)
    assert made.details["treated records"] == n_t


@pytest.mark.long
def test_the_spread_of_estimates_is_what_the_result_says():
    """Same data, fresh secure noise: the spread over runs equals the stated noise."""
    data = trial(2000, 4)
    fits = [fit(data, seed=seed) for seed in range(400)]
    estimates = np.array([f.estimate for f in fits])
    stated = np.sqrt(np.median([f.noise_variance for f in fits]))
    assert estimates.std() == pytest.approx(stated, rel=0.15)
    plain = data.groupby("t")["y"].mean().diff().iloc[-1]
    assert estimates.mean() == pytest.approx(plain, abs=4 * stated / 20)


@pytest.mark.long
@pytest.mark.parametrize("arms", ["public", "private"])
@pytest.mark.parametrize("binary", [False, True], ids=["continuous", "binary"])
def test_intervals_cover(arms, binary):
    """A small version of benchmarks/coverage.py: 300 trials, nominal 90 %."""
    hits = 0
    for seed in range(300):
        low, high = fit(trial(1500, seed, binary), seed=seed, arms=arms).conf_int(0.9)
        hits += low <= 0.1 <= high
    assert 0.86 <= hits / 300 <= 0.95


@pytest.mark.long
def test_the_released_variance_is_unbiased():
    data = trial(800, 5)
    usual = plain("y ~ t", data, "diff_in_means").std_error ** 2
    released = [fit(data, seed=seed).released.sampling for seed in range(400)]
    values = np.array([r.value for r in released])
    assert values.mean() == pytest.approx(usual, rel=0.1)
    # the stated noise scale is that of the spread
    assert np.sqrt(2) * released[0].noise_scale == pytest.approx(values.std(), rel=0.25)


def test_tiny_noisy_counts_do_not_break_the_result():
    data = trial(30, 6, share=0.1)
    data.loc[0, "t"], data.loc[1, "t"] = True, False
    for seed in range(50):
        made = fit(data, seed=seed, epsilon=0.05)
        assert np.isfinite(made.estimate)
        assert np.isfinite(made.std_error)


def test_what_a_difference_is_called_follows_from_design_and_covariates():
    """Whoever names covariates does not take treatment as randomised, unless told."""
    data = trial(2000, 5).assign(x=0.5)
    more = {"epsilon": 1.0, "bounds": {"y": (0, 1), "x": (0, 1)}, "seed": 1}

    def made(formula, **given):
        return dpe.dp_ate(formula, data, "diff_in_means", **more, **given)

    open_, said = made("y ~ t"), made("y ~ t", design="randomised")
    assert (
        open_.warnings
        == "NOT ADJUSTED: the difference is an effect only if treatment was randomised"
    )
    assert isinstance(open_.p_value, float)
    assert (said.warnings, said.released.identification) == ("", "randomised")
    assert made("y ~ t | x", design="randomised").warnings == ""
    for associated in (made("y ~ t | x"), made("y ~ t", design="observational")):
        assert associated.estimate == open_.estimate
        assert associated.warnings.startswith("ASSOCIATION, NOT AN EFFECT")
        assert isinstance(associated.p_value, Unavailable)
        assert "Unadjusted association, differentially" in str(associated)
    with pytest.raises(OptionError, match="design must be one of observational, randomised"):
        made("y ~ t", design="random")
