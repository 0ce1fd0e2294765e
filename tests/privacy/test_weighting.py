"""The propensity model and the weighted sums, attacked with random and adversarial neighbours."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr

from dpeffects.errors import BudgetError, PrivacyError
from dpeffects.privacy import erm
from dpeffects.privacy.budget import Budget, Share, as_written
from dpeffects.privacy.curator import Curator, Releaser, Rows
from dpeffects.privacy.ledger import Ledger
from dpeffects.privacy.noise import NoiseSource, SeededNoise, gaussian_scale
from dpeffects.privacy.weighting import Propensity, Score, limits
from tests.privacy.problems import held

SHARE = Share(1.0, 1e-6)


class Bare(NoiseSource):
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


# --- rows and the logistic regression ---------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 5, 30])
def test_unit_rows_have_norm_at_most_one(d):
    rng = np.random.default_rng(d)
    corners = rng.choice([-1e9, 0.0, 1.0, 1e9], (500, d))
    rows = erm.unit_rows(corners)
    assert np.linalg.norm(rows, axis=1).max() <= 1.0
    assert np.abs(rows).sum(axis=1).max() <= erm.unit_l1(d)
    full = erm.unit_rows(np.ones((1, d)))
    assert np.linalg.norm(full) == pytest.approx(1.0)  # nothing is wasted
    assert np.abs(full).sum() == pytest.approx(erm.unit_l1(d))


@pytest.mark.parametrize("strength", [0.01, 1.0, 50.0])
def test_output_perturbation(strength):
    """L1 and L2 distances of the weights of neighbours against what is declared."""
    rng = np.random.default_rng(1)
    worst = 0.0
    for _ in range(80):
        d = int(rng.integers(1, 5))
        y, t, x = data(rng, d=d)
        steps = []
        for rows in ((y, t, x), replaced(rng, y, t, x)):
            c, noise = curator(*rows, share=Share(1.0))
            c.propensity_model(strength, 0.3, "a", "output")
            steps.append(noise.drawn[-1])
        (one, declared), (two, same) = steps
        assert declared == same
        distance = np.linalg.norm(one - two) * math.sqrt(d)
        assert np.abs(one - two).sum() <= declared
        assert distance <= declared
        worst = max(worst, distance / declared)
    assert worst > 0.2 or strength < 0.1


def test_output_perturbation_declares_its_l2_sensitivity():
    rng = np.random.default_rng(2)
    c, _ = curator(*data(rng), share=SHARE)
    c.propensity_model(2.0, 0.0, "a", "output", "gaussian")
    spend = c._releaser._ledger.spends[-1]
    assert spend.mechanism == "Gaussian"
    assert 1.0 <= spend.sensitivity[0] <= 1.00001  # 2 / strength and a little for the grid
    assert spend.scale[0] >= gaussian_scale(1.0, *SHARE, 3)


def problem(y, t, x, strength=1.0, offset=0.0):
    return erm.Logistic(held(x, t), strength, offset)


def curvature(p, w):
    e = erm.sigmoid(p.rows @ w + p.offset)
    return (p.rows * (e * (1 - e))[:, None]).T @ p.rows + p.strength * np.eye(w.size)


def test_objective_gradients_and_volumes_on_neighbours():
    """Claim 21's two ingredients at any weights, huge ones too."""
    rng = np.random.default_rng(3)
    far, wide = 0.0, 0.0
    for _ in range(500):
        d = int(rng.integers(1, 6))
        y, t, x = data(rng, n=int(rng.integers(1, 8)), d=d)
        strength = float(rng.choice([0.02, 0.3, 5.0]))
        one, two = (problem(*r, strength) for r in ((y, t, x), replaced(rng, y, t, x)))
        w = rng.normal(size=d) * float(rng.choice([0.1, 3.0, 1e3]))
        change = one.gradient(w) - two.gradient(w)
        assert np.abs(change).sum() <= 2.0 * erm.unit_l1(d)
        assert np.linalg.norm(change) <= 2.0
        far = max(far, np.linalg.norm(change))
        log_ratio = (
            np.linalg.slogdet(curvature(one, w))[1] - np.linalg.slogdet(curvature(two, w))[1]
        )
        assert abs(log_ratio) <= erm.volume_price(strength)
        wide = max(wide, abs(log_ratio) / erm.volume_price(strength))
    assert far > 1.5
    assert wide > 0.5


