"""Exact matching on strata: sensitivities against brute force, noise against its distribution."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from dpeffects.errors import BudgetError, PrivacyError
from dpeffects.privacy import exact_matching as smooth
from dpeffects.privacy.budget import Budget, Share
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.exact_matching import (
    Lattice,
    MatchedStrata,
    Sizes,
    Smoothing,
    StratumCounts,
    capped_sensitivity,
    difference_lattice,
    excess,
    variance_lattice,
)
from dpeffects.privacy.ledger import CallLedger
from dpeffects.privacy.noise import SecureNoise
from dpeffects.privacy.release import Releaser, Split
from dpeffects.privacy.rows import Rows
from dpeffects.replication.smooth_matching import widest
from dpeffects.seeded import SeededNoise
from tests.cases import each
from tests.privacy.bare import Bare
from tests.replay import Frozen, Measuring, replay

WEIGHTS = ("means", "round_robin")
CAPS = (2.0, 2.5, 3.0, math.inf)
FINE = 2**20


def counts(*pairs, empty=False):
    t, c = np.array(pairs).T
    return StratumCounts(t, c, empty)


def matched(x, strata, t, y, weights):
    """Counts of the strata, n f of whole values, and squares as a function of the cap."""
    cell = 2 * np.asarray(x) + t
    sizes = Sizes(np.bincount(cell, minlength=2 * strata))
    control, treated = sizes.sizes.reshape(-1, 2).T
    found = StratumCounts(treated, control, bool((control + treated == 0).any()))
    sums, squares = (
        np.array([v[cell == c].sum() for c in range(2 * strata)], dtype=np.int64)
        for v in (np.asarray(y), np.asarray(y) ** 2)
    )
    contrast = sizes.contrast(sums) if weights == "means" else sizes.dealt_contrast(cell, y)
    return found, contrast, lambda half, cap: sizes.squares(sums, squares, half, weights, cap)


# --- all small datasets


class World:
    """All datasets of n records in some strata, their distances, f and V in units of B."""

    def __init__(self, n, strata, weights):
        records = list(itertools.product(range(strata), (False, True), (-1, 1)))
        ordered = weights == "round_robin"  # the order matters to it, so sets are not enough
        sets = itertools.combinations_with_replacement(range(len(records)), n)
        self.data = list(itertools.product(range(len(records)), repeat=n) if ordered else sets)
        found = [self.measure([records[i] for i in d], strata, weights) for d in self.data]
        self.f = np.array([f for f, _, _ in found])
        self.v = np.array([v for _, v, _ in found])
        self.counts = [c for _, _, c in found]
        rows = np.array(self.data, dtype=np.int8)
        if ordered:
            self.distance = (rows[:, None, :] != rows[None, :, :]).sum(axis=2)
        else:
            tally = np.stack([(rows == i).sum(axis=1) for i in range(len(records))], axis=1)
            self.distance = np.abs(tally[:, None, :] - tally[None, :, :]).sum(axis=2) // 2
        self.near = self.distance == 1

    @staticmethod
    def measure(records, strata, weights):
        x, t, y = (np.array(column) for column in zip(*records, strict=True))
        found, f, _ = matched(x, strata, t, FINE * y, weights)
        _, _, squares = matched(x, strata, t, 64 * y, weights)
        v = [squares(64, cap).sum() / 128**2 for cap in CAPS]
        return f / (2 * FINE), v, found

    def local(self, values):
        gap = np.abs(values[:, None] - values[None, :])
        return np.where(self.near, gap, 0.0).max(axis=1)


@cache
def world(n, strata, weights):
    return World(n, strata, weights)


WORLDS = [(3, 2, "means"), (4, 2, "means"), (5, 2, "means"), (3, 2, "round_robin")]
WORLDS += [(4, 1, "round_robin"), (5, 1, "round_robin")]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("n", "strata", "weights"), WORLDS)
def test_estimate_on_all_small_datasets(n, strata, weights):
    """The bound holds on every pair of neighbours and is attained; so is the global one."""
    w = world(n, strata, weights)
    local = w.local(w.f)
    bound = np.array([c.estimate_sensitivity(50.0, weights) for c in w.counts])  # k = 0 alone
    assert (local <= bound * (1 + 4 / FINE)).all()
    assert (local / bound).max() == pytest.approx(1.0, abs=1e-5)
    assert local.max() <= n + 1 + 1e-5
    if strata > 1:
        assert local.max() == pytest.approx(n + 1, abs=1e-5)


@each(("n", "strata", "weights"), WORLDS)
@each("beta", [0.05, 0.4, 2.0])
@each("paper", [False, True])
def test_smooth_sensitivity_of_the_estimate(n, strata, weights, beta, paper):
    """At least the true smooth sensitivity, and smooth, on every dataset."""
    w = world(n, strata, weights)
    true = (w.local(w.f)[None, :] * np.exp(-beta * w.distance)).max(axis=1)
    ours = np.array([c.estimate_sensitivity(beta, weights, paper) for c in w.counts])
    assert (true <= ours * (1 + 4 / FINE)).all()
    jump = np.abs(np.log(ours)[:, None] - np.log(ours)[None, :])[w.near]
    assert jump.max() <= beta
    if not paper:
        assert (ours / true).min() < 1.3  # other outcomes with the same counts are worse
        printed = [c.estimate_sensitivity(beta, weights, True) for c in w.counts]
        assert (2.0 * ours <= printed).all()  # centring alone gives half


def test_noise_of_twenty_strata_is_as_the_method_says():
    """B / n at (1, 1e-5), arms of 1,000, at the best rate: the docstring of `smooth_matching`."""
    counts = StratumCounts(np.full(20, 1000), np.full(20, 1000), False)
    choices = [x for k in range(4, 19) if (x := widest(Share(1.0, 1e-5), k / 20))]
    for weights, said in (("means", 4.4), ("round_robin", 6.6)):
        found = min(counts.estimate_sensitivity(x.beta, weights) / x.rate for x in choices)
        assert found == pytest.approx(said, abs=0.05)
    paper = counts.estimate_sensitivity(0.5 / math.log(2e5), "round_robin", True) / 0.5
    assert paper == pytest.approx(24.0, abs=0.5)


@pytest.mark.parametrize(("n", "strata", "weights"), WORLDS)
def test_variance_on_all_small_datasets(n, strata, weights):
    w = world(n, strata, weights)
    for j, cap in enumerate(CAPS[:-1]):
        ratio = w.local(w.v[:, j]).max() / capped_sensitivity(cap)
        assert 0.2 < ratio <= 1.0
    local = w.local(w.v[:, -1])
    for beta in (0.05, 0.4, 2.0):
        true = (local[None, :] * np.exp(-beta * w.distance)).max(axis=1)
        ours = np.array([c.variance_sensitivity(beta, weights) for c in w.counts])
        assert (true <= ours).all()
        assert np.abs(np.log(ours)[:, None] - np.log(ours)[None, :])[w.near].max() <= beta


# --- the closed forms


def reachable(t, c, k):
    """All counts of a stratum after k replacements: at most k leave, at most k join."""
    for leave in range(k + 1):
        for gone, new in itertools.product(range(leave + 1), range(k + 1)):
            for joined in range(new + 1):
                t2, c2 = t - gone + joined, c - (leave - gone) + new - joined
                if gone <= t and leave - gone <= c:
                    yield t2, c2


@pytest.mark.parametrize("t", range(5))
@pytest.mark.parametrize("c", range(5))
def test_ratios_are_those_of_an_enumeration(t, c):
    stratum = counts((t, c), empty=t + c == 0)
    for k in range(6):
        found = set(reachable(t, c, k))
        leave = max((max(a / b, b / a) for a, b in found if a and b), default=-1)
        join = max((max(a / (b + 1), b / (a + 1)) for a, b in found if a or b), default=-1)
        printed = max(math.ceil((1 + max(p)) / min(p)) if min(p) else max(p) for p in found)
        got = stratum.ratios(np.array([float(k)]))
        assert (got[0][0], got[1][0]) == (leave, join)
        assert stratum._printed(np.array([float(k)]))[0] == 4 * (1 + printed)


def plain_smooth(pairs, empty, beta, n, whole):
    """The algorithm as the paper writes it: every stratum, every k up to n."""
    best = 0.0
    up = math.ceil if whole else float
    for k in range(n + 1):
        leave = join = -1
        for t, c in [*pairs, *([(0, 0)] if empty else [])]:
            a, b = max(t, c), min(t, c)
            if b:
                leave = max(leave, up((a + k) / max(b - k, 1)))
            elif k >= 1 and a + k >= 2:
                leave = max(leave, a + k - 1)
            if a + k:
                join = max(join, up((a + k) / (max(b - k, 0) + 1)))
        best = max(best, math.exp(-k * beta) * min(2 + leave + join, n + 1))
    return best


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_fast_algorithm_is_exact(weights):
    rng = np.random.default_rng(1)
    for _ in range(40):
        size = int(rng.integers(1, 20))
        pairs = rng.integers(0, int(rng.choice([3, 20, 50])), (size, 2))
        pairs[0, 0] += 1
        empty = bool((pairs.sum(axis=1) == 0).any())
        beta = float(rng.choice([0.01, 0.03, 0.2]))
        slow = plain_smooth(pairs, empty, beta, int(pairs.sum()), weights == "round_robin")
        fast = counts(*pairs, empty=empty).estimate_sensitivity(beta, weights)
        assert fast == pytest.approx(slow, rel=1e-5)


def test_smooth_on_larger_neighbours():
    rng = np.random.default_rng(2)
    for _ in range(150):
        pairs = rng.integers(0, 60, (6, 2))
        cells = np.flatnonzero(pairs.reshape(-1))
        other = pairs.copy().reshape(-1)
        other[rng.choice(cells)] -= 1
        other[rng.integers(12)] += 1
        both = [p.reshape(-1, 2) for p in (pairs, other)]
        made = [counts(*p, empty=bool((p.sum(axis=1) == 0).any())) for p in both]
        for beta, weights in itertools.product((0.01, 0.05), WEIGHTS):
            for name in ("estimate_sensitivity", "variance_sensitivity"):
                one, two = (getattr(c, name)(beta, weights) for c in made)
                assert abs(math.log(one / two)) <= beta


def test_millions_of_records_are_walked_by_their_counts():
    """Ten million records in ten thousand strata: a walk over records would not end."""
    rng = np.random.default_rng(3)
    sizes = rng.multinomial(10**7, rng.dirichlet(np.full(10_000, 5.0)))
    treated = rng.binomial(sizes, 0.3)
    value = StratumCounts(treated, sizes - treated, False).estimate_sensitivity(0.01)
    assert 4.0 < value < 10**7


# --- what is computed from the rows


def plain_matching(x, t, y, weights):
    """Algorithm 1 of the paper, or differences in means, in plain Python."""
    total = 0.0
    for s in set(x):
        own = {arm: [y[i] for i in range(len(y)) if x[i] == s and t[i] == arm] for arm in (0, 1)}
        if not (own[0] and own[1]):
            continue
        if weights == "means":
            total += (len(own[0]) + len(own[1])) * (np.mean(own[1]) - np.mean(own[0]))
        else:
            total += sum(v - own[0][j % len(own[0])] for j, v in enumerate(own[1]))
            total += sum(own[1][j % len(own[1])] - v for j, v in enumerate(own[0]))
    return total


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("declared", [5, 10**9])
def test_contrast_is_that_of_the_paper(weights, declared):
    """On the curator; a billion strata are declared where five have records."""
    rng = np.random.default_rng(4)
    for _ in range(40):
        n = int(rng.integers(4, 40))
        x, t, y = rng.integers(0, 5, n), rng.random(n) < 0.4, rng.random(n)
        c = curator(x * (declared // 5), t, y, Bare(), declared)
        strata = MatchedStrata(c, weights)
        want = plain_matching(x.tolist(), t.tolist(), (y - 0.5).tolist(), weights)
        assert float(strata.difference_globally("a")) == pytest.approx(want, abs=1e-6)
        occupied = len(set(x.tolist()))
        assert strata._counts.empty == (occupied < declared)


def test_sums_are_exact_where_floats_are_not():
    """Differences in means in Python's fractions, of outcomes on the grid."""
    rng, n = np.random.default_rng(8), 2**16
    x, t, y = rng.integers(0, 3, n), rng.random(n) < 0.3, rng.random(n)
    noise = Bare()
    c = curator(x, t, y, noise)
    strata = MatchedStrata(c, "means")
    strata.difference_globally("a")
    whole = strata._outcome_grid("a").project(y[:, None].copy())[:, 0].astype(np.int64)
    total = Fraction(0)
    for s in range(3):
        own = [[int(v) for v in whole[(x == s) & (t == arm)]] for arm in (True, False)]
        one, zero = (Fraction(sum(values), len(values)) for values in own)
        total += (len(own[0]) + len(own[1])) * (one - zero)
    assert abs(int(noise.values[0][0]) - total) <= 6  # each arm of a stratum is rounded


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_order_of_rows_does_not_matter_but_for_the_secret_one(weights):
    rng, n = np.random.default_rng(9), 300
    x, t, y = rng.integers(0, 3, n), rng.random(n) < 0.3, rng.random(n)
    found, order = [], rng.permutation(n)
    for rows in ((x, t, y), (x[order], t[order], y[order])):
        noise = Bare()
        strata = MatchedStrata(curator(*rows, noise), weights)
        strata.variance("a", 2.5)
        if weights == "means":
            strata.difference_globally("a")
        found.append([v.tolist() for v in noise.values])
    assert found[0] == found[1]


