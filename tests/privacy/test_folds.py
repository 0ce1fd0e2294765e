"""Averages by models of folds: every corner, adversarial models, models that fail."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dpeffects.errors import OptionError, PrivacyError
from dpeffects.privacy.sample_splits import ESTIMATORS, EffectTerms, Folds, predictions
from tests.cases import each
from tests.privacy.bare import change, curator, replaced


def ask(learner, estimator, folds=3, average="predictions", clip=0.2, interval=(-1.0, 1.0)):
    def call(c):
        made = Folds(c, learner, EffectTerms(estimator, clip), folds)
        if average == "predictions":
            made.mean_by_predictions("mean", "a")
        else:
            made.mean_of_estimates("mean", interval, "a")
        made.squares("squares", "a")

    return call


def data(rng, n, d=2):
    x = rng.choice([0.0, 0.5, 1.0], (n, d))
    return rng.choice([0.0, 0.4, 1.0], n), rng.random(n) < 0.5, x


# --- one term, one model ------------------------------------------------------------------------


def span_of_one_model(terms, models):
    """Largest difference of a term over all corners: record, this model, mean of the others."""
    ends, weights = (-1.0, 1.0), (1.0 / (1.0 - terms.clip), 1.0 / terms.clip)
    box = (weights, weights, ends, ends)
    worst = 0.0
    for treated, y, *rest in itertools.product((True, False), ends, *box):
        others = (models - 1) * np.array(rest)
        averages = [(others + own) / models for own in itertools.product(*box)]
        t, out = np.full(len(averages), treated), np.full(len(averages), y)
        found = terms.of(t, out, np.array(averages).T)
        worst = max(worst, found.max() - found.min())
    return worst


@each("estimator", ESTIMATORS)
@each("clip", [0.01, 0.1, 0.4])
@each("models", [1, 2, 7])
def test_what_one_model_moves_is_the_largest_over_all_corners(estimator, clip, models):
    terms = EffectTerms(estimator, clip)
    assert terms.moved(models) == pytest.approx(span_of_one_model(terms, models))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_mixture_of_answers_moves_a_term_further(estimator):
    """Inside of the box, with different answers of every model, nothing is larger."""
    rng, terms, models = np.random.default_rng(0), EffectTerms(estimator, 0.15), 3
    low, high = 1.0 / 0.85, 1.0 / 0.15
    size = (20_000, models)
    box = np.stack([*rng.uniform(low, high, (2, *size)), *rng.uniform(-1, 1, (2, *size))])
    other = box.copy()
    changed = np.stack([*rng.uniform(low, high, (2, size[0])), *rng.uniform(-1, 1, (2, size[0]))])
    other[:, :, 0] = changed
    t, y = rng.random(size[0]) < 0.5, rng.uniform(-1, 1, size[0])
    one, two = (terms.of(t, y, part.mean(axis=2)) for part in (box, other))
    assert np.abs(one - two).max() <= terms.moved(models)
    assert np.abs(one).max() <= terms.largest


def test_moving_weights_or_means_alone_is_half_of_what_both_move():
    """For AIPW a bound that leaves one of them fixed is about half of the truth."""
    terms, models = EffectTerms("aipw", 0.02), 50
    most, least = 1.0 / terms.clip, 1.0 / (1.0 - terms.clip)
    alone = max(2.0 * most / models, 2.0 * (most - least) / models)
    assert 0.5 < alone / terms.moved(models) < 0.53


# --- the releases -------------------------------------------------------------------------------


def least_squares(x, treated, outcome):
    slopes = [np.linalg.lstsq(x[arm], outcome[arm])[0] for arm in (treated, ~treated)]
    share = treated.mean()
    return lambda new: np.stack([np.full(len(new), share), *(new @ s for s in slopes)])


def wild(x, treated, outcome):
    """Answers anywhere, also outside of all ranges, by a hash of the fold."""
    seed = int(1e6 * (x.sum() + 3 * treated.sum() + 7 * outcome.sum())) % 2**32
    return lambda new: (
        np.sin(1e4 * (seed + new @ [1.0, 2.0] + np.arange(3)[:, None]))
        * np.array([[2.0], [5.0], [5.0]])
    )


def extreme(x, treated, outcome):
    """All corners: a fold with an outcome of 1 says one thing, others the opposite."""
    size = 1e300 if outcome.max() == 1.0 else -1e300
    return lambda new: np.outer([size, size, -size], np.ones(len(new)))


def failing(x, treated, outcome):
    if outcome.max() == 1.0:
        raise ValueError("no")

    def predict(new):
        if (new == 1.0).any():
            raise ValueError("no ones")
        return np.outer([np.inf, np.inf, -np.inf], np.ones(len(new)))

    return predict


LEARNERS = {f.__name__: f for f in (least_squares, wild, extreme, failing)}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("average", ["predictions", "estimates"])
def test_random_and_extreme_neighbours(learner, estimator, average):
    rng, worst = np.random.default_rng(1), 0.0
    for _ in range(40):
        n = int(rng.integers(6, 14))
        y, t, x = data(rng, n)
        other = replaced(rng, y, t, x, int(rng.integers(n)))
        interval = (-1.0, 1.0) if rng.random() < 0.5 else (-0.1, 0.4)
        folds = int(rng.integers(2, 5))
        call = ask(LEARNERS[learner], estimator, folds, average, interval=interval)
        worst = max(worst, change(curator(y, t, x), curator(*other), call))
    assert 0.02 < worst <= 1.0


CORNERS = list(itertools.product((0.0, 1.0), repeat=3))


def obeys(codes):
    """Models that predict the corner written in the first covariate of the fold's first record."""

    def learner(x, treated, outcome):
        corner = CORNERS[codes[round(10 * x[0, 0])]]
        return lambda new: np.repeat(np.array(corner)[:, None], len(new), axis=1)

    return learner


