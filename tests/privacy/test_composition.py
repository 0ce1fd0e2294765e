"""Compositions of charges: what is refused, what is reported, and that both are sound."""

import math
import tempfile
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import binom

import dpeffects as dpe
from dpeffects.errors import BudgetError, MissingExtraError, OptionError
from dpeffects.ledgers import create_ledger
from dpeffects.ledgers.composition import (
    Composition,
    Concentrated,
    epsilon_of_rho,
    gaussian_rho,
    largest_rho,
)
from dpeffects.ledgers.entry import NONE, Cost
from dpeffects.privacy.budget import Budget, Share
from dpeffects.privacy.charges import Charge
from dpeffects.privacy.domains import IntTotals, Sensitivity
from dpeffects.privacy.ledger import CallLedger, Terms
from dpeffects.privacy.noise import gaussian_scale
from dpeffects.privacy.release import Releaser, Split
from dpeffects.seeded import SeededNoise

TERMS = Terms("record")


def laplace(epsilon, alone=True):
    return Charge("l", "a", epsilon, 0.0, "discrete Laplace", (1.0,), (1.0 / epsilon,), 2, alone)


def gaussian(epsilon, delta, alone=True):
    sigma = gaussian_scale(1.0, epsilon, delta, 1)
    return Charge("g", "a", epsilon, delta, "discrete Gaussian", (1.0,), (sigma,), 4, alone)


def gaussian_delta(mu, epsilon):
    """Exact delta of a Gaussian mechanism with sensitivity / scale = mu."""
    return math.exp(log_ndtr(mu / 2 - epsilon / mu)) - math.exp(
        epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    )


# --- concentrated privacy ---------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 20.0), st.floats(1e-12, 0.1))
def test_rho_implies_the_budget_for_a_gaussian(epsilon, delta):
    """A Gaussian mechanism has exactly this rho; its exact delta must not exceed the claim."""
    rho = largest_rho(epsilon, delta)
    assert gaussian_delta(math.sqrt(2 * rho), epsilon) <= delta
    assert epsilon_of_rho(rho, delta) == pytest.approx(epsilon, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 5.0), st.integers(1, 60), st.floats(1e-9, 1e-2))
def test_rho_implies_the_budget_for_randomised_response(epsilon, k, delta):
    """k-fold randomised response: exact delta by the binomial formula."""
    rho = k * epsilon**2 / 2
    total = epsilon_of_rho(rho, delta)
    q = 1 / (1 + math.exp(epsilon))
    flips = np.arange(k + 1)
    chance, other = binom.pmf(flips, k, q), binom.pmf(k - flips, k, q)
    assert np.maximum(chance - math.exp(min(total, 700)) * other, 0).sum() <= delta * (1 + 1e-9)


def test_better_than_the_textbook_formula():
    log = math.log(1 / 5e-6)
    assert largest_rho(3.0, 5e-6) > 1.2 * (math.sqrt(log + 3) - math.sqrt(log)) ** 2


any_charge = st.one_of(
    st.builds(laplace, st.floats(1e-6, 0.5), st.booleans()),
    st.builds(gaussian, st.floats(0.01, 0.5), st.floats(1e-9, 1e-3), st.booleans()),
)


@pytest.mark.parametrize("rule", [Composition(), Concentrated()])
@settings(max_examples=40, deadline=None)
@given(charges=st.lists(any_charge, min_size=1, max_size=6))
def test_a_call_costs_no_more_than_its_budget(rule, charges):
    epsilon = sum((Fraction(s.epsilon) for s in charges), Fraction(0))
    delta = sum((Fraction(s.delta) for s in charges), Fraction(0))
    total, joint = NONE, Fraction(0)
    for charge in charges:
        total = total.plus(rule.of_charge(charge, joint))
        joint += Fraction(0) if charge.alone else Fraction(charge.epsilon)
    assert total.within(rule.of_call(epsilon, delta))


def test_parts_of_a_price_are_squared_together():
    rule = Concentrated()
    one = rule.of_charge(laplace(0.5, alone=False), Fraction(0))
    two = rule.of_charge(laplace(0.25, alone=False), Fraction(0.5))
    assert one.plus(two).first == Fraction(0.75) ** 2 / 2
    assert rule.of_charge(gaussian(0.5, 1e-5, alone=False), Fraction(0)).delta == Fraction(1e-5)


