"""Other covariates by a row function: each record's own, whatever the function does (claim 5)."""

from __future__ import annotations

import numpy as np
import pytest

from dpeffects.errors import PrivacyError
from dpeffects.privacy.domains import Box
from dpeffects.privacy.losses import Logistic, whole_rows
from dpeffects.privacy.private_minimisation import Minimisation
from dpeffects.privacy.rows import reads
from dpeffects.privacy.units import recoded
from tests.privacy.bare import curator as bare
from tests.privacy.hostile import KINDS, curator, hostile, moved

WIDTH = 3
NAMES, VALUES = tuple("abc"), (1, 0, 0, 0)


@reads("covariates")
def covariates(rows):
    return rows.covariates


def hostile_view(keys, kind, seed, twice):
    """Rows whose covariates a hostile function makes, or one of what such a function made."""
    rng = np.random.default_rng(seed)
    made = recoded(curator(keys), hostile(rng, WIDTH, kind), NAMES, VALUES)
    if not twice:
        return made
    failing = float(rng.normal())

    @reads("covariates")
    def again(rows):
        if (rows.covariates[:, 0] > failing).any():
            raise ValueError("a value")
        return rows.covariates[:, ::-1]

    return recoded(made, again, NAMES, VALUES)


def seen(held):
    (matrix,) = held._source.gather(lambda block: (block.covariates.copy(),), "covariates")
    return matrix


def moved_rows(kind, twice, seeds):
    """How many other rows change with one record, and the most that it moves a sum by."""
    others, most = 0, 0.0
    for seed in seeds:
        rng = np.random.default_rng([seed, 7])
        one = rng.integers(0, 4096, 40)
        two = one.copy()
        two[rng.integers(40)] = rng.integers(0, 4096)
        pair = [hostile_view(keys, kind, seed, twice) for keys in (one, two)]
        (first, second), same = (seen(held) for held in pair), one == two
        others += int((~np.isclose(first, second, 0, 0, equal_nan=True))[same].any(axis=1).sum())
        box = Box(np.full(WIDTH, -1.0), np.ones(WIDTH))
        found = [held.exact_sums(covariates, box, None, rate=1.0) for held in pair]
        l1, l2 = moved(found[0][1], found[1][1])
        most = max(most, l1 / found[0][2].l1, l2 / found[0][2].l2)
    return others, most


@pytest.mark.sampled(2)
@pytest.mark.parametrize("twice", [False, True])
def test_a_record_moves_its_own_row_alone(twice):
    found = [moved_rows(kind, twice, range(60)) for kind in KINDS]
    assert sum(others for others, _ in found) == 0
    assert 0.5 < max(most for _, most in found) <= 1.0


def test_a_view_of_a_view_has_memory_of_its_own():
    """An outer function that fails on a block is asked again: its rows must still be there."""
    keys, tried = np.arange(1, 41), []

    @reads("covariates")
    def fails_at_first(rows):
        tried.append(rows.covariates.copy())
        if len(rows.covariates) > 1 and (rows.covariates[:, 0] == 40.0).any():
            raise ValueError("a value")
        return rows.covariates + 100.0

    @reads("strata")
    def key(rows):
        return np.repeat(rows.strata[:, None] * 1.0, WIDTH, axis=1)

    view = recoded(recoded(curator(keys), key, NAMES, VALUES), fails_at_first, NAMES, VALUES)
    assert np.array_equal(seen(view)[:, 0], keys + 100.0)
    assert max(float(rows.max()) for rows in tried) == 40.0


def test_a_minimiser_gets_rows_within_the_unit_cube_and_moves_no_further():
    """Weights move by 2 / strength at most, which is claim 20 for rows of norm 1."""
    worst = 0.0
    for seed in range(40):
        rng = np.random.default_rng([seed, 8])
        kind, one = KINDS[seed % len(KINDS)], rng.integers(0, 4096, 30)
        two = one.copy()
        two[0] = rng.integers(0, 4096)
        pair = [hostile_view(keys, kind, seed, False) for keys in (one, two)]
        for held in pair:
            rows = whole_rows(seen(held), True) / 2.0**16
            assert (np.abs(rows[:, 1:]) <= 0.5).all()
            assert ((rows[:, 0] >= 0.0) & (rows[:, 0] <= 1.0)).all()
        weights = [Minimisation(held, Logistic(WIDTH, 2.0), "a").solve() for held in pair]
        worst = max(worst, float(np.linalg.norm(weights[0] - weights[1])) * 2.0 / 2.0)
    assert 0.0 < worst <= 1.0


def test_what_is_made_of_public_covariates_is_public_and_nothing_else():
    x = np.column_stack([np.ones(50), np.linspace(0.0, 1.0, 50)])
    held, _ = bare(np.zeros(50), np.arange(50) % 2 == 0, x, public=("covariates",))

    @reads("covariates")
    def squared(rows):
        return rows.covariates**2

    @reads("covariates", "treated")
    def by_arm(rows):
        return rows.covariates * rows.treated[:, None]

    made = recoded(held, squared, ("one", "x"), (1, 0, 0))
    total = made.sums("sum", covariates, Box(np.zeros(2), np.ones(2)), share="a")
    assert total.scale == 0.0
    assert total.value == pytest.approx((x**2).sum(axis=0), abs=1e-6)
    with pytest.raises(PrivacyError, match="private"):
        recoded(held, by_arm, ("one", "x"), (1, 0, 0)).require_public("covariates")
