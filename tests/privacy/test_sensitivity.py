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
from dpeffects.privacy import erm
from dpeffects.privacy import rows as private_rows
from dpeffects.privacy.budget import Share
from dpeffects.privacy.curator import Curator, Releaser, Rows, find_bounds
from dpeffects.privacy.ledger import Ledger
from tests.privacy.nasty import fitted_rows, fitted_weights
from tests.privacy.problems import held

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


@pytest.mark.parametrize("penalty", [1e-3, 0.05, 1.0])
def test_logistic_weights(penalty):
    """Random neighbours, and the worst-case kind: corner rows with the label turned around."""
    rng = np.random.default_rng(5)
    worst = 0.0
    for trial in range(60):
        n, d = int(rng.integers(4, 10)), int(rng.integers(1, 5))
        x = np.column_stack([np.ones(n), rng.choice([0.0, 1.0], (n, d - 1))]).reshape(n, d)
        t = rng.random(n) < 0.5
        x2, t2 = x.copy(), t.copy()
        t2[0] = not t[0]
        x2[0] = 1.0 if trial % 2 else rng.choice([0.0, 1.0], d)
        call = lambda c: c.propensity_weights(penalty, "a")  # noqa: E731
        y = np.zeros(n)
        worst = max(worst, change(curator(y, t, x), curator(y, t2, x2), call))
    assert worst <= 1.0
    assert worst > 0.1 or penalty < 0.05  # the bound is not vacuous where the penalty matters


def test_logistic_weights_against_a_built_worst_case():
    """Many base rows pin two weights at +-M, so that a record's gradient is nearly all of its row
    before and after; then the change comes close to 2d / (n lambda). Half of the bound, or the L2
    bound taken for L1, would be exceeded."""
    d, pinned, n_penalty = 10, 5.0, 20.0
    k = int(np.ceil(n_penalty * pinned * (1 + np.exp(pinned))))
    base = np.zeros((2 * k, d))
    base[:k, d - 2] = base[k:, d - 1] = 1.0
    t = np.arange(2 * k) < k
    one, two = np.ones(d), np.ones(d)
    one[d - 2] = two[d - 1] = 0.0
    n = 2 * k + 1
    pair = [
        curator(np.zeros(n), np.append(t, arm), np.vstack([base, row]))
        for row, arm in ((one, True), (two, False))
    ]
    assert 0.7 < change(*pair, lambda c: c.propensity_weights(n_penalty / n, "a")) <= 1.0


def test_rounding_of_the_weights_is_in_the_sensitivity():
    c, noise = curator(np.zeros(4), np.array([True, False] * 2), np.ones((4, 3)))
    c.propensity_weights(0.5, "a")
    bound = erm.logistic_sensitivity(4, 3, 0.5)
    unit = 2.0 ** (np.floor(np.log2(bound)) - 20)
    assert noise.sensitivity[-1] >= bound / unit + 3


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


def test_logistic_worst_case_is_near_the_bound():
    """With opposite labels at a large penalty the bound 2d / (n lambda) is about half used: the two
    gradients are 1/2 each at w = 0."""
    y = np.zeros(2)
    one = curator(y, np.array([True, True]), np.ones((2, 1)))
    two = curator(y, np.array([True, False]), np.ones((2, 1)))
    assert 0.3 < change(one, two, lambda c: c.propensity_weights(50.0, "a")) <= 1.0


def test_the_solver_keeps_its_promise_on_hard_data():
    rng = np.random.default_rng(6)
    for penalty in (1e-6, 1e-3, 1.0):
        for separable in (True, False):
            x = np.column_stack([np.ones(300), rng.integers(0, 2**16, (300, 4)) / 2**16])
            t = x[:, 1] > 0.5 if separable else rng.random(300) < 0.5
            w = erm.fit_logistic(held(x, t), penalty)
            gradient = x.T @ (1 / (1 + np.exp(-x @ w)) - t) / 300 + penalty * w
            assert np.linalg.norm(gradient) <= erm.GRADIENT * 1.01


def test_logistic_matches_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(7)
    x = np.column_stack([np.ones(400), rng.random((400, 3))])
    t = rng.random(400) < 1 / (1 + np.exp(-(x @ [0.5, -2, 1, 0.0])))
    penalty = 0.01
    peer = linear_model.LogisticRegression(
        C=1 / (penalty * 400), fit_intercept=False, tol=1e-12, max_iter=10_000
    ).fit(x, t)
    assert erm.fit_logistic(held(x, t), penalty) == pytest.approx(peer.coef_[0], abs=1e-5)


def test_fits_do_not_depend_on_order_or_blocks(monkeypatch):
    rng = np.random.default_rng(8)
    x = np.column_stack([np.ones(3000), rng.random((3000, 2))])
    t = rng.random(3000) < 0.3
    whole = erm.fit_logistic(held(x, t), 0.01)
    order = rng.permutation(3000)
    assert (erm.fit_logistic(held(x[order], t[order]), 0.01) == whole).all()
    monkeypatch.setattr(private_rows, "ROWS", 100)
    assert (erm.fit_logistic(held(x, t), 0.01) == whole).all()


def test_gradients_are_rounded_by_less_than_is_accounted_for():
    """Computed gradients against long doubles, at weights of all sizes."""
    rng = np.random.default_rng(11)
    for _ in range(50):
        n, d = int(rng.integers(1, 2000)), int(rng.integers(2, 12))
        x = np.column_stack([np.ones(n), rng.random((n, d - 1))])
        t = rng.random(n) < 0.5
        w = rng.normal(size=d) * 10.0 ** rng.integers(-2, 9)
        offset = float(rng.normal())
        got, _ = erm._derivatives(held(x, t), w, 0.0, True, offset, np.zeros(d))
        unit = fitted_rows(x, True)
        assert np.abs(unit - erm.unit_rows(x)).max() <= 2.0**-17
        with np.errstate(over="ignore"):
            chance = 1 / (1 + np.exp(-(unit @ fitted_weights(w, True) + np.longdouble(offset))))
        exact = ((chance - t) @ unit) / n
        bound = erm._scale(d, True).rounding(float(np.linalg.norm(w)), offset)
        assert np.linalg.norm((got - exact).astype(float)) <= bound


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
