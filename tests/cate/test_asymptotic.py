"""The paper's finite release: reproduced, marked, and shown not to hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr

import dpeffects as dpe
from dpeffects import flow
from dpeffects.errors import OptionError
from dpeffects.replication.unproved.paper_learner import PaperLearner, pseudo_outcomes
from dpeffects.replication.unproved.sklearn_models import ModelTemplate
from dpeffects.seeded import SeededNoise

clone = pytest.importorskip("sklearn.base").clone

FORMULA = "outcome ~ treatment | x1 + x2"
CLAIMED = {"release": "points", "delta": 1e-5, "epsilon": 1.0, "accept_asymptotic": True}


def ridge():
    from sklearn.linear_model import Ridge

    return Ridge()


class FoldAverage:
    """A model without scikit-learn."""

    def fit(self, rows, target):
        self.mean = target.mean()
        return self

    def predict(self, rows):
        return np.full(len(rows), self.mean)


def true_epsilon(shift: float, delta: float) -> float:
    """Epsilon of two unit normals a given distance apart: Balle and Wang's curve, inverted."""

    def excess(epsilon):
        one, other = shift / 2, epsilon / shift
        gap = math.exp(log_ndtr(one - other)) - math.exp(epsilon + log_ndtr(-one - other))
        return gap - delta

    return brentq(excess, 0.0, 600.0)


def rows(sample):
    frame = sample.frame
    x = frame[["x1", "x2"]].to_numpy()
    return np.column_stack([np.ones(len(x)), x]), frame["treatment"].to_numpy() > 0, frame


@pytest.mark.long
def test_one_changed_outcome_moves_a_forest_by_many_times_the_claimed_noise():
    """errata: at n = 2,700 the true epsilon is above 270 where 1 is claimed."""
    from sklearn.ensemble import RandomForestRegressor

    n, delta, forest = 900, 1e-5, RandomForestRegressor(20, random_state=0)
    covariates, treated, frame = rows(dpe.simulate("cate_1", n=n, seed=3))
    outcome = frame["outcome"].to_numpy()
    record = int(np.flatnonzero(~treated)[0])
    low, high = -1.0, 8.5
    learner = PaperLearner(False, forest, covariates[[record]], (low, high))
    neighbour = outcome.copy()
    neighbour[record] = low if outcome[record] > (low + high) / 2 else high
    (before, gross), (after, _) = (learner(covariates, treated, y) for y in (outcome, neighbour))
    sigma = gross * 5 * math.sqrt(2 * math.log(n) * math.log(2 / delta)) / n
    moved = abs(float(after[0] - before[0]))
    assert moved > 2 * sigma
    assert true_epsilon(moved / sigma, delta) > 10.0  # where 1 is claimed


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_the_noise_is_the_printed_one():
    """Lemma 2b with a ridge second stage: the supremum by brute force over a grid."""
    covariates, treated, frame = rows(dpe.simulate("cate_1", n=300, seed=1))
    outcome = frame["outcome"].to_numpy()
    for by_arm in (False, True):
        learner = PaperLearner(by_arm, ridge(), covariates[:5], (-1.0, 8.5))
        fitted = learner._fit(covariates[:, 1:], treated, outcome)
        grid = np.array([(a, b) for a in np.linspace(0, 1, 30) for b in np.linspace(0, 1, 30)])
        score = fitted.first.propensity(grid)
        m1, m0 = (
            fitted.first.mean(np.column_stack([grid, np.full(len(grid), a)])) for a in (1.0, 0.0)
        )
        tau = fitted.effect(grid)
        p = fitted.first.propensity(covariates[:, 1:])
        largest = 0.0
        for a, mean in ((1.0, m1), (0.0, m0)):
            for y in (-1.0, 8.5):
                if by_arm:
                    value = (a - score) / (score * (1 - score)) * (y - mean) + m1 - m0 - tau
                else:
                    value = (a - score) / np.mean(p * (1 - p))
                    value = value * (y - mean + (a - score) * (m1 - m0 - tau))
                largest = max(largest, np.abs(value).max())
        found = learner(covariates, treated, outcome)[1]
        assert largest * 0.999 <= found <= largest * 1.25


def forests(trees=8, depth=6):
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    given = {"n_estimators": trees, "max_depth": depth, "random_state": 0}
    return RandomForestRegressor(**given), RandomForestClassifier(**given, min_samples_leaf=20)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("by_arm", [False, True], ids=["R", "DR"])
