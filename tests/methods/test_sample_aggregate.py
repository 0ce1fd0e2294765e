"""Sample and aggregate: against computations by hand, models of all kinds, coverage, bad input."""

from __future__ import annotations

import json
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpeffects as dpe
from dpeffects.errors import OptionError
from dpeffects.replication.sample_aggregate import default_blocks
from dpeffects.seeded import SeededNoise
from tests.calls import Call
from tests.methods.test_private_ipw import BOUNDS, DOORS, FORMULA, frame
from tests.plain import plain
from tests.refused import refusals


def run(data=None, estimand="ATE", **more):
    more = {"epsilon": 1.0, "bounds": BOUNDS, "seed": 1, "method": "sample_aggregate", **more}
    return DOORS[estimand](FORMULA, frame() if data is None else data, **more)


# --- against computations by hand -------------------------------------------------------------


def by_hand(data, estimand, estimator, clip=0.05):
    """The effect in one block, from statsmodels' models."""
    x = sm.add_constant(data[["x1", "x2"]].to_numpy())
    t, y = data["t"].to_numpy(), data["y"].to_numpy(dtype=float)
    e = np.clip(sm.Logit(t.astype(float), x).fit(disp=0).predict(x), clip, 1 - clip)
    m1, m0 = (sm.OLS(y[arm], x[arm]).fit().predict(x) for arm in (t, ~t))
    if estimator == "ipw":
        m1 = m0 = np.zeros(len(y))
    own = {"ATE": np.ones(len(y)), "ATT": t, "ATC": ~t}[estimand]
    target = {"ATE": 1.0, "ATT": e, "ATC": 1.0 - e}[estimand]
    value = np.average(m1 - m0, weights=own)
    if estimator != "regression":
        value += np.average((y - m1)[t], weights=(target / e * np.ones(len(y)))[t])
        value -= np.average((y - m0)[~t], weights=(target / (1 - e) * np.ones(len(y)))[~t])
    return value


def dealt(data, blocks, seed=1):
    """The blocks of a call with a seed: records in its secret order, dealt in turn."""
    ordered = data.iloc[SeededNoise(seed).permutation(len(data))]
    return [ordered.iloc[k::blocks] for k in range(blocks)]


@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
@pytest.mark.parametrize("estimator", ["aipw", "ipw", "regression"])
def test_against_statsmodels_at_huge_epsilon(estimand, estimator):
    data, blocks = frame(1500), 10
    expected = [by_hand(block, estimand, estimator) for block in dealt(data, blocks)]
    fit = run(data, estimand, epsilon=1e7, blocks=blocks, estimator=estimator)
    error = np.std(expected, ddof=1) / np.sqrt(blocks)
    assert fit.estimate == pytest.approx(np.mean(expected), abs=0.02 * error)
    assert fit.std_error == pytest.approx(error, rel=0.02)


