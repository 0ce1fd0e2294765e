"""Minimisers of penalised regressions, attacked with random and adversarial neighbours."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import ndtr

from dpeffects.design.features import AdditiveWaves, Fourier, Linear, unit_rows
from dpeffects.errors import BudgetError, OptionError, PrivacyError
from dpeffects.estimators.weighting.inverse_weights import default_strength, least_strength
from dpeffects.privacy import convex_solver, losses, private_minimisation
from dpeffects.privacy import rows as private_rows
from dpeffects.privacy.budget import Budget, Share, as_written
from dpeffects.privacy.ledger import CallLedger
from dpeffects.privacy.losses import (
    HUBER_GRID,
    Huber,
    Logistic,
    along,
    along_error,
    bounded_terms,
    on_grid,
    sigmoid,
    unit_l1,
    widened,
)
from dpeffects.privacy.noise import gaussian_scale
from dpeffects.privacy.rows import Block, Rows, reads
from dpeffects.seeded import SeededNoise
from tests.privacy import problems
from tests.privacy.nasty import fitted_rows, fitted_weights
from tests.privacy.problems import Case, curator, fit_logistic, held, huber

PURE, SHARE = Share(1.0), Share(1.0, 1e-6)


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


def of(y, t, x, share=PURE, **rest):
    """A curator of outcomes, treatments and covariates."""
    return curator(held(x, t, y), share, **rest)


def drawn(c, ask):
    """What would have been noised, and its declared sensitivity."""
    ask(c)
    return c._releaser._noise.drawn[-1]


def problem(y, t, x, strength=1.0, offset=0.0):
    return problems.logistic(t, x, strength, offset)


# --- rows and weights of the logistic regression ----------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 5, 30])
def test_unit_rows_have_norm_at_most_one(d):
    rng = np.random.default_rng(d)
    corners = rng.choice([-1e9, 0.0, 1.0, 1e9, np.nan, np.inf], (500, d))
    for rows in (unit_rows(corners), fitted_rows(corners, True).astype(float)):
        assert np.linalg.norm(rows, axis=1).max() <= 1.0
        assert np.abs(rows).sum(axis=1).max() <= unit_l1(d)
    full = unit_rows(np.ones((1, d)))
    assert np.linalg.norm(full) == pytest.approx(1.0)  # nothing is wasted
    assert np.abs(full).sum() == pytest.approx(unit_l1(d))


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
        worst = max(worst, change(penalty, (x, t), (x2, t2)))
    assert worst <= 1.0
    assert worst > 0.1 or penalty < 0.05  # the bound is not vacuous where the penalty matters


def change(penalty, *pair):
    """L1 distance of the weights of neighbours over the declared sensitivity (claim 20)."""
    ask = lambda c: private_minimisation.propensity_weights(c, penalty, "a")  # noqa: E731
    (one, declared), (two, same) = (drawn(curator(held(x, t)), ask) for x, t in pair)
    assert declared == same, "the sensitivity depends on private data"
    return np.abs(one - two).sum() / declared


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
    pair = [(np.vstack([base, row]), np.append(t, a)) for row, a in ((one, True), (two, False))]
    assert 0.7 < change(n_penalty / (2 * k + 1), *pair) <= 1.0


def test_logistic_worst_case_is_near_the_bound():
    """With opposite labels at a large penalty the bound 2d / (n lambda) is about half used: the two
    gradients are 1/2 each at w = 0."""
    ones = np.ones((2, 1))
    pair = (ones, np.array([True, True])), (ones, np.array([True, False]))
    assert 0.3 < change(50.0, *pair) <= 1.0


def test_rounding_of_the_weights_is_in_the_sensitivity():
    c = curator(held(np.ones((4, 3)), np.array([True, False] * 2)))
    _, declared = drawn(c, lambda c: private_minimisation.propensity_weights(c, 0.5, "a"))
    bound = 2.0 * 3 / (4 * 0.5) + 2.0 * math.sqrt(3) * 1e-9 / 0.5
    unit = 2.0 ** (np.floor(np.log2(bound)) - 20)
    assert declared >= bound / unit + 3


def test_the_solver_keeps_its_promise_on_hard_data():
    rng = np.random.default_rng(6)
    for penalty in (1e-6, 1e-3, 1.0):
        for separable in (True, False):
            x = np.column_stack([np.ones(300), rng.integers(0, 2**16, (300, 4)) / 2**16])
            t = x[:, 1] > 0.5 if separable else rng.random(300) < 0.5
            w = fit_logistic(x, t, penalty)
            gradient = x.T @ (1 / (1 + np.exp(-x @ w)) - t) / 300 + penalty * w
            assert np.linalg.norm(gradient) <= 1e-9 * 1.01


def test_logistic_matches_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(7)
    x = np.column_stack([np.ones(400), rng.random((400, 3))])
    t = rng.random(400) < 1 / (1 + np.exp(-(x @ [0.5, -2, 1, 0.0])))
    penalty = 0.01
    peer = linear_model.LogisticRegression(
        C=1 / (penalty * 400), fit_intercept=False, tol=1e-12, max_iter=10_000
    ).fit(x, t)
    assert fit_logistic(x, t, penalty) == pytest.approx(peer.coef_[0], abs=1e-5)
    p = problem(None, t, x, 2.0)
    peer = linear_model.LogisticRegression(C=0.5, fit_intercept=False, tol=1e-12, max_iter=10_000)
    assert p.solve() == pytest.approx(peer.fit(p.rows, t).coef_[0], abs=1e-5)


def test_fits_do_not_depend_on_order_or_blocks(monkeypatch):
    rng = np.random.default_rng(8)
    x = np.column_stack([np.ones(3000), rng.random((3000, 2))])
    t = rng.random(3000) < 0.3
    whole = fit_logistic(x, t, 0.01)
    order = rng.permutation(3000)
    assert (fit_logistic(x[order], t[order], 0.01) == whole).all()
    monkeypatch.setattr(private_rows, "ROWS", 100)
    assert (fit_logistic(x, t, 0.01) == whole).all()


def test_gradients_are_rounded_by_less_than_is_accounted_for():
    """Computed gradients against long doubles, at weights of all sizes."""
    rng = np.random.default_rng(11)
    for _ in range(50):
        n, d = int(rng.integers(1, 2000)), int(rng.integers(2, 12))
        x = np.column_stack([np.ones(n), rng.random((n, d - 1))])
        t = rng.random(n) < 0.5
        w = rng.normal(size=d) * 10.0 ** rng.integers(-2, 9)
        p = Logistic(d, n * 2e-12, float(rng.normal()))
        got, _ = p.at(held(x, t), np.zeros(d), p.quick, w, np.zeros(d))
        unit = fitted_rows(x, True)
        assert np.abs(unit - unit_rows(x)).max() <= 2.0**-17
        with np.errstate(over="ignore"):
            z = unit @ fitted_weights(w, True) + np.longdouble(p.offset)
            chance = 1 / (1 + np.exp(-z))
        exact = ((chance - t) @ unit) / n + np.longdouble(p.penalty(n)) * w
        size = float(np.linalg.norm(w))
        bound = p.rounding(size) + 2.0**-52 * p.penalty(n) * size
        assert np.linalg.norm((got - exact).astype(float)) <= bound


def test_the_gradient_after_a_step_is_within_its_bound():
    """So that the last step of a logistic regression needs no look at the rows."""
    rng, closest = np.random.default_rng(12), 0.0
    for _ in range(40):
        n, d = int(rng.integers(1, 30)), int(rng.integers(2, 4))
        x = np.column_stack([np.ones(n), rng.choice([0.0, 1.0], (n, d - 1))])
        case = problems.logistic(rng.random(n) < 0.5, x, 0.01 * n)
        w = rng.normal(size=d) * 2.0
        before, hessian = case.at(case.curator._source, np.zeros(d), case.quick, w, np.zeros(d))
        for step in (convex_solver.direction(hessian, before), rng.normal(size=d) * 0.1):
            after = case.gradient(w - step) / n + 0.01 * (w - step)
            closest = max(closest, np.linalg.norm(after) / case._after(step, before, hessian))
    assert 0.5 < closest <= 1.0


def test_products_have_no_more_bits_than_exact_sums_have_room_for(monkeypatch):
    """Rows of ones and losses as steep as they can be, by Hessians, by products and carefully."""
    seen, real = set(), convex_solver.exact_products

    def watched(rows, terms, bits):
        assert np.abs(rows).max() * np.abs(terms).max() <= 2.0**bits
        seen.add(bits)
        return real(rows, terms, bits)

    monkeypatch.setattr(convex_solver, "exact_products", watched)
    ones, all_treated = np.ones((5, 2)), np.ones(5, bool)
    for dense, newton in itertools.product((512, 0), (convex_solver.newton, lambda *_: None)):
        monkeypatch.setattr(convex_solver, "DENSE", dense)
        monkeypatch.setattr(convex_solver, "newton", newton)
        fit_logistic(ones, all_treated, 0.01)
        huber(ones / math.sqrt(2.0), np.ones(5), np.full(5, 9.0), 1.0).solve(np.zeros(2))
    assert len(seen) > 3


# --- noise on the weights of the logistic regression ------------------------------------------


@pytest.mark.parametrize("strength", [0.01, 1.0, 50.0])
def test_output_perturbation(strength):
    """L1 and L2 distances of the weights of neighbours against what is declared."""
    rng = np.random.default_rng(1)
    worst = 0.0
    for _ in range(80):
        d = int(rng.integers(1, 5))
        rows = data(rng, d=d)

        def ask(c, d=d):
            return private_minimisation.noisy_weights(c, "m", Logistic(d, strength, 0.3), "a")

        pair = (rows, replaced(rng, *rows))
        (one, declared), (two, same) = (drawn(of(*r), ask) for r in pair)
        assert declared == same
        distance = np.linalg.norm(one - two) * math.sqrt(d)
        assert np.abs(one - two).sum() <= declared
        assert distance <= declared
        worst = max(worst, distance / declared)
    assert worst > 0.2 or strength < 0.1


def test_output_perturbation_declares_its_l2_sensitivity():
    rng = np.random.default_rng(2)
    c = of(*data(rng), SHARE)
    private_minimisation.noisy_weights(c, "m", Logistic(3, 2.0), "a", "gaussian")
    charge = c._releaser._ledger.charges[-1]
    assert charge.mechanism == "discrete Gaussian"
    assert 1.0 <= charge.sensitivity[0] <= 1.00001  # 2 / strength and a little for the grid
    assert charge.scale[0] >= gaussian_scale(1.0, *SHARE, 3)


# --- noise in the objective of the logistic regression ----------------------------------------


def logistic_curvature(p, w):
    e = sigmoid(p.rows @ w + p.offset)
    return (p.rows * (e * (1 - e))[:, None]).T @ p.rows + p.strength * np.eye(w.size)


def test_objective_gradients_and_volumes_on_neighbours():
    """Claim 21's two ingredients at any weights, huge ones too."""
    rng = np.random.default_rng(3)
    far, wide = 0.0, 0.0
    for _ in range(500):
        d = int(rng.integers(1, 6))
        rows = data(rng, n=int(rng.integers(1, 8)), d=d)
        strength = float(rng.choice([0.02, 0.3, 5.0]))
        one, two = (problem(*r, strength) for r in (rows, replaced(rng, *rows)))
        w = rng.normal(size=d) * float(rng.choice([0.1, 3.0, 1e3]))
        move = one.gradient(w) - two.gradient(w)
        l1, l2 = one.gradient_bound
        assert np.abs(move).sum() <= 2.0 * l1
        assert np.linalg.norm(move) <= 2.0 * l2
        far = max(far, np.linalg.norm(move))
        volumes = [np.linalg.slogdet(logistic_curvature(p, w))[1] for p in (one, two)]
        price = private_minimisation.volume_price(strength)
        assert abs(volumes[0] - volumes[1]) <= price
        wide = max(wide, abs(volumes[0] - volumes[1]) / price)
    assert far > 1.5
    assert wide > 0.5


