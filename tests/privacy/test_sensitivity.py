"""What matching releases of single records, attacked by random and adversarial neighbours."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dpeffects.design.bounds import SEARCHES, find_bounds
from dpeffects.errors import BudgetError, PrivacyError
from dpeffects.estimators.arm_sums import arm_squares, arm_sums, treated_count
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.domains import Box
from dpeffects.privacy.exact_matching import MatchedStrata
from dpeffects.privacy.ledger import CallLedger
from dpeffects.privacy.matched import MatchedRecords, whole_weights
from dpeffects.privacy.private_minimisation import propensity_weights
from dpeffects.privacy.release import Releaser, Split
from dpeffects.privacy.rows import reads
from dpeffects.privacy.sample_splits import EffectTerms, Folds
from dpeffects.privacy.tight_domains import norm_of_sum
from dpeffects.replication.nearest import match, match_into, pairs
from dpeffects.replication.private_psm import propensity_scores
from tests.privacy.bare import SHARES, Bare, change, curator, replaced
from tests.privacy.problems import held


@reads("outcome")
def no_score(rows):
    return np.zeros(rows.size)


def differences(matches):
    """Tables of the own outcome and of the matches, and the contrast of the two."""
    own = np.arange(len(matches.found), dtype=np.int32)[:, None]
    return [own, matches.neighbours], np.array([[1.0, -1.0]])


def contrast(c, weights):
    return MatchedRecords(c, no_score).contrast("c", weights, "a")


def test_flips_and_scores_move_for_one_record_only():
    rng = np.random.default_rng(4)
    worst = [0.0, 0.0]
    for _ in range(100):
        y, t, x = rng.random(6), rng.random(6) < 0.5, rng.random((6, 3))
        score = propensity_scores(rng.normal(0, 10, (1, 3)))
        other = replaced(rng, y, t, x, int(rng.integers(6)))
        calls = (
            lambda c, s=score: MatchedRecords(c, s).noisy_scores("a"),
            lambda c, s=score: MatchedRecords(c, s).mixed_arms("a"),
        )
        for k, call in enumerate(calls):
            worst[k] = max(worst[k], change(curator(y, t, x), curator(*other), call))
    assert 0.9 < worst[0] <= 1.0
    assert worst[1] == 1.0


def test_released_scores_and_treatments_belong_to_the_same_records():
    rng = np.random.default_rng(5)
    y, t, x = rng.random(50), rng.random(50) < 0.5, rng.random((50, 1))
    c, noise = curator(y, t, x)
    noise.permutation = lambda n: np.random.default_rng(6).permutation(n)
    records, order = MatchedRecords(c, propensity_scores(np.array([[3.0]]))), noise.permutation(50)
    scores = 1 / (1 + np.exp(-3.0 * x[:, 0]))
    assert records.noisy_scores("a").value[:, 0] == pytest.approx(scores[order], abs=1e-8)
    assert (records.mixed_arms("a") == t[order]).all()
    first = records.contrast("c", np.eye(50)[0], "a")
    assert float(first) == pytest.approx(y[order][0] - 0.5, abs=1e-6)


def test_contrast_with_any_weights():
    rng = np.random.default_rng(2)
    worst = 0.0
    for _ in range(300):
        n = int(rng.integers(4, 9))
        y, t = rng.choice([0.0, 1.0], n), rng.random(n) < 0.5
        weights = rng.normal(0, 3, n)
        for j in range(n):
            y2 = y.copy()
            y2[j] = 1 - y[j]
            call = lambda c, w=weights: contrast(c, w)  # noqa: E731
            worst = max(worst, change(curator(y, t), curator(y2, t), call))
    assert worst <= 1.0
    assert worst == pytest.approx(1.0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "limits", [(None, None), (1, 1), (2, 2)], ids=["free", "exhausted", "tight"]
)
def test_matching_contrast_and_variance(limits):
    """Matching with and without limits that leave records short of neighbours: |P(i)| < N.

    The printed sensitivity (k + 1) B of paper 000 is exceeded in the exhausted case.
    """
    rng = np.random.default_rng(3)
    worst = {"contrast": 0.0, "variance": 0.0}
    short, above_printed = 0, 0
    for _ in range(120):
        n, neighbours = int(rng.integers(6, 12)), 3
        t = rng.permutation(np.arange(n) < rng.integers(2, n - 1))
        scores = rng.random(n).round(1)
        matches = match(scores, t, neighbours, [k and 3 * k for k in limits])
        if (matches.found == 0).any():
            continue
        short += int((matches.found < neighbours).any())
        weight = 1 + matches.weight
        above_printed += int(limits[0] is not None and weight.max() > limits[0] + 1 + 1e-9)
        partner = pairs(scores, t)
        extra = rng.random(n) * 4
        extra = np.where(partner >= 0, extra + extra[partner], 0.0)
        y = rng.choice([0.0, 1.0], n)
        signed = np.where(t, weight, -weight)
        calls = {
            "contrast": lambda c, w=signed: contrast(c, w),
            "variance": lambda c, m=matches, p=partner, e=extra: MatchedRecords(
                c, no_score
            ).imputed_squares(*differences(m), p, e[None], "a"),
        }
        for j, name in itertools.product(range(n), calls):
            y2 = y.copy()
            y2[j] = 1 - y[j]
            ratio = change(curator(y, t), curator(y2, t), calls[name])
            worst[name] = max(worst[name], ratio)
    assert worst["contrast"] == pytest.approx(1.0)
    assert worst["contrast"] <= 1.0
    assert 0.2 < worst["variance"] <= 1.0
    if limits == (1, 1):
        assert short > 10
        assert above_printed > 10


def test_a_sensitivity_of_the_printed_kind_would_be_caught():
    """The attack has teeth: the paper's (k + 1) B fails on a dataset with exhausted neighbours."""
    t = np.array([True, False, False, False, False, False, False])
    matches = match(np.linspace(0, 1, 7), t, 2, (6 * 2, 2))
    weight = np.where(t, 1.0, -1.0) * (1 + matches.weight)
    printed = 1 + 1  # k2 = 1 for controls
    y = np.zeros(7)
    moved = [abs(float(weight @ (y + np.eye(7)[j]) - weight @ y)) for j in range(7)]
    assert max(moved) > printed