def test_rho_of_a_gaussian_draw_is_rounded_up():
    charge = gaussian(1.0, 1e-5)
    exact = (Fraction(charge.sensitivity[0]) / Fraction(charge.scale[0])) ** 2 / 2
    assert exact < gaussian_rho(charge) < exact * (1 + Fraction(1, 10**11))
    assert gaussian_rho(laplace(1.0)) is None


def test_many_gaussian_releases_fit_under_concentrated_privacy(tmp_path):
    counts = {}
    for name in ("sum", "zcdp"):
        ledger = create_ledger(
            tmp_path / f"{name}.db", "x", epsilon=1.0, delta=1e-4, composition=name
        )
        counts[name] = 0
        for _ in range(60):
            try:
                room = ledger.reserve(Budget(0.1, 1e-6), TERMS, {})
                room.charge(gaussian(*Budget(0.1, 1e-6).shares({"all": 1})["all"]), TERMS)
                room.settle()
            except BudgetError:
                break
            counts[name] += 1
        assert "sound" in ledger.verify()
    assert counts == {"sum": 10, "zcdp": 60}


def test_what_is_left_can_be_asked_for(tmp_path):
    ledger = create_ledger(tmp_path / "a.db", "x", epsilon=1.0, delta=1e-4, composition="zcdp")
    room = ledger.reserve(Budget(*ledger.remaining), TERMS, {})
    assert ledger.remaining[0] < 1e-6
    with pytest.raises(BudgetError, match="open calls hold"):
        ledger.require(0.001)
    room.settle()
    ledger.charge(laplace(0.1), TERMS)
    ledger.charge(gaussian(0.1, 1e-6), TERMS)
    text = " ".join(str(ledger.summary()).split())
    assert "by zcdp: rho" in text
    assert "for one call" in text


def test_concentrated_privacy_needs_a_delta(tmp_path):
    with pytest.raises(BudgetError, match="needs a delta"):
        create_ledger(tmp_path / "a.db", "x", epsilon=1.0, composition="zcdp")
    with pytest.raises(OptionError, match="sum, zcdp"):
        create_ledger(tmp_path / "a.db", "x", epsilon=1.0, composition="tight_epsilon")
    assert list(tmp_path.iterdir()) == []


def test_charges_of_real_calls_say_whether_they_stand_alone():
    """Parts of a price (claims 11, 22) never enter a tighter composition by their noise."""
    data = dpe.simulate("cate_1", n=3000, seed=1)
    fit = dpe.dp_cate("outcome ~ treatment | x1 + x2", data, epsilon=1, delta=1e-5, seed=1)
    for charge in fit.charges:
        assert not (charge.claim in (21, 22, 23) and charge.alone)
        if charge.mechanism not in ("discrete Laplace", "discrete Gaussian", "randomised response"):
            assert not charge.alone
    assert any(charge.alone for charge in fit.charges)


def test_what_covers_another_half_does_not_stand_alone():
    split = Split.of(Budget(1.0, 1e-5), {"a": 1, "b": 1}, {"b": 100.0})
    ledger, one = CallLedger(Budget(9.0, 1e-4)), np.zeros(1, np.int64)
    releaser = Releaser(split, ledger, SeededNoise(0))
    for part in (releaser, releaser.for_subset(split)):
        part.release("x", IntTotals(one, Sensitivity(1, 1.0), 1.0), share="a", claim=2, part=0.1)
        part.release("x", IntTotals(one, Sensitivity(9, 1.0), 1.0), share="b", claim=4, part=0.5)
        part.respond("x", np.zeros(1, bool), 2, share="a", claim=3)
    found = [(s.mechanism, s.alone) for s in ledger.charges]
    assert [alone for _, alone in found] == [True] * 3 + [False] * 3
    assert {"discrete Laplace", "discrete Gaussian", "randomised response"} == {
        name for name, _ in found
    }


