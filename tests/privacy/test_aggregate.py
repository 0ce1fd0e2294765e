"""Averages over blocks: worst-case learners, learners that cheat, learners that fail."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from dpeffects.privacy.aggregate import answer

from dpeffects.errors import BudgetError, EstimationError, OptionError, PrivacyError
from dpeffects.privacy.budget import Share
from dpeffects.privacy.curator import Curator, Releaser, Rows
from dpeffects.privacy.ledger import Ledger
from dpeffects.privacy.noise import SeededNoise, fixed_generator
from tests.privacy.test_sensitivity import Bare, change, curator, replaced

RANGE = (-1.0, 1.0)


def mean(x, treated, outcome):
    return [outcome.mean()]


def ask(learner, blocks=3, size=1, interval=RANGE, squares=True):
    def call(c):
        c.block_answers("answers", learner, blocks, interval, size, "a")
        if squares:
            c.block_squares("squares", "a")

    return call


def data(rng, n, d=2):
    x = rng.choice([0.0, 0.5, 1.0], (n, d))
    return rng.choice([0.0, 0.4, 1.0], n), rng.random(n) < 0.5, x


# --- sensitivity ------------------------------------------------------------------------------

LEARNERS = {
    "mean": (mean, 1),
    "difference in means": (lambda x, t, y: [y[t].mean() - y[~t].mean()], 1),
    "least squares": (lambda x, t, y: np.linalg.lstsq(x, y)[0], 2),
    "huge": (lambda x, t, y: np.where(y.max() > 0.9, 1e300, -1e300) * np.ones(4), 4),
    "infinite": (lambda x, t, y: np.where(y > 0.5, np.inf, -1e9)[:1], 1),
    "fails at times": (lambda x, t, y: [1.0 / int(y.max() < 0.9)], 1),
    "hash of the block": (lambda x, t, y: [np.sin(1e6 * (x.sum() + t.sum() + y.sum()))] * 3, 3),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_random_and_extreme_neighbours(name):
    learner, size = LEARNERS[name]
    rng = np.random.default_rng(1)
    worst = 0.0
    for _ in range(80):
        n = int(rng.integers(6, 14))
        y, t, x = data(rng, n)
        other = replaced(rng, y, t, x, int(rng.integers(n)))
        call = ask(learner, int(rng.integers(2, 5)), size)
        worst = max(worst, change(curator(y, t, x), curator(*other), call))
    assert 0.1 < worst <= 1.0


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("interval", [(-1.0, 1.0), (0.0, 0.1), (-1e6, 3.0)])
def test_the_bound_is_attained_and_never_exceeded(size, interval):
    """All pairs of answers of one block out of extremes, middle and failure."""

    def learner(x, t, y):
        if y[0] == 0.5:
            raise ValueError("no")
        return np.full(size, (y[0] - 0.5) * 1e30)

    worst = {False: 0.0, True: 0.0}
    for one, two in itertools.permutations((0.0, 0.5, 1.0), 2):
        first = np.array([0.0, 1.0, 0.5, 0.3, 0.2, 0.1])
        second = first.copy()
        first[1], second[1] = one, two
        t = np.zeros(6, dtype=bool)
        for squares in (False, True):
            call = ask(learner, 3, size, interval, squares)
            worst[squares] = max(
                worst[squares], change(curator(first, t), curator(second, t), call)
            )
    assert worst == {False: 1.0, True: 1.0}


def test_squares_alone_attain_their_bound():
    t, base = np.zeros(4, dtype=bool), np.array([0.0, 0.0, 1.0, 0.0])
    moved = np.array([0.0, 0.5, 1.0, 0.5])
    drawn = []
    for y in (base, moved):
        c, noise = curator(y, t)
        ask(lambda x, t, y: [2.0 * y.mean() - 1.0], 2)(c)
        drawn.append((noise.values[1], noise.sensitivity[1]))
    assert abs(int(drawn[0][0][0]) - int(drawn[1][0][0])) == drawn[0][1]  # z: -1 to 0


def released(y, size, blocks, delta=0.0):
    rows = Rows(y, (0.0, 1.0), np.zeros(len(y), dtype=bool), lambda: np.ones((len(y), 1)), 1)
    releaser = Releaser({"a": Share(1.0, delta)}, Ledger(10.0, 1e-3), SeededNoise(1))
    c = Curator(rows, releaser, frozenset())
    learner = lambda x, t, y: np.full(size, y.mean())  # noqa: E731
    return c.block_answers("b", learner, blocks, (0.0, 0.5), size, "a"), c.block_squares("s", "a")


def test_declared_sensitivities_in_the_units_of_the_answers():
    y = np.linspace(0, 1, 60)
    answers, squares = released(y, 1, 10)
    assert answers.spend.sensitivity[0] == pytest.approx(0.5 / 10)
    assert squares.spend.sensitivity[0] == pytest.approx(0.25**2 / 10)
    assert (answers.spend.claim, squares.spend.claim) == (38, 39)
    answers, squares = released(y, 7, 10)
    assert answers.spend.sensitivity[0] == pytest.approx(7 * 0.5 / 10)
    answers, squares = released(y, 400, 10, 1e-5)
    assert answers.spend.mechanism == squares.spend.mechanism == "Gaussian"
    assert answers.spend.sensitivity[0] == pytest.approx(20 * 0.5 / 10)
    assert squares.spend.sensitivity[0] == pytest.approx(20 * 0.25**2 / 10)


# --- blocks -----------------------------------------------------------------------------------


def index_sets(y, t, blocks):
    """Which records each block got: the first column of the covariates is their index."""
    seen = []

    def spy(x, treated, outcome):
        seen.append((x[:, 0] * 100).round().astype(int).tolist())
        return [0.0]

    x = np.column_stack([np.arange(len(y)) / 100, y, t])
    c, _ = curator(y, t, x)
    ask(spy, blocks)(c)
    return seen


def test_blocks_go_by_index_whatever_the_data():
    rng = np.random.default_rng(2)
    expected = [list(range(k, 23, 4)) for k in range(4)]
    y, t, _ = data(rng, 23)
    assert index_sets(y, t, 4) == expected
    for _ in range(10):
        order = rng.permutation(23)
        assert index_sets(y[order], t[order], 4) == expected
    assert index_sets(np.zeros(23), np.zeros(23, dtype=bool), 4) == expected


def test_the_mean_and_the_squares_of_clipped_answers():
    rng = np.random.default_rng(3)
    y, t, x = rng.random(90), rng.random(90) < 0.5, rng.random((90, 2))
    c, _ = curator(y, t, x)
    learner = lambda x, t, y: np.array([y[t].mean() - y[~t].mean(), 3 * x[:, 0].mean()])  # noqa: E731
    got = c.block_answers("b", learner, 9, (-0.1, 1.5), 2, "a").value
    by_hand = np.clip([learner(x[k::9], t[k::9], y[k::9]) for k in range(9)], -0.1, 1.5)
    assert got == pytest.approx(by_hand.mean(axis=0), abs=1e-8)
    squares = c.block_squares("s", "a").value
    assert squares == pytest.approx(((by_hand - 0.7) ** 2).mean(axis=0), abs=1e-8)


def test_each_block_is_asked_once():
    calls = []
    c, _ = curator(*data(np.random.default_rng(4), 20))
    ask(lambda x, t, y: calls.append(len(y)) or [0.0], 6)(c)
    assert calls == [4, 4, 3, 3, 3, 3]


# --- learners that fail -----------------------------------------------------------------------

FAILING = {
    "raises": lambda x, t, y: 1 / 0,
    "wrong length": lambda x, t, y: [1.0, 1.0],
    "wrong shape": lambda x, t, y: [[1.0]],
    "no array": lambda x, t, y: 1.0,
    "not finite": lambda x, t, y: [np.nan],
    "infinite": lambda x, t, y: [np.inf],
    "no number": lambda x, t, y: ["high"],
    "nothing": lambda x, t, y: None,
    "complex": lambda x, t, y: np.linalg.solve(np.zeros((1, 1)), [1.0]),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_failing_block_answers_with_the_middle(name):
    y, t = np.array([1.0, 0.2, 0.3, 1.0, 0.4, 0.5]), np.zeros(6, dtype=bool)
    c, _ = curator(y, t)
    some = lambda x, t, y: FAILING[name](x, t, y) if y.max() == 1.0 else [5.0]  # noqa: E731
    got = c.block_answers("b", some, 3, (1.0, 5.0), 1, "a").value  # one block of three fails
    assert got == pytest.approx([(3.0 + 5.0 + 5.0) / 3])
    assert c.block_squares("s", "a").value == pytest.approx([(0.0 + 4.0 + 4.0) / 3])
    with pytest.raises((EstimationError, ValueError, TypeError, ArithmeticError)):
        answer(FAILING[name], (np.zeros((3, 1)), t[:3], y[:3]), 1)


def test_warnings_of_learners_are_silent():
    def noisy(x, t, y):
        warnings.warn("look at my data", stacklevel=1)
        return np.array([1.0]) / np.array([0.0])

    c, _ = curator(*data(np.random.default_rng(5), 12))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask(noisy)(c)


# --- learners that reach beyond their block ---------------------------------------------------


class Remembers:
    """Answers with everything that it has ever seen."""

    def __init__(self):
        self.seen = 0.0

    def __call__(self, x, t, y):
        self.seen += y.sum()
        return [np.sin(1e6 * self.seen)]


def vandal(x, t, y):
    """Overwrites what it was given."""
    found = [y.mean()]
    x[:], t[:], y[:] = 7.0, True, 7.0
    return found


def draws(x, t, y):
    """Draws from numpy's global generator, more often where outcomes are high."""
    np.random.random(int(10 * y.sum()))  # noqa: NPY002
    return [np.random.standard_normal()]  # noqa: NPY002