def test_matched_squares_are_what_they_say():
    rng = np.random.default_rng(8)
    n = 60
    y, t, scores = rng.random(n), rng.random(n) < 0.5, rng.random(n)
    matches, partner, extra = match(scores, t, 3), pairs(scores, t), rng.random(n) * 4
    extra = np.where(partner >= 0, extra + extra[partner], 0.0)
    total = 0.0
    for i in range(n):
        own = [j for j in matches.neighbours[i] if j >= 0]
        total += (y[i] - y[own].mean()) ** 2
        if partner[i] > i:
            total += extra[i] * (y[i] - y[partner[i]]) ** 2 / 2.0
    c, _ = curator(y, t)
    records = MatchedRecords(c, no_score)
    got = records.imputed_squares(*differences(matches), partner, extra[None], "a")
    assert float(got) == pytest.approx(total, rel=0.01)


def test_squares_of_heavy_pairs_do_not_overflow():
    weight, other = 2.0**29, np.array([1, 0], np.int32)
    records = MatchedRecords(curator(np.array([0.0, 1.0]), np.array([True, False]))[0], no_score)
    tables, contrasts = [np.arange(2)[:, None], other[:, None]], np.array([[1.0, -1.0]])
    got = records.imputed_squares(tables, contrasts, other, np.full((1, 2), weight), "a")
    assert float(got) == pytest.approx(2.0 + weight / 2.0, rel=1e-6)


def in_arms(rng, n, arms=3):
    """Random arms, none of them empty, scores, and matches in each arm, often too few."""
    arm = rng.permutation(np.concatenate([np.arange(arms), rng.integers(arms, size=n - arms)]))
    scores = rng.random((n, arms)).round(1)
    limits = rng.choice([1, 2, 50], arms)
    found = [match_into(scores[:, a], arm == a, 3, int(limits[a])) for a in range(arms)]
    return arm, scores, found