@pytest.mark.parametrize("weights", WEIGHTS)
def test_squares_are_weighted_variances(weights):
    rng = np.random.default_rng(5)
    x, t = rng.integers(0, 4, 200), rng.random(200) < 0.3
    y = rng.integers(-100, 100, 200)
    x[:5], t[:5] = 4, True  # a stratum without controls
    x[5:8], t[5:8] = 5, [True, False, False]  # an arm of one record
    total = 0.0
    for s in range(6):
        for arm in (True, False):
            own, other = y[(x == s) & (t == arm)], int(((x == s) & (t != arm)).sum())
            if own.size == 0:
                continue
            spread = own.var(ddof=1) if own.size > 1 else 128.0**2
            if weights == "means":
                load = [1 + other / own.size] * own.size
            else:
                load = [1 + len(range(j, other, own.size)) for j in range(own.size)]
            total += spread * sum(min(w, 2.5) ** 2 for w in load)
    _, _, squares = matched(x, 6, t, y, weights)
    assert squares(128, 2.5).sum() == pytest.approx(total)


# --- the noise


@pytest.mark.sampled(3)
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_the_price_is_that_of_a_numerical_integration(epsilon, delta):
    """Hockey-stick divergence over shifts and scales: never above delta, and reached."""
    choice = widest(Share(epsilon, delta), 0.6 * epsilon)
    assert choice.certified(Share(epsilon, delta))
    assert not Smoothing(choice.rate, 1.01 * choice.beta).certified(Share(epsilon, delta))
    y = np.concatenate([-np.geomspace(1e-6, 400, 200_000)[::-1], np.geomspace(1e-6, 400, 200_000)])
    y *= 1.0 / choice.rate
    worst = 0.0
    for ratio in np.exp(np.linspace(-choice.beta, choice.beta, 9)):
        s, other = 1.0 / choice.rate, ratio / choice.rate  # S = 1, S' = ratio
        for d in np.linspace(0.0, min(1.0, ratio), 5):
            p = np.exp(-np.abs(y) / s) / (2 * s)
            q = np.exp(-np.abs(y - d) / other) / (2 * other)
            worst = max(worst, np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0.0), y))
    assert 0.95 * delta < worst < 1.001 * delta


