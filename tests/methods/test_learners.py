"""What is computed in a block: effects at points by two-stage learners, and the small models."""

from __future__ import annotations

import numpy as np
import pytest

from dpeffects.privacy.sample_splits import by_block
from dpeffects.replication.block_learner import BlockLearner, RidgeLogistic, RidgeRegression
from dpeffects.replication.sample_aggregate import mean_answer
from dpeffects.replication.unproved.sklearn_models import ModelTemplate
from tests.privacy.bare import curator

linear_model = pytest.importorskip("sklearn.linear_model")
LINEAR = linear_model.LinearRegression()
QUERIES = np.array([[1.0, 0.1, 0.5], [1.0, 0.5, 0.5], [1.0, 0.9, 0.1]])


def records(n=4000, seed=0, noise=0.05):
    """Linear outcomes with a linear effect, 0.1 + 0.3 x1, and confounding by both covariates."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.random((n, 2))])
    t = rng.random(n) < 1 / (1 + np.exp(-(x @ [-0.5, 1.5, -0.5])))
    y = x @ [0.2, 0.3, 0.1] + (0.1 + 0.3 * x[:, 1]) * t + rng.normal(0, noise, n)
    return x, t, y


def at_points(estimator, outcome=LINEAR, final=None, **more):
    return BlockLearner(
        ModelTemplate(outcome),
        ModelTemplate(more.pop("propensity", linear_model.LogisticRegression(C=1e6))),
        estimator,
        queries=QUERIES,
        final=None if final is None else ModelTemplate(final),
        **more,
    )


@pytest.mark.parametrize("estimator", ["dr_learner", "r_learner"])
@pytest.mark.parametrize("crossfit", [True, False])
def test_linear_models_recover_a_linear_effect(estimator, crossfit):
    learner = at_points(estimator, crossfit=crossfit)
    assert learner.size == 3
    got = learner(*records())
    assert got == pytest.approx(0.1 + 0.3 * QUERIES[:, 1], abs=0.02)


def test_the_built_in_models_recover_it_too():
    for estimator in ("dr_learner", "r_learner"):
        learner = at_points(estimator, RidgeRegression(), propensity=RidgeLogistic())
        assert learner(*records()) == pytest.approx(0.1 + 0.3 * QUERIES[:, 1], abs=0.02)


class Half:
    """A propensity model that knows that treatment was randomised."""

    classes_ = np.array([0, 1])

    def fit(self, rows, target):
        return self

    def predict_proba(self, rows):
        return np.full((len(rows), 2), 0.5)


def least_squares(x, y, weight=None):
    root = np.ones(len(y)) if weight is None else np.sqrt(weight)
    return np.linalg.lstsq(x * root[:, None], y * root)[0]


def test_dr_learner_by_hand():
    """Direct least squares: by arm, then of the pseudo-outcomes."""
    x, t, y = records(300)
    got = at_points("dr_learner", propensity=Half(), crossfit=False)(x, t, y)
    m1, m0 = (x @ least_squares(x[arm], y[arm]) for arm in (t, ~t))
    pseudo = m1 - m0 + t / t.mean() * (y - m1) - ~t / (~t).mean() * (y - m0)
    assert got == pytest.approx(QUERIES @ least_squares(x, pseudo), abs=1e-10)


def test_r_learner_by_hand():
    x, t, y = records(300)
    got = at_points("r_learner", propensity=Half(), crossfit=False)(x, t, y)
    gap, rest = t - 0.5, y - x @ least_squares(x, y)
    direct = least_squares(x * gap[:, None], rest)  # the same problem without weights
    assert got == pytest.approx(QUERIES @ direct, abs=1e-10)


def test_folds_by_hand():
    """Models of one half for the other; halves go by the binary digits of the position."""
    x, t, y = records(201)
    half = np.array([bin(i).count("1") % 2 == 0 for i in range(201)])
    m1, m0 = np.empty(201), np.empty(201)
    for learn in (half, ~half):
        for m, arm in ((m1, t), (m0, ~t)):
            m[~learn] = (x @ least_squares(x[learn & arm], y[learn & arm]))[~learn]
    pseudo = m1 - m0 + t / t.mean() * (y - m1) - ~t / (~t).mean() * (y - m0)
    got = at_points("dr_learner", propensity=Half())(x, t, y)
    assert got == pytest.approx(QUERIES @ least_squares(x, pseudo), abs=1e-10)


def test_r_learner_without_weights_is_the_dr_learner():
    neighbors = pytest.importorskip("sklearn.neighbors")
    rows = records(300)
    final = neighbors.KNeighborsRegressor(20)
    one, other = (at_points(e, final=final)(*rows) for e in ("r_learner", "dr_learner"))
    assert np.array_equal(one, other)
    assert not np.array_equal(one, at_points("r_learner")(*rows))


def test_the_last_stage_of_a_classifier_is_a_regression():
    x, t, y = records(2000, noise=0.0)
    binary = (np.random.default_rng(1).random(2000) < y).astype(float)
    logistic = linear_model.LogisticRegression()
    for estimator in ("dr_learner", "r_learner"):
        got = at_points(estimator, logistic)(x, t, binary)
        assert got == pytest.approx(0.1 + 0.3 * QUERIES[:, 1], abs=0.15)


def test_effects_at_points_through_the_curator():
    """The same learner, in blocks: the mean of the blocks' answers at each query."""
    x, t, y = records(1200)
    c, _ = curator(np.clip(y, 0, 1), t, x)
    learner = at_points("dr_learner")
    answers = by_block(c, learner, 4, learner.size)
    got = mean_answer(answers, "effects", (-1.0, 1.0), "a", learner.size)[0].value
    parts = [learner(x[k::4], t[k::4], np.clip(y, 0, 1)[k::4]) for k in range(4)]
    assert got == pytest.approx(np.mean(parts, axis=0), abs=1e-6)
    assert got == pytest.approx(0.1 + 0.3 * QUERIES[:, 1], abs=0.04)


