"""The propensity model and the weighted sums, attacked with random and adversarial neighbours."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dpeffects.privacy.weighting import Propensity, Score, limits

from dpeffects.errors import BudgetError
from dpeffects.estimators.features import unit_rows
from dpeffects.privacy.budget import Share
from dpeffects.privacy.curator import Curator, Releaser, Rows
from dpeffects.privacy.ledger import Ledger

SHARE = Share(1.0, 1e-6)


class Bare:
    """No noise: keeps what would have been noised, and its declared sensitivity or scale."""

    description, void = "none", ("no noise",)

    def __init__(self):
        self.drawn = []

    def laplace(self, values, scale, sensitivity, epsilon):
        assert sensitivity / scale <= epsilon
        self.drawn.append((values.copy(), sensitivity))
        return values

    def gaussian(self, values, scale):
        self.drawn.append((values.copy(), scale))
        return values

    def permutation(self, n):
        return np.arange(n)


def curator(y, t, x, *, limits=(0.0, 1.0), public=(), share=SHARE, noise=None):
    noise = noise or Bare()
    rows = Rows(np.clip(y, *limits), limits, t, lambda: x, x.shape[1])
    releaser = Releaser({"a": share}, Ledger(1e9, 0.5), noise)
    return Curator(rows, releaser, frozenset(public)), noise


def data(rng, n=7, d=3):
    """Rows at corners of the unit cube as often as not, extreme outcomes."""
    x = rng.choice([0.0, 1.0], (n, d)) if rng.random() < 0.5 else rng.random((n, d))
    x[:, 0] = 1.0
    return rng.choice([0.0, 1.0, 0.4], n), rng.random(n) < 0.5, x


def replaced(rng, y, t, x):
    """The same with one record replaced; half the time by its opposite."""
    y, t, x = y.copy(), t.copy(), x.copy()
    j = int(rng.integers(y.size))
    if rng.random() < 0.5:
        y[j], t[j], x[j, 1:] = 1.0 - np.rint(y[j]), not t[j], 1.0 - np.rint(x[j, 1:])
    else:
        y[j], t[j] = rng.random(), rng.random() < 0.5
        x[j, 1:] = rng.choice([0.0, 1.0], x.shape[1] - 1)
    return y, t, x


# --- weighted sums ----------------------------------------------------------------------------


def scores(rng, estimand, span=(0.0, 1.0)):
    model = Propensity.within(rng.normal(size=3) * 4, float(rng.normal()), limits(estimand, 0.15))
    centres = tuple(float(c) for c in rng.uniform(-0.3, 1.3, 2))
    minus = tuple(float(c) for c in rng.normal(size=2) * rng.choice([0.0, 1.0]))
    return Score(estimand, model, centres, span, minus)


@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
def test_scores_stay_in_their_interval_and_reach_its_ends(estimand):
    rng = np.random.default_rng(9)
    y, t = np.array([0.0, 1.0, 0.0, 1.0]), np.array([True, True, False, False])
    nearest = 1.0
    for _ in range(200):
        score = scores(rng, estimand)
        corners = unit_rows(np.array(list(itertools.product([1.0], [0.0, 1.0], [0.0, 1.0]))))
        values = np.concatenate([score.values(y, t, np.tile(row, (4, 1))) for row in corners])
        low, high = score.interval()
        assert values.min() >= low - 1e-9
        assert values.max() <= high + 1e-9
        gap = max(values.min() - low, high - values.max()) / (high - low)
        nearest = min(nearest, gap)
    assert nearest < 1e-6


PRIMITIVES = {
    "sum": lambda c, score: c.score_sum(score, "a"),
    "squares": lambda c, score: c.score_squares(score, "a", 0.5),
    "spread": lambda c, score: c.column_squares("a"),
    "moment": lambda c, score: c.moment_norm(score.centres, np.array([0.1, 2.0, 1.0]), "a", 0.25),
}


@pytest.mark.parametrize("name", PRIMITIVES)
@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
def test_weighted_releases_on_neighbours(name, estimand):
    rng = np.random.default_rng(10)
    worst = 0.0
    for _ in range(300):
        score = scores(rng, estimand)
        rows = data(rng, n=4)
        pair = []
        for r in (rows, replaced(rng, *rows)):
            c, noise = curator(*r, share=Share(1.0))
            PRIMITIVES[name](c, score)
            pair.append(noise.drawn[-1])
        (one, declared), (two, same) = pair
        assert declared == same, "the sensitivity depends on private data"
        assert np.abs(one - two).sum() <= declared
        worst = max(worst, float(np.abs(one - two).sum() / declared))
    assert worst > 0.5


def test_label_neighbours_move_one_arm_only():
    """With public treatments the sensitivity is that of the longer arm, and it holds."""
    rng = np.random.default_rng(11)
    worst = 0.0
    for _ in range(200):
        score = scores(rng, "ATE")
        y, t, x = data(rng, n=4)
        y = np.rint(y)
        other = y.copy()
        other[0] = 1.0 - y[0]
        pair = []
        for values in (y, other):
            c, noise = curator(values, t, x, share=Share(1.0), public=("treatment", "covariates"))
            c.score_sum(score, "a")
            pair.append(noise.drawn[-1])
        (one, declared), (two, _) = pair
        worst = max(worst, float(np.abs(one - two).sum() / declared))
        assert worst <= 1.0
    assert worst > 0.9


def test_sums_are_what_they_say():
    rng = np.random.default_rng(12)
    y, t, x = data(rng, n=500)
    score = scores(rng, "ATE")
    c, _ = curator(y, t, x)
    values = score.values(y, t, unit_rows(x))
    assert float(c.score_sum(score, "a")) == pytest.approx(values.sum(), abs=1e-4)
    assert float(c.score_squares(score, "a", 0.5)) == pytest.approx((values**2).sum(), rel=1e-6)
    spread = c.column_squares("a").value / 500
    assert spread == pytest.approx(x[:, 1:].var(axis=0), abs=1e-4)  # less a noise that is not there
    scale = np.array([0.5, 1.0, 2.0])
    residual = y - np.where(t, *score.centres)
    norm = np.linalg.norm(residual @ (unit_rows(x) * scale))
    assert float(c.moment_norm(score.centres, scale, "a", 0.1)) == pytest.approx(norm, abs=1e-3)


def test_a_released_model_bounds_its_own_weights():
    flat = Propensity.within(np.zeros(4), 0.2, (0.1, 0.9))
    assert flat.low == flat.high == pytest.approx(1 / (1 + math.exp(-0.2)))
    steep = Propensity.within(np.array([0.0, 1e6]), 0.0, (0.1, 0.9))
    assert (steep.low, steep.high) == (0.1, 0.9)
    far = Propensity.within(np.zeros(2), 50.0, (0.1, 0.9))
    assert (far.low, far.high) == (0.9, 0.9)


# --- two halves -------------------------------------------------------------------------------

FIRST, SECOND = {"model": 1.0}, {"b": 1.0, "c": 3.0}


def halved(y, t, x, noise=None):
    noise = noise or Bare()
    ledger = Ledger(2.0, 1e-6)
    rows = Rows(y, (0.0, 1.0), t, lambda: x, x.shape[1])
    shares = {"b": Share(0.25, 1e-7), "c": Share(0.75, 3e-7)}
    c = Curator(rows, Releaser(shares, ledger, noise), frozenset())
    return c.halves(FIRST, SECOND, lambda half: (half, half.treated_count("model"))), ledger, noise


def test_halves_are_disjoint_and_charged_once():
    rng = np.random.default_rng(14)
    y, t, x = data(rng, n=9)
    ((even, count), odd), ledger, _ = halved(y, t, x)
    assert (even.n, odd.n) == (5, 4)
    assert float(count) == t[::2].sum()
    assert (odd._rows.outcome == y[1::2]).all()
    assert (odd._covariates() == x[1::2]).all()
    before = ledger.spent
    assert before[0] == pytest.approx(1.0)
    odd.arm_sums("b")
    odd.treated_count("c")
    assert ledger.spent == before
    covered = odd._releaser._ledger.spent
    assert covered[0] <= before[0]
    assert float(covered[0]) == pytest.approx(1.0)
    with pytest.raises(BudgetError):
        odd.treated_count("b")  # more than was paid for


def test_a_record_is_seen_by_one_half_only():
    rng = np.random.default_rng(15)
    for j in range(6):
        y, t, x = data(rng, n=6)
        seen = []
        for turned in (False, True):
            other = t.copy()
            other[j] ^= turned
            ((_, count), odd), *_ = halved(y, other, x)
            seen.append((float(count), float(odd.treated_count("c"))))
        (even, odd), (even2, odd2) = seen
        assert (even != even2) == (j % 2 == 0)
        assert (odd != odd2) == (j % 2 == 1)