def test_the_printed_calibration_is_covered_up_to_an_epsilon_of_ten():
    def printed(epsilon, delta):
        return Smoothing(epsilon / 2, epsilon / (2 * math.log(2 / delta)))

    for epsilon, delta in itertools.product((0.01, 0.1, 1.0, 10.0), (1e-9, 1e-5, 1e-2)):
        assert printed(epsilon, delta).certified(Share(epsilon, delta))
    assert excess(20.0, printed(20.0, 1e-5)) > 3e-5


@pytest.mark.parametrize("scale", [16.0, 40.0, 333.3])
@pytest.mark.parametrize("value", [0, 7, -12345])
def test_cells_of_the_lattice_have_the_chances_of_laplace(monkeypatch, scale, value):
    """On a lattice coarse enough to add up: every cell within the blur that is paid for."""
    monkeypatch.setattr(smooth, "LATTICE", 2**14)
    lattice = Lattice(16.0, 400.0)
    assert 0.0 < lattice.blur < 1.0
    z = np.arange(-(2**18), 2**18 + 1)
    mass = math.tanh(0.5 / 2**14) * np.exp(-np.abs(z) / 2**14)
    step = Fraction(1)  # 16 / 2^4
    assert lattice.release(value, scale, 1.0, 5).denominator == 1
    exact = Fraction(scale) / 2**14
    cell = [math.floor((value + exact * int(i)) / step + Fraction(1, 2)) for i in z[:: 2**6]]
    assert cell[100] == lattice.release(value, scale, 1.0, int(z[6400]))
    cells = np.floor(value + scale * z / 2**14 + 0.5).astype(int)
    first = cells.min()
    found = np.bincount(cells - first, mass)

    def below(x):
        x = x / scale
        return np.where(x < 0, np.exp(np.minimum(x, 0)) / 2, 1 - np.exp(-np.maximum(x, 0)) / 2)

    edge = np.arange(found.size + 1) + first - 0.5 - value
    want = np.diff(below(edge))
    inside = slice(1, -1)
    assert (np.abs(found - want)[inside] <= lattice.blur * want[inside] + 1e-14).all()


