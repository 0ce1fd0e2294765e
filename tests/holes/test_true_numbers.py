"""Numbers that a reader takes as they are: they stay finite, and say no more than is promised."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.estimators.weighting.propensity import typical_scores
from tests.cases import each
from tests.populations import drawn

BOUNDS = {"y": (0, 1), "x1": (-1, 1), "x2": (-1, 1)}
FORMULA = "y ~ t | x1 + x2"


def table(n=400, separated=False):
    rng = np.random.default_rng(7)
    x1, x2 = rng.uniform(-1, 1, (2, n))
    t = (x1 > 0).astype(int) if separated else rng.integers(0, 2, n)
    y = np.clip(0.5 + 0.2 * x1 + 0.1 * t + 0.1 * rng.standard_normal(n), 0, 1)
    return pd.DataFrame({"y": y, "t": t, "x1": x1, "x2": x2})


@each("share", [0.001, 0.3, 0.5, 0.98])
@each("sd", [0.0, 0.7, 5.0, 30.0, 1e9])
def test_typical_scores_have_their_mean(share, sd):
    scores = typical_scores(share, sd)
    assert scores.mean() == pytest.approx(share, rel=1e-6)
    assert np.isfinite(np.log(scores / (1 - scores))).all()


@pytest.mark.parametrize("effect", [dpe.dp_ate, dpe.dp_att, dpe.dp_atc])
@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 1, "level": "label"},
        {"epsilon": 1e4},
        {"epsilon": 100, "penalty": 1e-9},
        {"epsilon": 100, "penalty": 1e-6, "propensity": "output"},
    ],
    ids=str,
)
def test_arms_that_do_not_overlap_get_finite_estimates(effect, options):
    fit = effect(FORMULA, table(separated=True), "private_ipw", bounds=BOUNDS, seed=1, **options)
    assert math.isfinite(fit.estimate)
    assert math.isfinite(fit.std_error)


def test_a_balance_that_stops_early_promises_all_that_was_asked():
    """What was released decides whether it stops, so less is no guarantee, and is not charged."""
    data, ledger = table().assign(t=lambda d: (d.index == 3).astype(int)), dpe.Ledger(100)
    fit = dpe.dp_balance(
        FORMULA, data, epsilon=8, bounds=BOUNDS, adjusted=True, ledger=ledger, seed=1
    )
    assert sum(charge.epsilon for charge in fit.charges) < 4
    assert not fit.edges
    assert fit.guarantee.epsilon == 8 == ledger.spent[0]
    assert "was not charged" not in str(fit.summary())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("formula", ["y ~ t | x1 + x2", "y ~ t"])
def test_plans_of_a_plain_difference_fall_with_the_root_of_n(formula):
    """Its interval allows for no confounding, whatever the summary calls it."""
    bounds = {"y": (0, 10), "x1": (-1, 1), "x2": (-1, 1)}

    def planned(n):
        return dpe.plan(formula, n=n, epsilon=1, bounds=bounds, method="diff_in_means", repeats=2)

    few, many = (planned(n).rows[0].half_width for n in (200_000, 10_000_000))
    assert many == pytest.approx(few / math.sqrt(50), rel=0.01)
    ((_, needed, reason, _),) = planned(1000).required(0.01, of="n").to_numpy().tolist()
    assert 4e5 < needed < 5e5  # 4 (1.96 x 10 / 6 / 0.01)^2 and some noise
    assert "allows for confounding" not in reason
    assert ("will not adjust" in reason) == ("|" in formula)


def test_plans_say_what_most_rehearsals_were_cautious_about():
    bounds = {"y": (0, 10), "x": (0, 1), "z": (-3, 3)}
    fit = dpe.plan("y ~ t | x + z", n=800, epsilon=1, bounds=bounds, method="private_ipw")
    assert "Weak adjustment" in fit.rows[0].note
    fit = dpe.plan(
        "y ~ t | x + z", n=600, epsilon=1, bounds=bounds, method="r_learner", estimand="CATE"
    )
    assert "Weak adjustment" in fit.rows[0].note


def test_noise_in_the_histograms_is_in_the_interval_of_the_average():
    """Skewed covariates: the average over even margins is another one."""
    population = drawn(921)
    data, found = population.sample(4000, 9001), []
    for seed in range(16):
        given = {"epsilon": 1, "delta": 1e-5, "bounds": population.declared, "seed": seed}
        fit = dpe.dp_cate(population.formula, data, "r_learner", **given)
        found.append(fit.function.over_records("noise"))
    values, reported = np.array(found).T
    assert values.std(ddof=1) < 1.3 * np.median(reported)


@pytest.mark.parametrize("level", ["sample", "label"])
def test_weighting_has_an_intercept_whatever_the_formula_says(level):
    """Without one the first covariate was taken for it: the estimate was 0.21, the truth 0.1."""
    rng = np.random.default_rng(0)
    x = rng.random((4000, 2))
    t = rng.random(4000) < 1.0 / (1.0 + np.exp(-3.0 * (x[:, 0] - 0.5)))
    y = 0.5 * x[:, 0] + 0.1 * t + 0.1 * rng.random(4000)
    data = pd.DataFrame({"y": y, "t": t, "x1": x[:, 0], "x2": x[:, 1]})
    call = {"bounds": dict.fromkeys(("y", "x1", "x2"), (0, 1)), "epsilon": 4, "seed": 1}
    fits = [
        dpe.dp_ate(f"y ~ t | {terms}", data, "private_ipw", level=level, **call)
        for terms in ("x1 + x2", "x1 + x2 - 1")
    ]
    assert fits[0].released == fits[1].released
    assert abs(fits[0].estimate - 0.1) < 0.03
