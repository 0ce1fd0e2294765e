"""One record moves a sum by no more than its set allows, whatever the row function does."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from dpeffects.errors import OptionError, PrivacyError
from dpeffects.privacy.budget import Budget, as_written
from dpeffects.privacy.domains import COUNT, Box, Cube, IntTotals, Sensitivity, add_up
from dpeffects.privacy.release import Split
from dpeffects.privacy.rows import Block, GroupIndex, evaluate, reads
from dpeffects.privacy.sample_splits import halves
from dpeffects.privacy.tight_domains import (
    BoxWithAbsoluteValues,
    BoxWithSquares,
    Gram,
    Histogram,
)
from tests.privacy.hostile import curator, moved, pairs_of_records, pairs_of_units
from tests.privacy.planted import BUGS, plant


def test_no_record_moves_more_than_its_set():
    found = pairs_of_records(2000, seed=7)
    assert not found.violations
    assert found.pairs > 1700
    assert found.closest == 1.0


def test_no_unit_moves_more_than_a_record():
    found = pairs_of_units(1000, seed=8)
    assert not found.violations
    assert found.pairs > 900
    assert found.closest > 0.9


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(bug, monkeypatch):
    plant(monkeypatch, bug)
    search = pairs_of_units if "unit" in bug or "weight" in bug else pairs_of_records
    assert search(3000, seed=9, most_violations=1).violations


@pytest.mark.parametrize("cells", [None, 2])
@pytest.mark.parametrize(
    "box", [Box(0, 1), Box([1, -1], [1, 1], centre=0.0), Box([0, 0], [1, 3])], ids=str
)
def test_corners_attain_the_derived_sensitivity(cells, box):
    corners = list(itertools.product(*zip(box.low, box.high, strict=True)))
    records = [(v, c) for v in corners for c in range(cells or 1)]
    grid = box.on(4, 1.0)

    def total(value, cell):
        z = grid.project(np.array([value], float))
        return add_up(z, np.array([cell]) if cells else None, cells or 1)

    moves = [moved(total(*a), total(*b)) for a in records for b in records]
    l1, l2 = grid.reach.sensitivity(cells, False)
    assert max(m for m, _ in moves) == l1
    assert max(m for _, m in moves) == pytest.approx(l2, rel=1e-9)


@pytest.mark.parametrize("k", [1, 3])
def test_squares_beside_their_columns_cost_what_is_claimed(k):
    """On a fine grid of all pairs, (z, z^2 - 1/8) moves by 1 in L1 and in L2, for each column."""
    z = np.linspace(-0.5, 0.5, 201)
    gap = np.abs(z[:, None] - z) + np.abs(z[:, None] ** 2 - z**2)
    square = (z[:, None] - z) ** 2 + (z[:, None] ** 2 - z**2) ** 2
    moves = BoxWithSquares(k).on(10, 1.0).reach.sensitivity(None, False)
    unit = BoxWithSquares(k).on(10, 1.0).unit
    assert k * gap.max() == pytest.approx(moves.l1 * unit, rel=1e-6)
    assert math.sqrt(k * square.max()) == pytest.approx(moves.l2 * unit, rel=1e-6)


@pytest.mark.parametrize("low", [-1.0, 0.0])
def test_sizes_beside_their_columns_cost_what_is_claimed(low):
    """All pairs of a coarse grid: L1 is that of the columns alone."""
    grid = BoxWithAbsoluteValues(Box([low, -0.5], [1.0, 0.5], centre=0.0)).on(10, 1.0)
    each = itertools.product(np.linspace(low, 1.0, 9), np.linspace(-0.5, 0.5, 5))
    totals = [grid.totals(np.array([z]), None, 1)[0] for z in each]
    moves = [moved(a, b) for a in totals for b in totals]
    l1, l2 = grid.reach.sensitivity(None, False)
    assert max(m for m, _ in moves) == l1 == pytest.approx(3.0 / grid.unit)
    if low < 0.0:
        assert max(m for _, m in moves) == pytest.approx(l2, rel=1e-9)
    single = max(np.abs(x).sum() for x in totals)
    assert single == grid.reach.single.l1
    with pytest.raises(OptionError, match="centre 0"):
        BoxWithAbsoluteValues(Box(0.0, 1.0))


def test_public_cells_cost_only_their_own_set():
    cells = GroupIndex(reads("strata")(lambda rows: rows.strata % 2), 2)
    phi = reads("outcome")(lambda rows: rows.outcome)
    box = Box(0.0, 3.0, centre=0.0)
    _, _, private = curator([1, 2, 3]).exact_sums(phi, box, cells, rate=1.0)
    public = curator([1, 2, 3], public=["covariates"])
    _, _, known = public.exact_sums(phi, box, cells, rate=1.0)
    assert private.l1 == 2 * known.l1


def test_what_is_public_is_exact_and_free():
    cells = GroupIndex(reads("strata")(lambda rows: rows.strata % 2), 2)
    noisy = curator([1, 2, 3, 4, 6], public=["covariates"]).sums("x", None, COUNT, cells, share="a")
    assert noisy.value.tolist() == [[3.0], [2.0]]
    assert noisy.charge is None
    assert noisy.scale == 0.0


def test_parts_that_are_not_declared_are_not_there():
    phi = reads("outcome")(lambda rows: rows.outcome + rows.treated)
    with pytest.raises(ValueError, match="shapes"):
        curator([1, 2]).sums("x", phi, Box(0, 1), share="a")


def test_mistakes_are_found_before_anything_is_charged():
    held = curator([1, 2, 3])
    with pytest.raises(ZeroDivisionError):
        held.sums("x", reads("outcome")(lambda rows: rows.outcome / (1 // 0)), Box(0, 1), share="a")
    assert not held._releaser._ledger.charges


def test_failing_rows_leave_the_bits_of_others_alone():
    rng = np.random.default_rng(10)
    x, w = rng.normal(size=(5000, 11)), rng.normal(size=11)

    @reads("covariates")
    def phi(rows):
        if (rows.covariates[:, 0] == 7.0).any():
            raise ValueError
        return rows.covariates @ w

    other = x.copy()
    other[17, 0] = 7.0
    one, two = (evaluate(phi, Block(covariates=v), 1).copy() for v in (x, other))
    same = np.arange(5000) != 17
    assert np.isnan(two[17]).all()
    assert (one[same] == two[same]).all()


@pytest.mark.parametrize(
    "ends", [(-1e-300, 1e-300), (-1e300, 1e300), (0, np.inf), (np.nan, 1), (1, 0)]
)
def test_a_set_without_a_grid_is_refused(ends):
    with pytest.raises(OptionError, match="a set needs"):
        Box(*ends)


def test_a_ball_needs_its_centre_in_the_box():
    with pytest.raises(OptionError, match="inside the box"):
        Box(1.0, 2.0, centre=0.0, radius=1.5)


@pytest.mark.parametrize(
    "within",
    [Box(np.full(11, -3.0), np.full(11, 3.0), radius=1.7), BoxWithSquares(11, 0.5)],
    ids=str,
)
def test_the_order_of_rows_does_not_matter(within):
    rng = np.random.default_rng(11)
    table = rng.normal(size=(4096, 11))
    phi = reads("strata")(lambda rows: table[rows.strata])
    keys = rng.integers(0, 4096, 100_000)
    one, two = (
        curator(k).exact_sums(phi, within, None, rate=1.0)[1] for k in (keys, np.sort(keys))
    )
    assert (one == two).all()


def test_sums_are_those_of_numpy():
    rng = np.random.default_rng(12)
    table, keys = rng.uniform(-2, 3, (4096, 2)), rng.integers(0, 4096, 3000)
    phi = reads("strata")(lambda rows: table[rows.strata])
    cells = GroupIndex(reads("strata")(lambda rows: rows.strata % 3), 3)
    held = curator(keys, epsilon=1e8, shares=("a", "b", "c", "d"))
    by_cell = held.sums("x", phi, Box([-2, -2], [3, 3]), cells, share="a").value
    values = np.stack([(table[keys] - 0.5)[keys % 3 == c].sum(axis=0) for c in range(3)])
    assert by_cell == pytest.approx(values, abs=1e-4)
    box = Box([-3, -3], [3, 3], centre=0.0, radius=5.0)
    gram = held.sums("x", phi, Gram(box), share="b").value
    z = table[keys]
    assert gram == pytest.approx((z.T @ z)[np.triu_indices(2)], rel=1e-4)
    half = reads("strata")(lambda rows: table[rows.strata] / 6.0)
    squares = held.sums("x", half, BoxWithSquares(2), share="c").value
    expected = np.concatenate([(z / 6).sum(axis=0), ((z / 6) ** 2).sum(axis=0)])
    assert squares == pytest.approx(expected, abs=1e-4)
    bins = reads("strata")(lambda rows: table[rows.strata] + 2.0)
    counts = held.sums("x", bins, Histogram(2, 5), share="d").value.reshape(2, 5)
    expected = [np.bincount((column + 2.0).astype(int), minlength=5) for column in z.T]
    assert counts == pytest.approx(np.array(expected), abs=1e-3)


def test_gaussian_shares_pool_to_one_mechanism():
    """Squares of mu add up to the mu whose (epsilon, delta) curve passes through the price."""
    uses = {"a": 100.0, "b": 50.0, "c": None}
    split = Split.of(Budget(1.0, 1e-6), {"a": 2, "b": 1, "c": 1, "d": 1}, uses)
    total = math.hypot(*(split.mu[x] for x in "ab"))
    epsilon = split.shares["a"].epsilon + split.shares["b"].epsilon
    delta = split.shares["a"].delta + split.shares["b"].delta
    curve = norm.cdf(-epsilon / total + total / 2) - math.exp(epsilon) * norm.cdf(
        -epsilon / total - total / 2
    )
    assert 0.999 * delta < curve <= delta
    assert sum(share.delta for share in split.shares.values()) <= 1e-6
    assert split.shares["d"].delta == 0.0
    assert split.shares["c"].delta > 0.0


def test_a_scalar_stays_with_laplace():
    assert not Split.of(Budget(1.0, 1e-6), {"a": 1, "b": 1}, {"a": 1.0}).mu
    assert not Split.of(Budget(1.0), {"a": 1}, {"a": 100.0}).mu


def test_pooling_never_has_more_noise_than_laplace():
    rng = np.random.default_rng(13)
    for _ in range(200):
        names = list("abcdef")[: rng.integers(1, 7)]
        entries = {name: float(10.0 ** rng.uniform(0, 3)) for name in names}
        budget = Budget(float(10.0 ** rng.uniform(-1, 1)), float(10.0 ** rng.uniform(-9, -3)))
        split = Split.of(budget, {name: float(rng.uniform(0.1, 1)) for name in names}, entries)
        for name, mu in split.mu.items():
            assert 1.0 / mu < math.sqrt(2.0 * entries[name]) / split.shares[name].epsilon


def test_numbers_with_gaussian_noise_are_counted():
    held = curator([1, 2, 3], epsilon=1.0, delta=1e-6, uses={"a": 1e9})
    phi = reads("strata")(lambda rows: np.zeros((rows.size, 30_000)))
    box = Box(np.zeros(30_000), np.ones(30_000))
    held.sums("x", phi, box, share="a", part=0.5)
    with pytest.raises(PrivacyError, match="too many numbers"):
        held.sums("x", phi, box, share="a", part=0.5)


def test_deltas_of_shares_never_exceed_the_budget():
    rng = np.random.default_rng(14)
    for _ in range(300):
        names = list("abcdefgh")[: rng.integers(2, 9)]
        delta = float(f"{10.0 ** rng.uniform(-9, -3):.3g}")
        uses = {name: None if rng.random() < 0.5 else 100.0 for name in names}
        shares = {name: float(rng.uniform(0.1, 1)) for name in names}
        split = Split.of(Budget(1.0, delta), shares, uses)
        assert sum(Fraction(x.delta) for x in split.shares.values()) <= as_written(delta)


def test_a_gaussian_share_has_no_price_of_its_own():
    held = curator([1, 2, 3], epsilon=1.0, delta=1e-6, uses={"a": 1e9})
    releaser = held._releaser
    zero = IntTotals(np.zeros(1, np.int64), Sensitivity(1, 1.0), 1.0)
    price = releaser.share("a")
    for attempt in (
        lambda: releaser.laplace("x", zero, price, share="a", claim=5),
        lambda: releaser.respond("x", np.zeros(1, np.bool_), 2, share="a", claim=3),
    ):
        with pytest.raises(PrivacyError, match="Gaussian"):
            attempt()
    held.sums("x", reads("outcome")(lambda rows: rows.outcome), Box(0, 1), share="a", part=0.5)
    with pytest.raises(PrivacyError, match="than its shares pay for"):
        held.sums("x", reads("outcome")(lambda rows: rows.outcome), Box(0, 1), share="a")


def test_a_pool_that_was_drawn_from_is_promised_as_a_whole():
    uses, outcome = {"a": 1e9, "b": 1e9}, reads("outcome")(lambda rows: rows.outcome)
    held = curator([1, 2, 3], shares=("a", "b", "c"), delta=1e-6, uses=uses)
    assert held._releaser.promised() == (0, 0)
    held.sums("x", outcome, Box(0, 1), share="a")
    pool = [held._releaser.share(name) for name in "ab"]
    assert held._releaser.promised() == (
        sum(Fraction(x.epsilon) for x in pool),
        sum(Fraction(x.delta) for x in pool),
    )
    assert held._releaser.paid()[0] < held._releaser.promised()[0]
    held.sums("x", outcome, Box(0, 1), share="b")
    assert held._releaser.paid() == held._releaser.promised()


def test_halves_take_all_of_a_gaussian_pool_or_none_of_it():
    uses, outcome = {"a": 1e9, "b": 1e9}, reads("outcome")(lambda rows: rows.outcome)

    def release(half):
        return half.sums("x", outcome, Box(0, 1), share="a")

    for names in (["a"], ["b"]):
        held = curator(range(9), shares=("a", "b", "c"), delta=1e-6, uses=uses)
        with pytest.raises(PrivacyError, match="a part of a Gaussian pool"):
            halves(held, dict.fromkeys(names, 1.0), dict.fromkeys(names, 1.0), release, uses)
    held = curator(range(9), shares=("a", "b", "c"), delta=1e-6, uses=uses)
    _, other = halves(held, {"a": 1.0}, {"a": 1.0, "b": 1.0}, release, uses)
    assert other.sums("x", outcome, Box(0, 1), share="b").gaussian
    held.sums("x", outcome, Box(0, 1), share="c")
    with pytest.raises(PrivacyError, match="than its shares pay for"):
        held.sums("x", outcome, Box(0, 1), share="b")


@pytest.mark.parametrize("radius", [-1.0, 0.0, 1e-320, math.inf, math.nan])
def test_a_ball_needs_a_radius(radius):
    with pytest.raises(OptionError, match="radius"):
        Box(-1.0, 1.0, radius=radius)


def test_no_rows_keep_their_columns():
    """What a row function reads has its shape in a group without records, too."""
    none = Block(covariates=np.zeros((3, 2))).some(np.zeros(3, np.bool_))
    assert none.some(slice(0, 5)).covariates.shape == (0, 2)
    assert none.with_zeros(np.zeros(0, np.bool_)).covariates.shape == (0, 2)


def test_a_set_has_room_for_its_sums():
    with pytest.raises(OptionError, match="whole numbers"):
        Box(0.0, 1e30, whole=True)
    for count in (-1.0, 2.01):
        with pytest.raises(OptionError, match="from 0 to 2"):
            BoxWithSquares(2, count)
    for box in (Box(-np.ones(2), np.ones(2)), Box(np.zeros(2), np.ones(2), radius=1.0)):
        with pytest.raises(OptionError, match="a radius and centre 0"):
            Gram(box)
    for ends in ((np.zeros(2), np.array([1.0, 2.0])), (0.0, 1.0, 0.0)):
        with pytest.raises(OptionError, match="same width"):
            Cube(*ends)
    grid = Gram(Box(-np.ones(3), np.ones(3), radius=1e-3)).on(10, 1.0)
    assert (grid.totals(np.ones((10, 3)), None, 1) > 0).all()
    treated = GroupIndex(reads("treated")(lambda rows: rows.treated), 2)
    cell = treated.of(Block(treated=np.array([True, False])))
    counts = Histogram(1, 500).on(2, 1.0).totals(np.full((2, 1), 499.0), cell, 2)
    assert counts[:, 499].tolist() == [1, 1]


def test_nothing_is_public_where_rows_have_weights():
    with pytest.raises(OptionError, match="nothing that is public"):
        curator([1, 2, 3], [0, 0, 1], public=("treatment", "covariates"))
    held = curator([1, 2, 3], [0, 0, 1])
    assert held.sums("rows", None, share="a").scale > 0
    with pytest.raises(OptionError, match="count alike"):
        halves(held, {"a": 1.0}, {"a": 1.0}, lambda half: None, {})


def test_a_row_function_cannot_write_to_rows():
    @reads("outcome")
    def writes(rows):
        rows.outcome[:] += 1.0
        return rows.outcome

    with pytest.raises(ValueError, match="read-only"):
        curator([1, 2, 3]).sums("x", writes, Box(0, 1), share="a")