def test_sums_and_squares_of_several_arms_move_as_declared():
    rng = np.random.default_rng(11)
    worst = {"sums": 0.0, "squares": 0.0}
    for _ in range(80):
        n = int(rng.integers(6, 12))
        arm, scores, found = in_arms(rng, n)
        weights = np.choose(arm, [m.weight for m in found])
        partner = np.full(n, -1, np.int32)
        for a in range(3):
            partner = np.where(arm == a, pairs(scores[:, a], arm == a), partner)
        extra = rng.random((3, n)) * rng.choice([0.0, 4.0])
        extra = np.where(partner >= 0, extra + extra[:, partner], 0.0)
        contrasts = rng.normal(size=(3, 3))
        contrasts[0] = [-1.0, 1.0, 0.0]
        contrasts /= np.maximum(np.abs(contrasts).max(1), np.abs(contrasts).sum(1) / 2)[:, None]
        tables, y = [m.neighbours for m in found], rng.choice([0.0, 1.0], n)
        calls = {
            "sums": lambda c, w=weights, a=arm: MatchedRecords(c, no_scores).contrast(
                "c", w, "a", a
            ),
            "squares": lambda c, m=tables, u=contrasts, p=partner, e=extra: MatchedRecords(
                c, no_scores
            ).imputed_squares(m, u, p, e, "a"),
        }
        for j, name in itertools.product(range(n), calls):
            y2 = y.copy()
            y2[j] = 1 - y[j]
            one, other = (curator(values, arm, arms=3) for values in (y, y2))
            worst[name] = max(worst[name], change(one, other, calls[name]))
    assert worst["sums"] == pytest.approx(1.0)
    assert worst["sums"] <= 1.0
    assert 0.2 < worst["squares"] <= 1.0


@reads("outcome")
def no_scores(rows):
    return np.zeros((rows.size, 3))


def test_sums_and_squares_of_several_arms_are_what_they_say():
    rng = np.random.default_rng(12)
    n = 40
    arm, scores, found = in_arms(rng, n)
    y, contrasts = rng.random(n), np.array([[-1.0, 1.0, 0.0], [-0.25, -0.75, 1.0]])
    partner = pairs(scores[:, 0], arm == 0)
    extra = np.where(partner >= 0, 1.5, 0.0) * np.array([[1.0], [2.0]])
    sums, squares = np.zeros(3), np.zeros(2)
    for i in range(n):
        means = np.zeros(3)
        for a in range(3):
            own = [i] if arm[i] == a else [j for j in found[a].neighbours[i] if j >= 0]
            means[a] = y[own].mean() if own else 0.5
            sums[a] += means[a] - 0.5
        squares += (contrasts @ means) ** 2
        if partner[i] > i:
            squares += extra[:, i] * (y[i] - y[partner[i]]) ** 2 / 2
    records = MatchedRecords(curator(y, arm, arms=3)[0], no_scores)
    weights = np.choose(arm, [m.weight for m in found])
    assert records.contrast("c", weights, "a", arm).value == pytest.approx(sums, abs=1e-2)
    tables = [m.neighbours for m in found]
    got = records.imputed_squares(tables, contrasts, partner, extra, "a").value
    assert got == pytest.approx(squares, rel=0.01)
    for wrong in ([2.0, 0.0, 0.0], [1.0, -1.0, 0.5], [np.nan, 0.0, 0.0]):
        with pytest.raises(PrivacyError, match="nothing drawn"):
            records.imputed_squares(tables, np.array([wrong]), partner, extra[:1], "a")


def test_scores_and_arms_move_for_one_record_only():
    rng = np.random.default_rng(13)
    worst = [0.0, 0.0, 0.0]
    for _ in range(60):
        y, arm, x = rng.random(8), rng.integers(3, size=8), rng.choice([0.0, 1.0], (8, 2))
        j, score = int(rng.integers(8)), propensity_scores(rng.normal(0, 10, (3, 2)))
        arm2, x2 = arm.copy(), x.copy()
        arm2[j], x2[j] = rng.integers(3), rng.choice([0.0, 1.0], 2)
        calls = (
            lambda c, s=score: MatchedRecords(c, s).noisy_scores("a"),
            lambda c, s=score: MatchedRecords(c, s).mixed_arms("a"),
            lambda c: propensity_weights(c, 0.3, "a"),
        )
        for k, call in enumerate(calls):
            one, other = curator(y, arm, x, arms=3), curator(y, arm2, x2, arms=3)
            worst[k] = max(worst[k], change(one, other, call))
    assert 0.6 < worst[0] <= 1.0
    assert worst[1] == 1.0
    assert 0.1 < worst[2] <= 1.0