def densities(p, log_noise, grid):
    """Density of the minimiser on a grid of weights, by change of variables from the noise."""
    e = sigmoid(grid @ p.rows.T + p.offset)
    b = -(e - p.treated) @ p.rows - p.strength * grid
    a = np.einsum("gi,ij,ik->gjk", e * (1 - e), p.rows, p.rows) + p.strength * np.eye(2)
    return np.exp(log_noise(b)) * np.linalg.det(a)


@pytest.mark.parametrize("strength", [0.05, 1.0])
def test_the_law_of_a_logistic_minimiser_under_laplace_noise(strength):
    rng = np.random.default_rng(4)
    epsilon = 0.8
    axis = np.linspace(-12, 12, 41)
    grid = np.array(list(itertools.product(axis, axis)))
    scale = 2.0 * unit_l1(2) / epsilon
    largest = 0.0
    for _ in range(6):
        rows = data(rng, n=4, d=2)
        one, two = (problem(*r, strength) for r in (rows, replaced(rng, *rows)))
        f, g = (densities(p, lambda b: -np.abs(b).sum(axis=1) / scale, grid) for p in (one, two))
        largest = max(largest, np.abs(np.log(f / g)).max())
    assert 0.3 < largest / (epsilon + private_minimisation.volume_price(strength)) <= 1.0