@pytest.mark.sampled(3)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_bound_is_attained_by_some_models_and_exceeded_by_none(estimator):
    """Three folds of two records. The first fold's models answer with any corner before and after,
    the others with any; outcomes and treatments are extreme."""
    rng, worst = np.random.default_rng(2), 0.0
    for first, second in itertools.permutations(range(8), 2):
        for _ in range(6):
            codes = {0: first, 1: second, 2: int(rng.integers(8)), 3: int(rng.integers(8))}
            x = np.array([0.0, 0.2, 0.3, 0.0, 0.2, 0.3])[:, None]
            y, t = rng.choice([0.0, 1.0], 6), rng.random(6) < 0.5
            if rng.random() < 0.5:  # all alike moves the same way
                y[[1, 2, 4, 5]], t[[1, 2, 4, 5]] = y[1], t[1]
                codes[3] = codes[2]
            other = y.copy(), t.copy(), x.copy()
            other[0][0], other[1][0], other[2][0] = 1 - y[0], not t[0], 0.1
            call = ask(obeys(codes), estimator)
            worst = max(worst, change(curator(y, t, x), curator(*other), call))
    assert 0.75 < worst <= 1.0


def test_declared_sensitivities_in_units_of_the_outcome():
    n, folds, clip, wide = 60, 10, 0.1, 3.0
    t, x = np.arange(n) % 2 == 0, np.zeros((n, 1))
    most, spread = 1 / clip, 1 / clip - 1 / (1 - clip)
    far = 54 / (9 * n)
    expected = {
        "regression": 2 * wide * (1 / n + far),
        "ipw": wide * (most / n + spread / 2 * far),
        "aipw": wide * (2 * most / n + (most + spread * 8 / 9) * far),
    }
    for estimator, value in expected.items():
        c, _ = curator(np.zeros(n), t, x, limits=(-1.0, 2.0))
        found = Folds(c, extreme, EffectTerms(estimator, clip), folds).mean_by_predictions("m", "a")
        assert found.charge.sensitivity[0] == pytest.approx(value, rel=1e-6)
    c, _ = curator(np.zeros(n), t, x, limits=(-1.0, 2.0))
    made = Folds(c, extreme, EffectTerms("aipw", clip), folds)
    found = made.mean_of_estimates("m", (-1.5, 1.5), "a")
    assert found.charge.sensitivity[0] == pytest.approx(3.0 / 10 + 9 / 10 * 2 * wide * most / 54)


# --- what models see ----------------------------------------------------------------------------


def test_no_record_is_predicted_by_a_model_that_saw_it():
    n, folds = 12, 3
    x = (np.arange(n) / n)[:, None]

    def own_only(rows, treated, outcome):
        mine = set(rows[:, 0].tolist())
        return lambda new: np.stack(
            [np.full(len(new), 0.5), [float(v in mine) for v in new[:, 0]], np.zeros(len(new))]
        )

    for average in ("predictions", "estimates"):
        c, noise = curator(np.zeros(n), np.arange(n) % 2 == 0, x)
        ask(own_only, "regression", folds, average)(c)
        assert noise.values[0][0] == 0


def test_models_are_averaged_as_the_method_says():
    """Against a plain loop over records and folds."""
    rng, n, folds, clip = np.random.default_rng(4), 30, 4, 0.2
    y, t, x = data(rng, n)
    z = 2 * y - 1

    def own(k):
        rows = np.arange(n) % folds == k
        e, one, zero = least_squares(x[rows], t[rows], y[rows])(x)
        return np.clip(e, clip, 1 - clip), *(2 * np.clip(m, 0, 1) - 1 for m in (one, zero))

    models = [own(k) for k in range(folds)]
    terms, by_fold = [], [[] for _ in range(folds)]
    for i in range(n):
        seen = [models[k] for k in range(folds) if k != i % folds]
        a = np.mean([1 / e[i] if t[i] else 1 / (1 - e[i]) for e, _, _ in seen])
        one, zero = (np.mean([m[s][i] for m in seen]) for s in (1, 2))
        rest = (z[i] - one) if t[i] else -(z[i] - zero)
        terms.append(one - zero + a * rest)
        for k in set(range(folds)) - {i % folds}:
            e, one, zero = (m[i] for m in models[k])
            rest = (z[i] - one) / e if t[i] else -(z[i] - zero) / (1 - e)
            by_fold[k].append(one - zero + rest)
    for average, value in (
        ("predictions", np.mean(terms) / 2),
        ("estimates", np.mean(np.clip([np.mean(b) for b in by_fold], -2, 2)) / 2),
    ):
        c, _ = curator(y, t, x)
        made = Folds(c, least_squares, EffectTerms("aipw", clip), folds)
        found = (
            made.mean_by_predictions("m", "a")
            if average == "predictions"
            else made.mean_of_estimates("m", (-1, 1), "a")
        )
        assert found.value[0] == pytest.approx(value, abs=1e-7)
        assert found.value[1:] == pytest.approx([1.0] * (average == "estimates"))


