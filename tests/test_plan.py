"""Plans against closed forms and real runs."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import BoundsError, BudgetError, OptionError

BOUNDS = {"y": (0, 1), "x": (0, 1), "g": ["a", "b"]}
FORMULA = "y ~ t | x + g"


def means(**change):
    arguments = {"n": 2000, "epsilon": 1, "bounds": {"y": (0, 1)}, "method": "diff_in_means"}
    return dpe.plan("y ~ t", **{**arguments, **change})


def test_noise_of_a_difference_in_means_is_the_closed_form():
    """Sums with noise of scale B / (0.55 eps) over arms of n / 2; no count noise at the middle."""
    scale = 1.0 / 0.55 / 1000
    assert means().rows[0].noise_sd == pytest.approx(math.sqrt(2 * 2 * scale**2), rel=0.02)


def test_half_width_is_that_of_a_z_interval_where_noise_is_negligible():
    row = means(epsilon=50, outcome_sd=0.2).rows[0]
    assert row.half_width == pytest.approx(1.96 * 0.2 * math.sqrt(2 / 1000), rel=0.05)
    assert row.detectable == pytest.approx((1.96 + 0.8416) * 0.2 * math.sqrt(2 / 1000), rel=0.05)


@pytest.mark.parametrize("method", ["diff_in_means", "private_ipw", "private_psm"])
def test_predicts_the_noise_of_real_runs(method):
    rng = np.random.default_rng(5)
    n = 3000
    x, g = rng.random(n), rng.choice(["a", "b"], n)
    t = rng.random(n) < 0.5
    y = np.clip(rng.normal(0.4, 0.15, n), 0, 1)
    data = pd.DataFrame({"y": y, "t": t, "x": x, "g": g})
    planned = dpe.plan(
        FORMULA, n=n, epsilon=1, bounds=BOUNDS, method=method, selection=0, outcome_mean=0.4
    )
    runs = [dpe.dp_ate(FORMULA, data, method, epsilon=1, bounds=BOUNDS, seed=s) for s in range(7)]
    real = math.sqrt(np.median([run.noise_variance for run in runs]))
    assert planned.rows[0].noise_sd == pytest.approx(real, rel=0.1)


def test_the_inverse_reaches_the_wanted_width():
    plan = means(repeats=3)
    epsilon = plan.needed(0.02)["epsilon"].iloc[0]
    assert means(repeats=3, epsilon=epsilon).rows[0].half_width <= 0.02 * 1.01
    assert means(repeats=3, epsilon=epsilon / 1.3).rows[0].half_width > 0.02
    n = plan.needed(0.01, of="n")["n"].iloc[0]
    assert means(repeats=3, n=int(n)).rows[0].half_width == pytest.approx(0.01, rel=0.05)
    assert math.isnan(plan.needed(1e-4)["epsilon"].iloc[0])  # sampling error alone is wider


def test_every_method_has_a_row_or_a_reason():
    plan = dpe.plan(FORMULA, n=400, epsilon=1, bounds=BOUNDS, repeats=2)
    rows = plan.tidy().set_index("method")
    exact = dpe.methods().query("guarantee == 'exact' and estimands != 'CATE'")
    assert set(rows.index) == set(exact["method"])
    assert "delta" in rows.loc["smooth_matching", "reason"]
    assert "discrete" in rows.loc["global_matching", "reason"]
    assert (rows["noise_sd"].notna() ^ (rows["reason"] != "")).all()
    text = str(plan)
    assert all(len(line) <= 80 for line in text.splitlines())
    spent = plan.shares_frame().groupby("method")["epsilon"].sum()
    assert np.allclose(spent, 1.0, atol=1e-6)


def test_the_plot_has_a_line_for_each_method():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    ax = means(repeats=2).plot(epsilons=(0.5, 2.0))
    (line,) = ax.get_lines()
    assert line.get_ydata()[0] > line.get_ydata()[1]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"bounds": None}, BoundsError, "declared bounds for y"),
        ({"bounds": "from_data"}, BoundsError, "no data"),
        ({"n": 2}, OptionError, "from 4"),
        ({"n": 10.5}, OptionError, "whole number"),
        ({"epsilon": 0}, BudgetError, "positive"),
        ({"treated": 1.5}, OptionError, "between 0 and 1"),
        ({"outcome_sd": 3}, OptionError, "outcome_sd"),
        ({"outcome_mean": 3}, OptionError, "outcome_mean"),
        ({"method": "nothing"}, OptionError, "unknown method"),
        ({"method": None, "arms": "public"}, OptionError, "method"),
        ({"estimand": "ATT"}, OptionError, "ATE"),
    ],
)
def test_mistakes_are_named(change, error, words):
    with pytest.raises(error, match=words):
        means(**change)


GROUPED = {"y": (0, 1), "x": (0, 1), "g": ["a", "b", "c"]}


def test_conditional_effects_are_planned_like_averages():
    given = {"epsilon": 1, "delta": 1e-6, "release": "groups", "by": "g"}
    trial = {"estimand": "CATE", "selection": 0, "repeats": 5}
    plan = dpe.plan("y ~ t | x + g", n=4000, bounds=GROUPED, **trial, **given)
    rows = plan.tidy().set_index("method")
    assert {"r_learner", "dr_learner"} <= set(rows.index[rows["reason"] == ""])
    assert "release" in rows.loc["sample_aggregate", "reason"]
    halves = []
    for seed in range(5):
        rng = np.random.default_rng(seed + 50)
        data = pd.DataFrame({"x": rng.random(4000), "g": rng.choice(list("abc"), 4000)})
        data["t"] = rng.random(4000) < 0.5
        data["y"] = np.clip(rng.normal(0.5, 1 / 6, 4000), 0, 1)
        fit = dpe.dp_cate("y ~ t | x + g", data, bounds=GROUPED, seed=seed, **given).tidy()
        halves += ((fit["conf_high"] - fit["conf_low"]) / 2.0).tolist()
    assert rows.loc["dr_learner", "half_width"] == pytest.approx(np.median(halves), rel=0.2)


def test_a_plan_of_points_has_noise_only():
    at = {"x": [0.2, 0.8], "g": ["a", "b"]}
    given = {"estimand": "CATE", "method": "r_learner", "release": "points", "at": at}
    (row,) = dpe.plan("y ~ t | x + g", n=900, epsilon=1, bounds=GROUPED, repeats=2, **given).rows
    assert row.noise_sd > 0
    assert np.isnan(row.half_width)