@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
def test_plain_scikit_learn_models_are_what_they_are(estimand):
    """Without a penalty and without folds the same as by hand, to rounding."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    data, blocks = frame(1500), 10
    expected = [by_hand(block, estimand, "aipw") for block in dealt(data, blocks)]
    logistic = linear_model.LogisticRegression(C=1e8, tol=1e-10, max_iter=10_000)
    fit = run(
        data,
        estimand,
        epsilon=1e7,
        blocks=blocks,
        crossfit=False,
        outcome=linear_model.LinearRegression(),
        propensity=logistic,
    )
    assert fit.estimate == pytest.approx(np.mean(expected), abs=1e-5)


@pytest.mark.parametrize("estimator", ["aipw", "ipw", "regression"])
@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
def test_the_reference_is_the_estimator_on_all_records(estimand, estimator):
    data = frame(3000)
    found = plain(
        FORMULA, data, "sample_aggregate", estimand=estimand, estimator=estimator, bounds=BOUNDS
    )
    assert found.estimate == pytest.approx(by_hand(data, estimand, estimator), abs=1e-4)
    method = "private_ipw" if estimator == "ipw" else "auto"
    peer = plain(FORMULA, data, method, estimand=estimand, bounds=BOUNDS)
    assert found.std_error == pytest.approx(peer.std_error, rel=0.15)


def test_a_narrow_range_clips_blocks_and_lowers_noise():
    wide, narrow = run(), run(effect_range=(-0.2, 0.2))
    assert narrow.released.laplace[0] == pytest.approx(wide.released.laplace[0] / 5)
    assert narrow.noise_variance < wide.noise_variance / 10
    assert run(epsilon=1e6, effect_range=(0.3, 0.4)).estimate == pytest.approx(0.3, abs=0.02)
    assert run(epsilon=1e6, effect_range=[0, 0.4]).options["effect_range"] == (0.0, 0.4)


def test_delta_buys_gaussian_noise_only_where_it_is_smaller():
    fit = run(epsilon=0.05, delta=0.2)
    assert {s.mechanism for s in fit.charges} == {"discrete Gaussian"}
    assert fit.released.gaussian == pytest.approx(fit.noise_variance)
    assert fit.conf_int().lower < fit.estimate < fit.conf_int().upper
    assert {s.mechanism for s in run(delta=1e-6).charges} == {"discrete Laplace"}


# --- intervals --------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("epsilon", "binary", "estimand"),
    [(1.0, False, "ATE"), (5.0, True, "ATE"), (1e6, False, "ATC")],
)
def test_intervals_cover(epsilon, binary, estimand):
    """Wide limits for few runs."""
    truth = 0.1 if estimand == "ATE" else 0.1 * (1 - 2 * 0.0488)  # x1 is lower among controls
    hits = []
    for seed in range(40):
        fit = run(frame(1000, seed, binary=binary), estimand, seed=seed, epsilon=epsilon)
        hits.append(fit.conf_int().lower <= truth <= fit.conf_int().upper)
    assert 0.84 <= np.mean(hits) <= 1.0


def test_confounding_is_removed():
    data = frame(20_000)
    naive = data["y"][data["t"]].mean() - data["y"][~data["t"]].mean()
    assert abs(run(data, epsilon=20).estimate - 0.1) < 0.2 * abs(naive - 0.1)


def test_estimands_differ_where_effects_do():
    data = frame(40_000)
    att, ate, atc = (run(data, e, epsilon=100).estimate for e in ("ATT", "ATE", "ATC"))
    assert att > ate > atc


# --- models -----------------------------------------------------------------------------------


def models():
    ensemble = pytest.importorskip("sklearn.ensemble")
    linear_model = pytest.importorskip("sklearn.linear_model")
    pipeline = pytest.importorskip("sklearn.pipeline")
    scaler = pytest.importorskip("sklearn.preprocessing").StandardScaler
    logistic = linear_model.LogisticRegression()
    return {
        "forest": (ensemble.RandomForestRegressor(n_estimators=5), logistic),
        "boosting": (
            ensemble.GradientBoostingRegressor(n_estimators=10),
            ensemble.GradientBoostingClassifier(n_estimators=5),
        ),
        "histogram boosting": (
            ensemble.HistGradientBoostingRegressor(max_iter=5),
            ensemble.RandomForestClassifier(n_estimators=5),
        ),
        "ridge": (linear_model.Ridge(0.1), logistic),
        "pipeline": (pipeline.make_pipeline(scaler(), linear_model.Ridge()), logistic),
        "search": (linear_model.RidgeCV(), None),
        "propensity only": (None, logistic),
    }


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "name",
    ["forest", "boosting", "histogram boosting", "ridge", "pipeline", "search", "propensity only"],
)
def test_scikit_learn_models(name):
    outcome, propensity = models()[name]
    given = {"outcome": outcome, "propensity": propensity, "blocks": 11, "epsilon": 1e5}
    fit = run(frame(1500), **given)
    assert fit.estimate == pytest.approx(0.1, abs=0.05)
    assert fit.options["crossfit"] is True
    again = run(frame(1500), **given)
    assert fit.to_dict() == again.to_dict()  # the seed repeats models without a random_state too
    assert not hasattr(outcome, "feature_importances_")
    assert not hasattr(propensity, "coef_")  # what the user holds stays unfitted


def test_a_classifier_for_a_binary_outcome():
    linear_model = pytest.importorskip("sklearn.linear_model")
    data = frame(6000, binary=True)
    fit = run(data, epsilon=1e5, outcome=linear_model.LogisticRegression(C=100), blocks=30)
    target = plain(FORMULA, data, "auto", bounds=BOUNDS)
    assert fit.estimate == pytest.approx(target.estimate, abs=target.std_error)
    labels = data.assign(y=np.where(data["y"], 5.0, 2.0))
    bounds = {**BOUNDS, "y": (2, 5)}
    model = linear_model.LogisticRegression(C=100)
    scaled = run(labels, epsilon=1e5, outcome=model, blocks=30, bounds=bounds)
    assert scaled.estimate == pytest.approx(3 * fit.estimate, abs=1e-3)


class Spy:
    """A regressor that keeps what it has learnt and refuses to predict it."""

    log: list[int] = []  # noqa: RUF012

    def fit(self, rows, target):
        self.known = {tuple(row) for row in rows}
        self.log.append(len(rows))
        self.mean = target.mean()
        return self

    def predict(self, rows):
        assert not self.known & {tuple(row) for row in rows}
        return np.full(len(rows), self.mean)


def test_models_predict_only_what_they_have_not_seen():
    Spy.log.clear()
    fit = run(frame(600), outcome=Spy(), blocks=5, epsilon=1e5)
    assert fit.estimate == pytest.approx(0.1, abs=0.05)
    assert len(Spy.log) == 6 * 4  # five blocks and the made-up one, two halves, two arms
    assert sum(Spy.log) == 600 + 120
    with pytest.raises(OptionError, match="made-up"):
        run(frame(600), outcome=Spy(), blocks=5, crossfit=False)
    with pytest.raises(OptionError, match="made-up"):
        run(frame(600), outcome=Spy(), blocks=5, estimator="regression")


@pytest.mark.parametrize("period", [2, 3, 4, 6])
def test_patterns_in_the_order_of_the_records_do_no_harm(period):
    """Pairs of treated and control, say: a prime number of blocks mixes them."""
    data = frame(9000)
    treated, control = data[data["t"]], data[~data["t"]]
    n = 3000 // period * period
    arm = np.arange(n) % period == 0
    rows = pd.concat([treated[: arm.sum()], control[: n - arm.sum()]])
    place = np.empty(n, dtype=int)
    place[arm], place[~arm] = np.arange(arm.sum()), np.arange(arm.sum(), n)
    ordered = rows.iloc[place].reset_index(drop=True)
    assert (ordered["t"].to_numpy() == arm).all()
    for crossfit in (False, True):
        fit = run(ordered, epsilon=1e5, crossfit=crossfit)
        assert fit.estimate == pytest.approx(0.1, abs=0.06)


def test_blocks_that_lack_an_arm_are_left_out():
    """By hand: the mean over the others. With the middle for them, most of the effect was lost."""
    rng = np.random.default_rng(0)
    data = frame(4000).assign(t=rng.random(4000) < 0.02)
    blocks = dealt(data, 100)
    both = [block for block in blocks if 0 < block["t"].sum() < len(block)]
    assert 40 < len(both) < 70
    fit = run(data, blocks=100, epsilon=1e6, estimator="ipw", effect_range=(-0.4, 0.8))
    assert fit.details["blocks with both arms (noisy)"] == str(len(both))
    assert fit.warnings.startswith("Too few treated records: about 0.")
    # with one or two treated records in a block, weights are all but equal
    differences = [b["y"][b["t"]].mean() - b["y"][~b["t"]].mean() for b in both]
    assert fit.estimate == pytest.approx(np.mean(differences), abs=0.02)
    assert "left out" in " ".join(str(fit.summary()).split())


def test_blocks_are_sized_by_the_released_smaller_arm():
    rng = np.random.default_rng(1)
    sizes = {}
    for share in (0.05, 0.5, 0.95):
        data = frame(8000).assign(t=rng.random(8000) < share)
        fit = run(data, epsilon=2.0)
        sizes[share] = 8000 / fit.details["blocks"]
        assert fit.details["blocks"] * 5 <= 1.05 * 8000 * min(share, 1 - share)
        assert fit.estimate_warnings == ""
        assert [charge.share for charge in fit.charges] == ["check_bounds", "count", "estimate"]
        again = run(data.sample(frac=1.0, random_state=2), epsilon=2.0)
        assert again.details["treated, control records (noisy)"]
    assert sizes[0.05] > 4 * sizes[0.5]
    assert sizes[0.95] > 4 * sizes[0.5]


@pytest.mark.long
def test_few_treated_are_covered():
    """A tenth of the records is treated; the middle for blocks without them cost the coverage."""
    hits = []
    for seed in range(25):
        data = frame(3000, seed)
        keep = data["t"].to_numpy() & (np.random.default_rng(seed).random(3000) < 0.15)
        data = data[keep | ~data["t"]]
        fit = run(data, seed=seed, epsilon=4.0)
        hits.append(fit.conf_int().lower <= 0.1 <= fit.conf_int().upper)
    assert np.mean(hits) >= 0.88


def test_nothing_but_noise_is_refused_before_the_charge():
    for method, given in (
        ("sample_aggregate", {}),
        ("sample_aggregate", {"blocks": 5}),
        ("model_folds", {}),
    ):
        ledger = dpe.Ledger(1.0)
        with pytest.raises(OptionError, match="nothing was charged"):
            run(frame(300), epsilon=0.03, ledger=ledger, method=method, **given)
        assert ledger.charges == ()


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert np.isfinite(run().estimate)
    assert np.isfinite(run(outcome=Spy(), blocks=20).estimate)
    with pytest.raises(OptionError, match=r'pip install "dpeffects\[cate\]"'):
        run(outcome="RandomForestRegressor")


# --- neighbours -------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["forest", "boosting", "ridge"])
@pytest.mark.parametrize("unordered", [False, True])
def test_replay_on_neighbours(name, unordered):
    """The contract's replay, for models of several kinds."""
    outcome, propensity = models()[name]
    given = {"outcome": outcome, "propensity": propensity, "blocks": 4, "epsilon": 2.0}
    largest = 0.0
    for k, pair in enumerate(("far outside the bounds", "duplicates", "separated arms")):
        function = "dp_att" if k % 2 else "dp_ate"
        found = Call(function, "sample_aggregate", given=given).replay(pair, "", unordered, k)
        assert not found.violations
        largest = max(largest, found.largest)
    assert 0.01 < largest <= 1.0


