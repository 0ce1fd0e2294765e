"""Regression by arm: what a call costs, also where what is left goes to another method."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.privacy.budget import Budget, Share, as_written, written_below
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.domains import Box
from dpeffects.privacy.ledger import CallLedger
from dpeffects.privacy.release import Releaser, Split
from dpeffects.privacy.rows import Rows, reads
from dpeffects.seeded import SeededNoise

BOUNDS = dict.fromkeys(("y", "x1", "x2"), (0, 1))
NEW = ("moments", "calibration of the propensity score")
"""Releases of the other method."""


def frame(kind, n=6000):
    """Records that carry regressions, but for few that are treated, or columns that are one."""
    rng = np.random.default_rng(3)
    x1, x2 = rng.random((2, n))
    x2 = x1 if kind == "collinear" else x2
    t = rng.random(n) < (0.02 if kind == "rare" else 0.3 + 0.4 * x1)
    y = np.clip(0.2 + 0.3 * x1 + 0.2 * x2 + 0.1 * t + 0.1 * rng.normal(size=n), 0, 1)
    return pd.DataFrame({"y": y, "t": t, "x1": x1, "x2": x2})


@pytest.mark.sampled(5)
@pytest.mark.parametrize("given", [{}, {"delta": 1e-6}, {"delta": 3e-7, "subset": "x1 > 0.1"}])
@pytest.mark.parametrize("kind", ["rare", "collinear", "any"])
@pytest.mark.parametrize("epsilon", [3.7, 2.9000000000000004])
def test_a_call_costs_its_budget_wherever_it_goes(kind, given, epsilon):
    ledger = dpe.Ledger(10.0, 1e-3)
    call = {"epsilon": epsilon, "bounds": BOUNDS, "ledger": ledger, "seed": 4, "flexible": 0}
    found = dpe.dp_ate("y ~ t | x1 + x2", frame(kind), "auto", **call, **given)
    assert found.options["chosen"] == "regression"
    labels = [charge.label for charge in found.charges]
    assert (set(NEW) <= set(labels)) == (kind != "any")
    assert ("effect beside the means" in labels) == (kind == "any")
    assert ("room" in labels) == (kind != "rare")
    budget = as_written(epsilon), as_written(given.get("delta", 0.0))
    paid = [sum(Fraction(getattr(x, what)) for x in found.charges) for what in ("epsilon", "delta")]
    assert budget[0] * (1 - Fraction(1, 10**12)) <= paid[0] <= budget[0]
    assert paid[1] <= budget[1]
    if paid[1]:
        assert paid[1] >= budget[1] * (1 - Fraction(1, 10**12))
    assert tuple(ledger.spent) == budget
    assert found.guarantee.epsilon == epsilon


def curator(budget, split):
    rows = Rows(np.zeros(9), (0.0, 1.0), np.arange(9) > 4, lambda: np.zeros((9, 1)), 1)
    ledger = CallLedger(budget)
    return Curator(rows, Releaser(split, ledger, SeededNoise(1)), frozenset()), ledger


@reads("treated")
def treated(block):
    return block.treated.astype(float)


def counted(curator, share):
    return curator.sums("treated", treated, Box(0.0, 1.0), share=share)


def test_what_is_left_counts_a_pool_that_was_drawn_from():
    """And so it does for whoever asks, and whoever drew."""
    budget = Budget(2.0, 1e-5)
    split = Split.of(budget, {"a": 1.0, "b": 1.0, "c": 2.0}, {"a": np.inf, "b": np.inf})
    assert set(split.mu) == {"a", "b"}
    first, ledger = curator(budget, split)
    assert first.left(budget, split.shares) == budget
    counted(first, "a")
    assert ledger.spent[0] < 1
    left = first.left(budget, split.shares)
    assert 1.0 - 1e-12 < left.epsilon <= 1.0
    assert left.delta < 1e-15
    second = first.with_split(Split.of(left, {"d": 1.0}))
    counted(second, "d")
    for one in (first, second):
        with pytest.raises(dpe.errors.BudgetError):
            one.left(budget, split.shares)
    counted(first, "b")
    assert ledger.spent[0] <= 2
    with pytest.raises(dpe.errors.BudgetError):
        counted(first, "c")


def test_what_is_left_is_not_what_other_shares_will_need():
    prices = {"a": Share(0.5, 2.0**-20), "b": Share(0.25, 2.0**-21), "c": Share(0.25, 2.0**-22)}
    budget = Budget(1.0, 2.0**-19)
    first, ledger = curator(budget, Split(prices))
    left = first.left(budget, ["b"])
    assert left == Budget(0.25, 2.0**-19 - 2.0**-20 - 2.0**-22)
    assert ledger.spent == (0, 0)


def test_the_same_rows_in_the_same_secret_order():
    first, _ = curator(Budget(1.0), Split({"a": Share(1.0)}))
    order = first._order
    assert first.with_split(Split({"b": Share(0.5)}))._order is order


def test_numbers_below_are_below_as_they_are_written():
    rng = np.random.default_rng(1)
    for _ in range(2000):
        value = Fraction(int(rng.integers(1, 2**62)), int(rng.integers(1, 2**62)))
        below = written_below(value)
        assert as_written(below) <= value
        assert value < as_written(float(np.nextafter(np.nextafter(below, np.inf), np.inf)))
    assert written_below(as_written(0.1)) == 0.1
    assert written_below(as_written(1e-6)) == 1e-6
    assert written_below(Fraction(0)) == 0.0
