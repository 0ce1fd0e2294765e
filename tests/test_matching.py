"""The matching kernel against brute force, scikit-learn and hand-computed limits."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from dpeffects.errors import DataError, OptionError
from dpeffects.replication import nearest
from dpeffects.replication.nearest import feasible, match, match_limit, pairs

GOLDEN = (math.sqrt(5) - 1) / 2


def spread(scores, treated):
    """The documented spread of ties, one record at a time."""
    low, span, seen, out = min(scores), max(scores) - min(scores) or 1.0, Counter(), []
    for score, flag in zip(scores, treated, strict=True):
        rank = seen[score, flag]
        seen[score, flag] += 1
        out.append((score - low) / span + 1e-9 * (rank * GOLDEN % 1))
    return np.array(out)


def greedy(scores, treated, neighbours, limits=None):
    """Algorithm 3, lines 13-15, literally: sort all candidates for each record in turn."""
    value, used = spread(scores, treated), np.zeros(len(scores), dtype=int)
    chosen = []
    for i in range(len(value)):
        limit = math.inf if limits is None else limits[0 if not treated[i] else 1]
        free = np.flatnonzero((np.asarray(treated) != treated[i]) & (used < limit))
        above = value[free] >= value[i]
        outwards = np.where(above, value[free], -value[free])
        order = np.lexsort((outwards, above, np.abs(value[free] - value[i])))
        mine = free[order[:neighbours]]
        used[mine] += 1
        chosen.append(set(mine.tolist()))
    return chosen


def as_sets(matches):
    return [set(row[row >= 0].tolist()) for row in matches.neighbours]


def instance(rng, largest=30):
    """A small sample: ties, clumps or none; arms of any size; limits that may be infeasible."""
    n = int(rng.integers(2, largest))
    scores = [
        rng.random(n),
        rng.integers(0, rng.integers(1, 6), n) / 7.0,
        np.round(rng.normal(size=n) ** 3, 1),
        np.cumsum(rng.pareto(1.0, n)),
    ][rng.integers(4)]
    treated = rng.random(n) < rng.choice([0.1, 0.5, 0.8])
    treated[rng.choice(n, 2, replace=False)] = [True, False]
    limits = int(rng.integers(1, 8)), int(rng.integers(1, 8))
    return scores, treated, int(rng.integers(1, 6)), limits


@st.composite
def samples(draw):
    numbers = st.one_of(
        st.integers(-3, 3).map(float),
        st.floats(-1e6, 1e6),
        st.sampled_from([0.1, 0.1 + 1e-13, 0.1 + 1e-10, 5e-324, -0.0]),
    )
    scores = draw(st.lists(numbers, min_size=2, max_size=40))
    treated = draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    treated[draw(st.integers(0, len(scores) - 1))] ^= len(set(treated)) == 1
    return np.array(scores), np.array(treated), draw(st.integers(1, 6))


def test_unlimited_is_brute_force():
    rng = np.random.default_rng(0)
    for _ in range(1500):
        scores, treated, neighbours, _ = instance(rng)
        matches = match(scores, treated, neighbours)
        assert as_sets(matches) == greedy(scores, treated, neighbours)


@pytest.mark.parametrize("neighbours", [1, 2, 5, 16, 33])
def test_unlimited_is_scikit_learn(neighbours):
    rng = np.random.default_rng(neighbours)
    scores, treated = rng.normal(size=3000), rng.random(3000) < 0.3
    mine = match(scores, treated, neighbours).neighbours
    for arm in (True, False):
        pool, asking = np.flatnonzero(treated == arm), np.flatnonzero(treated != arm)
        index = NearestNeighbors(n_neighbors=neighbours).fit(scores[pool, None])
        theirs = pool[index.kneighbors(scores[asking, None], return_distance=False)]
        assert np.array_equal(np.sort(mine[asking]), np.sort(theirs))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("patience", [0.0, 0.1, 0.5, 1.0], ids=lambda p: f"patience={p}")
def test_limited_is_the_sequential_greedy(monkeypatch, patience):
    """Both by walking everybody (patience 0) and by growing the suspects (patience 1)."""
    monkeypatch.setattr(nearest, "_PATIENCE", patience)
    rng = np.random.default_rng(1)
    for _ in range(1200):
        scores, treated, neighbours, limits = instance(rng)
        matches = match(scores, treated, neighbours, limits)
        assert as_sets(matches) == greedy(scores, treated, neighbours, limits)


@pytest.mark.parametrize("patience", [0.1, 1.0])
@pytest.mark.parametrize("limits", [(40, 40), (20, 12), (11, 6), (3, 3)])
def test_limited_at_a_size_where_suspects_grow(monkeypatch, limits, patience):
    monkeypatch.setattr(nearest, "_PATIENCE", patience)
    rng = np.random.default_rng(2)
    scores = np.round(rng.normal(size=1500), 3)
    treated = rng.random(1500) < 1 / (1 + np.exp(1 - scores))
    matches = match(scores, treated, 4, limits)
    assert as_sets(matches) == greedy(scores, treated, 4, limits)


def test_growing_suspects_take_several_rounds_and_leave_most_alone(monkeypatch):
    """A clump of controls amid lone pairs: the overflow creeps outwards, most are not walked."""
    walks, real = [], nearest._greedy
    monkeypatch.setattr(nearest, "_greedy", lambda *a: (walks.append(len(a[2])), real(*a))[1])
    line = np.arange(2000.0)
    scores = np.concatenate([line, line + 0.1, 1000 + np.linspace(0.0, 0.2, 60)])
    treated = np.repeat([True, False, False], [2000, 2000, 60])
    matches = match(scores, treated, 1, (2, 2))
    assert as_sets(matches) == greedy(scores, treated, 1, (2, 2))
    assert 1 < len(walks) < 10
    assert max(walks) < 400


def test_limits_that_do_not_bind_change_nothing():
    rng = np.random.default_rng(3)
    scores, treated = rng.random(2000), rng.random(2000) < 0.3
    free = match(scores, treated, 5)
    most = free.used[treated].max(), free.used[~treated].max()
    assert np.array_equal(match(scores, treated, 5, most).neighbours, free.neighbours)
    tight = match(scores, treated, 5, (most[0] - 1, most[1]))
    assert not np.array_equal(tight.neighbours, free.neighbours)


@settings(max_examples=300, deadline=None)
@given(samples(), st.integers(1, 3), st.integers(1, 3))
def test_feasible_limits_hold_and_leave_nobody_alone(sample, k1, k2):
    scores, treated, neighbours = sample
    counts = int(treated.sum()), int((~treated).sum())
    k1, k2 = feasible(k1, *counts), feasible(k2, *counts[::-1])
    matches = match(scores, treated, neighbours, (k1 * neighbours, k2 * neighbours))
    assert matches.found.min() >= 1
    assert matches.used[treated].max() <= k1 * neighbours
    assert matches.used[~treated].max() <= k2 * neighbours
    check_bookkeeping(matches, treated)


def check_bookkeeping(matches, treated):
    """Weights from a plain loop, every neighbour once and of the opposite arm."""
    n = len(treated)
    used, weight, weight_sq = np.zeros(n, dtype=int), np.zeros(n), np.zeros(n)
    for i, row in enumerate(matches.neighbours):
        mine = row[: matches.found[i]]
        assert np.all(mine >= 0)
        assert np.all(row[matches.found[i] :] == -1)
        assert len(set(mine.tolist())) == len(mine)
        assert np.all(treated[mine] != treated[i])
        used[mine] += 1
        weight[mine] += 1 / max(len(mine), 1)
        weight_sq[mine] += 1 / max(len(mine), 1) ** 2
    assert np.array_equal(matches.used, used)
    np.testing.assert_allclose(matches.weight, weight, rtol=1e-12)
    np.testing.assert_allclose(matches.weight_sq, weight_sq, rtol=1e-12)
    for arm in (True, False):  # each record of the other arm hands out a weight of one
        served = np.sum((treated != arm) & (matches.found > 0))
        assert matches.weight[treated == arm].sum() == pytest.approx(served)


def test_infeasible_limits_leave_records_without_and_weights_finite():
    matches = match([0.0, 0.1, 0.2, 0.3], [1, 0, 0, 0], 2, (2, 2))
    assert matches.found.tolist() == [2, 1, 1, 0]
    assert matches.weight.tolist() == [2.0, 0.5, 0.5, 0.0]
    check_bookkeeping(matches, np.array([True, False, False, False]))


def test_small_arm_gives_all_it_has():
    matches = match([0.0, 0.5, 1.0, 0.2, 0.3, 0.4], [1, 1, 0, 0, 0, 0], 5)
    assert matches.found.tolist() == [4, 4, 2, 2, 2, 2]
    assert matches.neighbours.shape == (6, 5)
    assert matches.neighbours.dtype == matches.found.dtype == np.int32
    assert matches.weight.tolist() == [2.0, 2.0, 0.5, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("levels", [1, 8])
@pytest.mark.parametrize("neighbours", [1, 5])
def test_ties_share_the_matches(levels, neighbours):
    """Within a level the largest use is near the mean; unspread, one record gets them all."""
    rng = np.random.default_rng(4)
    n = 8000
    scores, treated = rng.integers(0, levels, n) / 3.0, rng.random(n) < 0.25
    used = match(scores, treated, neighbours).used
    for level in np.unique(scores):
        here = scores == level
        for arm in (True, False):
            mine = used[here & (treated == arm)]
            assert mine.max() <= 2 * math.ceil(mine.mean())


def test_scores_equal_but_for_rounding_are_ties():
    rng = np.random.default_rng(5)
    scores = 0.3 + 1e-16 * rng.integers(0, 3, 4000)
    scores[:2] = 0.0, 1.0
    treated = rng.random(4000) < 0.5
    treated[:2] = True, False
    assert match(scores, treated, 5).used.max() <= 12


def test_order_and_units_do_not_matter_without_ties():
    rng = np.random.default_rng(6)
    scores, treated = rng.random(500), rng.random(500) < 0.4
    matches = match(scores, treated, 3)
    assert as_sets(match(1024 * scores, treated.astype(int), 3)) == as_sets(matches)
    shuffle = rng.permutation(500)
    again = match(scores[shuffle], treated[shuffle], 3)
    np.testing.assert_allclose(again.weight, matches.weight[shuffle])


# Hand-computed: M1 = M / N, k* = sqrt(epsilon c max(n_t, n_c) M1 / 2).
LIMITS = [
    # n_t, n_c, N, M, epsilon, c, capped, (k1, k2)
    (200, 800, 5, 60, 1.0, 0.01, True, (7, 2)),  # k* = sqrt(48) = 6.93; 7 / 4 = 1.75
    (800, 200, 5, 60, 1.0, 0.01, True, (2, 7)),  # the same, mirrored
    (200, 800, 5, 60, 10.0, 0.01, True, (12, 3)),  # k* = 21.9, but M1 = 12
    (200, 800, 5, 58, 10.0, 0.01, True, (12, 3)),  # M1 = 11.6 is rounded up
    (200, 800, 5, 60, 10.0, 0.01, False, (22, 6)),  # not capped: 22 and 5.5, to even
    (200, 800, 5, 60, 0.01, 0.01, True, (4, 1)),  # k* = .69, raised to 800 / 200
    (300, 800, 5, 60, 0.01, 0.01, False, (3, 1)),  # raised to ceil(8 / 3)
    (800, 300, 5, 60, 0.01, 0.01, False, (1, 3)),
    (500, 500, 1, 8, 2.0, 0.02, True, (8, 8)),  # k* = sqrt(80) = 8.9, M1 = 8
    (500, 500, 1, 8, 0.5, 0.02, True, (4, 4)),  # k* = sqrt(20) = 4.47
]


@pytest.mark.parametrize("case", LIMITS, ids=lambda c: f"{c[0]}-{c[1]}-eps{c[4]}-M{c[3]}-{c[6]}")
def test_match_limits(case):
    *counts, (one, other) = case
    treated, control, *more = counts
    assert match_limit(treated, control, *more) == one
    assert match_limit(control, treated, *more) == other


@pytest.mark.parametrize(
    ("limits", "counts", "expected"),
    [
        ((1, 1), (30, 100), (4, 1)),
        ((4, 1), (30, 100), (4, 1)),
        ((9, 9), (100, 30), (9, 9)),
        ((1, 3), (100, 30), (1, 4)),
        ((1, 1), (50, 50), (1, 1)),
    ],
)
def test_feasible(limits, counts, expected):
    assert feasible(limits[0], *counts) == expected[0]
    assert feasible(limits[1], *counts[::-1]) == expected[1]


@settings(max_examples=200, deadline=None)
@given(samples())
def test_pairs_are_disjoint_adjacent_and_of_one_arm(sample):
    scores, treated, _ = sample
    partner = pairs(scores, treated)
    for arm in (True, False):
        members = np.flatnonzero(treated == arm)
        paired = members[partner[members] >= 0]
        assert len(members) - len(paired) == len(members) % 2
        assert np.array_equal(partner[partner[paired]], paired)
        assert np.all(treated[partner[paired]] == arm)
        assert np.all(partner[paired] != paired)
        # Adjacent: the r-th pair holds the r-th two scores, up to the width of the spread.
        gaps = np.sort(np.abs(scores[paired] - scores[partner[paired]]))[::2]
        ordered = np.sort(scores[members])[: len(paired)].reshape(-1, 2)
        slack = 4e-9 * (np.ptp(scores) or 1.0)
        np.testing.assert_allclose(gaps, np.sort(np.ptp(ordered, axis=1)), rtol=0, atol=slack)


def test_pairs_of_distinct_scores():
    assert pairs([5.0, 1.0, 4.0, 2.0, 3.0, 9.0], [1, 1, 1, 1, 1, 0]).tolist() == [
        -1,
        3,
        4,
        1,
        2,
        -1,
    ]


def test_pairs_of_ties_are_not_neighbours_in_the_file():
    """Else a file sorted by outcome would make the variance vanish."""
    partner = pairs(np.zeros(2000), np.arange(2000) < 1000)
    assert np.median(np.abs(partner - np.arange(2000))) > 50


@pytest.mark.parametrize(
    ("scores", "treated"),
    [
        ([0.1, np.nan], [0, 1]),
        ([0.1, np.inf], [0, 1]),
        ([0.1, 0.2], [1, 1]),
        ([0.1, 0.2], [0, 2]),
        ([0.1, 0.2, 0.3], [0, 1]),
        ([[0.1], [0.2]], [[0], [1]]),
        ([], []),
    ],
)
def test_bad_data(scores, treated):
    with pytest.raises(DataError):
        match(scores, treated, 1)
    with pytest.raises(DataError):
        pairs(scores, treated)


def test_bad_options():
    with pytest.raises(OptionError):
        match([0.0, 1.0], [0, 1], 0)
    with pytest.raises(OptionError):
        match([0.0, 1.0], [0, 1], 1, (1, 0))
    with pytest.raises(OptionError):
        feasible(0, 5, 5)
    with pytest.raises(OptionError):
        match_limit(0, 5, 1, 1, 1.0, 1.0, True)