def test_grid_steps_are_far_below_the_noise_and_public():
    lattice = Lattice(2.0**31, 2.0**31 * 10**7)
    for rate in (0.01, 0.5, 3.0):
        for smooth_value in (2.0**31, 2.0**40):
            got = lattice.release(10, smooth_value, rate, 2**56)
            assert float(got) == pytest.approx(10 + smooth_value / rate, rel=0.05)
            step = 2.0 ** (math.floor(math.log2(2.0**31 / rate)) - 4)
            assert float(got) % step == 0.0
    assert lattice.usable(Share(1.0, 1e-5)).epsilon > 1 - 1e-6


@pytest.mark.real_noise
@pytest.mark.parametrize("noise", [SecureNoise(), SeededNoise(0)])
def test_draws_have_the_tails_of_laplace(noise):
    """Five shares within 6 standard deviations: a false alarm has a chance of 1e-8."""
    zeros = np.zeros(20_000, dtype=np.int64)
    z = noise.laplace(zeros, float(smooth.LATTICE), 1, 1.0) / smooth.LATTICE
    for quantile in (0.1, 1.0, 3.0, 6.0):
        share = math.exp(-quantile)
        error = 6 * math.sqrt(share * (1 - share) / z.size)
        assert (np.abs(z) > quantile).mean() == pytest.approx(share, abs=error)
    assert abs((z > 0).mean() - 0.5) < 6 * 0.5 / math.sqrt(z.size)
    assert np.abs(z).max() < 64


