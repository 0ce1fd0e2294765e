"""Tables and studies where covariates act by a product, or ranges are far too wide."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe

N = 20_000
TIGHT = {"x1": (-4, 4), "x2": (-4, 4)}
SEEDS = range(5)


def people(n=N, product=0.8, line=0.0, seed=1):
    """The product of two columns, or one of them, moves treatment and everything that follows."""
    rng = np.random.default_rng(seed)
    x1, x2 = np.clip(rng.normal(size=(2, n)), -4, 4)
    odds = product * np.clip(x1 * x2, -3, 3) + line * x1
    t = (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(int)
    time = rng.exponential(size=n) / np.exp(-0.5 + 0.7 * odds - 0.3 * t)
    data = {"t": t, "x1": x1, "x2": x2, "time": time, "died": 1}
    data["y"] = 10 + 2 * odds + t + rng.normal(size=n)
    data["grade"] = np.digitize(data["y"], [8.0, 10.0, 12.0])
    data["events"], data["years"] = rng.poisson(np.exp(-0.5 + 0.5 * odds - 0.3 * t)), 1.0
    return pd.DataFrame(data), odds


def survival(data, **more):
    formula, given = "Surv(time, died) ~ t | x1 + x2", {"horizon": 1.0, "bins": 8}
    return dpe.dp_survival(formula, data, **given, **more)


def lived(odds, t):
    """Mean time until 1 with and without treatment."""
    rate = np.exp(-0.5 + 0.7 * odds - 0.3 * t)
    return float(np.mean(-np.expm1(-rate) / rate))


def runs(data, **more):
    """Differences of restricted means, and their intervals, over seeds."""
    found = []
    for seed in SEEDS:
        fit = survival(data, bounds=TIGHT, epsilon=1.0, seed=seed, **more)
        row = fit.tidy().set_index("term").loc["rmst_difference"]
        found.append(row[["estimate", "conf_low", "conf_high"]].astype(float))
    return np.array(found).T


@pytest.mark.sampled(2)
@pytest.mark.parametrize("level", ["sample", "label"])
def test_a_product_that_confounds_survival_is_adjusted_for(level):
    data, odds = people()
    truth = lived(odds, 1) - lived(odds, 0)
    lines, _, _ = runs(data, level=level, flexible=0)
    value, low, high = runs(data, level=level)
    assert abs(lines.mean() - truth) > 0.06
    assert abs(value.mean() - truth) < 0.2 * abs(lines.mean() - truth)
    assert ((low <= truth) & (truth <= high)).all()


def test_quantiles_levels_and_rates_are_adjusted_for_it_too():
    data, odds = people()
    given = {"epsilon": 2.0, "seed": 1}
    bounds = TIGHT | {"y": (-10, 30), "grade": [0, 1, 2, 3], "events": (0, 10), "years": (0, 1)}
    rate = float(np.expm1(-0.3) * np.exp(-0.5 + 0.5 * odds).mean())
    cells = {
        "y": (dpe.dp_qte, {"quantiles": 0.5}, "quantile 0.5", 1.0),
        "events": (dpe.dp_rate, {"offset": "years"}, "rate_difference", rate),
    }
    for name, (call, own, term, truth) in cells.items():
        own = own | given | {"bounds": bounds}
        off = []
        for flexible in (0, None):
            fit = call(f"{name} ~ t | x1 + x2", data, **own, flexible=flexible)
            off.append(abs(fit.tidy().set_index("term").loc[term, "estimate"] - truth))
        assert off[1] < 0.35 * off[0], name
    fits = [
        dpe.dp_ordinal("grade ~ t | x1 + x2", data, bounds=bounds, flexible=x, **given)
        for x in (0, None)
    ]
    superior = [fit.tidy().set_index("term").loc["probability_higher", "estimate"] for fit in fits]
    assert superior[1] < superior[0] - 0.05


def test_a_study_is_not_worse_where_ranges_are_far_too_wide():
    data, _ = people(10_000, product=0.0, line=1.0)
    wide = {"y": (0, 20), "x1": (-20, 20), "x2": (-20, 20)}
    fits = [
        dpe.dp_study("y ~ t | x1 + x2", data, bounds=wide, epsilon=1.0, seed=seed) for seed in SEEDS
    ]
    crude = float(data.groupby("t")["y"].mean().diff()[1]) - 1.0
    assert crude > 1.0
    assert abs(np.mean([fit.estimates[0] for fit in fits]) - 1.0) < 0.15 * crude
    ends = np.array([fit.conf_int()[0] for fit in fits])
    assert ((ends[:, 0] <= 1.0) & (ends[:, 1] >= 1.0)).all()


def test_first_lines_say_what_is_left_out_and_details_what_was_added():
    data, _ = people()
    few = survival(data[:800], bounds=TIGHT, epsilon=1.0, seed=1)
    assert str(few.summary()).index("Linear terms only") < str(few.summary()).index(
        "risk difference"
    )
    assert "terms added" not in few.details
    some = survival(data[:1200], bounds=TIGHT, epsilon=1.0, seed=1)
    assert "No interactions" in some.warnings
    assert some.details["terms added"] == "2 squares"
    many = survival(data, bounds=TIGHT, epsilon=1.0, seed=1)
    assert "Functional form" in many.warnings
    assert many.details["terms added"] == "2 squares, 1 product"
    for more in ({"flexible": 0}, {"design": "randomised"}):
        quiet = survival(data[:800], bounds=TIGHT, epsilon=1.0, seed=1, **more)
        assert "Linear terms only" not in quiet.warnings
