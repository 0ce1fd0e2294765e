"""Effects by group from private moments: against models without privacy, and against the truth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import OptionError

FORMULA, BY = "y ~ t | x1 + x2", "g + cut(x1, [0, 0.5, 1])"
BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (-1, 1), "g": ["a", "b", "c"], "t": [0, 1]}


def study(n, seed=0, trial=False):
    """A confounded study, or a trial; effects differ between groups and rise with x1."""
    rng = np.random.default_rng(seed)
    x1, x2 = rng.random(n), rng.uniform(-1, 1, n)
    g = np.array(["a", "b", "c"])[rng.choice(3, n, p=[0.2, 0.3, 0.5])]
    chance = 0.5 if trial else 1 / (1 + np.exp(-2 * (x1 - 0.5) - x2))
    t = (rng.random(n) < chance).astype(int)
    effect = 0.1 * (g == "b") + 0.1 * x1
    y = 0.3 + 0.2 * x1 + 0.1 * x2 + effect * t + rng.uniform(-0.1, 0.1, n)
    data = pd.DataFrame({"y": y, "x1": x1, "x2": x2, "t": t, "g": g})
    return data, effect


def groups(data):
    """Numbers of the groups, in the order of their labels."""
    return 2 * data["g"].map({"a": 0, "b": 1, "c": 2}) + (data["x1"] > 0.5)


def fitted(data, **more):
    given = {"release": "groups", "by": BY, "bounds": BOUNDS, "seed": 1, **more}
    return dpe.dp_cate(FORMULA, data, **given)


def weighted(data):
    """Outcomes less a line in the covariates, averaged by inverse probabilities in each group."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    x, t, y = data[["x1", "x2"]].to_numpy(), data["t"].to_numpy(), data["y"].to_numpy()
    e = LogisticRegression(C=1e6).fit(x, t).predict_proba(x)[:, 1]
    left = y - x @ LinearRegression().fit(np.column_stack([x, t]), y).coef_[:2]
    weight, found = np.where(t == 1, 1 / e, 1 / (1 - e)), []
    for k in range(6):
        one, zero = ((groups(data) == k) & (t == arm) for arm in (1, 0))
        means = [np.average(left[arm], weights=weight[arm]) for arm in (one, zero)]
        found.append(means[0] - means[1])
    return np.array(found)


def test_without_noise_they_are_weighted_differences_in_each_group():
    data, effect = study(40_000)
    fit = fitted(data, epsilon=1e5)
    assert fit.method == "one_step"
    assert fit.estimates == pytest.approx(weighted(data), abs=0.004)
    true = pd.Series(effect).groupby(groups(data)).mean().to_numpy()
    assert fit.estimates == pytest.approx(true, abs=0.015)
    naive = [
        part["y"][part["t"] == 1].mean() - part["y"][part["t"] == 0].mean()
        for _, part in data.groupby(groups(data))
    ]
    assert np.abs(naive - true).min() > 0.02  # without adjusting all of them are off


def test_without_noise_trials_are_differences_in_each_group():
    data, effect = study(20_000, seed=2, trial=True)
    fit = fitted(data, epsilon=1e5, design="randomised")
    true = pd.Series(effect).groupby(groups(data)).mean().to_numpy()
    assert fit.estimates == pytest.approx(weighted(data), abs=0.006)
    assert np.abs(fit.estimates - true).max() < 0.012
    assert not any("calibration" in charge.label for charge in fit.charges)
    residual = 0.1 / np.sqrt(3.0)  # of a uniform error
    expected = 2 * residual / np.sqrt(np.bincount(groups(data)))
    assert fit.tidy()["std_error"].to_numpy() == pytest.approx(expected, rel=0.35)


def test_intervals_cover_and_are_shorter_than_those_of_a_learner():
    """Measured: 98 % of intervals; a DR-learner's are 1.5 to 3 times as long."""
    inside, ratios = [], []
    for seed in range(6):
        data, effect = study(6000, seed)
        true = pd.Series(effect).groupby(groups(data)).mean().to_numpy()
        low, high = fitted(data, epsilon=2, seed=seed).conf_int().T
        inside += [*((low <= true) & (true <= high))]
        if seed < 2:
            other = fitted(data, method="dr_learner", epsilon=2, seed=seed).conf_int()
            ratios += [*((other[:, 1] - other[:, 0]) / (high - low))]
    assert np.mean(inside) > 0.85
    assert np.median(ratios) > 1.0


def test_a_group_that_noise_hides_has_no_interval():
    data, _ = study(1500)
    data["g"] = np.where(np.arange(1500) < 3, "a", "c")  # hardly any a, and no b
    fit = fitted(data, epsilon=1)
    missing = np.isnan(fit.conf_int()[:, 0])
    assert missing[:4].all()
    assert not missing[4:].any()
    assert np.isfinite(fit.estimates).all()


@pytest.mark.parametrize("design", ["observational", "randomised"])
def test_few_treated_are_no_reason_for_short_intervals(design):
    """Nothing says more of half of the records than of all; below the clip there is a warning."""
    data, _ = study(4000, trial=True)
    data["t"] = (np.arange(4000) % 100 == 0).astype(int)
    call = {"epsilon": 1, "bounds": BOUNDS, "seed": 1, "design": design}
    low, high = dpe.dp_ate(FORMULA, data, "one_step", **call).conf_int()
    fit = fitted(data, by="cut(x2, [-1, 0, 1])", epsilon=1, design=design)
    assert np.diff(fit.conf_int()).min() > 0.6 * (high - low)
    assert "Small arm" in fit.warnings
    assert "Small arm" not in fitted(study(4000)[0], epsilon=1, design=design).warnings


def test_no_variance_where_none_is_asked_for():
    fit = fitted(study(2000)[0], epsilon=4, variance=False)
    assert np.isnan(fit.tidy()["std_error"]).all()


def test_it_is_for_groups_and_for_so_many_covariates():
    data, _ = study(60)
    with pytest.raises(OptionError, match='release="groups"'):
        dpe.dp_cate(FORMULA, data, "one_step", epsilon=1, bounds=BOUNDS)
    many = {f"z{k}": np.zeros(60) for k in range(451)}
    wide = pd.concat([data, pd.DataFrame(many)], axis=1)
    with pytest.raises(OptionError, match="dr_learner"):
        dpe.dp_cate(
            "y ~ t | " + " + ".join(many),
            wide,
            release="groups",
            by="g",
            epsilon=1,
            bounds=BOUNDS | dict.fromkeys(many, (0, 1)),
        )
