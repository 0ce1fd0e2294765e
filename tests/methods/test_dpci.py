"""Claimed intervals: the printed noise, what they cover, and a pair that breaks the claim."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpeffects as dpe
from dpeffects.replication.block_learner import RidgeLogistic, RidgeRegression
from dpeffects.replication.dpci import CrossFitted
from dpeffects.replication.model_folds import FoldModels
from dpeffects.replication.unproved.sklearn_models import ModelTemplate
from dpeffects.seeded import SeededNoise
from tests.methods.test_model_folds import BOUNDS, EFFECT, FORMULA, frame
from tests.plain import plain
from tests.refused import refusals

DELTA = 1e-5


def run(n=1000, seed=0, **given):
    call = {"epsilon": 1.0, "delta": DELTA, "bounds": BOUNDS, "accept_asymptotic": True, **given}
    return dpe.dp_ate(FORMULA, frame(n, seed), "dpci", seed=seed, **call)


def arrays(data):
    x = np.column_stack([np.ones(len(data)), data[["x1", "x2"]]])
    return x, data["t"].to_numpy(), data["y"].to_numpy()


def test_the_estimate_is_cross_fitted_aipw():
    """Against a plain loop with other code for the models' terms."""
    x, t, y = arrays(frame(300))
    found = CrossFitted(
        FoldModels(ModelTemplate(RidgeRegression()), ModelTemplate(RidgeLogistic()), "aipw"),
        3,
        0.1,
        (0.0, 1.0),
    )(x, t, y)
    terms = np.empty(300)
    for i in range(300):
        other = np.arange(300) % 3 != i % 3
        e = RidgeLogistic().fit(x[other], t[other].astype(int)).predict_proba(x[i : i + 1])[0, 1]
        e = min(max(e, 0.1), 0.9)
        one, zero = (
            RidgeRegression().fit(x[other & arm], y[other & arm]).predict(x[i : i + 1])[0]
            for arm in (t, ~t)
        )
        terms[i] = one - zero + ((y[i] - one) / e if t[i] else -(y[i] - zero) / (1 - e))
    assert found["estimate"][0] == pytest.approx(terms.mean())
    assert found["variance"][0] == pytest.approx(terms.var() / 300)


def test_the_noise_is_by_the_largest_influence():
    """The largest term over a fine grid of covariates, arms and outcomes, by hand."""
    n, fit = 1000, run()
    x, t, y = arrays(frame(n).iloc[SeededNoise(0).permutation(n)])  # in the order of the call
    grid = np.array([(1.0, a, b) for a in np.linspace(0, 1, 60) for b in np.linspace(0, 1, 60)])
    terms = []
    for fold in range(5):
        other = np.arange(n) % 5 != fold
        e = RidgeLogistic().fit(x[other], t[other].astype(int)).predict_proba(grid)[:, 1]
        e = np.clip(e, 0.1, 0.9)
        one, zero = (
            RidgeRegression().fit(x[other & arm], y[other & arm]).predict(grid) for arm in (t, ~t)
        )
        terms += [one - zero + (end - one) / e for end in (0, 1)]
        terms += [one - zero - (end - zero) / (1 - e) for end in (0, 1)]
    reference = plain(FORMULA, frame(n), "dpci", clip=0.1).estimate
    gross = np.abs(np.array(terms) - reference).max()
    factor = 5 * math.sqrt(2 * math.log(n) * math.log(2 / (DELTA / 2))) / (0.5 * n)
    assert fit.charges[0].scale[0] == pytest.approx(gross * factor, rel=0.02)
    assert [(s.share, s.epsilon, s.claim) for s in fit.charges] == [
        ("estimate", 0.5, 0),
        ("variance", 0.5, 0),
    ]


def test_without_noise_it_is_the_reference():
    fit = run(3000, epsilon=1e7)
    reference = plain(FORMULA, frame(3000), "dpci", clip=0.1)
    assert fit.estimate == pytest.approx(reference.estimate, abs=0.2 * reference.std_error)
    assert fit.std_error == pytest.approx(reference.std_error, rel=0.1)


def test_intervals_cover():
    fits = [run(600, seed, epsilon=20.0 + 1e4 * (seed % 2)) for seed in range(40)]
    hits = [low <= EFFECT <= high for low, high in (fit.conf_int(0.8) for fit in fits)]
    assert np.mean(hits) >= 0.7


class Brittle:
    """A model that one record turns over: it predicts 1 if it saw a large outcome, else 0."""

    def fit(self, rows, target):
        self.answer = float(np.max(target) >= 1.0)
        return self

    def predict(self, rows):
        return np.full(len(rows), self.answer)


class Rare:
    """A propensity model that is wrong: the smallest propensity for everybody."""

    classes_ = np.array([0, 1])

    def fit(self, rows, target):
        return self

    def predict_proba(self, rows):
        return np.tile([1.0, 0.0], (len(rows), 1))


def test_one_record_can_move_it_by_many_times_the_noise():
    data = frame(4000)
    data.loc[data["y"] > 0.9, "y"] = 0.9
    other = data.copy()
    other.loc[int(np.flatnonzero(data["t"])[0]), "y"] = 1.0
    given = {"outcome": Brittle(), "propensity": Rare(), "epsilon": 1e3, "seed": 0, "delta": DELTA}
    one, two = (
        dpe.dp_ate(FORMULA, d, "dpci", bounds=BOUNDS, accept_asymptotic=True, **given)
        for d in (data, other)
    )
    noise = max(math.sqrt(fit.noise_variance) for fit in (one, two))
    moved = abs(one.estimate - two.estimate)
    assert moved > 100 * noise
    # a fixed shift of this many standard deviations is not (1000, 1e-5)-private
    shift = moved / noise
    assert shift**2 / 2 - shift * 6 > 1000


test_refusals = refusals(
    run,
    ({"accept_asymptotic": False}, "accept_asymptotic=True"),
    ({"delta": 0.0}, "delta"),
    ({"folds": 1}, "folds"),
    ({"folds": 101}, "needs 1010 records"),
    ({"clip": 0.6}, "clip"),
    ({"propensity": 3}, "propensity"),
)