@pytest.mark.parametrize(("sigma", "most"), [(2.0**21, 60.0), (3.0, 60.0 - 19.0)])
def test_values_too_large_for_noise_are_clipped_and_not_refused(sigma, most):
    """A refusal would tell of a value; small noise is drawn in finer steps, 2^19 of them here."""
    releaser = Releaser(
        Split({"a": Share(1.0, 1e-6)}), CallLedger(Budget(1.0, 1e-6)), SeededNoise(0)
    )
    totals = IntTotals(np.array([2**62, -(2**62), 7]), Sensitivity(1, 1.0), 1.0)
    price = Share(0.5, 1e-7)
    drawn = releaser.gaussian("x", totals, sigma, price, share="a", claim=5).value
    assert np.log2([drawn[0], -drawn[1]]) == pytest.approx([most, most], abs=1e-6)


# --- privacy-loss distributions ---------------------------------------------------------------


@pytest.fixture
def accounting():
    return pytest.importorskip("dp_accounting")


def tight_epsilon(tmp_path, charges, delta, calls=False):
    folder = tempfile.mkdtemp(dir=tmp_path)
    ledger = create_ledger(f"{folder}/tight.db", "x", epsilon=1000.0, delta=0.5)
    for charge in charges:
        if calls:
            room = ledger.reserve(Budget(charge.epsilon * 1.01, 0.0), TERMS, {})
            room.charge(charge, TERMS)
            room.settle()
        else:
            ledger.charge(charge, TERMS)
    return ledger.tight_epsilon(delta)


def test_gaussian_releases_compose_as_one(accounting, tmp_path):
    charges = [gaussian(0.2, 1e-6)] * 25
    mu = 5 * charges[0].sensitivity[0] / charges[0].scale[0]
    exact = brentq(lambda e: gaussian_delta(mu, e) - 1e-5, 1e-3, 50)
    found = tight_epsilon(tmp_path, charges, 1e-5)
    assert exact <= found <= exact * 1.02
    assert found < 0.5 * 25 * 0.2


def test_pure_releases_compose_by_their_price(accounting, tmp_path):
    """Exact value: k-fold randomised response."""
    k, epsilon, delta = 40, 0.05, 1e-5
    q = 1 / (1 + math.exp(epsilon))
    flips = np.arange(k + 1)

    def excess(total):
        gap = binom.pmf(flips, k, q) - math.exp(total) * binom.pmf(k - flips, k, q)
        return np.maximum(gap, 0).sum() - delta

    exact = brentq(excess, 1e-3, k * epsilon)
    found = tight_epsilon(tmp_path, [laplace(epsilon)] * k, delta)
    assert exact <= found <= exact * 1.02


def test_the_plain_sum_is_never_exceeded(accounting, tmp_path):
    assert tight_epsilon(tmp_path, [laplace(0.5), laplace(0.25)], 0.0) == 0.75
    assert tight_epsilon(tmp_path, [laplace(0.5), laplace(0.25)], 1e-9) <= 0.75
    assert tight_epsilon(tmp_path, [gaussian(0.5, 1e-5, alone=False)], 1e-6) == math.inf


def test_parts_of_one_call_count_as_one_price(accounting, tmp_path):
    """Outside calls all parts are one price: nothing says which belong together."""
    parts = [laplace(0.05, alone=False)] * 20
    assert tight_epsilon(tmp_path, parts, 1e-5) == pytest.approx(1.0, rel=1e-3)
    assert tight_epsilon(tmp_path, parts, 1e-5, calls=True) < 0.95


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(0.001, 0.1), min_size=120, max_size=150, unique=True))
def test_many_different_prices(charges):
    pytest.importorskip("dp_accounting")
    from dpeffects.ledgers.loss_distributions import _by_distributions

    prices = [Cost(Fraction(e)) for e in charges]
    found = _by_distributions([], prices, 1e-6)
    assert 0 < found <= sum(charges) * 1.02


def test_without_the_library(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    ledger = create_ledger(tmp_path / "a.db", "x", epsilon=1.0, delta=1e-5)
    ledger.charge(laplace(0.1))
    with pytest.raises(MissingExtraError, match=r"dpeffects\[accounting\]"):
        ledger.tight_epsilon()
    assert "dpeffects[accounting]" in str(ledger.summary())
    assert ledger.tight_epsilon(0.0) == 0.1