def test_the_law_of_a_logistic_minimiser_under_gaussian_noise():
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
        paid = math.exp(epsilon + private_minimisation.volume_price(strength))
        excess = np.maximum(f - paid * g, 0).sum() * cell
        assert excess <= 3 * delta
        assert excess <= 1.05 * delta  # the factor 3 is for the proof


def test_the_profile_grows_with_the_shift():
    """Claim 21 bounds shifts of less than 2 by that of 2."""
    sigma, epsilon = 3.0, 0.5
    m = np.linspace(0.01, 2.0, 50) / sigma
    profile = ndtr(m / 2 - epsilon / m) - math.exp(epsilon) * ndtr(-m / 2 - epsilon / m)
    assert (np.diff(profile) > 0).all()


@pytest.mark.parametrize("strength", [0.02, 2.0])
def test_the_logistic_solver_keeps_its_promise(strength):
    rng = np.random.default_rng(5)
    for n, size in ((5, 0.0), (300, 100.0), (2000, 5e3)):
        p = problem(*data(rng, n=n, d=4), strength, 1.0)
        b = rng.normal(size=4) * size * strength
        w = p.solve(b)
        gradient = p.gradient(w) + strength * w + b
        assert np.linalg.norm(gradient) <= 8e-12 * n + 1e-14 * (np.abs(b).sum() + n)
        assert p.solver_error() == pytest.approx(8e-12 * n / strength)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 8.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("noise", ["auto", "laplace", "gaussian"])
def test_a_logistic_objective_pays_for_noise_volume_and_solver(epsilon, delta, noise):
    rng = np.random.default_rng(6)
    n, d = 50, 3
    _, t, x = data(rng, n=n, d=d)
    p = problem(None, t, x, default_strength(n, d, epsilon, delta))
    ledger = CallLedger(Budget(epsilon, delta))
    share = Budget(epsilon, delta).shares({"a": 1.0})["a"]
    c = curator(held(x, t), share, SeededNoise(6), ledger=ledger)
    released = private_minimisation.minimise(c, "model", p.problem, "a", noise)
    volume, inside, last = ledger.charges
    total = sum(Fraction(s.epsilon) for s in ledger.charges)
    assert total <= as_written(epsilon)
    assert float(total) == pytest.approx(epsilon, rel=1e-12)
    assert volume.epsilon >= math.log1p(0.25 / p.strength)
    assert last.epsilon == pytest.approx(0.01 * epsilon)
    assert [s.claim for s in ledger.charges] == [21, 22, 22]
    assert not any(s.alone for s in ledger.charges)
    if inside.mechanism == "discrete Gaussian":
        assert delta > 0
        assert 3 * inside.delta * math.exp(last.epsilon / 2) <= delta
        assert float(ledger.spent[1]) == pytest.approx(delta)
        assert inside.scale[0] >= gaussian_scale(2.0, inside.epsilon, inside.delta, d)
    else:
        assert noise != "gaussian" or delta == 0
        assert ledger.spent[1] == 0
        assert inside.scale[0] >= 2.0 * unit_l1(d) / inside.epsilon
    tau = p.solver_error() + math.sqrt(d) * inside.scale[0] * 2.0**-31 / p.strength / 2
    assert last.scale[0] >= 2.0 * math.sqrt(d) * tau * 0.2 / last.epsilon
    gaussian = inside.mechanism == "discrete Gaussian"
    assert released.noise_sd == pytest.approx(inside.scale[0] * (1 if gaussian else math.sqrt(2)))
    grid = 2.0 ** (math.floor(math.log2(released.noise_sd)) - 30)  # of the noise inside
    far = p.problem.solver_error(
        n, private_minimisation.largest_noise(inside.scale[0], d, gaussian)
    )
    far += math.sqrt(d) * grid / (2.0 * p.strength)
    assert last.scale[0] * last.epsilon == pytest.approx(2.0 * math.sqrt(d) * far, rel=0.04)
    assert last.scale[0] < 1e-3 * released.noise_sd / p.strength  # and it hardly adds noise


def test_strengths_use_public_numbers_and_fall_with_n():
    strengths = [default_strength(n, 8, 0.5, 0.0) / n for n in (100, 1_000, 100_000)]
    assert strengths[0] > strengths[1] > strengths[2]
    assert default_strength(100, 8, 0.5, 1e-6) <= default_strength(100, 8, 0.5, 0.0)
    assert private_minimisation.volume_price(least_strength(1.0)) <= 0.1
    assert least_strength(1e9) > 0


# --- what is refused before anything is charged ------------------------------------------------


def refused(c, error, match, ask):
    """Nothing is charged, and nothing drawn."""
    with pytest.raises(error, match=match):
        ask(c)
    assert c._releaser._ledger.charges == ()
    assert c._releaser._noise.drawn == []


@pytest.mark.parametrize("kind", ["logistic", "huber"])
def test_a_tiny_penalty_is_refused(kind):
    rng = np.random.default_rng(7)
    c = of(*data(rng))
    p = Logistic(3, 1e-3) if kind == "logistic" else Huber(Slopes(Linear(3), 1.0), 3, 0.5)
    refused(c, PrivacyError, "too small", lambda c: private_minimisation.minimise(c, "m", p, "a"))
    if kind == "logistic":
        wide = Share(1e9)
        p = Logistic(3, 1e-12)
        ask = lambda c: private_minimisation.minimise(c, "m", p, "a")  # noqa: E731
        refused(of(*data(rng), wide), OptionError, "penalty", ask)