@pytest.mark.parametrize("learner", [Remembers(), vandal, draws], ids=["memory", "vandal", "draws"])
def test_only_one_block_moves(learner):
    rng = np.random.default_rng(6)
    for _ in range(20):
        y, t, x = data(rng, 12)
        other = replaced(rng, y, t, x, int(rng.integers(4)))
        assert change(curator(y, t, x), curator(*other), ask(learner)) <= 1.0


def test_rows_survive_a_learner_that_overwrites_them():
    y, t, x = data(np.random.default_rng(7), 12)
    kept = y.copy(), t.copy(), x.copy()
    c, _ = curator(y, t, x)
    for _ in range(2):
        assert c.block_answers("b", vandal, 3, RANGE, 1, "a").value == pytest.approx([y.mean()])
    assert all(np.array_equal(a, b) for a, b in zip(kept, (y, t, x), strict=True))


def test_the_global_generator_is_given_back():
    np.random.seed(8)  # noqa: NPY002
    expected = np.random.random(3)  # noqa: NPY002
    np.random.seed(8)  # noqa: NPY002
    c, _ = curator(*data(np.random.default_rng(8), 12))
    ask(draws)(c)
    with pytest.raises(ZeroDivisionError), fixed_generator(3):
        raise ZeroDivisionError
    assert np.random.random(3) == pytest.approx(expected)  # noqa: NPY002


# --- refusals ---------------------------------------------------------------------------------


def test_refusals_draw_nothing():
    c, noise = curator(*data(np.random.default_rng(9), 12))
    with pytest.raises(PrivacyError, match="no block"):
        c.block_squares("s", "a")
    for blocks, size, interval in ((1, 1, RANGE), (13, 1, RANGE), (3, 0, RANGE), (3, 1, (1, 1))):
        with pytest.raises(OptionError, match="blocks"):
            c.block_answers("b", mean, blocks, interval, size, "a")
    assert noise.values == []


def test_a_charge_comes_before_its_draw():
    noise = Bare()
    rows = Rows(np.zeros(4), (0.0, 1.0), np.array([True, False] * 2), lambda: np.zeros((4, 1)), 1)
    c = Curator(rows, Releaser({"a": Share(1.0)}, Ledger(0.5), noise), frozenset())
    for call in (
        lambda: c.block_answers("b", mean, 2, RANGE, 1, "a"),
        lambda: c.block_squares("s", "a"),
    ):
        with pytest.raises(BudgetError, match="left"):
            call()
    assert noise.values == []