# --- the primitives

SHARES = {"a": Share(1.0, 1e-5), "b": Share(0.5, 1e-6)}


def curator(x, t, y, noise, strata=3, ledger=None):
    rows = Rows(
        np.clip(y, 0.0, 1.0), (0.0, 1.0), t, lambda: np.zeros((len(y), 1)), 1, lambda: (x, strata)
    )
    ledger = ledger or CallLedger(Budget(1e9, 0.5))
    make = Measuring if isinstance(noise, Frozen) else Releaser
    return Curator(rows, make(Split(SHARES), ledger, noise), frozenset())


CALLS = {
    "log": lambda m: m.log_sensitivity("b", 0.03),
    "log of the paper's": lambda m: m.log_sensitivity("b", 0.03, paper=True, part=0.5),
    "log of the variance": lambda m: m.log_variance_sensitivity("b", 0.03),
    "global": lambda m: m.difference_globally("a"),
    "variance": lambda m: m.variance("a", 2.7),
    "smooth": lambda m: m.difference("a", Smoothing(0.5, 0.02), 1.0),
    "the paper's": lambda m: m.difference("a", Smoothing(0.5, 0.02), 1.0, paper=True),
    "smooth variance": lambda m: m.smooth_variance("a", Smoothing(0.5, 0.02), 1.0),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", CALLS)
def test_declared_sensitivities_on_random_neighbours(name, weights):
    def call(data, noise):
        return CALLS[name](MatchedStrata(curator(*data, noise), weights))

    rng = np.random.default_rng(6)
    largest = 0.0
    for trial in range(120):
        n = int(rng.integers(4, 30))
        x, t, y = rng.integers(0, 3, n), rng.random(n) < 0.5, rng.choice([0.0, 1.0], n)
        x2, t2, y2 = x.copy(), t.copy(), y.copy()
        j = int(rng.integers(n))
        x2[j], t2[j], y2[j] = rng.integers(0, 3), rng.random() < 0.5, rng.choice([-9.0, 1e300])
        found = replay(call, (x, t, y), (x2, t2, y2), seed=trial)
        assert not found.violations
        largest = max(largest, found.largest)
    assert 0.1 < largest <= 1.0


def test_the_ledger_shows_the_released_sensitivity_only():
    """On neighbours, and on quite different data, spends and scales read the same."""
    rng = np.random.default_rng(7)
    shown = []
    for strata in ([50, 50], [99, 1]):
        x, t = np.repeat([0, 1], strata), np.arange(100) % 2 == 0
        ledger = CallLedger(Budget(10.0, 0.1))
        c = curator(x, t, rng.random(100), SeededNoise(1), 2, ledger)
        c = MatchedStrata(c, "means")
        choice = widest(difference_lattice(100).usable(SHARES["a"]), 0.5)
        got = c.difference("a", choice, 0.123)
        choice = widest(variance_lattice(100).usable(SHARES["b"]), 0.2)
        other = c.smooth_variance("b", choice, 4.56)
        shown.append((ledger.charges, got.scale, other.scale))
    assert shown[0] == shown[1]
    assert shown[0][0][0].sensitivity == (0.123,)
    assert shown[0][0][0].delta == 1e-5


def test_what_is_not_certified_is_not_drawn():
    x, t, y = np.zeros(10, dtype=np.int64), np.arange(10) % 2 == 0, np.zeros(10)
    ledger = CallLedger(Budget(10.0, 0.1))
    c = curator(x, t, y, SeededNoise(0), ledger=ledger)
    for choice in (Smoothing(0.9, 0.2), Smoothing(0.5, 0.2), Smoothing(1.1, 1e-4), Smoothing(1, 0)):
        with pytest.raises(PrivacyError, match="nothing drawn"):
            MatchedStrata(c, "means").difference("a", choice, 1.0)
    assert ledger.charges == ()
    small = curator(x, t, y, SeededNoise(0), ledger=CallLedger(Budget(0.5, 0.1)))
    with pytest.raises(BudgetError):
        MatchedStrata(small, "means").difference("a", Smoothing(0.5, 0.01), 1.0)


def test_no_strata_no_release():
    rows = Rows(np.zeros(4), (0.0, 1.0), np.array([True, False] * 2), lambda: np.zeros((4, 1)), 1)
    c = Curator(rows, Releaser(Split(SHARES), CallLedger(Budget(1.0)), SeededNoise(0)), frozenset())
    with pytest.raises(PrivacyError, match="strata"):
        MatchedStrata(c, "means")


def test_noise_is_at_most_half_of_the_papers():
    """The same price: 2 S / epsilon of the paper against S / rate here, balanced or not."""
    price = Share(1.0, 1e-5)
    printed = Smoothing(0.5, 0.5 / math.log(2e5))
    choice = widest(price, 0.5)
    for pairs in ([(40, 40)], [(100, 100)] * 3, [(30, 300), (200, 100)], [(500, 500)], [(1, 9)]):
        c = counts(*pairs)
        paper = c.estimate_sensitivity(printed.beta, "round_robin", True) / printed.rate
        for weights in WEIGHTS:
            ours = c.estimate_sensitivity(choice.beta, weights) / choice.rate
            assert ours <= paper / 2
        means = c.estimate_sensitivity(choice.beta, "means")
        assert means <= c.estimate_sensitivity(choice.beta, "round_robin")
