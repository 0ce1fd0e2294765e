"""Solvers have no failure that could tell something about the rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import OptionError
from dpeffects.estimators.weighting.inverse_weights import default_strength, least_strength
from dpeffects.privacy import convex_solver, losses, private_minimisation
from dpeffects.privacy import rows as private_rows
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.ledger import CallLedger
from dpeffects.privacy.losses import Huber, Logistic
from dpeffects.privacy.rows import reads
from dpeffects.seeded import SeededNoise
from tests.privacy.nasty import (
    exact_gradient,
    exact_minimiser,
    fitted_rows,
    huber_gradient,
    huber_terms,
    treatment_and_rows,
)
from tests.privacy.problems import curator, fit_logistic, held
from tests.privacy.problems import huber as huber_problem

PENALTIES = [10.0**k for k in (-12, -11, -10, -9, -8, -6, -3, 0)]


def hard(rng, n=None, d=None, largest=1e4):
    """A hard problem: treatments, rows, regression, noise in its mean objective."""
    t, x = treatment_and_rows(rng, n=n, d=d)
    centred, tilt = bool(rng.random() < 0.5), np.zeros(x.shape[1])
    penalty = float(rng.choice(PENALTIES))
    if centred and rng.random() < 0.6:
        size = min(float(rng.choice([penalty, 1e-6, 1e-2, 1.0, 1e4])), largest * penalty)
        tilt = rng.normal(size=x.shape[1]) * size
    offset = float(rng.choice([0.0, -2.0, 16.0])) if centred else 0.0
    strength = penalty * len(t) if centred else penalty
    return t, x, Logistic(x.shape[1], strength, offset, centred), tilt


def allowed(p, n, tilt):
    """Largest true gradient that is accounted for, with what `minimise` has room for."""
    push = float(np.linalg.norm(tilt))
    return p.gradient_left(n, push * n) + 2.5e-15 * push


@pytest.fixture(params=["Hessians", "products"])
def steps(request, monkeypatch):
    """By Hessians, or by their products with vectors, as for hundreds of columns."""
    monkeypatch.setattr(
        convex_solver, "DENSE", convex_solver.DENSE if request.param == "Hessians" else 0
    )


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("steps")
def test_every_logistic_regression_is_solved():
    """Some rows made the solver fail, for free and in print: one in seven such problems with
    penalties of 1e-9 and below, and none of their neighbours."""
    rng = np.random.default_rng(1)
    near = 0
    for _ in range(200):
        t, x, p, tilt = hard(rng, largest=math.inf)
        n, penalty = len(t), p.penalty(len(t))
        w = p.solve(held(x, t), tilt * n)
        gradient = exact_gradient(fitted_rows(x, p.centred), t, w, penalty, p.offset, tilt)[0]
        size, most = float(np.linalg.norm(gradient.astype(float))), allowed(p, n, tilt)
        curve = penalty + (0.25 if p.centred else x.shape[1] / 4.0)
        assert size <= most + curve * 2.0**-51 * np.linalg.norm(w)  # weights are floats
        near += size > 0.1 * most
    assert near > 2  # the bound is not far from what happens


def test_the_returned_weights_are_near_the_minimiser():
    """Against another solver, in long doubles, that knows nothing of grids and stopping rules."""
    rng = np.random.default_rng(2)
    worst = 0.0
    for _ in range(100):
        n, d = int(rng.choice([4, 12, 30])), int(rng.choice([1, 2, 4]))
        t, x, p, tilt = hard(rng, n, d)
        penalty = p.penalty(n)
        w = p.solve(held(x, t), tilt * n)
        best = exact_minimiser(fitted_rows(x, p.centred), t, w, penalty, p.offset, tilt)
        off = float(np.linalg.norm((w - best).astype(float)))
        worst = max(worst, off / (allowed(p, n, tilt) / penalty))
        top = p.largest_weights(n, float(np.linalg.norm(tilt)) * n)
        assert np.linalg.norm(best.astype(float)) <= top
    assert 0.01 < worst <= 1.0


class Kept:
    """No noise: keeps what would have been noised, and its declared sensitivity."""

    description, void = "none", ()

    def laplace(self, values, scale, sensitivity, epsilon):
        self.values, self.declared = values, sensitivity
        return values


def released(t, x, ask):
    """What leaves the curator before noise, in steps, and what it declares."""
    noise = Kept()
    ask(curator(held(x, t), noise=noise))
    return noise.values, noise.declared


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rows", ["as they are", "centred"])
def test_neighbours_of_hard_problems_are_released_alike(rows):
    """With a tiny penalty one neighbour was answered and the other was not."""
    rng = np.random.default_rng(3)
    nearest = 0.0
    for _ in range(60):
        t, x = treatment_and_rows(rng, n=int(rng.choice([4, 8, 40])))
        penalty = float(rng.choice(PENALTIES))
        if rows == "as they are":
            ask = lambda c: private_minimisation.propensity_weights(c, penalty, "a")  # noqa: E731, B023
        else:
            p = Logistic(x.shape[1], penalty * len(t), 0.5)
            ask = lambda c: private_minimisation.noisy_weights(c, "m", p, "a")  # noqa: E731, B023
        t2, x2 = t.copy(), x.copy()
        j = int(rng.integers(len(t)))
        t2[j], x2[j, 1:] = ~t[j], rng.choice([0.0, 0.5, 1.0], x.shape[1] - 1)
        (one, declared), (two, same) = (released(*pair, ask) for pair in ((t, x), (t2, x2)))
        assert declared == same
        assert np.abs(one - two).sum() <= declared
        nearest = max(nearest, float(np.abs(one - two).sum()) / declared)
    assert nearest > 0.2


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("looks", [1, Huber.looks])
def test_every_huber_regression_is_solved(monkeypatch, looks):
    """Huge weights, which a weak penalty allows, made the solver fail. With one look the careful
    solver has them all."""
    monkeypatch.setattr(Huber, "looks", looks)
    rng = np.random.default_rng(4)
    nearest = 0.0
    for _ in range(150):
        n, d = int(rng.choice([1, 4, 20, 300])), int(rng.choice([1, 3, 12, 40]))
        strength = float(rng.choice([1e-4, 1e-3, 1e-2, 1.0, 100.0]))
        p = huber_problem(*huber_terms(rng, n, d), strength)
        size = float(rng.choice([0.0, 1e-3, 1.0, 1e3, 1e6]))
        noise = rng.normal(size=d)
        noise *= size / np.linalg.norm(noise)
        w = p.solve(noise)
        ratio = huber_gradient(p, w, noise) / (p.solver_error(size) * strength)
        assert ratio <= 1.0
        assert np.linalg.norm(w) <= 1.01 * p.largest_weights(size)
        nearest = max(nearest, ratio)
    assert nearest > 0.01


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("looks", [1, 40])
def test_both_solvers_do_not_depend_on_order_or_blocks(monkeypatch, looks):
    """Also where the careful solver runs, which one look at the rows makes sure of."""
    monkeypatch.setattr(Logistic, "looks", looks)
    monkeypatch.setattr(Huber, "looks", looks)
    rng = np.random.default_rng(5)
    for kind in ("plain", "separable", "crowded"):
        t, x = treatment_and_rows(rng, kind, 3000, 4)
        order = rng.permutation(3000)
        y, slopes = rng.normal(size=3000), rng.random(3000)
        unit = x / 3.0
        for solve in (
            lambda o: fit_logistic(x[o], t[o], 1e-9),  # noqa: B023
            lambda o: huber_problem(unit[o], slopes[o], 3.0 * y[o], 1e-2).solve(),  # noqa: B023
        ):
            whole = solve(np.arange(3000))
            assert (solve(order) == whole).all()
            with monkeypatch.context() as other:
                other.setattr(private_rows, "ROWS", 100)
                assert (solve(order) == whole).all()


def test_both_solvers_agree_on_ordinary_problems(monkeypatch):
    rng = np.random.default_rng(6)
    for _ in range(20):
        t, x = treatment_and_rows(rng, "plain", 200, 5)
        quick = fit_logistic(x, t, 1e-3)
        with monkeypatch.context() as m:
            m.setattr(Logistic, "looks", 1)
            careful = fit_logistic(x, t, 1e-3)
        assert np.linalg.norm(quick - careful) <= 2e-9 / 1e-3


def test_the_careful_solver_ends_whatever_direction_it_is_given(monkeypatch):
    """It does not trust Hessians: with directions at random it still ends at a small gradient."""
    rng = np.random.default_rng(7)
    matrix = np.diag([1.0, 0.3, 0.05])
    anywhere = lambda *_: rng.normal(size=3) * 10.0 ** rng.integers(-9, 9)  # noqa: E731
    monkeypatch.setattr(convex_solver, "direction", anywhere)

    def at(w, tail):
        return matrix @ (w - 1.0 + tail), matrix

    w = convex_solver.descend(at, 3, 1e-6, lambda size: 1e-12 * (1.0 + size), 1.0)
    assert np.linalg.norm(matrix @ (w - 1.0)) <= 1e-6


def test_it_ends_where_rounding_hides_the_gradient():
    """A computed gradient that never gets small is followed no further than it means something."""
    rng = np.random.default_rng(8)

    def at(w, tail):
        return w - 1.0 + rng.uniform(-1e-3, 1e-3, 2), np.eye(2)

    w = convex_solver.descend(at, 2, 1e-9, lambda size: 2e-3, 1.0)
    assert np.linalg.norm(w - 1.0) <= 4e-3


@pytest.mark.parametrize(
    "hessian", [np.zeros((2, 2)), np.full((2, 2), 1e-320), -np.eye(2), np.full((2, 2), np.nan)]
)
def test_a_matrix_without_an_inverse_gives_a_direction_all_the_same(hessian):
    gradient = np.array([1.0, -2.0])
    step = convex_solver.direction(hessian, gradient)
    assert np.isfinite(step).all()
    assert step @ gradient > 0


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_a_matrix_with_an_inverse_gives_newton_s_step_for_gradients_of_any_size(size):
    hessian, gradient = np.array([[2.0, 1.0], [1.0, 3.0]]), size * np.array([1.0, -2.0])
    assert convex_solver.direction(hessian, gradient) == pytest.approx(size * np.array([1.0, -1.0]))


def test_products_solve_ordinary_problems_without_a_hessian(monkeypatch):
    """As effect functions of hundreds of covariates need; the careful solver is not asked."""
    rng = np.random.default_rng(9)
    never = lambda *_: pytest.fail("the careful solver was asked")  # noqa: E731
    for _ in range(5):
        t, x = treatment_and_rows(rng, "plain", 200, 30)
        terms, noise = huber_terms(rng, 200, 30), 5.0 * rng.normal(size=30)
        exact = fit_logistic(x, t, 1e-2), huber_problem(*terms, 5.0).solve(noise)
        with monkeypatch.context() as m:
            m.setattr(convex_solver, "DENSE", 0)
            m.setattr(convex_solver, "descend", never)
            found = fit_logistic(x, t, 1e-2), huber_problem(*terms, 5.0).solve(noise)
        for one, other, near in zip(found, exact, (2e-7, 1e-9), strict=True):
            assert np.linalg.norm(one - other) <= near


def test_conjugate_gradients_solve_a_system_and_give_up_on_a_hopeless_one():
    rng = np.random.default_rng(10)
    root = rng.normal(size=(40, 40))
    matrix, gradient = root @ root.T + 5.0 * np.eye(40), rng.normal(size=40)
    step = convex_solver.direction(lambda v: matrix @ v, gradient)
    assert np.linalg.norm(matrix @ step - gradient) <= 1.01e-3 * np.linalg.norm(gradient)
    for hopeless in (-matrix, np.zeros((40, 40)), np.full((40, 40), np.nan)):
        assert convex_solver.direction(lambda v: hopeless @ v, gradient) is None  # noqa: B023


def test_hard_problems_of_many_weights_are_not_a_thousand_looks_at_the_rows(monkeypatch):
    """Conjugate gradients take as many products as a Hessian has columns, or more, where the
    penalty is weak; a product is a query where rows are on an engine."""
    rng, looks = np.random.default_rng(11), []
    t, x = treatment_and_rows(rng, "plain", 400, 120)
    monkeypatch.setattr(convex_solver, "DENSE", 0)
    fold = convex_solver.block_sums
    monkeypatch.setattr(convex_solver, "block_sums", lambda *a: looks.append(1) or fold(*a))
    weights = fit_logistic(x, t, 1e-6)
    assert len(looks) < 200
    monkeypatch.undo()
    assert np.linalg.norm(weights - fit_logistic(x, t, 1e-6)) <= 2e-3


# --- sizes that fit ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Sized:
    """Rows by their number alone."""

    n: int
    width: int

    @property
    def about(self):
        return private_rows.RowMetadata(self.n, self.width, (0.0, 1.0))


class FarLogistic(Logistic):
    """A regression whose solution is as far away as floats go."""

    def solve(self, source, noise=None):
        return np.full(self.width, 1e300)


class FarHuber(Huber):
    """A regression whose solution is as far away as floats go."""

    def solve(self, source, noise=None):
        return np.full(self.width, -1e300)


@reads("covariates")
def _covariates(block):
    return (*block.covariates.T, np.ones(block.size), np.ones(block.size))


@pytest.mark.parametrize("epsilon", [1e-5, 1e-3, 1.0, 100.0, 1e6])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_weights_always_fit_into_the_integers_of_a_release(epsilon, delta):
    """Weights beyond 2^60 steps made the release fail after the rest was paid."""
    for n in (4, 1000, 10**7):
        for d in (1, 10, 100):
            share = Budget(epsilon, delta).shares({"a": 1.0})["a"]
            strength = default_strength(n, d, epsilon, delta)
            for problem in (
                FarLogistic(d, strength, 3.0),
                FarHuber(_covariates, d, least_strength(epsilon, 1.0)),
                FarHuber(_covariates, d, strength + least_strength(epsilon, 1.0)),
            ):
                c = curator(
                    Sized(n, d), share, SeededNoise(0), ledger=CallLedger(Budget(epsilon, delta))
                )
                weights = private_minimisation.minimise(c, "model", problem, "a")
                assert np.isfinite(weights.value).all()


def test_what_is_accounted_for_stays_what_it_was_for_usual_sizes():
    """A bound that holds for all rows costs nothing: it is the one that was checked before."""
    for d in (1, 10, 60):
        for n in (100, 10**4, 10**7):
            assert Logistic(d, 1.0 / n, centred=False).gradient_left(n) == 1e-9
            for epsilon in (0.1, 1.0, 10.0):
                strength = default_strength(n, d, epsilon, 0.0)
                noise = 2.0 * losses.unit_l1(d) / epsilon * math.sqrt(d) * 720.0
                error = Logistic(d, strength).solver_error(n, noise)
                assert error == pytest.approx(8e-12 * n / strength)


# --- what a caller sees -----------------------------------------------------------------------


def site(rng, last):
    """Separable records, but for the last one, which is given."""
    x = np.rint(rng.random(60) * 2**16) / 2**16
    t = (x > 0.5).astype(int)
    x[-1], t[-1] = last
    return pd.DataFrame({"y": rng.random(60), "x": x, "t": t})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("penalty", [1e-12, 1e-10, 1e-8])
def test_sites_answer_alike_on_neighbours(penalty):
    """One record decided whether a site was listed as left out because a model did not converge."""
    seen = []
    for last in ((0.5 + 2.0**-16, 1), (0.5, 1), (0.9, 0), (0.5 - 2.0**-16, 1), (0.0, 1)):
        parts = [site(np.random.default_rng(k), last).assign(site=k) for k in range(3)]
        found = dpe.dp_multisite(
            "y ~ t | x",
            pd.concat(parts),
            site="site",
            sites=[0, 1, 2],
            method="private_psm",
            epsilon=20.0,
            bounds={"y": (0, 1), "x": (0, 1)},
            seed=1,
            penalty=penalty,
            as_printed=True,
        )
        seen.append(found.sites["site"].tolist())
    assert seen == [["0", "1", "2"]] * 5


@pytest.mark.parametrize("method", ["private_psm", "private_ipw"])
@pytest.mark.parametrize("penalty", [1e-300, 1e-13, 0.0, -1.0, 1e308, math.inf, math.nan, True])
def test_a_penalty_that_cannot_be_fitted_is_refused_before_anything_is_charged(method, penalty):
    """A penalty of 1e-300 was refused by the solver, when counts were already paid for."""
    ledger = dpe.Ledger(1.0)
    with pytest.raises(OptionError, match="penalty must be"):
        dpe.dp_ate(
            "y ~ t | x",
            site(np.random.default_rng(0), (0.5, 1)),
            method=method,
            epsilon=1.0,
            bounds={"y": (0, 1), "x": (0, 1)},
            ledger=ledger,
            penalty=penalty,
            **({"as_printed": True} if method == "private_psm" else {}),
        )
    assert ledger.spent == (0, 0)