# --- the small models -------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_ridge_regression_is_nearly_least_squares(weighted):
    x, _, y = records(500)
    weight = np.random.default_rng(2).random(500) if weighted else None
    got = RidgeRegression().fit(x, y, sample_weight=weight).predict(QUERIES)
    assert got == pytest.approx(QUERIES @ least_squares(x, y, weight), abs=1e-3)


def test_ridge_regression_has_answers_where_least_squares_has_none():
    rng = np.random.default_rng(3)
    for n, d in ((1, 3), (2, 10), (5, 5)):
        x, y = rng.random((n, d)), rng.random(n)
        assert np.isfinite(RidgeRegression().fit(x, y).predict(rng.random((4, d)))).all()
    flat = RidgeRegression().fit(np.ones((6, 2)), np.arange(6.0))
    assert flat.predict(np.ones((1, 2))) == pytest.approx([2.5])


def test_ridge_logistic_is_nearly_maximum_likelihood():
    x, t, _ = records(3000)
    peer = linear_model.LogisticRegression(C=1e8, tol=1e-10).fit(x, t)
    got = RidgeLogistic().fit(x, t.astype(int)).predict_proba(QUERIES)
    assert got == pytest.approx(peer.predict_proba(QUERIES), abs=1e-3)
    separable = RidgeLogistic().fit(x[:20], (x[:20, 1] > 0.5).astype(int))
    assert np.isfinite(separable.predict_proba(x)).all()


def test_a_constant_target_needs_no_model():
    predict = ModelTemplate(linear_model.LogisticRegression()).fitted(
        np.ones((3, 1)), np.full(3, 0.7)
    )
    assert predict(np.ones((2, 1))).tolist() == [0.7, 0.7]


def test_learners_hold_no_fitted_model():
    x, _, y = records(50)
    fitted = linear_model.LinearRegression().fit(x, y)
    learner = ModelTemplate(fitted)
    assert not hasattr(learner._model, "coef_")
    learner.fitted(x, y)
    assert not hasattr(learner._model, "coef_")
    assert repr(learner) == "LinearRegression()"