def densities(p, log_noise, grid):
    """Density of the minimiser on a grid of weights, by change of variables from the noise."""
    e = erm.sigmoid(grid @ p.rows.T + p.offset)
    b = -(e - p.treated) @ p.rows - p.strength * grid
    a = np.einsum("gi,ij,ik->gjk", e * (1 - e), p.rows, p.rows) + p.strength * np.eye(2)
    return np.exp(log_noise(b)) * np.linalg.det(a)


@pytest.mark.parametrize("strength", [0.05, 1.0])
def test_the_law_of_the_minimiser_under_laplace_noise(strength):
    rng = np.random.default_rng(4)
    epsilon = 0.8
    axis = np.linspace(-12, 12, 41)
    grid = np.array(list(itertools.product(axis, axis)))
    scale = 2.0 * erm.unit_l1(2) / epsilon
    largest = 0.0
    for _ in range(6):
        rows = data(rng, n=4, d=2)
        one, two = (problem(*r, strength) for r in (rows, replaced(rng, *rows)))
        f, g = (densities(p, lambda b: -np.abs(b).sum(axis=1) / scale, grid) for p in (one, two))
        largest = max(largest, np.abs(np.log(f / g)).max())
    assert 0.3 < largest / (epsilon + erm.volume_price(strength)) <= 1.0


def test_the_law_of_the_minimiser_under_gaussian_noise():
    """The hockey-stick divergence by quadrature, in two dimensions, with opposite records."""
    epsilon, delta, strength = 0.7, 1e-2, 0.5
    sigma = gaussian_scale(2.0, epsilon, delta, 2)
    axis = np.linspace(-1, 1, 161) * 9 * sigma / strength / 3
    grid = np.array(list(itertools.product(axis, axis)))
    cell = (axis[1] - axis[0]) ** 2
    base = np.array([[1.0, 0.0], [1.0, 1.0]])
    for a, b, ta, tb in itertools.product((0.0, 1.0), (0.0, 1.0), (True, False), (True, False)):
        pair = []
        for end, t in ((a, ta), (b, tb)):
            p = problem(None, np.array([True, False, t]), np.vstack([base, [1.0, end]]), strength)
            f = densities(p, lambda v: -(v**2).sum(axis=1) / (2 * sigma**2), grid)
            f /= 2 * math.pi * sigma**2
            assert f.sum() * cell == pytest.approx(1.0, abs=0.02)
            pair.append(f)
        f, g = pair
        excess = np.maximum(f - math.exp(epsilon + erm.volume_price(strength)) * g, 0).sum() * cell
        assert excess <= 3 * delta
        assert excess <= 1.05 * delta  # the factor 3 is for the proof


def test_the_profile_grows_with_the_shift():
    """Claim 21 bounds shifts of less than 2 by that of 2."""
    sigma, epsilon = 3.0, 0.5
    m = np.linspace(0.01, 2.0, 50) / sigma
    profile = ndtr(m / 2 - epsilon / m) - math.exp(epsilon) * ndtr(-m / 2 - epsilon / m)
    assert (np.diff(profile) > 0).all()


@pytest.mark.parametrize("strength", [0.02, 2.0])
def test_the_solver_keeps_its_promise(strength):
    rng = np.random.default_rng(5)
    for n, size in ((5, 0.0), (300, 100.0), (2000, 5e3)):
        rows = data(rng, n=n, d=4)
        p = problem(*rows, strength, 1.0)
        b = rng.normal(size=4) * size * strength
        w = p.solve(b)
        gradient = p.gradient(w) + strength * w + b
        assert np.linalg.norm(gradient) <= 8e-12 * n + 1e-14 * (np.abs(b).sum() + n)
        assert p.slack() == pytest.approx(8e-12 * n / strength)