def test_private_columns_give_no_public_model():
    rng = np.random.default_rng(13)
    ask = lambda c: private_minimisation.public_propensity_model(c, 1.0, 0.0)  # noqa: E731
    rows = data(rng)
    for public in ((), ("treatment",), ("covariates",)):
        refused(of(*rows, public=public), PrivacyError, "private", ask)
    c = of(*rows, public=("treatment", "covariates"))
    assert (ask(c).value == problem(*rows).solve()).all()
    weights = private_minimisation.public_propensity_model(c, 0.1, centred=False).value
    assert (weights == fit_logistic(rows[2], rows[1], 0.1)).all()
    assert c._releaser._ledger.charges == ()


def test_a_huge_epsilon_with_a_delta():
    c = curator(held(np.ones((5, 2)), np.ones(5, bool)), Share(1e5, 1e-6), SeededNoise(0))
    private_minimisation.minimise(c, "model", Huber(Slopes(Linear(2), 1.0), 2, 1.0), "a")
    assert [s.mechanism for s in c._releaser._ledger.charges][1:] == [
        "discrete Laplace",
        "discrete Laplace",
    ]


ASKS = {
    "weights in [0, 1]": lambda c: private_minimisation.propensity_weights(c, 0.1, "a"),
    "in the objective": lambda c: private_minimisation.minimise(c, "m", Logistic(3, 5.0), "a"),
    "on the weights": lambda c: private_minimisation.noisy_weights(c, "m", Logistic(3, 5.0), "a"),
    "Huber": lambda c: private_minimisation.minimise(
        c, "m", Huber(Slopes(Linear(3), 1.0), 3, 20.0), "a"
    ),
    "predictions": lambda c: private_minimisation.noisy_predictions(
        c, "p", Huber(Slopes(Linear(3), 1.0), 3, 20.0), np.eye(3) / 2, "a"
    ),
}


@pytest.mark.parametrize("name", ASKS)
def test_pooled_shares_and_empty_ledgers_are_refused(name):
    """A share that is part of a pool, a budget that is spent: nothing drawn."""
    rng = np.random.default_rng(14)
    y, t, x = data(rng)
    pooled = of(y, t, x, SHARE, mu={"a": 0.1})
    refused(pooled, PrivacyError, "delta of its own", ASKS[name])
    refused(of(y, t, x, ledger=CallLedger(Budget(1e-6))), BudgetError, "left", ASKS[name])


# --- the Huber regression ---------------------------------------------------------------------


def unit(rng, n, d):
    """Rows of norm 1, or a little less, as the solver's grid needs it."""
    rows = rng.normal(size=(n, d))
    return on_grid(rows / (np.linalg.norm(rows, axis=1, keepdims=True) * widened(d)))


def objective(p, w, noise):
    """Written out again: value and gradient."""
    rows, slopes, targets = p.terms
    r = targets - slopes * (rows @ w)
    h = np.where(np.abs(r) <= 1.0, r**2 / 2.0, np.abs(r) - 0.5)
    slope = np.where(np.abs(r) <= 1.0, r, np.sign(r))
    gradient = -(rows * (slopes * slope)[:, None]).sum(axis=0) + p.strength * w + noise
    return h.sum() + p.strength * (w @ w) / 2.0 + noise @ w, gradient


