"""Parts of the records: blocks with worst-case, cheating and failing learners; two halves."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

from dpeffects.errors import BudgetError, EstimationError, OptionError
from dpeffects.estimators.arm_sums import arm_sums, treated_count
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.domains import Box, entries
from dpeffects.privacy.ledger import CallLedger
from dpeffects.privacy.release import Releaser, Split
from dpeffects.privacy.rows import Rows
from dpeffects.privacy.sample_splits import answer, by_block, fixed_generator, halves
from dpeffects.replication.sample_aggregate import MeanAnswer, mean_answer
from dpeffects.seeded import SeededNoise
from tests.privacy.bare import Bare, change, curator, replaced

RANGE = (-1.0, 1.0)


def mean(x, treated, outcome):
    return [outcome.mean()]


def answers(c, learner, blocks=3, size=1, interval=RANGE):
    return mean_answer(by_block(c, learner, blocks, size), "answers", interval, "a", size)[0]


def with_squares(c, learner, blocks=3, interval=RANGE):
    return MeanAnswer.released(by_block(c, learner, blocks, 1), "answers", interval, "a")


def ask(learner, blocks=3, size=1, interval=RANGE, second=True):
    def call(c):
        answers(c, learner, blocks, size, interval)
        if second and size == 1:
            with_squares(c, learner, blocks, interval)

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


@pytest.mark.sampled(5)
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
        other = first.copy()
        first[1], other[1] = one, two
        t = np.zeros(6, dtype=bool)
        for second in (False, True):
            call = ask(learner, 3, size, interval, second=second)
            worst[second] = max(worst[second], change(curator(first, t), curator(other, t), call))
    assert worst[False] == 1.0
    assert 0.99 < worst[True] <= 1.0


def test_number_sum_and_squares_together_attain_their_bound():
    """From one end to the other, or from an end to no answer, L1 moves by the whole sensitivity."""
    t, base = np.zeros(4, dtype=bool), np.array([0.0, 0.0, 1.0, 0.0])

    def learner(x, t, y):
        if y.mean() == 0.25:
            raise ValueError("no")
        return [2.0 * y.mean() - 1.0]

    for moved, fails in (([0.0, 1.0, 1.0, 1.0], False), ([0.0, 0.5, 1.0, 0.0], True)):
        drawn = []
        for y in (base, np.array(moved)):
            c, noise = curator(y, t)
            with_squares(c, learner, 2)
            drawn.append((noise.values[0].ravel(), noise.sensitivity[0]))
        change = np.abs(drawn[0][0] - drawn[1][0])
        assert (change[0] > 0) == fails  # the number of answers
        assert 0.999 <= change.sum() / drawn[0][1] <= 1.0


@pytest.mark.parametrize("size", [1, 7, 400])
def test_declared_sensitivities_in_the_units_of_the_answers(size):
    y, delta, box = np.linspace(0, 1, 60), 1e-5 * (size == 400), Box(np.zeros(size), np.ones(size))
    rows = Rows(y, (0.0, 1.0), np.zeros(60, dtype=bool), lambda: np.ones((60, 1)), 1)
    split = Split.of(Budget(1.0, delta), {"a": 1.0}, {"a": entries(box)})
    c = Curator(rows, Releaser(split, CallLedger(Budget(1.0, 1e-3)), SeededNoise(1)), frozenset())
    own = by_block(c, lambda x, t, y: np.full(size, y.mean()), 10, size)
    mean, blocks = mean_answer(own, "answers", (0.0, 0.5), "a", size)
    span = (20 if delta else size) * 0.5
    assert mean.gaussian == (delta > 0)
    assert mean.charge.sensitivity[0] == pytest.approx(span)
    assert mean.scale == pytest.approx(mean.charge.scale[0] / blocks)


# --- blocks -----------------------------------------------------------------------------------


def index_sets(y, t, blocks):
    """Which records each block got: the first column of the covariates is their index."""
    seen = []

    def spy(x, treated, outcome):
        seen.append((x[:, 0] * 100).round().astype(int).tolist())
        return [0.0]

    x = np.column_stack([np.arange(len(y)) / 100, y, t])
    c, _ = curator(y, t, x)
    answers(c, spy, blocks)
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
    got = answers(c, learner, 9, 2, (-0.1, 1.5)).value
    by_hand = np.clip([learner(x[k::9], t[k::9], y[k::9]) for k in range(9)], -0.1, 1.5)
    assert got == pytest.approx(by_hand.mean(axis=0), abs=1e-8)
    found = with_squares(c, lambda *rows: learner(*rows)[:1], 9, (-0.1, 1.5))
    assert (found.blocks, found.value) == pytest.approx((9, by_hand[:, 0].mean()), abs=1e-6)
    variance = 1.6**2 * (found.second - found.first**2)
    assert variance == pytest.approx(by_hand[:, 0].var(), abs=1e-6)


def test_each_block_is_asked_once():
    calls = []
    c, _ = curator(*data(np.random.default_rng(4), 20))
    answers(c, lambda x, t, y: calls.append(len(y)) or [0.0], 6)
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
def test_a_failing_block_is_left_out(name):
    y, t = np.array([1.0, 0.2, 0.3, 1.0, 0.4, 0.5]), np.zeros(6, dtype=bool)
    c, _ = curator(y, t)
    some = lambda x, t, y: FAILING[name](x, t, y) if y.max() == 1.0 else [5.0]  # noqa: E731
    got = answers(c, some, 3, 1, (1.0, 5.0)).value  # one block of three fails
    assert got == pytest.approx([5.0])
    found = with_squares(c, some, 3, (1.0, 5.0))
    assert (found.blocks, found.value) == pytest.approx((2.0, 5.0), abs=1e-6)
    assert found.second - found.first**2 == pytest.approx(0.0, abs=1e-6)
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
        assert answers(c, vandal).value == pytest.approx([y.mean()])
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
    for blocks, size in ((1, 1), (13, 1), (3, 0)):
        with pytest.raises(OptionError, match="blocks"):
            by_block(c, mean, blocks, size)
    with pytest.raises(OptionError, match="a set needs"):
        answers(c, mean, interval=(1, 1))
    assert noise.values == []


def test_a_charge_comes_before_its_draw():
    c, noise = curator(np.zeros(4), np.array([True, False] * 2), ledger=CallLedger(Budget(0.5)))
    for call in (answers, with_squares):
        with pytest.raises(BudgetError, match="left"):
            call(c, mean, 2)
    assert noise.values == []


# --- two halves -------------------------------------------------------------------------------

FIRST, SECOND = {"model": 1.0}, {"b": 1.0, "c": 3.0}


def halved(y, t, x):
    ledger = CallLedger(Budget(2.0, 1e-6))
    rows = Rows(y, (0.0, 1.0), t, lambda: x, x.shape[1])
    split = Split.of(Budget(1.0, 4e-7), SECOND, {"b": None, "c": None})
    c = Curator(rows, Releaser(split, ledger, Bare()), frozenset())
    uses = {"model": None, "b": None, "c": None}
    run = lambda half: (half, treated_count(half, "model"))  # noqa: E731
    return halves(c, FIRST, SECOND, run, uses), ledger


def test_halves_are_disjoint_and_charged_once():
    rng = np.random.default_rng(14)
    y, t, x = data(rng, n=9)
    ((even, count), odd), ledger = halved(y, t, x)
    assert (even.n, odd.n) == (5, 4)
    assert float(count) == t[::2].sum()
    assert (odd._rows.outcome == y[1::2]).all()
    assert (odd._rows.covariates() == x[1::2]).all()
    before = ledger.spent
    assert before[0] == pytest.approx(1.0)
    arm_sums(odd, "b")
    treated_count(odd, "c")
    assert ledger.spent == before
    covered = odd._releaser._ledger.spent
    assert covered[0] <= before[0]
    assert float(covered[0]) == pytest.approx(1.0)
    with pytest.raises(BudgetError):
        treated_count(odd, "b")  # more than was paid for


def test_what_is_covered_is_named_without_a_price():
    y, t, x = data(np.random.default_rng(16), n=9)
    ((_, _), odd), ledger = halved(y, t, x)
    arm_sums(odd, "b")
    count, covered = ledger.charges
    assert (count.label, count.alone) == ("treated count", False)
    assert "covered" in covered.label
    assert (covered.epsilon, covered.delta) == (0.0, 0.0)


def test_a_record_is_seen_by_one_half_only():
    rng = np.random.default_rng(15)
    for j in range(6):
        y, t, x = data(rng, n=6)
        seen = []
        for turned in (False, True):
            other = t.copy()
            other[j] ^= turned
            ((_, count), odd), _ = halved(y, other, x)
            seen.append((float(count), float(treated_count(odd, "c"))))
        (even, odd), (even2, odd2) = seen
        assert (even != even2) == (j % 2 == 0)
        assert (odd != odd2) == (j % 2 == 1)