def minimised(share, noise="auto", n=50, d=3, seed=6):
    rng = np.random.default_rng(seed)
    _, t, x = data(rng, n=n, d=d)
    ledger = Ledger(share.epsilon, share.delta)
    releaser = Releaser(Budget(*share).shares({"m": 1.0}), ledger, SeededNoise(seed))
    p = erm.Logistic(held(x, t), erm.default_strength(n, d, *share))
    return erm.minimise(releaser, "model", p, "m", noise), p, ledger


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 8.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("noise", ["auto", "laplace", "gaussian"])
def test_the_objective_pays_for_noise_volume_and_solver(epsilon, delta, noise):
    released, p, ledger = minimised(Share(epsilon, delta), noise)
    volume, inside, last = ledger.spends
    total = sum(Fraction(s.epsilon) for s in ledger.spends)
    assert total <= as_written(epsilon)
    assert float(total) == pytest.approx(epsilon, rel=1e-12)
    assert volume.epsilon >= math.log1p(0.25 / p.strength)
    assert last.epsilon == pytest.approx(0.01 * epsilon)
    d = p.rows.shape[1]
    if inside.mechanism == "Gaussian":
        assert delta > 0
        assert 3 * inside.delta * math.exp(last.epsilon / 2) <= delta
        assert float(ledger.spent[1]) == pytest.approx(delta)
        assert inside.scale[0] >= gaussian_scale(2.0, inside.epsilon, inside.delta, d)
    else:
        assert noise != "gaussian" or delta == 0
        assert ledger.spent[1] == 0
        assert inside.scale[0] >= 2.0 * erm.unit_l1(d) / inside.epsilon
    tau = p.slack() + math.sqrt(d) * inside.scale[0] * 2.0**-31 / p.strength / 2
    assert last.scale[0] >= 2.0 * math.sqrt(d) * tau * 0.2 / last.epsilon
    assert released.noise_sd == pytest.approx(
        inside.scale[0] * (1.0 if inside.mechanism == "Gaussian" else math.sqrt(2.0))
    )
    assert last.scale[0] < 1e-3 * released.noise_sd / p.strength  # and it hardly adds noise


def test_a_tiny_penalty_is_refused_before_anything_is_charged():
    rng = np.random.default_rng(7)
    ledger = Ledger(1.0)
    releaser = Releaser({"m": Share(1.0)}, ledger, SeededNoise(0))
    with pytest.raises(PrivacyError, match="too small"):
        erm.minimise(releaser, "model", problem(*data(rng), 1e-3), "m")
    assert ledger.spends == ()
    assert erm.volume_price(erm.least_strength(1.0)) <= 0.1
    assert erm.least_strength(1e9) > 0


def test_strengths_use_public_numbers_and_fall_with_n():
    strengths = [erm.default_strength(n, 8, 0.5, 0.0) / n for n in (100, 1_000, 100_000)]
    assert strengths[0] > strengths[1] > strengths[2]
    assert erm.default_strength(100, 8, 0.5, 1e-6) <= erm.default_strength(100, 8, 0.5, 0.0)


def test_the_solution_without_noise_is_the_logistic_regression():
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(8)
    x = np.column_stack([np.ones(400), rng.random((400, 3))])
    t = rng.random(400) < 0.3
    p = problem(None, t, x, 2.0)
    peer = linear_model.LogisticRegression(C=0.5, fit_intercept=False, tol=1e-12, max_iter=10_000)
    assert p.solve() == pytest.approx(peer.fit(p.rows, t).coef_[0], abs=1e-5)


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
        corners = erm.unit_rows(np.array(list(itertools.product([1.0], [0.0, 1.0], [0.0, 1.0]))))
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
    values = score.values(y, t, erm.unit_rows(x))
    assert float(c.score_sum(score, "a")) == pytest.approx(values.sum(), abs=1e-4)
    assert float(c.score_squares(score, "a", 0.5)) == pytest.approx((values**2).sum(), rel=1e-6)
    spread = c.column_squares("a").value / 500
    assert spread == pytest.approx(x[:, 1:].var(axis=0), abs=1e-4)  # less a noise that is not there
    scale = np.array([0.5, 1.0, 2.0])
    residual = y - np.where(t, *score.centres)
    norm = np.linalg.norm(residual @ (erm.unit_rows(x) * scale))
    assert float(c.moment_norm(score.centres, scale, "a", 0.1)) == pytest.approx(norm, abs=1e-3)


def test_a_released_model_bounds_its_own_weights():
    flat = Propensity.within(np.zeros(4), 0.2, (0.1, 0.9))
    assert flat.low == flat.high == pytest.approx(1 / (1 + math.exp(-0.2)))
    steep = Propensity.within(np.array([0.0, 1e6]), 0.0, (0.1, 0.9))
    assert (steep.low, steep.high) == (0.1, 0.9)
    far = Propensity.within(np.zeros(2), 50.0, (0.1, 0.9))
    assert (far.low, far.high) == (0.9, 0.9)


def test_private_columns_give_no_public_model():
    rng = np.random.default_rng(13)
    c, noise = curator(*data(rng))
    with pytest.raises(PrivacyError):
        c.public_model(1.0, 0.0)
    assert noise.drawn == []


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