@pytest.mark.parametrize("seed", range(4))
def test_the_largest_influence_of_forests_is_found(by_arm, seed):
    """Forests are constant between their cuts, so one point of each cell is all of them."""
    covariates, treated, frame = rows(dpe.simulate("cate_1", n=600, seed=seed))
    x, outcome = covariates[:, 1:], frame["outcome"].to_numpy()
    regressor, classifier = forests()
    models = {"outcome": ModelTemplate(regressor), "propensity": ModelTemplate(classifier)}
    learner = PaperLearner(by_arm, regressor, covariates[:1], (-1.0, 8.5), **models)
    fitted = learner._fit(x, treated, outcome)
    regressor.fit(np.column_stack([x, treated]), outcome)  # the same models, for their cuts
    classifier.fit(x, treated)
    known = fitted.first.nuisances(x)
    pseudo, weight = pseudo_outcomes(by_arm, 1.0 * treated, outcome, *known)
    weighted = {"sample_weight": weight} if not by_arm else {}
    cuts = [[], []]
    for model in (regressor, classifier, clone(regressor).fit(x, pseudo, **weighted)):
        for tree in (each.tree_ for each in model.estimators_):
            for column in (0, 1):
                cuts[column] += tree.threshold[tree.feature == column].tolist()
    middles = []
    for each in cuts:
        ends = np.unique([0.0, *each, 1.0])
        middles.append((ends[1:] + ends[:-1]) / 2)
    cells = np.array(np.meshgrid(*middles)).reshape(2, -1).T
    brute = max(fitted.most(part).max() for part in np.array_split(cells, 20))
    found = learner(covariates, treated, outcome)[1]
    assert 0.99 * brute <= found <= brute * (1 + 1e-9)


def test_any_models_are_taken_and_shown():
    regressor, classifier = forests()
    data = dpe.simulate("cate_1", n=300, seed=1)
    at = {"x1": [0.2], "x2": [0.5]}
    given = {"second_stage": ridge(), "outcome": regressor, "propensity": classifier}
    fit = dpe.dp_cate(FORMULA, data, at=at, seed=1, **given, **CLAIMED)
    plain = dpe.dp_cate(FORMULA, data, at=at, seed=1, second_stage=ridge(), **CLAIMED)
    assert fit.effects[0].point != plain.effects[0].point
    text = " ".join(str(fit.summary()).split())
    assert "outcome = RandomForestRegressor(" in text
    assert "propensity = RandomForestClassifier(" in text


def test_it_is_marked_in_every_output(monkeypatch):
    noise = SeededNoise(1)
    monkeypatch.setattr(flow, "noise_source", lambda _: noise)
    monkeypatch.setattr(SeededNoise, "void", ())
    data = dpe.simulate("cate_1", n=300, seed=1)
    fit = dpe.dp_cate(FORMULA, data, at={"x1": [0.2], "x2": [0.5]}, second_stage=ridge(), **CLAIMED)
    assert fit.guarantee.status == "asymptotic"
    assert not fit.guarantee.holds
    words = "asymptotic claim, not a proven guarantee at this n"
    text = " ".join(str(fit.summary()).split())
    assert text.lower().count(words) >= 2
    assert words in fit.to_json()
    assert "asymptotic" in repr(fit)
    assert set(fit.tidy()["guarantee"]) == {"asymptotic"}
    assert "Ridge()" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"accept_asymptotic": False}, "accept_asymptotic=True"),
        ({"accept_asymptotic": 1}, "accept_asymptotic=True"),
        ({"delta": 0.0}, "delta"),
        ({"second_stage": "forest"}, "random_forest, neural_net"),
        ({"second_stage": object()}, "fit and predict"),
        ({"outcome": object()}, "outcome"),
        ({"propensity": ridge}, "propensity"),
        ({"second_stage": "kernel", "outcome": FoldAverage()}, "sample_aggregate"),
        ({"release": "function", "at": None}, 'release="points"'),
    ],
)
def test_it_needs_an_opt_in_and_nothing_is_charged(change, words):
    data, ledger = dpe.simulate("cate_1", n=300, seed=1), dpe.Ledger(1.0, 1e-5)
    arguments = {"at": {"x1": [0.2], "x2": [0.5]}, "second_stage": "random_forest", **CLAIMED}
    with pytest.raises(OptionError, match=words):
        dpe.dp_cate(FORMULA, data, ledger=ledger, **{**arguments, **change})
    assert ledger.charges == ()
