"""DP-EBM: what the library is given, how its numbers are read, what comes out."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import OptionError
from dpeffects.privacy.budget import Share
from dpeffects.replication.unproved import boosting
from dpeffects.replication.unproved.boosting import price_of_presence
from dpeffects.seeded import SeededNoise

interpret = pytest.importorskip("interpret.privacy")

FORMULA = "y ~ t | x + g"
BOUNDS = {"y": (0, 10), "x": (-1, 1), "g": ["a", "b", "c"]}
CALL = {"delta": 1e-5, "bounds": BOUNDS, "accept_library": True}


def frame(n=300, seed=0, effect=2.0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    t = rng.random(n) < 0.5 + 0.35 * x
    y = np.clip(4 + 2 * x + effect * t + rng.normal(0, 0.5, n), 0, 10)
    return pd.DataFrame({"y": y, "t": t, "x": x, "g": rng.choice(list("abc"), n)})


class Recording:
    """Stands for the library's models: keeps what it is given, and fits nothing."""

    given: ClassVar[list] = []

    def __init__(self, **asked):
        self.asked = asked

    def fit(self, features, target):
        Recording.given.append((self.asked, features, target))
        width = features.shape[1]
        self.intercept_ = 0.5
        self.bins_ = [[np.array([0.05, 0.5])]] * width
        self.term_scores_ = [np.array([0.0, -0.1, 0.0, 0.1, 0.0])] * width
        self.bin_weights_ = [np.array([0.0, 1.0, 2.0, 3.0, 0.0])] * width


@pytest.fixture
def given(monkeypatch):
    Recording.given = []
    monkeypatch.setattr(boosting, "_models", lambda: (Recording, Recording))
    return Recording.given


@pytest.mark.parametrize("learner", ["s", "t", "dr", "r"])
def test_everything_is_declared_and_the_price_is_covered(given, learner):
    fit = dpe.dp_ate(FORMULA, frame(), "dp_ebm", epsilon=1.0, learner=learner, **CALL)
    assert len(given) == len(fit.charges)
    for (asked, features, target), charge in zip(given, fit.charges, strict=True):
        width = features.shape[1]
        assert asked["feature_types"] == ["continuous"] * width
        np.testing.assert_array_equal(asked["privacy_bounds"], [[0.0, 1.0]] * width)
        assert asked["random_state"] is None
        assert features.min() >= 0.0
        assert features.max() <= 1.0
        if "privacy_target_min" in asked:
            assert len(features) == 300
            assert asked["privacy_target_min"] <= target.min()
            assert target.max() <= asked["privacy_target_max"]
        else:
            assert len(features) == 302
            assert set(target[-2:]) == {0, 1}
        e, d = asked["epsilon"], asked["delta"]
        assert 2 * e <= charge.epsilon
        assert (1 + math.exp(e)) * d <= charge.delta


@pytest.mark.parametrize("learner", ["s", "t", "dr", "r"])
def test_a_record_changes_its_own_row_only(given, learner):
    """A seed puts both tables into the same order."""
    data, other = frame(), frame()
    other.loc[7, ["y", "x"]] = [50.0, -3.0]
    other.loc[7, "t"] = not other.loc[7, "t"]
    for each in (data, other):
        dpe.dp_ate(FORMULA, each, "dp_ebm", epsilon=1.0, learner=learner, seed=1, **CALL)
    half = len(given) // 2
    for one, two in zip(given[:half], given[half:], strict=True):
        assert str(one[0]) == str(two[0])
        moved = (one[1] != two[1]).any(axis=1) | (one[2] != two[2])
        assert moved.sum() <= 1


def test_thinning_does_what_weights_do(given):
    """Sorted records too: a mean over those that stay is the mean weighted by (t - e)^2."""
    data = frame(20_000).sort_values(["t", "x"]).reset_index(drop=True)
    dpe.dp_ate(FORMULA, data, "dp_ebm", epsilon=1.0, learner="r", seed=1, **CALL)
    data = data.iloc[SeededNoise(1).permutation(len(data))].reset_index(drop=True)
    _, features, target = given[-1]
    stays = features[:, 0] > 0.0
    x = data["x"].to_numpy()
    e = 1 / (1 + np.exp(-predicted(x, data["g"])))
    weights = (data["t"] - e) ** 2
    assert stays.mean() == pytest.approx((weights / 0.9**2).mean(), abs=0.01)
    assert x[stays].mean() == pytest.approx(np.average(x, weights=weights), abs=0.03)
    ratio = (data["y"] / 10 - predicted(x, data["g"])) / (data["t"] - e)
    np.testing.assert_allclose(target[stays], ratio[stays], atol=1e-9)


def predicted(x, g):
    """What the models of Recording say: 0.5 and, for each column, -0.1, 0 or 0.1 by its cuts."""
    columns = [(x + 1) / 2, g == "b", g == "c"]
    return 0.5 + sum(np.select([c < 0.05, c < 0.5], [-0.1, 0.0], 0.1) for c in columns)


