"""Rows with weights, units of several rows, clusters: small tables over all neighbours."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize

from dpeffects.errors import OptionError
from dpeffects.evidence.auditing.recording import log_volume
from dpeffects.privacy import private_minimisation
from dpeffects.privacy.budget import Budget
from dpeffects.privacy.domains import COUNT, Box, Cube
from dpeffects.privacy.ledger import CallLedger
from dpeffects.privacy.losses import Huber, Logistic
from dpeffects.privacy.rows import MOST_ROWS, GroupIndex, Rows, reads
from dpeffects.privacy.tight_domains import (
    BoxWithAbsoluteValues,
    BoxWithSquares,
    Gram,
    Histogram,
)
from dpeffects.privacy.units import (
    UnitSizes,
    _squares,
    cluster_count,
    row_weights,
    squares_of_sums,
)
from dpeffects.seeded import SeededNoise
from tests.privacy.hostile import in_its_shape, moved
from tests.privacy.problems import Case, curator


def table(rows, max_rows=None, by_unit=True):
    """Rows of a table: (unit, outcome, treated, own weight, cluster), and columns after these."""
    unit, outcome, treated, own, cluster, *columns = (np.array(x) for x in zip(*rows, strict=True))
    sizes = UnitSizes.of(unit, own > 0)
    weight = row_weights(own, sizes.of_rows(unit) if by_unit else None, max_rows)
    matrix = np.column_stack([outcome, *columns]).astype(float)
    named = {"unit": unit, "units": sizes.names.size} if by_unit else {}
    return Rows(
        outcome.astype(float),
        (-1.0, 1.0),
        treated.astype(bool),
        lambda: matrix,
        matrix.shape[1],
        weight=weight,
        cluster=cluster.astype(np.int64),
        **named,
    )


def contents(unit, alphabet, most):
    """All that one unit may have: one to ``most`` rows of an alphabet."""
    for size in range(1, most + 1):
        for rows in itertools.combinations_with_replacement(alphabet, size):
            yield [(unit, *row) for row in rows]


ALPHABET = [(y, t, w, 0) for y in (-1.0, 0.3, 1.0) for t in (0, 1) for w in (1.0, 0.4)]
ALPHABET.append((1.0, 1, 0.0, 0))
REST = [(1, 0.5, 1, 1.0, 0), (1, -1.0, 0, 1.0, 0), (2, 1.0, 0, 1.0, 0)]


@reads("outcome")
def outcome(block):
    return block.outcome


@reads("outcome")
def twice(block):
    return np.column_stack([block.outcome, -block.outcome])


@reads("treated")
def arm(block):
    return block.treated.astype(np.int64)


SETS = {
    "box": (outcome, Box(-1.0, 1.0)),
    "box about 0 beside it": (outcome, Box(0.5, 1.0, centre=0.0)),
    "ball": (twice, Box([-1.0, -1.0], [1.0, 1.0], radius=1.0)),
    "cube": (twice, Cube([-1.0, -1.0], [1.0, 1.0])),
    "products": (twice, Gram(Box([-1.0, -1.0], [1.0, 1.0], centre=0.0, radius=1.2))),
    "squares": (reads("outcome")(lambda block: block.outcome / 2.0), BoxWithSquares(1, 0.375)),
    "sizes": (twice, BoxWithAbsoluteValues(Box([-1.0, -0.5], [1.0, 0.25], centre=0.0))),
    "bins": (reads("outcome")(lambda block: block.outcome + 1.0), Histogram(1, 3)),
    "counts": (None, COUNT),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "cells", [None, GroupIndex(arm, 2), GroupIndex(arm, 1)], ids=["none", "two", "one"]
)
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("max_rows", [None, 2])
def test_all_neighbours_of_a_small_table(name, cells, max_rows):
    """Everything that one unit of up to two rows may be, against everything else (claim 29)."""
    phi, within = SETS[name]
    found = []
    for rows in contents(0, ALPHABET, 2):
        held = curator(table([*REST, *rows], max_rows))
        grid, totals, moves = held.exact_sums(phi, within, cells, rate=1.0)
        found.append(totals)
    worst = [0.0, 0.0, 0.0]
    for one, other in itertools.combinations(found, 2):
        l1, l2 = moved(one, other)
        if isinstance(within, Gram):  # entries off the diagonal have half the variance
            l2 = math.hypot(l2, moved(one[..., 1], other[..., 1])[1])
        shape = in_its_shape(grid.shape(3), one, other)
        worst = [
            max(a, b) for a, b in zip(worst, (l1 / moves.l1, l2 / moves.l2, shape), strict=True)
        ]
    assert max(worst) <= 1.0 + 1e-9
    assert max(worst) > 0.6  # not vacuous


def test_a_unit_counts_no_more_than_one():
    rng = np.random.default_rng(1)
    for most in (None, 1, 3, 40):
        for rows in (1, 2, 3, 7, 1000, 2**15, 2**16, 2**16 + 1):
            own = rng.choice([1.0, 7.0, np.inf] if rows == 2**16 else [1.0, 0.7, 7.0, 1e-9], rows)
            own[0] = 1.0
            weight = row_weights(own, np.full(rows, rows), most) * MOST_ROWS
            assert (weight == np.floor(weight)).all()
            assert 0 <= weight.sum() <= MOST_ROWS
            assert weight.any() == (rows <= MOST_ROWS)
    assert (row_weights(np.array([np.nan, -np.inf, -3.0, 0.0])) == 0.0).all()


@pytest.mark.parametrize("count", [0.0, 0.375, 1.7, 2.0])
def test_sums_of_many_weighted_rows_are_exact(count):
    """A block of the largest contributions, in floats, against Python's integers."""
    rows, grid = 2**15, BoxWithSquares(1, count).on(2**15, 1.0, weighted=True)
    weight = 1.0 - np.arange(rows) % 7 / MOST_ROWS
    values = np.full((rows, 1), 0.5)
    z = [int(x) for x in grid.totals(values[:1].copy(), None, 1, np.ones(1))[0]]
    for cell in (None, np.zeros(rows, np.int64)):
        totals = grid.totals(values.copy(), cell, 1, weight)[0]
        total = sum(int(w) for w in weight * MOST_ROWS)
        assert [int(x) for x in totals] == [x // MOST_ROWS * total for x in z]


def test_units_need_weights():
    rows = replace(table([*REST]), weight=None)
    with pytest.raises(OptionError, match="weights"):
        curator(rows)


# --- squares by unit and by cluster --------------------------------------------------------------


def drawn(held, ask):
    """What would have been noised, in steps, its declared sensitivity, and the value of a step."""
    released = ask(held)
    values, declared = held._releaser._noise.drawn[-1]
    return int(values[0]), declared, released


def exact_sums(rows, by):
    """Sums of outcomes by unit, then those of a cluster, as fractions; a unit has one cluster."""
    held, units, clusters = table(rows), {}, {}
    for unit, y, weight, cluster in zip(
        held.unit, held.outcome, held.weight, held.cluster, strict=True
    ):
        units[unit] = units.get(unit, 0) + Fraction(y) * Fraction(weight)
        clusters[unit] = max(clusters.get(unit, -1), cluster if weight else -1)
    if by == "unit":
        return list(units.values())
    return [sum(units[u] for u in units if clusters[u] == c) for c in set(clusters.values())]


MANY = [(10 + i, 1.0, 0, 1.0, 0) for i in range(8)] + [(30 + i, -1.0, 0, 1.0, 1) for i in range(8)]
SPREAD = [(y, 0, w, c) for y in (-1.0, 1.0) for w in (1.0, 0.4, 0.0) for c in (0, 1, 2)]


@pytest.mark.parametrize("box", [Box(-1.0, 1.0), Box(-1.0, 2.0, centre=0.0)])
def test_squares_by_unit_over_all_neighbours(box):
    found = [
        drawn(
            curator(table([*REST, *rows])),
            lambda c: squares_of_sums(c, "s", outcome, box, share="a"),
        )
        for rows in contents(0, ALPHABET, 2)
    ]
    declared = {d for _, d, _ in found}
    assert len(declared) == 1
    values = [v for v, _, _ in found]
    most = max(values) - min(values)
    half = float(box.half[0])
    assert 0.99 / half**2 <= most / declared.pop() <= 1.0
    for rows, (_, _, released) in zip(contents(0, ALPHABET, 2), found, strict=True):
        squares = float(sum(x**2 for x in exact_sums([*REST, *rows], "unit")))
        assert float(released.total.value[0]) == pytest.approx(squares, abs=1e-5)


@pytest.mark.parametrize("bound", [0.5, 3.0, 10.0])
def test_squares_by_cluster_over_all_neighbours(bound):
    """One unit leaves a large cluster for another one, or changes its sign there (claim 30)."""
    rest, box, found = [*REST, *MANY], Box(-1.0, 1.0), []
    for rows in contents(0, SPREAD, 2):
        ask = lambda c: squares_of_sums(c, "s", outcome, box, bound, share="a")  # noqa: E731
        value, declared, released = drawn(curator(table([*rest, *rows])), ask)
        kept = max(bound, 1.0)
        assert released.bound == pytest.approx(kept, rel=1e-5)
        sums = [min(max(x, -kept), kept) for x in exact_sums([*rest, *rows], "cluster")]
        assert float(released.total.value[0]) == pytest.approx(
            float(sum(Fraction(x) ** 2 for x in sums)), abs=1e-4
        )
        found.append(value)
    most = (max(found) - min(found)) / declared
    assert most <= 1.0
    if bound == 10.0:
        assert most > 0.8


def test_squares_by_cluster_of_records_with_one_row_each():
    """Without units a record with a weight moves sums as a unit does; without weights too."""
    box, found = Box(-1.0, 1.0), {}
    for weighted in (True, False):
        for y, own, cluster in itertools.product((-1.0, 1.0), (0.0, 1.0), (0, 1, 2)):
            rows = table([*MANY, (0, y, 0, own if weighted else 1.0, cluster)], by_unit=False)
            if not weighted:
                rows = replace(rows, weight=None)
            ask = lambda c: squares_of_sums(c, "s", outcome, box, 9.0, share="a")  # noqa: E731
            value, declared, _ = drawn(curator(rows), ask)
            found.setdefault(weighted, []).append(value / declared)
    for values in found.values():
        assert 0.8 < max(values) - min(values) <= 1.0


def test_the_number_of_clusters_moves_by_one():
    counts = set()
    for rows in contents(0, SPREAD, 2):
        ask = lambda c: cluster_count(c, "k", share="a", part=1.0)  # noqa: E731
        value, declared, released = drawn(curator(table([*MANY, *rows])), ask)
        assert (declared, released.charge.claim) == (1, 30)
        counts.add(value)
    assert counts == {2, 3}


def test_a_bound_that_integers_have_no_room_for_is_refused():
    held = curator(table(MANY))
    with pytest.raises(OptionError, match="bound"):
        squares_of_sums(held, "s", outcome, Box(-1.0, 1.0), 2.0**40, share="a")
    assert not held._releaser._noise.drawn


def test_squares_of_integers():
    rng = np.random.default_rng(2)
    sizes = 2.0 ** rng.uniform(0, 44, 2000)
    values = np.concatenate([sizes, -sizes, [0, 1, 2**44 - 1, 1 - 2**44]]).astype(np.int64)
    assert _squares(values).tolist() == [int(x) ** 2 >> 44 for x in values]


# --- minimisers --------------------------------------------------------------------------------


def units_of(rng, units, most, d, columns=None):
    """Made-up units of one to ``most`` rows each, columns in [0, 1]."""
    rows = []
    for unit in range(units):
        for _ in range(int(rng.integers(1, most + 1))):
            x = rng.choice([0.0, 1.0], d - 1) if columns is None else columns(rng)
            own = float(rng.choice([1.0, 0.5, 0.0]))
            rows.append((unit, 1.0, int(rng.random() < 0.5), own, 0, *x))
    return rows


def replaced_unit(rng, rows, most, d, columns=None):
    """The same with all rows of one unit replaced, by more of them or fewer."""
    new = [(rows[0][0], *row[1:]) for row in units_of(rng, 1, most, d, columns)]
    return [row for row in rows if row[0] != rows[0][0]] + new


@pytest.mark.parametrize("max_rows", [None, 4])
def test_weighted_minimisers_against_another_solver(max_rows):
    rng = np.random.default_rng(3)
    d, strength = 3, 2.0
    held = table(units_of(rng, 40, 6, d), max_rows)
    p = Case(held, Logistic(d, strength, 0.2))

    def objective(w):
        z = p.rows @ w + 0.2
        losses = np.logaddexp(0.0, z) - p.treated * z
        return held.weight @ losses + strength / 2.0 * w @ w

    peer = scipy_minimize(objective, np.zeros(d), method="BFGS", tol=1e-12).x
    assert p.solve() == pytest.approx(peer, abs=1e-6)
    order = rng.permutation(held.treated.size)
    shuffled = table([units_of(np.random.default_rng(3), 40, 6, d)[i] for i in order], max_rows)
    assert (Case(shuffled, Logistic(d, strength, 0.2)).solve() == p.solve()).all()


def unit_vector(rng):
    """Features in a ball, a slope, for `as_they_are`: columns after the outcome."""
    v = rng.normal(size=2)
    return (*(v / np.linalg.norm(v) * rng.choice([0.99, 0.3])), rng.choice([-0.9, 0.9, 0.2]))


@reads("covariates", "outcome")
def features(block):
    """Columns after the outcome's are features and a slope."""
    return (*block.covariates[:, 1:].T, block.outcome)


def test_a_weighted_huber_regression_against_another_solver():
    rng = np.random.default_rng(4)
    held = table(units_of(rng, 40, 6, 4, unit_vector))
    problem, matrix = Huber(features, 2, 1.5, 0.9), held.covariates()
    rows = np.rint(matrix[:, 1:3] * 2.0**18) / 2.0**18

    def objective(w):
        r = held.outcome - matrix[:, 3] * (rows @ w)
        losses = np.where(np.abs(r) <= 1, r**2 / 2, np.abs(r) - 0.5)
        return held.weight @ losses + 0.75 * w @ w

    peer = scipy_minimize(objective, np.zeros(2), method="Nelder-Mead", tol=1e-10).x
    assert Case(held, problem).solve() == pytest.approx(peer, abs=1e-5)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", ["logistic", "huber"])
@pytest.mark.parametrize("strength", [0.05, 1.0])
def test_gradients_volumes_and_weights_on_neighbours_by_unit(kind, strength):
    """What claims 20 to 24 use, where all rows of one unit are replaced (claim 29 c)."""
    rng, wide, far = np.random.default_rng(5), 0.0, 0.0
    for _ in range(150):
        d, columns = (4, unit_vector) if kind == "huber" else (int(rng.integers(1, 5)), None)
        rows = units_of(rng, int(rng.integers(1, 5)), 4, d, columns)
        pair = [table(r) for r in (rows, replaced_unit(rng, rows, 4, d, columns))]
        problem = Logistic(d, strength) if kind == "logistic" else Huber(features, 2, strength, 0.9)
        one, two = (Case(held, problem) for held in pair)
        w = rng.normal(size=problem.width) * float(rng.choice([0.1, 3.0]))
        move = one.gradient(w) - two.gradient(w)
        l1, l2 = problem.gradient_bound
        assert np.abs(move).sum() <= 2.0 * l1 * (1 + 1e-9)
        assert np.linalg.norm(move) <= 2.0 * l2 * (1 + 1e-9)
        volumes = [log_volume(p, w) for p in (one, two)]
        assert abs(volumes[0] - volumes[1]) <= one.volume
        wide = max(wide, abs(volumes[0] - volumes[1]) / one.volume)
        ask = lambda c, p=problem: private_minimisation.noisy_weights(c, "m", p, "a")  # noqa: E731
        (a, declared), (b, same) = (bare(held, ask) for held in pair)
        assert declared == same
        assert np.abs(a - b).sum() <= declared
        assert np.linalg.norm(a - b) * math.sqrt(problem.width) <= declared
        far = max(far, np.linalg.norm(a - b) * math.sqrt(problem.width) / declared)
    assert wide > 0.1
    assert far > 0.2 or strength < 0.1


def bare(held, ask):
    """Weights before noise, and their declared sensitivity."""
    c = curator(held)
    ask(c)
    return c._releaser._noise.drawn[-1]


def test_the_volume_of_a_unit_is_more_than_that_of_a_record():
    """A unit along two axes: the price of records would be too little for it."""
    strength = 0.5
    rest = [(1, 0.0, 1, 1.0, 0, 0.0, 0.0, 1.0)]
    axes = [(0, 0.0, 1, 1.0, 0, 1.0, 0.0, 1.0), (0, 0.0, 1, 1.0, 0, 0.0, 1.0, 1.0)]
    away = [(0, 0.0, 1, 1.0, 0, 0.0, 0.0, 1.0)]
    problem = Huber(features, 2, strength)
    one, two = (Case(table([*rest, *rows]), problem) for rows in (axes, away))
    gap = log_volume(one, np.zeros(2)) - log_volume(two, np.zeros(2))
    assert private_minimisation.volume_price(strength, 1.0) < gap <= one.volume


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_what_units_pay_for_noise_in_an_objective(delta):
    held = table(units_of(np.random.default_rng(6), 60, 3, 3))
    problem, ledger = Logistic(3, 0.01), CallLedger(Budget(1.0, delta))
    share = Budget(1.0, delta).shares({"a": 1.0})["a"]
    c = curator(held, share, SeededNoise(1), ledger=ledger)
    with pytest.raises(OptionError, match="gaussian"):
        private_minimisation.minimise(c, "m", problem, "a", "gaussian")
    assert not ledger.charges
    released = private_minimisation.minimise(c, "m", problem, "a")
    volume, inside, last = ledger.charges
    assert [s.mechanism for s in (inside, last)] == ["discrete Laplace", "discrete Laplace"]
    assert ledger.spent[1] == 0
    assert volume.epsilon >= 0.25 / released.strength
    assert volume.epsilon <= 0.5 * 1.001
    assert sum(Fraction(s.epsilon) for s in ledger.charges) <= 1


def test_rounding_of_many_rows_of_a_unit_is_accounted_for():
    """Computed gradients against long doubles, where each row is rounded by itself."""
    rng = np.random.default_rng(7)
    rows = [(i % 2, 1.0, int(rng.random() < 0.5), 1.0, 0, rng.random()) for i in range(20_000)]
    held = table(rows)
    fit = Case(held, Logistic(2, 0.1))
    w = rng.normal(size=2)
    got, _ = fit.problem.at(held, np.zeros(2), fit.problem.quick, w, np.zeros(2))
    unit = fit.rows.astype(np.longdouble)
    chance = 1 / (1 + np.exp(-(unit @ w)))
    exact = (held.weight * (chance - held.treated)) @ unit / 2 + 0.05 * w
    off = np.linalg.norm((got - exact).astype(float))
    assert off <= fit.problem.rounding(float(np.linalg.norm(w)))
    w = fit.solve()
    left = fit.gradient(w) / 2 + 0.05 * w
    assert np.linalg.norm(left) <= fit.problem.gradient_left(2)