# --- what a result shows ----------------------------------------------------------------------


def test_learners_are_shown_by_a_short_text():
    outcome, propensity = models()["pipeline"]
    fit = run(outcome=outcome, propensity=propensity, blocks=20)
    shown = json.loads(fit.to_json())["options"]
    assert shown["propensity"] == "LogisticRegression()"
    assert shown["outcome"].startswith("Pipeline(steps=[('standardscaler', StandardScaler())")
    assert len(shown["outcome"]) <= 60
    text = " ".join(str(fit.summary()).split())
    assert "propensity = LogisticRegression(), blocks = 20" in text
    assert all(len(line) <= 80 for line in str(fit.summary()).splitlines())
    forest = models()["forest"][0]  # unfitted ensembles cannot be iterated over
    assert "RandomForestRegressor(n_estimators=5)" in str(run(outcome=forest, blocks=7).summary())
    assert "RidgeRegression()" in str(run().summary())
    assert "Ridge()" not in str(run(estimator="ipw").summary())


def test_notes_and_cautions():
    fit = run()
    records = fit.n // fit.details["blocks"]
    assert f"blocks of {records} records" in " ".join(str(fit.summary()).split())
    assert fit.released.warnings == ""
    assert fit.details["records in a block"] == f"{records} or {records + 1}"
    assert run(blocks=800).warnings.startswith("Too few")
    linear_model = pytest.importorskip("sklearn.linear_model")
    other = run(blocks=fit.n // 12, outcome=linear_model.LinearRegression())
    assert other.warnings.startswith("Weak adjustment: about 5")
    top = str(other).split("estimate")[0]
    assert "Weak adjustment" in top
    assert "(-B, B)" in dpe.methods("sample_aggregate")


# --- options ----------------------------------------------------------------------------------


def test_the_rule_for_blocks():
    for n in (8, 20, 60, 445, 3000, 20_000, 10**6):
        for d, epsilon in ((2, 0.1), (11, 1.0), (60, 10.0)):
            few, many = (default_blocks(n, d, epsilon, flexible) for flexible in (True, False))
            assert 2 <= few <= many
            assert n // many >= 4
            assert all(many % k for k in range(2, many))
            assert n < 400 or many >= 37
            rare = default_blocks(n, d, epsilon, False, smaller=n / 20)
            assert rare <= many
            assert rare == 2 or n / 20 / rare > 4  # of the smaller arm, but for the next prime
    assert run(frame(60)).details["blocks"] <= 7
    assert default_blocks(20_000, 11, 1.0, False) > default_blocks(20_000, 11, 4.0, False)


class NoPredict:
    def fit(self, rows, target):
        return self


class Broken(NoPredict):
    def predict(self, rows):
        raise RuntimeError("out of order")


test_bad_options_charge_nothing = refusals(
    partial(run, frame(400)),
    ({"outcome": "forest"}, r"'forest' has no fit/predict; pass a scikit-learn regressor"),
    ({"outcome": 3}, "outcome: 3 has no fit/predict"),
    ({"outcome": NoPredict()}, "has no fit/predict"),
    ({"outcome": NoPredict}, r"NoPredict is a class; pass an object: NoPredict\(\)"),
    ({"outcome": Broken()}, "made-up records, the size of a block .out of order."),
    ({"propensity": "logit"}, "has no fit/predict_proba; pass a scikit-learn classifier"),
    ({"propensity": Spy()}, "has no fit/predict_proba"),
    ({"blocks": 0}, "blocks must be a whole number from 2"),
    ({"blocks": 1}, "blocks must be a whole number from 2"),
    ({"blocks": 2.5}, "blocks must be a whole number"),
    ({"blocks": True}, "blocks must be a whole number"),
    ({"blocks": "many"}, "blocks must be a whole number"),
    ({"blocks": 5000}, "blocks = 5000 for 400 records.*at most 100"),
    ({"blocks": 101}, "a block needs 4 records, so at most 100"),
    ({"effect_range": (1, -1)}, r"effect_range: lower must be below upper, got \(1, -1\)"),
    ({"effect_range": (1, 1)}, "effect_range: lower must be below upper"),
    ({"effect_range": (0, float("inf"))}, "two numbers"),
    ({"effect_range": (0, float("nan"))}, "two numbers"),
    ({"effect_range": (-1e308, 1e308)}, "too wide"),
    ({"effect_range": (0,)}, "two numbers"),
    ({"effect_range": 1.0}, "two numbers"),
    ({"effect_range": "ab"}, "two numbers"),
    ({"effect_range": (True, 2)}, "two numbers"),
    ({"estimator": "matching"}, "estimator must be one of aipw, ipw, regression"),
    ({"estimator": "dr_learner"}, "estimator must be one of"),
    ({"estimator": "ipw", "outcome": Spy()}, 'outcome has no meaning with estimator="ipw"'),
    ({"estimator": "regression", "crossfit": True}, "crossfit has no meaning"),
    ({"clip": 0.0}, "clip"),
    ({"clip": 0.5}, "clip"),
    ({"clip": True}, "clip"),
    ({"crossfit": 2}, "crossfit"),
    ({"block": 20}, "did you mean 'blocks'|Did you mean 'blocks'"),
    ({"level": "label"}, "level"),
)


def test_scikit_learn_models_of_the_wrong_kind():
    linear_model = pytest.importorskip("sklearn.linear_model")
    neighbors = pytest.importorskip("sklearn.neighbors")
    cases = [
        ({"propensity": linear_model.Ridge()}, "propensity: Ridge.. has no fit/predict_proba"),
        ({"outcome": linear_model.Ridge}, "Ridge is a class"),
        ({"outcome": linear_model.Ridge(alpha=-1.0)}, "made-up records"),
        ({"outcome": neighbors.KNeighborsRegressor(30), "blocks": 20}, "take fewer blocks"),
    ]
    for bad, words in cases:
        with pytest.raises(OptionError, match=words):
            run(frame(400), **bad)
    assert np.isfinite(run(outcome=neighbors.KNeighborsRegressor(3), blocks=20).estimate)


def test_too_few_records():
    with pytest.raises(OptionError, match="at least 8 records"):
        run(pd.DataFrame({"y": [0, 1.0] * 3, "t": [True, False] * 3, "x1": 0.5, "x2": 0.5}))
    small = frame(8).assign(t=[True, False] * 4)
    assert run(small, epsilon=10.0).details["blocks"] == 2