def test_two_steps_of_presence_are_one_replacement():
    """For the mechanism that attains (e, d) exactly, twice in a row, the price is attained too."""
    price = Share(1.3, 1e-3)
    e, d = price_of_presence(price)
    # P(event) = exp(e) P'(event) + d in both steps
    last = 0.01
    first = math.exp(e) * (math.exp(e) * last + d) + d
    assert first == pytest.approx(math.exp(price.epsilon) * last + price.delta, rel=1e-9)


def test_released_numbers_predict_as_the_library_does():
    rng = np.random.default_rng(1)
    x = rng.random((2000, 3))
    y = np.clip(0.5 * x[:, 0] + 0.3 * (x[:, 1] > 0.5) + 0.1 * rng.random(2000), 0, 1)
    kept = []

    class Kept(interpret.DPExplainableBoostingRegressor):
        def fit(self, features, target):
            kept.append(super().fit(features, target))
            return self

    original = boosting._models
    boosting._models = lambda: (Kept, None)
    try:
        model = boosting._fitted((0.0, 1.0), x, y, Share(20.0, 1e-5), 3)
    finally:
        boosting._models = original
    new = rng.random((500, 3))
    np.testing.assert_allclose(model(new), kept[0].predict(new), atol=1e-12)
    low, high = model.extremes()
    assert low <= model(new).min() <= model(new).max() <= high


@pytest.mark.sampled(5)
@pytest.mark.parametrize("learner", ["s", "t", "dr", "r"])
def test_a_large_effect_is_found_where_the_budget_is_large(learner):
    """The naive difference is 2.8.

    The library's noise is Gaussian and moves these estimates, at most 0.23 off on average, by at
    most 0.05: 0.6 is seven standard deviations away, a chance below 1e-11.
    """
    fit = dpe.dp_ate(FORMULA, frame(4000), "dp_ebm", epsilon=1000.0, learner=learner, **CALL)
    assert fit.estimate == pytest.approx(2.0, abs=0.6)
    assert fit.guarantee.status == "library"
    assert "not available" in str(fit.conf_int())
    assert " nan" not in str(fit.summary())


def test_a_seed_repeats_it_and_voids_it():
    fits = [dpe.dp_ate(FORMULA, frame(), "dp_ebm", epsilon=2.0, seed=s, **CALL) for s in (1, 1, 2)]
    assert fits[0].estimate == fits[1].estimate != fits[2].estimate
    assert fits[0].guarantee.status.startswith("void: seeded")


def test_residuals_beyond_the_range_are_shown():
    fit = dpe.dp_ate(FORMULA, frame(100), "dp_ebm", epsilon=0.2, seed=1, **CALL)
    assert fit.released.details["largest residual, in ranges"] > 1
    assert "RESIDUALS BEYOND THE RANGE" in str(fit.summary())


def test_effects_at_points_follow_a_curve():
    """Effects are -1.5, -0.2 and 2.2 with noise of 0.07: seven of these to each limit, 1e-11."""
    rng = np.random.default_rng(5)
    data = frame(6000, effect=0.0)
    data["t"] = rng.random(6000) < 0.5
    data["y"] = np.clip(4 + 3 * data["x"] * data["t"] + rng.normal(0, 0.3, 6000), 0, 10)
    at = {"x": [-0.8, 0.0, 0.8], "g": ["a", "b", "c"]}
    fit = dpe.dp_cate(
        FORMULA, data, "dp_ebm", release="points", at=at, learner="t", epsilon=1000.0, **CALL
    )
    low, middle, high = (effect.value for effect in fit.effects)
    assert -3.0 < low < -1.0  # -2.4, less what 300 small steps have not learnt yet
    assert middle == pytest.approx(0.0, abs=0.8)
    assert 1.0 < high < 3.0
    assert fit.guarantee.status == "library"
    assert " nan" not in str(fit.summary())


def test_opt_in_and_options():
    call = {"epsilon": 1.0, "delta": 1e-5, "bounds": BOUNDS}
    at = {"x": [0.0], "g": ["a"]}
    with pytest.raises(OptionError, match="accept_library=True"):
        dpe.dp_ate(FORMULA, frame(), "dp_ebm", **call)
    with pytest.raises(OptionError, match="accept_library=True"):
        dpe.dp_cate(FORMULA, frame(), "dp_ebm", release="points", at=at, **call)
    with pytest.raises(OptionError, match="points"):
        dpe.dp_cate(FORMULA, frame(), "dp_ebm", accept_library=True, **call)
    with pytest.raises(OptionError, match="learner must be one of s, t, dr, r"):
        dpe.dp_ate(FORMULA, frame(), "dp_ebm", learner="x", accept_library=True, **call)
    with pytest.raises(OptionError, match="delta"):
        dpe.dp_ate(FORMULA, frame(), "dp_ebm", epsilon=1.0, bounds=BOUNDS, accept_library=True)