def test_weighted_sums_are_exact():
    """Against Python integers, at a size where float sums are off."""
    rng = np.random.default_rng(10)
    n = 300_000
    y, t = rng.random(n), rng.random(n) < 0.5
    weights = np.where(t, 3.1, -2.7)
    c, noise = curator(y, t)
    contrast(c, weights)
    steps = whole_weights(weights)
    largest, count = int(np.abs(steps).max()), int(np.abs(steps).sum())
    grid = Box(0.0, 1.0).on(count, 1.0 / largest)
    whole = grid.project(y[:, None].copy())[:, 0].astype(int)
    expected = sum(w * v for w, v in zip(steps.tolist(), whole.tolist(), strict=True))
    assert noise.values[-1].tolist() == [expected]
    assert noise.sensitivity[-1] == largest * grid.reach.same.l1


@pytest.mark.parametrize("bins", [bins for bins, _ in SEARCHES])
def test_private_search_for_bounds(bins):
    rng = np.random.default_rng(9)
    for _ in range(50):
        x = rng.normal(0, 10.0 ** rng.integers(-8, 20), 5)
        x2 = x.copy()
        x2[0] = rng.choice([0.0, 1e300, -1e300, 1e-300, 5.0, np.nan, np.inf])
        drawn = []
        for values in (np.append(x, [3.0] * 9999), np.append(x2, [3.0] * 9999)):
            noise = Bare()
            source = held(np.ones((len(values), 1)), values > 0, values)
            releaser = Releaser(Split(SHARES), CallLedger(Budget(1e9)), noise)
            find_bounds({"x": source}, releaser, None, bins)
            drawn.append(noise.values[0])
            assert noise.sensitivity == [2]
        assert drawn[0].size == bins.size
        assert np.abs(drawn[0] - drawn[1]).sum() <= 2


def test_private_columns_are_not_handed_out():
    t = np.array([True, False, True, False])
    for public in ((), ("treatment",), ("covariates",)):
        with pytest.raises(PrivacyError):
            MatchedRecords(curator(np.zeros(4), t, public=public)[0], no_score).public()
    c, noise = curator(np.zeros(4), t, public=("treatment", "covariates"))
    scores, treated = MatchedRecords(c, no_score).public()
    assert (treated == t).all()
    assert not scores.any()
    assert noise.values == []


def test_a_charge_comes_before_its_draw():
    """When the ledger refuses, nothing is drawn."""
    t, strata = np.array([True, False] * 2), (np.zeros(4, dtype=np.int64), 1)
    c, noise = curator(np.zeros(4), t, strata=strata, ledger=CallLedger(Budget(0.5)))
    index = np.array([[1], [0], [3], [2]], dtype=np.int32)
    records, ones = MatchedRecords(c, no_score), np.ones(4, dtype=np.int32)
    nothing = np.zeros((1, 4))

    def models(x, treated, outcome):
        return lambda new: np.zeros((3, len(new)))

    for ask in (
        lambda: treated_count(c, "a"),
        lambda: arm_sums(c, "a"),
        lambda: arm_squares(c, "a"),
        lambda: records.mixed_arms("a"),
        lambda: records.noisy_scores("a"),
        lambda: records.contrast("c", np.ones(4), "a"),
        lambda: records.imputed_squares([index], np.ones((1, 1)), 0 * ones - 1, nothing, "a"),
        lambda: propensity_weights(c, 0.1, "a"),
        lambda: norm_of_sum(c, "norm", no_score, Box(0, 1), share="a"),
        lambda: MatchedStrata(c, "means").difference_globally("a"),
        lambda: MatchedStrata(c, "means").variance("a", 2.5),
        lambda: MatchedStrata(c, "means").log_sensitivity("a", 0.1),
        lambda: Folds(c, models, EffectTerms("aipw", 0.2), 2).mean_by_predictions("m", "a"),
    ):
        with pytest.raises(BudgetError, match="left"):
            ask()
    assert noise.values == []