def test_folds_without_models_are_left_out():
    """Their estimates are not in the sum, nor they in the number."""
    n, folds = 12, 4
    y, t, x = np.linspace(0, 1, n), np.arange(n) % 2 == 0, np.zeros((n, 1))

    def some(rows, treated, outcome):
        if outcome[0] == 0.0:
            raise ValueError("no")
        return lambda new: np.outer([0.5, outcome[0], 0.0], np.ones(len(new)))

    c, _ = curator(y, t, x)
    made = Folds(c, some, EffectTerms("regression", 0.2), folds)
    found = made.mean_of_estimates("m", (-1.0, 1.0), "a")
    assert found.value == pytest.approx([y[1:folds].sum() / folds, 3 / 4], abs=1e-7)
    squares, _ = made.squares("s", "a")
    estimates = y[1:folds]  # a term of every record is the same, so the mean of squares is one
    assert float(squares) == pytest.approx(
        np.sum(estimates**2 / n + estimates**2 / (folds - 1)) / folds, abs=1e-7
    )


def test_a_fold_that_comes_or_goes_attains_the_bound():
    """An estimate at an end of the interval is no more, and the other folds' terms all move."""

    def there(rows, treated, outcome):
        if rows[0, 0] == 1.0:
            raise ValueError("no")
        return lambda new: np.outer([0.5, 1.0, 0.0], np.ones(len(new)))

    t = np.arange(6) % 2 == 0
    pair = [curator(np.ones(6), t, np.array([[first], *[[0.0]] * 5])) for first in (0.0, 1.0)]
    call = lambda c: Folds(c, there, EffectTerms("regression", 0.2), 3).mean_of_estimates(  # noqa: E731
        "m", (-1.0, 1.0), "a"
    )
    assert 0.3 < change(*pair, call) <= 1.0


def test_inverse_propensities_stay_within_the_clip_whatever_models_say():
    said = np.array([np.nan, -np.inf, 1e300, 0.0, 1.0, 0.3, 0.05, 0.95])
    held, _ = curator(np.zeros(8), np.arange(8) % 2 == 0, np.zeros((8, 1)))
    folds = Folds(held, lambda *_: lambda new: np.stack([said] * 3), EffectTerms("aipw", 0.1), 2)
    expected = np.array([0.5, 0.1, 0.9, 0.1, 0.9, 0.3, 0.1, 0.9])
    for _, (one, other, *_), _ in folds._nuisances():
        assert 1.0 / one == pytest.approx(expected)
        assert 1.0 / other == pytest.approx(1.0 - expected)


def test_a_row_that_cannot_be_predicted_does_not_change_the_others():
    def picky(rows, treated, outcome):
        def predict(new):
            if (new[:, 0] == 1.0).any():
                raise ValueError("no")
            return np.stack([np.full(len(new), 0.5), new[:, 0], 1 - new[:, 0]])

        return predict

    rng = np.random.default_rng(5)
    x = rng.random((12, 1))
    other = x.copy()
    other[4] = 1.0
    y, t = rng.random(12), np.arange(12) % 2 == 0
    assert change(curator(y, t, x), curator(y, t, other), ask(picky, "aipw")) <= 1.0
    found = predictions(picky, (x, t, y), other, 0)
    assert np.flatnonzero(np.isnan(found).any(axis=0)).tolist() == [4]
    assert (np.delete(found[1], 4) == np.delete(x[:, 0], 4)).all()


def test_refusals():
    y, t = np.zeros(10), np.arange(10) % 2 == 0
    for folds in (1, 11):
        for average in ("predictions", "estimates"):
            with pytest.raises(OptionError, match="folds"):
                ask(extreme, "aipw", folds, average)(curator(y, t)[0])
    with pytest.raises(OptionError, match="interval"):
        ask(extreme, "aipw", 2, "estimates", interval=(1.0, 1.0))(curator(y, t)[0])
    with pytest.raises(PrivacyError, match="nothing drawn"):
        Folds(curator(y, t)[0], extreme, EffectTerms("aipw", 0.2), 2).squares("s", "a")