def test_one_dimension_against_the_root_of_the_derivative():
    rng = np.random.default_rng(1)
    for _ in range(100):
        n = int(rng.integers(1, 9))
        rows, slopes = rng.choice([-1.0, 1.0, 0.3], (n, 1)), rng.uniform(-1, 1, n)
        targets = rng.normal(size=n) * float(rng.choice([0.1, 1.0, 50.0]))
        strength = float(rng.choice([1e-2, 1.0, 1e4]))
        noise = np.array([rng.normal() * float(rng.choice([0.0, 1.0, 1e3]))])
        p = huber(rows, slopes, targets, strength)
        far = (n + abs(noise[0])) / strength + 1.0
        slope = lambda w, p=p, noise=noise: objective(p, np.array([w]), noise)[1][0]  # noqa: E731
        root = brentq(slope, -far, far, xtol=1e-14, rtol=1e-14)
        assert p.solve(noise)[0] == pytest.approx(root, rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("strength", [1e-2, 1.0, 1e4])
def test_the_solution_against_a_general_minimiser(strength):
    rng = np.random.default_rng(2)
    for trial in range(12):
        n, d = int(rng.integers(1, 40)), int(rng.integers(2, 6))
        noise = rng.normal(size=d) * (0.0 if trial % 2 else 3.0)
        targets = rng.normal(size=n) * (1.0 if trial % 3 else 20.0)
        p = huber(unit(rng, n, d), rng.uniform(-1, 1, n), targets, strength)
        peer = minimize(
            lambda w, p=p, noise=noise: objective(p, w, noise),
            np.zeros(d),
            jac=True,
            method="BFGS",
            options={"gtol": 1e-9, "maxiter": 5000},
        )
        weights = p.solve(noise)
        value = objective(p, weights, noise)[0]
        assert value <= peer.fun + 1e-9 * (1.0 + abs(peer.fun))
        assert np.linalg.norm(weights - peer.x) <= 1e-5 + np.linalg.norm(peer.jac) / strength


def hard(rng, kind, n, d):
    rows, slopes = unit(rng, n, d), rng.choice([1.0, -1.0, 0.3], n)
    targets = rng.normal(size=n)
    if kind == "huge targets":
        targets *= 1e12
    elif kind == "flat":
        slopes *= 0.0
    elif kind == "duplicates":
        rows[:] = rows[0]
    elif kind == "opposite":
        rows = np.outer(rng.choice([-1.0, 1.0], n), rows[0])
    elif kind == "at the corner":
        targets = np.sign(targets)
    elif kind == "smooth":
        rows = Fourier.gaussian(2, 2.0)(np.column_stack([np.ones(n), rng.random((n, 2))]))
    return rows, slopes, targets


HARD = ["plain", "huge targets", "flat", "duplicates", "opposite", "at the corner", "smooth"]


def true_gradient(p, w, noise):
    """The gradient in extended precision."""
    rows, slopes, targets = p.terms
    rows, w = rows.astype(np.longdouble), w.astype(np.longdouble)
    psi = np.clip(targets - slopes * (rows @ w), -1.0, 1.0)
    return float(np.linalg.norm(p.strength * w + noise - (slopes * psi) @ rows))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", HARD)
def test_the_solver_converges_and_keeps_its_promise(kind):
    rng = np.random.default_rng(3)
    sizes = itertools.product((1, 4, 60, 300), (1e-2, 1.0, 50.0, 1e4), (0.0, 10.0, 1e5))
    for n, strength, size in sizes:
        rows, slopes, targets = hard(rng, kind, n, int(rng.choice([1, 3, 40])))
        p = huber(rows, slopes, targets, strength)
        noise = rng.normal(size=rows.shape[1])
        noise *= size / np.linalg.norm(noise)
        w = p.solve(noise)
        gradient = true_gradient(p, w, noise)
        assert gradient <= p.solver_error(size) * strength + 2e-15 * size
        assert gradient <= 1e-8 * n or size > 0.0


def test_the_error_of_the_solver_covers_the_stopping_rule():
    """A penalty far above n, as a tiny epsilon asks for: the rule's noise term is the larger."""
    rng = np.random.default_rng(4)
    worst = 0.0
    for seed in range(4):
        p = huber(unit(rng, 5, 40), np.ones(5), rng.normal(size=5), 1e10)
        scale = 2.0 * math.sqrt(40) / 1e-6
        noise = np.random.default_rng(seed).laplace(size=40) * scale
        largest = private_minimisation.largest_noise(scale, 40, gaussian=False)
        gradient = true_gradient(p, p.solve(noise), noise)
        worst = max(worst, gradient / (p.solver_error(largest) * p.strength))
    assert worst <= 1.0


def test_products_are_exact_and_a_rows_own():
    """Against whole numbers of Python, for weights of all sizes, and in any company."""
    rng = np.random.default_rng(15)
    for size, spread in itertools.product((1, 2, 65, 300), (1.0, 1e-9, 1e12)):
        rows = unit(rng, 40, size)
        weights = rng.normal(size=size) * spread ** rng.random(size)
        values = along(rows, weights)
        for row, value in zip(rows, values, strict=True):
            pairs = zip(row.tolist(), weights.tolist(), strict=True)
            exact = float(sum(Fraction(a) * Fraction(b) for a, b in pairs))
            assert value == pytest.approx(exact, rel=1e-15, abs=1e-15 * np.abs(weights).max())
        few = rng.permutation(40)[:7]
        assert (along(rows[few], weights) == values[few]).all()


def test_weights_in_two_parts_lose_nothing():
    """What floats leave out of large weights counts in products, and stays after a step."""
    rng = np.random.default_rng(16)
    rows, apart = np.array([[1.0, -1.0]]), np.array([3.0, 1.0]) * 2.0**-62
    for size in (1e-30, 1.0, 1e12):
        weights = np.full(2, size)
        found = convex_solver.exact_dots(rows, weights, 1, size * apart) / size
        assert found == pytest.approx(2.0**-61, rel=1e-6, abs=0.0)
        step, tail = rng.normal(size=(2, 2)) * size * np.array([[0.7], [1e-17]])
        new, left = convex_solver._minus(weights, tail, step)
        for parts in zip(new, left, weights, tail, step, strict=True):
            one, two, *before = (Fraction(float(x)) for x in parts)
            assert abs(one + two - (before[0] + before[1] - before[2])) <= Fraction(size) / 2**100


def test_products_with_thousands_of_weights_lose_next_to_nothing():
    """Two parts of a weight would leave out 2^-42 of it, times the root of their number."""
    rng = np.random.default_rng(17)
    for size in (512, 513, 2401, 24001):
        rows = on_grid(rng.normal(size=(3, size)) / math.sqrt(1.5 * size))
        weights = rng.normal(size=size) * 10.0 ** rng.uniform(-6, 6)
        for row, value in zip(rows, along(rows, weights), strict=True):
            pairs = zip(row.tolist(), weights.tolist(), strict=True)
            exact = sum(Fraction(a) * Fraction(b) for a, b in pairs)
            off = abs(float(Fraction(float(value)) - exact))
            assert off <= along_error(size) * np.linalg.norm(row) * np.linalg.norm(weights)
            assert along_error(size) < (1e-13 if size == 512 else 4e-16)


@dataclass(frozen=True)
class Slopes:
    """Features, slopes that depend on the treatment, and scaled outcomes."""

    features: Fourier | Linear
    steepest: float
    reads = ("treated", "outcome", "covariates")

    def __call__(self, block):
        slopes = self.steepest * np.where(block.treated, 1.0, -0.7)
        return (*self.features(block.covariates).T, slopes, (block.outcome - 0.5) / 0.15)


@pytest.mark.parametrize("by_arm", [False, True])
def test_a_regression_does_not_depend_on_the_order_of_records(by_arm):
    rng = np.random.default_rng(16)
    x = np.column_stack([np.ones(3000), rng.random((3000, 2))])
    t = rng.random(3000) < 0.5
    y = 0.3 + 0.2 * x[:, 1] + 0.2 * t * x[:, 1] + 0.1 * rng.normal(size=3000)
    terms = Slopes(Fourier.gaussian(2, 0.35), 1.0)
    p = Huber(terms, 65, 3.0, by_arm=by_arm)
    whole = p.solve(held(x, t, y))
    order = rng.permutation(3000)
    assert (p.solve(held(x[order], t[order], y[order])) == whole).all()
    if by_arm:  # two regressions side by side are two regressions
        for arm, weights in zip((t, ~t), np.split(whole, 2), strict=True):
            alone = Huber(terms, 65, 3.0).solve(held(x[arm], t[arm], y[arm]))
            assert weights == pytest.approx(alone, abs=1e-9)
    case = Case(held(x, t, y), p)
    noise = rng.normal(size=p.width)
    w = case.solve(noise)
    assert np.linalg.norm(case.gradient(w) + 3.0 * w + noise) <= case.solver_error() * 3.0


# --- how far one record moves the minimiser ---------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("strength", [0.05, 1.0, 300.0])
def test_neighbouring_minimisers(strength):
    """Aligned rows and opposite targets nearly attain 2 S / L; nothing exceeds it."""
    rng = np.random.default_rng(6)
    steepest, nearest = 0.7, 0.0
    for trial in range(150):
        n, d = int(rng.integers(1, 9)), int(rng.integers(1, 5))
        rows = unit(rng, n, d)
        if trial % 2:
            rows[:] = rows[0]
        slopes = rng.choice([1.0, -1.0], n) * steepest * (1.0 if trial % 3 else rng.random(n))
        targets = rng.normal(size=n) * float(rng.choice([0.5, 5.0, 1e4]))
        others = [np.array(part) for part in (rows, slopes, targets)]
        others[2][0] = -targets[0]
        if trial % 5 == 0:
            others[0][0], others[1][0] = unit(rng, 1, d)[0], -slopes[0]
        one, two = (huber(*r, strength, steepest) for r in ((rows, slopes, targets), others))
        moved = np.linalg.norm(one.solve() - two.solve())
        bound = 2.0 * steepest / strength + 2.0 * one.solver_error()
        assert moved <= bound
        nearest = max(nearest, moved / bound)
    assert nearest > 0.9


def released(c, p, queries=None):
    """What leaves the curator before noise, and the charge."""
    if queries is None:
        private_minimisation.noisy_weights(c, "effect function", p, "a")
    else:
        private_minimisation.noisy_predictions(
            c, "effects at points", p, p.terms.features(queries), "a"
        )
    charge = c._releaser._ledger.charges[-1]
    values, declared = c._releaser._noise.drawn[-1]
    gaussian = charge.mechanism == "discrete Gaussian"
    return values * ((charge.scale[0] if gaussian else charge.sensitivity[0]) / declared), charge


@pytest.mark.sampled(2)
@pytest.mark.parametrize("steepest", [0.5, 1.0])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_noise_on_the_weights(steepest, linear, delta):
    """Claim 24: L1 for Laplace noise, L2 for Gaussian noise, on neighbours."""
    rng = np.random.default_rng(7)
    features, nearest = (Linear(3) if linear else Fourier.gaussian(2, 0.35)), 0.0
    for _ in range(30):
        rows = data(rng, n=6)
        strength = float(rng.choice([0.5, 5.0, 200.0]))
        p = Huber(Slopes(features, steepest), features.size, strength, steepest)
        pair = (rows, replaced(rng, *rows))
        (one, charge), (two, same) = (released(of(*r, Share(1.0, delta)), p) for r in pair)
        assert charge == same, "the sensitivity depends on private data"
        assert charge.claim == 24
        assert charge.alone
        gaussian = charge.mechanism == "discrete Gaussian"
        assert gaussian == (delta > 0 and not linear)  # of three weights, Laplace noise is less
        assert np.linalg.norm(one - two, ord=2 if gaussian else 1) <= charge.sensitivity[0]
        l2 = charge.sensitivity[0] / (1.0 if gaussian else math.sqrt(features.size))
        nearest = max(nearest, np.linalg.norm(one - two) / l2)
        if gaussian:
            assert charge.scale[0] >= gaussian_scale(charge.sensitivity[0], 1.0, delta, one.size)
    assert 0.7 < nearest <= 1.0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("kind", ["one", "same", "spread", "more than features"])
def test_predictions_at_points(delta, kind):
    """Claim 24: the answers of neighbours, at queries where the replaced record is."""
    rng = np.random.default_rng(8)
    features, nearest = AdditiveWaves.gaussian(2, 0.35), 0.0
    p = Huber(Slopes(features, 1.0), features.size, 80.0)
    for _ in range(25):
        y, t, x = data(rng, n=6)
        count = {"one": 1, "same": 12, "spread": 9, "more than features": 40}[kind]
        queries = np.column_stack([np.ones(count), rng.random((count, 2))])
        other = y.copy(), t, x
        j = int(rng.integers(6))
        other[0][j] = 1.0 - np.rint(y[j])
        if kind in ("one", "same"):
            queries[:] = x[j]
        pair = ((y, t, x), other)
        (one, charge), (two, same) = (released(of(*r, Share(1.0, delta)), p, queries) for r in pair)
        assert charge == same
        assert charge.claim == 24
        moved = np.linalg.norm(one - two, ord=2 if charge.mechanism == "discrete Gaussian" else 1)
        assert moved <= charge.sensitivity[0]
        nearest = max(nearest, moved / charge.sensitivity[0])
    assert nearest > (0.85 if kind in ("one", "same") else 0.1)


@pytest.mark.parametrize(
    ("count", "mechanism"), [(6, "discrete Laplace"), (200, "discrete Gaussian")]
)
def test_predictions_against_brute_force(count, mechanism):
    """||Q|| and the norms of its rows bound every direction in which the weights can move."""
    rng = np.random.default_rng(9)
    features = Fourier.gaussian(1, 0.35)
    queries = np.column_stack([np.ones(count), rng.random(count)])
    at = features(queries)
    c = of(*data(rng, n=6, d=2), SHARE)
    p = Huber(Slopes(features, 1.0), features.size, 10.0)
    _, charge = released(c, p, queries)
    _, alone = released(c, p)
    assert (charge.mechanism, alone.mechanism) == (mechanism, "discrete Gaussian")
    moves, widest = alone.sensitivity[0], np.linalg.svd(at)[1][0]
    rows = np.linalg.norm(at, axis=1).sum()
    direct = widest if mechanism == "discrete Gaussian" else min(rows, math.sqrt(count) * widest)
    assert charge.sensitivity[0] == pytest.approx(direct * moves, rel=1e-3)
    order = 2 if mechanism == "discrete Gaussian" else 1
    directions = [*rng.normal(size=(200, features.size)), *at, np.linalg.svd(at)[2][0]]
    signs = [rng.choice([-1.0, 1.0], count) @ at for _ in range(200)]
    reached = 0.0
    for direction in (*directions, *signs):
        moved = at @ direction * (2.0 / 10.0 / np.linalg.norm(direction))
        reached = max(reached, np.linalg.norm(moved, ord=order) / charge.sensitivity[0])
    assert 0.9 < reached <= 1.0


@pytest.mark.parametrize("at", [np.full((2, 3), np.nan), np.full((2, 3), np.inf), np.ones((1, 3))])
def test_points_beyond_the_norm_are_refused(at):
    p = Huber(Slopes(Linear(3), 1.0), 3, 20.0)
    ask = lambda c: private_minimisation.noisy_predictions(c, "p", p, at, "a")  # noqa: E731
    with np.errstate(all="ignore"):
        refused(of(*data(np.random.default_rng(1))), OptionError, "norm", ask)


# --- noise in the objective of the Huber regression -------------------------------------------


def huber_curvature(p, w):
    rows, slopes, targets = p.terms
    inside = np.abs(targets - slopes * (rows @ w)) <= 1.0
    return (rows * (slopes**2 * inside)[:, None]).T @ rows + p.strength * np.eye(w.size)


def test_gradients_and_volumes_of_neighbours():
    """Claim 23's two ingredients at any weights, huge ones too."""
    rng = np.random.default_rng(10)
    far, wide = 0.0, 0.0
    for _ in range(600):
        n, d = int(rng.integers(1, 8)), int(rng.integers(1, 6))
        steepest, strength = float(rng.choice([0.5, 1.0])), float(rng.choice([0.02, 0.3, 5.0]))
        rows, slopes = unit(rng, n, d), steepest * rng.choice([1.0, -1.0, 0.4], n)
        targets = rng.normal(size=n) * float(rng.choice([0.5, 5.0]))
        others = [np.array(part) for part in (rows, slopes, targets)]
        others[0][0] = -rows[0] if rng.random() < 0.5 else unit(rng, 1, d)[0]
        others[2][0] = rng.normal() * 5.0
        one, two = (huber(*r, strength, steepest) for r in ((rows, slopes, targets), others))
        w = rng.normal(size=d) * float(rng.choice([0.0, 0.1, 3.0, 1e3]))
        move = one.gradient(w) - two.gradient(w)
        l1, l2 = one.gradient_bound
        assert np.abs(move).sum() <= 2.0 * l1
        assert np.linalg.norm(move) <= 2.0 * l2
        far = max(far, np.linalg.norm(move) / (2.0 * l2))
        volumes = [np.linalg.slogdet(huber_curvature(p, w))[1] for p in (one, two)]
        price = private_minimisation.volume_price(strength, one.hessian_bound)
        assert abs(volumes[0] - volumes[1]) <= price
        wide = max(wide, abs(volumes[0] - volumes[1]) / price)
    assert far > 0.95
    assert wide > 0.95


def line(rows, slopes, targets, strength):
    return huber(np.array(rows)[:, None], np.array(slopes), np.array(targets), strength)


def density(p, log_noise, grid):
    """Density of the minimiser in one dimension, by change of variables from the noise."""
    rows, slopes, targets = p.terms
    r = targets - np.outer(grid, slopes * rows[:, 0])
    b = np.clip(r, -1.0, 1.0) @ (slopes * rows[:, 0]) - p.strength * grid
    curvature = (np.abs(r) < 1.0) @ (slopes * rows[:, 0]) ** 2 + p.strength
    return np.exp(log_noise(b)) * curvature


ONE = list(itertools.product((1.0, -1.0, 0.4), (-3.0, -0.9, 0.0, 0.9, 3.0)))
REST = [((), ()), ((1.0, 0.5), (0.2, -0.4)), ((1.0, -1.0, 1.0), (2.0, 0.3, -2.0))]


@pytest.mark.parametrize("strength", [0.1, 2.0])
def test_the_law_of_the_minimiser_under_laplace_noise(strength):
    epsilon, largest = 0.8, 0.0
    scale = 2.0 / epsilon
    grid = np.linspace(-60, 60, 40_001) * scale / strength / 4
    for rest, targets in REST:
        logs = []
        for x, y in ONE:
            p = line([x, *rest], np.ones(1 + len(rest)), [y, *targets], strength)
            logs.append(np.log(density(p, lambda b: -np.abs(b) / scale, grid)))
        gaps = [np.abs(f - g).max() for f, g in itertools.combinations(logs, 2)]
        largest = max(largest, *gaps)
    assert 0.9 < largest / (epsilon + private_minimisation.volume_price(strength, 1.0)) <= 1.0


@pytest.mark.parametrize(("strength", "least"), [(0.3, 0.0), (10.0, 0.5), (40.0, 0.8)])
def test_the_law_of_the_minimiser_under_gaussian_noise(strength, least):
    """The hockey-stick divergence by quadrature, over all pairs of records and several rests."""
    epsilon, delta = 0.7, 1e-2
    sigma = gaussian_scale(2.0, epsilon, delta, 1)
    grid = np.linspace(-1, 1, 40_001) * (9 * sigma + 4) / strength
    cell, worst, unpaid = grid[1] - grid[0], 0.0, 0.0
    volume = math.exp(private_minimisation.volume_price(strength, 1.0))
    for rest, targets in REST:
        dists = []
        for x, y in ONE:
            p = line([x, *rest], np.ones(1 + len(rest)), [y, *targets], strength)
            f = density(p, lambda b: -(b**2) / (2 * sigma**2), grid)
            f /= sigma * math.sqrt(2 * math.pi)
            assert f.sum() * cell == pytest.approx(1.0, abs=1e-3)
            dists.append(f)
        for f, g in itertools.permutations(dists, 2):
            g = math.exp(epsilon) * g
            worst = max(worst, np.maximum(f - volume * g, 0.0).sum() * cell)
            unpaid = max(unpaid, np.maximum(f - g, 0.0).sum() * cell)
    assert worst <= 4.0 * delta
    assert least * delta <= worst <= 1.01 * delta  # the factor 4 is for the proof
    assert unpaid > 5.0 * delta or least > 0.0  # the change of volume has to be paid for


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 8.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("steepest", [0.6, 1.0])
def test_a_huber_objective_pays_for_noise_volume_and_solver(epsilon, delta, steepest):
    rng = np.random.default_rng(11)
    ledger = CallLedger(Budget(epsilon, delta))
    share = Budget(epsilon, delta).shares({"a": 1.0})["a"]
    strength = least_strength(epsilon, steepest**2)
    p = huber(unit(rng, 30, 9), np.full(30, steepest), rng.normal(size=30), strength, steepest)
    c = curator(p.curator._source, share, SeededNoise(1), ledger=ledger)
    out = private_minimisation.minimise(c, "model", p.problem, "a")
    volume, inside, last = ledger.charges
    total = sum(Fraction(s.epsilon) for s in ledger.charges)
    assert total <= as_written(epsilon)
    assert float(total) == pytest.approx(epsilon, rel=1e-12)
    assert volume.epsilon >= math.log1p(steepest**2 / strength)
    assert volume.epsilon <= 0.1 * epsilon * (1.0 + 1e-6)
    if inside.mechanism == "discrete Gaussian":
        assert 4.0 * inside.delta * math.exp(last.epsilon / 2) <= delta
        assert float(ledger.spent[1]) == pytest.approx(delta)
        assert inside.scale[0] >= gaussian_scale(2 * steepest, inside.epsilon, inside.delta, 9)
    else:
        assert ledger.spent[1] == 0
        assert inside.scale[0] >= 2.0 * steepest * 3.0 / inside.epsilon
    assert [s.claim for s in ledger.charges] == [23, 22, 22]
    assert out.inside
    assert last.scale[0] < 1e-3 * out.noise_sd / strength


# --- row functions that nobody trusts ---------------------------------------------------------


class Unkind(Exception):
    """A row function's own."""


@dataclass(frozen=True)
class Hostile:
    """Covariates are features and a slope as they are; where outcomes are 1 it is unkind."""

    kind: str
    reads = ("covariates", "outcome")

    def __call__(self, block):
        rows = np.array(block.covariates)
        odd = block.outcome > 0.9
        if self.kind == "raises" and odd.any():
            raise Unkind(block.outcome.max())
        if self.kind == "exits" and odd.any():
            raise SystemExit
        if self.kind == "another shape" and odd.any():
            return rows
        if self.kind == "no numbers":
            rows[odd] = np.nan
        if self.kind == "infinite":
            rows[odd] = np.where(rows[odd] > 0, np.inf, -np.inf)
        if self.kind == "huge":
            rows[odd] *= 1e308
        if self.kind == "a little too long":
            rows[odd] *= 1.0 + 2.0**-16
        targets = np.where(odd, {"no numbers": np.nan, "infinite": -np.inf}.get(self.kind, 5), -5.0)
        return (*rows.T, targets)


HOSTILE = [
    "raises",
    "exits",
    "another shape",
    "no numbers",
    "infinite",
    "huge",
    "a little too long",
]


def hostile_rows(rng, n, d, odd):
    rows = np.column_stack([unit(rng, n, d), rng.choice([-3.0, 1.0, np.nan, 0.5], n)])
    return Rows(np.where(odd, 1.0, 0.0), (0.0, 1.0), np.ones(n, bool), lambda: rows, d + 1)


@pytest.mark.parametrize("kind", HOSTILE)
def test_norms_and_slopes_are_enforced_on_whole_numbers(kind):
    rng = np.random.default_rng(21)
    for d in (1, 3, 40):
        odd = rng.random(200) < 0.3
        source = hostile_rows(rng, 200, d, odd)
        block = Block(source.treated, source.outcome, source.covariates())
        p = Huber(Hostile(kind), d, 1.0, 0.7)
        rows, slopes, targets = (np.array(part) for part in bounded_terms(p, block))
        assert (rows == np.rint(rows)).all()
        squares = [sum(int(v) ** 2 for v in row) for row in rows]
        assert max(squares) <= 2 ** (2 * HUBER_GRID)
        assert np.abs(slopes).max() <= 0.7
        assert np.isfinite(slopes).all()
        assert np.isfinite(targets).all()
        # the others are as if nobody had failed
        assert (rows[~odd] == np.rint(block.covariates[~odd, :-1] * 2.0**HUBER_GRID)).all()
        if kind != "a little too long":
            assert not rows[odd].any()
        else:
            assert not rows[
                odd & (np.linalg.norm(block.covariates[:, :-1], axis=1) > 0.99999)
            ].any()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_terms_move_the_weights_no_further(kind):
    """A record that fails on one side only; errors and warnings tell nothing of it."""
    rng = np.random.default_rng(22)
    nearest = 0.0
    for _ in range(40):
        n, d = int(rng.integers(1, 9)), int(rng.integers(1, 5))
        odd = rng.random(n) < 0.2
        p = Huber(Hostile(kind), d, float(rng.choice([0.05, 1.0, 50.0])), 0.7)
        one = hostile_rows(np.random.default_rng(n), n, d, odd)
        odd = odd.copy()
        odd[0] ^= True
        two = hostile_rows(np.random.default_rng(n), n, d, odd)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            (a, declared), (b, same) = (
                drawn(curator(s), lambda c, p=p: private_minimisation.noisy_weights(c, "m", p, "a"))
                for s in (one, two)
            )
        assert declared == same
        assert np.abs(a - b).sum() <= declared
        nearest = max(nearest, np.linalg.norm(a - b) * math.sqrt(d) / declared)
    assert 0.2 < nearest <= 1.0


@pytest.mark.parametrize(
    "given", [{"steepest": 1.1}, {"steepest": np.nan}, {"strength": 0.0}, {"strength": np.inf}]
)
def test_problems_that_sums_are_not_made_for_are_refused(given):
    with pytest.raises(OptionError):
        Huber(Slopes(Linear(3), 1.0), 3, **{"strength": 1.0, **given})


def test_a_row_function_is_tried_before_a_charge():
    @reads("covariates")
    def fails(block):
        raise Unkind

    for terms, error in ((fails, Unkind), (Slopes(Linear(3), 1.0), ValueError)):
        p = Huber(terms, 4, 20.0)
        c = of(*data(np.random.default_rng(1)))
        refused(c, error, None, lambda c, p=p: private_minimisation.minimise(c, "m", p, "a"))


def test_a_value_that_is_no_number_has_a_bounded_part_in_a_fit():
    """Encoded rows have none, but if one slipped through the sums would be of anything."""
    rng = np.random.default_rng(9)
    _, t, x = data(rng, 50)
    x[7, 1], x[8, 2] = np.nan, np.inf
    assert np.abs(fit_logistic(x, t, 0.1)).max() < 10.0
    assert np.abs(losses.whole_rows(x, centred=True)).max() <= 2**16
