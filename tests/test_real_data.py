"""Clusters, people with several rows, weights and missing outcomes against other libraries.

Noise is next to nothing at a huge epsilon: what is left has to be what statsmodels finds, or a
formula of a textbook. `benchmarks/real_data.py` says how often intervals cover.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpeffects as dpe
from dpeffects.inference.intervals import p_value

HUGE = 1e6
TRIAL = {"design": "randomised", "epsilon": HUGE}
UNADJUSTED = ("diff_in_means", "clipped_contrast")


def by_group(data, groups, weights=None):
    """Difference in means and its standard error by clusters."""
    x = sm.add_constant(data["treatment"].to_numpy(float))
    model = sm.WLS(data["outcome"], x, weights=np.ones(len(data)) if weights is None else weights)
    fit = model.fit(cov_type="cluster", cov_kwds={"groups": np.asarray(groups)})
    return float(fit.params.iloc[1]), float(fit.bse.iloc[1])


def few(clusters, smaller=0.5):
    """What fewer degrees of freedom make of a standard error."""
    alike = 2.0 * smaller * clusters
    return math.sqrt(alike / (alike - 3.0) * (clusters - 1.0) / clusters)


def villages(sizes, treated, outcome, seed=0):
    """Villages of these sizes, some of them treated, with a function that draws outcomes."""
    rng = np.random.default_rng(seed)
    village = np.repeat(np.arange(len(sizes)), sizes)
    arm = np.zeros(len(sizes), int)
    arm[rng.permutation(len(sizes))[:treated]] = 1
    shared = rng.normal(size=len(sizes))[village]
    y = outcome(0.45 * shared + 0.9 * rng.normal(size=len(village)))
    return pd.DataFrame({"outcome": y, "treatment": arm[village], "village": village})


@pytest.mark.parametrize("method", UNADJUSTED)
@pytest.mark.parametrize("assigned", ["record", "village"])
def test_errors_by_village_are_those_of_statsmodels(method, assigned):
    made = dpe.simulate("clustered", 8000, 3, clusters=200, assigned=assigned, randomised=True)
    estimate, error = by_group(made.frame, made.frame["village"])
    given = {"cluster": "village", "clusters": 200, **TRIAL}
    ours = dpe.dp_ate("outcome ~ treatment", made, method, **given)
    assert ours.estimate == pytest.approx(estimate, abs=0.05 * error)
    assert ours.std_error == pytest.approx(few(200) * error, rel=0.04)
    assert ours.std_error > 1.3 * dpe.dp_ate("outcome ~ treatment", made, method, **TRIAL).std_error


@pytest.mark.parametrize(
    ("sizes", "treated", "outcome", "top"),
    [
        ([30] * 120, 60, lambda z: np.clip(np.exp(1 + z), 0, 60), 60),
        ([30] * 120, 20, lambda z: np.clip(5 + z, 0, 10), 10),
        ([30] * 120, 100, lambda z: np.clip(5 + z, 0, 10), 10),
        ([1 + 7 * (k % 9) for k in range(150)], 75, lambda z: (z > 1.8).astype(int), None),
    ],
    ids=["skewed", "few treated", "few controls", "rare, unequal"],
)
def test_errors_of_other_outcomes_and_arms(sizes, treated, outcome, top):
    data = villages(sizes, treated, outcome)
    estimate, error = by_group(data, data["village"])
    share = data["treatment"].mean()
    given = {
        "cluster": "village",
        "clusters": len(sizes),
        "bounds": {"outcome": (0, top) if top else [0, 1]},
        **TRIAL,
    }
    ours = dpe.dp_ate("outcome ~ treatment", data, "diff_in_means", **given)
    assert ours.estimate == pytest.approx(estimate, abs=0.01 * error)
    expected = few(len(sizes), min(share, 1 - share)) * error
    assert ours.std_error == pytest.approx(expected, rel=0.1)


def test_levels_say_how_many_clusters_there_are():
    data = villages([20] * 50, 25, lambda z: np.clip(5 + z, 0, 10))
    levels, about = list(range(50)), {"cluster": "village", "epsilon": 2}
    bounds = {"outcome": (0, 10), "village": levels}
    named = dpe.declare(data, {"treatment": [0, 1], **bounds})
    for given, more in ((data, {"bounds": bounds}), (named, {})):
        ours = dpe.dp_ate("outcome ~ treatment", given, "diff_in_means", **about, **more)
        assert ours.sample["cluster"].endswith("(clusters: 50)")


@pytest.mark.parametrize("max_rows", [None, 4])
def test_people_with_several_rows_are_those_of_statsmodels(max_rows):
    made = dpe.simulate("repeated", 8000, 1, randomised=True)
    rows = made.frame.groupby("person")["outcome"].transform("size")
    weights = 1.0 / np.maximum(rows, max_rows or 1)
    estimate, error = by_group(made.frame, made.frame["person"], weights)
    given = {"unit": "person", "max_rows": max_rows, **TRIAL}
    ours = dpe.dp_ate("outcome ~ treatment", made, "diff_in_means", **given)
    assert ours.n == made.frame["person"].nunique()
    assert ours.estimate == pytest.approx(estimate, abs=0.02 * error)
    assert ours.std_error == pytest.approx(error, rel=0.03)


@pytest.mark.parametrize("formula", ["outcome ~ treatment", "outcome ~ treatment | x1"])
def test_with_weights_no_sum_of_them_is_called_a_number_of_records(formula):
    """Of 4,000 records it said "treated, control records 983, 1006"."""
    survey = dpe.simulate("survey", n=4000, seed=1)
    fit = dpe.dp_ate(formula, survey, epsilon=2, weights="weight", seed=1)
    assert not any("records" in name for name in fit.details)
    assert "effective sample size about" in fit.sample["size"]
    plain = dpe.dp_ate(formula, survey, epsilon=2, seed=1)
    assert any("records" in name for name in plain.details)


def test_weights_of_a_survey_are_those_of_statsmodels():
    made = dpe.simulate("survey", 8000, 2, randomised=True)
    weights = made.frame["weight"]
    estimate, error = by_group(made.frame, np.arange(len(weights)), weights)
    ours = dpe.dp_ate("outcome ~ treatment", made, "diff_in_means", weights="weight", **TRIAL)
    assert ours.estimate == pytest.approx(estimate, abs=0.02 * error)
    assert ours.std_error == pytest.approx(error, rel=0.03)
    kish = weights.sum() ** 2 / (weights**2).sum()
    said = ours.sample["size"]
    assert int(said.split()[4].replace(",", "")) == pytest.approx(kish, rel=0.005)


@pytest.mark.long
def test_missing_outcomes_are_those_of_inverse_chances():
    made = dpe.simulate("missing_outcomes", 20_000, 1, randomised=True)
    data, there = made.frame, made.frame["outcome"].notna()
    x = sm.add_constant(data[["x1", "x2", "x3", "treatment"]].to_numpy(float))
    chances = np.asarray(sm.Logit(there.astype(float), x).fit(disp=0).predict())
    weights = there / np.maximum(chances, 0.4 * there.mean())
    y, t = data["outcome"].fillna(0.0), data["treatment"] == 1
    arms = [np.average(y[arm], weights=weights[arm]) for arm in (t, ~t)]
    formula = "outcome ~ treatment | x1 + x2 + x3"
    ours = dpe.dp_ate(formula, made, "diff_in_means", missing={"outcome": "weight"}, **TRIAL)
    complete = dpe.dp_ate(formula, made, "diff_in_means", missing="complete", **TRIAL)
    assert ours.estimate == pytest.approx(arms[0] - arms[1], abs=0.25 * ours.std_error)
    truth = (data["mu1"] - data["mu0"]).mean()
    assert abs(ours.estimate - truth) < 2.5 * ours.std_error
    assert abs(complete.estimate - truth) > 5 * complete.std_error


def held(data, truth, **given):
    """Whether an interval holds the truth."""
    fit = dpe.dp_ate("outcome ~ treatment", data, "clipped_contrast", design="randomised", **given)
    return p_value(replace(fit.released, identification=""), truth) >= 0.05


@pytest.mark.long
def test_intervals_cover_where_those_of_rows_fail():
    covered = np.zeros(2)
    for seed in range(40):
        options = {"clusters": 60, "assigned": "village", "randomised": True}
        made = dpe.simulate("clustered", 1800, seed, **options)
        given = {"epsilon": 4, "seed": seed}
        by_village = held(made, 0.1, cluster="village", clusters=60, **given)
        covered += (by_village, held(made, 0.1, **given))
    assert 35 <= covered[0] <= 40
    assert covered[1] <= 28
