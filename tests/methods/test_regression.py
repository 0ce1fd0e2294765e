"""Regression by arm: against least squares without noise, and where it gives way to one_step."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpeffects as dpe

BOUNDS = dict.fromkeys(("y", "x1", "x2"), (0, 1))
FORMULA = "y ~ t | x1 + x2"
CALLS = {"ATE": dpe.dp_ate, "ATT": dpe.dp_att, "ATC": dpe.dp_atc}


def sample(n=20_000, seed=1, arms=2):
    """Outcomes and log odds bend, effects vary along a square."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 2))
    odds = np.exp(np.outer(4.0 * (x[:, 0] - 0.5) * (x[:, 1] - 0.5) + x[:, 0], np.arange(arms)))
    arm = (rng.random(n)[:, None] > np.cumsum(odds, axis=1) / odds.sum(axis=1)[:, None]).sum(axis=1)
    y = 0.3 + 0.4 * (x[:, 0] - 0.5) * (x[:, 1] - 0.5) + arm * (0.05 + 0.1 * x[:, 0] ** 2)
    return pd.DataFrame(x, columns=["x1", "x2"]).assign(
        t=arm, y=np.clip(y + 0.1 * rng.standard_normal(n), 0, 1), u=np.arange(n) // 2
    )


def fit(frame, estimand="ATE", **given):
    given = {"epsilon": 2.0, "bounds": BOUNDS, "seed": 1} | given
    return CALLS[estimand](FORMULA, frame, given.pop("method", "regression"), **given)


def by_arm(frame, who, arm=1, other=0):
    """Mean over some records of what two regressions predict, and its standard error."""
    x1, x2 = frame["x1"], frame["x2"]
    design = np.column_stack([np.ones(len(frame)), x1, x2, x1**2, x2**2, x1 * x2])
    mean, total, spread = design[who].mean(axis=0), 0.0, 0.0
    for sign, one in ((1.0, arm), (-1.0, other)):
        own = (frame["t"] == one).to_numpy()
        least = sm.OLS(frame["y"][own], design[own]).fit(cov_type="HC0")
        total += sign * mean @ least.params
        spread += mean @ least.cov_params() @ mean
    return total, math.sqrt(spread)


def charged(made):
    return sum((Fraction(charge.epsilon) for charge in made.charges), Fraction())


@pytest.mark.parametrize("estimand", CALLS)
def test_with_hardly_any_noise_it_is_least_squares_in_each_arm(estimand):
    frame = sample()
    treated = frame["t"].to_numpy() == 1
    value, error = by_arm(frame, {"ATT": treated, "ATC": ~treated}.get(estimand, slice(None)))
    made = fit(frame, estimand, epsilon=1e6, variance=False)
    assert abs(frame.groupby("t")["y"].mean().diff().iloc[-1] - value) > 5 * error
    assert made.estimate == pytest.approx(value, abs=0.6 * error)
    assert fit(frame, estimand, epsilon=1e6).std_error == pytest.approx(error, rel=0.2)
    assert made.released.details["terms added"] == "2 squares, 1 product"


def test_several_arms_have_a_draw_each():
    frame = sample(60_000, arms=3)
    bounds = BOUNDS | {"t": [0, 1, 2]}
    made = fit(frame, bounds=bounds, epsilon=50.0, contrasts="pairwise")
    values, errors = np.transpose(
        [by_arm(frame, slice(None), *pair) for pair in ((1, 0), (2, 0), (2, 1))]
    )
    assert np.abs(made.estimates - values).max() < 1.5 * errors.max()
    assert [charge.share for charge in made.charges].count("estimate") == 3
    assert charged(made) <= 50
    with_means = fit(frame, bounds=bounds, epsilon=50.0, means=True, method="auto")
    assert with_means.options["chosen"] == "one_step"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "given", [{"weights": "w"}, {"unit": "u", "max_rows": 2}, {"cluster": "u"}]
)
@pytest.mark.parametrize("method", ["regression", "auto"])
def test_rows_that_do_not_count_alike_have_one_step(given, method):
    frame = sample().assign(w=np.where(np.arange(20_000) % 2, 0.5, 1.0))
    bounds = BOUNDS | ({"w": (0, 1)} if "weights" in given else {})
    made = fit(frame, method=method, bounds=bounds, **given)
    assert "moments" in {charge.label for charge in made.charges}
    assert math.isfinite(made.std_error)
    assert charged(made) <= 2


def test_records_that_do_not_carry_it_have_one_step_with_what_is_left():
    ledger = dpe.Ledger(3, delta=1e-6)
    made = fit(sample(1000), ledger=ledger, delta=1e-6, model_share=0.3)
    assert [charge.share for charge in made.charges].count("count") == 2
    assert "moments" in {charge.label for charge in made.charges}
    assert made.guarantee.epsilon == 2
    assert made.guarantee.delta == 1e-6
    assert charged(made) == pytest.approx(2, rel=1e-9)
    assert ledger.spent[0] <= 2
    rare = sample()
    rare.loc[200:, "t"] = 0
    assert "moments" in {charge.label for charge in fit(rare, method="auto").charges}


def few(arms=2):
    """Hardly anybody is treated."""
    frame = sample(arms=arms)
    return frame.assign(t=frame["t"].where(frame.index < 600 * (arms - 1), 0))


def alike():
    """Columns that say nearly the same."""
    frame = sample()
    return frame.assign(x2=frame["x1"] + 1e-4 * frame["x2"])


ARMS = {"t": [0, 1, 2]}
STAND_INS = [
    *((few, {}, estimand, {}) for estimand in CALLS),
    (alike, {}, "ATT", {}),
    (lambda: few(3), ARMS, "ATE", {"contrasts": "pairwise"}),
    (few, {}, "ATE", {"by": {"low": "x1 < 0.5", "high": "x1 >= 0.5"}}),
    (few, {}, "ATE", {"cluster": "u"}),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("method", ["regression", "auto"])
@pytest.mark.parametrize(("frame", "bounds", "estimand", "more"), STAND_INS)
def test_words_are_those_of_the_method_that_estimated(frame, bounds, estimand, more, method):
    made = fit(frame(), estimand, method=method, bounds=BOUNDS | bounds, **more)
    there = fit(frame(), estimand, method="one_step", bounds=BOUNDS | bounds, **more)
    assert made.method == method
    assert (made.method_title, made.citation) == (there.method_title, there.citation)
    assumes = [dict(x.summary().blocks[0].rows)["Assumes"] for x in (made, there)]
    # of how few records effects may be missed follows from what is left of the budget
    assert re.sub(r"\d+ of", "", assumes[0]) == re.sub(r"\d+ of", "", assumes[1])
    for words in map(str, (made.summary(), made.report())):
        assert "regression by arm" not in words
        assert "regression was chosen" not in words
    assert type(made).from_json(made.to_json()) == made


def test_what_a_caller_may_choose():
    frame = sample()
    assert fit(frame, design="randomised").released.identification == "randomised"
    assert "terms added" not in fit(frame, flexible=0).released.details
    kept = fit(frame, subset="x1 > 0.1", budget_split={"estimate": 0.8})
    assert {"estimate", "size"} <= {charge.share for charge in kept.charges}
    assert charged(kept) <= 2
    assert math.isfinite(fit(frame, missing="weight", method="auto").std_error)
