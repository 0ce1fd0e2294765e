"""Every sensitivity attacked on the primitive itself, by random and adversarial neighbours."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from dpeffects.privacy.sums import Grid, weights_to_grid
from dpeffects.privacy.weighting import Propensity, limits

from dpeffects.design.bounds import magnitude_counts
from dpeffects.errors import BudgetError, PrivacyError
from dpeffects.estimators.matching import match, pairs
from dpeffects.privacy.budget import Share
from dpeffects.privacy.curator import Curator, Releaser, Rows, find_bounds
from dpeffects.privacy.ledger import Ledger

SHARES = dict.fromkeys(("a", "bounds"), Share(1.0))


class Bare:
    """No noise: keeps what would have been noised, and the sensitivity that was declared."""

    description, void = "none", ("no noise",)

    def __init__(self):
        self.values, self.sensitivity = [], []

    def laplace(self, values, scale, sensitivity, epsilon):
        self.values.append(values.copy())
        self.sensitivity.append(sensitivity)
        return values

    def flip(self, bits, epsilon):
        self.values.append(bits.astype(np.int64))
        self.sensitivity.append(1)
        return bits

    def permutation(self, n):
        return np.arange(n)


def curator(y, t, x=None, *, limits=(0.0, 1.0), public=()):
    x = np.zeros((len(y), 1)) if x is None else x
    rows = Rows(np.clip(y, *limits), limits, t, lambda: x, x.shape[1])
    noise = Bare()
    return Curator(rows, Releaser(SHARES, Ledger(1e9), noise), frozenset(public)), noise


def change(one, two, call):
    """Largest L1 distance of what two curators would noise, over the declared sensitivity."""
    (first, noise1), (second, noise2) = one, two
    call(first)
    call(second)
    assert noise1.sensitivity == noise2.sensitivity, "the sensitivity depends on private data"
    drawn = zip(noise1.values, noise2.values, noise1.sensitivity, strict=True)
    return max(np.abs(a.astype(float) - b).sum() / bound for a, b, bound in drawn)


SUMS = {
    "count": lambda c: c.treated_count("a"),
    "sums": lambda c: c.arm_sums("a"),
    "squares": lambda c: c.arm_squares("a"),
    "flips": lambda c: c.flipped_treatment("a"),
}


@pytest.mark.parametrize("name", SUMS)
def test_arm_primitives_on_all_replacements(name):
    """All datasets of four records with extreme values, all replacements of one of them."""
    y_values, worst = (0.0, 0.5, 1.0), 0.0
    records = list(itertools.product(y_values, (False, True)))
    for data in itertools.combinations_with_replacement(records, 3):
        for a, b in itertools.combinations(records, 2):
            pair = []
            for extra in (a, b):
                y, t = zip(*data, extra, strict=True)
                pair.append(curator(np.array(y), np.array(t)))
            worst = max(worst, change(*pair, SUMS[name]))
    assert worst <= 1.0
    assert worst == pytest.approx(1.0)  # attained: nothing is wasted either


@pytest.mark.parametrize("name", ["sums", "squares"])
def test_values_outside_the_bounds_change_no_more(name):
    t = np.array([True, False, True, False])
    one = curator(np.array([-1e300, 0.2, 0.7, 1.0]), t)
    two = curator(np.array([1e300, 0.2, 0.7, 1.0]), t)
    assert change(one, two, SUMS[name]) <= 1.0


def replaced(rng, y, t, x, j):
    y, t, x = y.copy(), t.copy(), x.copy()
    y[j] = rng.choice([0.0, 1.0, rng.random()])
    t[j] = rng.random() < 0.5
    x[j] = rng.choice([0.0, 1.0], x.shape[1]) if rng.random() < 0.5 else rng.random(x.shape[1])
    return y, t, x


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
            call = lambda c, w=weights: c.contrast("c", w, "a")  # noqa: E731
            worst = max(worst, change(curator(y, t), curator(y2, t), call))
    assert worst <= 1.0
    assert worst == pytest.approx(1.0)


@pytest.mark.parametrize("limits", [None, (1, 1), (2, 2)], ids=["free", "exhausted", "tight"])
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
        matches = match(scores, t, neighbours, limits and (limits[0] * 3, limits[1] * 3))
        if (matches.found == 0).any():
            continue
        short += int((matches.found < neighbours).any())
        weight = 1 + matches.weight
        above_printed += int(limits is not None and weight.max() > limits[0] + 1 + 1e-9)
        partner = pairs(scores, t)
        extra = rng.random(n) * 4
        extra = np.where(partner >= 0, extra + extra[partner], 0.0)
        y = rng.choice([0.0, 1.0], n)
        signed = np.where(t, weight, -weight)
        calls = {
            "contrast": lambda c, w=signed: c.contrast("c", w, "a"),
            "variance": lambda c, m=matches, p=partner, e=extra: c.matched_squares(
                m.neighbours, m.found, p, e, "a"
            ),
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


COVARIATES = {
    "plain": lambda c, model: c.arm_covariates("a"),
    **{
        estimand: lambda c, model, e=estimand: c.weighted_covariates(model, e, "a")
        for estimand in ("ATE", "ATT", "ATC")
    },
}


@pytest.mark.parametrize("name", COVARIATES)
def test_covariates_by_arm(name):
    """Corners and random rows, any model; with flat weights the bound is attained."""
    rng, worst, longest = np.random.default_rng(11), 0.0, 0.0
    for trial in range(300):
        n, m = int(rng.integers(4, 8)), int(rng.integers(1, 5))
        x = np.column_stack([np.ones(n), rng.choice([0.0, 1.0, 0.5], (n, m))])
        t = rng.random(n) < 0.5
        y2, t2, x2 = replaced(rng, np.zeros(n), t, x, 0)
        if trial % 2:  # from one corner to another, and perhaps to the other arm
            t[0], t2[0] = True, trial % 4 == 1
            x[0], x2[0] = 0.0, rng.choice([-50.0, 0.0, 1.0, 50.0])
        x[:, 0] = x2[:, 0] = 1.0
        slopes = rng.normal(0, 5, m + 1) * (trial % 3 > 0)
        model = Propensity.within(slopes, float(rng.normal()), limits(name, 0.1))
        call = lambda c, model=model: COVARIATES[name](c, model)  # noqa: E731
        one, two = curator(np.zeros(n), t, x), curator(y2, t2, x2)
        worst = max(worst, change(one, two, call))
        moved = (one[1].values[-1] - two[1].values[-1]) * 2.0**-20
        squared = max(4 * m, 2 + (2.125 if name == "plain" else 2) * m)
        longest = max(longest, float(np.linalg.norm(moved)) / np.sqrt(squared))
    assert worst <= 1.0
    assert longest <= 1.0 + 1e-5
    assert min(worst, longest) > 0.999  # attained: nothing is wasted


def test_covariates_by_arm_are_the_sums():
    rng = np.random.default_rng(12)
    x = np.column_stack([np.ones(80), rng.random((80, 2))])
    t = rng.random(80) < 0.5
    c, _ = curator(np.zeros(80), t, x)
    got, u = c.arm_covariates("a").value, 2 * x[:, 1:] - 1
    model = Propensity.within(np.array([0.2, 2.0, -1.0]), 0.3, (0.1, 0.9))
    weighted = c.weighted_covariates(model, "ATE", "a").value
    norm = np.sqrt(1.5) * (1 + 1e-9)
    e = 1 / (1 + np.exp(-(0.3 + (0.2 + 2 * (x[:, 1] - 0.5) - (x[:, 2] - 0.5)) / norm)))
    e = np.clip(e, model.low, model.high)
    for arm, rows, w in ((0, t, 1 / e), (1, ~t, 1 / (1 - e))):
        assert got[arm, 0] == rows.sum()
        assert got[arm, 1:3] == pytest.approx(u[rows].sum(axis=0), abs=1e-3)
        assert got[arm, 3:] == pytest.approx((u[rows] ** 2 - 0.5).sum(axis=0) / 2, abs=1e-3)
        mean = (w[rows, None] * u[rows]).sum(axis=0) / w[rows].sum()
        assert weighted[arm, 1:] / weighted[arm, 0] == pytest.approx(mean, abs=1e-3)


def test_noisy_scores_move_for_one_record_only():
    rng = np.random.default_rng(4)
    for _ in range(100):
        n, d = 6, 3
        y, t, x = rng.random(n), rng.random(n) < 0.5, rng.random((n, d))
        w = rng.normal(0, 10, d)
        y2, t2, x2 = replaced(rng, y, t, x, int(rng.integers(n)))
        call = lambda c, w=w: c.noisy_scores(w, "a")  # noqa: E731
        assert change(curator(y, t, x), curator(y2, t2, x2), call) <= 1.0


@pytest.mark.parametrize("name", ["sums", "contrast"])
def test_sums_are_exact(name):
    """Against Python integers, at a size where float sums are off."""
    rng = np.random.default_rng(10)
    n = 300_000
    y, t = rng.random(n), rng.random(n) < 0.5
    weights = np.where(t, 3.1, -2.7)
    c, noise = curator(y, t)
    SUMS[name](c) if name == "sums" else c.contrast("c", weights, "a")
    grid = Grid.for_sum((0.0, 1.0), n, 1.0)
    if name == "sums":
        steps = grid.encode(y).tolist()
        arms = t.tolist()
        expected = [
            sum(v for v, a in zip(steps, arms, strict=True) if a is arm) for arm in (True, False)
        ]
    else:
        size = np.abs(weights_to_grid(weights))
        grid = Grid.for_sum((0.0, 1.0), float(size.sum()), 1.0, float(size.max()))
        pairs_ = zip(weights_to_grid(weights).tolist(), grid.encode(y).tolist(), strict=True)
        expected = [sum(w * v for w, v in pairs_)]
    assert noise.values[-1].tolist() == expected


def test_private_bounds_histogram():
    rng = np.random.default_rng(9)
    for _ in range(200):
        x = rng.normal(0, 10.0 ** rng.integers(-8, 20), 5)
        x2 = x.copy()
        x2[0] = rng.choice([0.0, 1e300, -1e300, 1e-300, 5.0])
        assert np.abs(magnitude_counts(x) - magnitude_counts(x2)).sum() <= 2
    noise = Bare()
    find_bounds({"x": np.full(10_000, 3.0)}, Releaser(SHARES, Ledger(1e9), noise))
    assert noise.sensitivity == [2]


def test_private_columns_are_not_handed_out():
    c, _ = curator(np.zeros(4), np.array([True, False, True, False]))
    for ask in (c.treatment, lambda: c.public_scores(0.1)):
        with pytest.raises(PrivacyError):
            ask()
    c, _ = curator(np.zeros(4), np.array([True, False, True, False]), public=("treatment",))
    assert c.treatment().sum() == 2
    with pytest.raises(PrivacyError):
        c.public_scores(0.1)


def test_a_charge_comes_before_its_draw():
    """When the ledger refuses, nothing is drawn."""
    noise = Bare()
    rows = Rows(np.zeros(4), (0.0, 1.0), np.array([True, False] * 2), lambda: np.zeros((4, 1)), 1)
    c = Curator(rows, Releaser(SHARES, Ledger(0.5), noise), frozenset())
    weights = np.ones(4)
    for ask in (
        lambda: c.arm_sums("a"),
        lambda: c.arm_squares("a"),
        lambda: c.treated_count("a"),
        lambda: c.flipped_treatment("a"),
        lambda: c.contrast("c", weights, "a"),
        lambda: c.propensity_weights(0.1, "a"),
        lambda: c.noisy_scores(np.zeros(1), "a"),
        lambda: c.arm_moments("a"),
        lambda: c.arm_covariates("a"),
    ):
        with pytest.raises(BudgetError, match="left"):
            ask()
    assert noise.values == []
