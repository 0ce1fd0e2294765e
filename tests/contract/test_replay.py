"""Every public call, run on neighbours with its releases frozen (`tests/replay.py`).

Each call meets a few of the nasty pairs here, in all four ways: the same order of records or
another, in memory (two pairs) or on an engine (one). `make evidence TABLE=replay` has more.
"""

from __future__ import annotations

import math
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dpeffects as dpe
from dpeffects.privacy.budget import Share
from dpeffects.privacy.domains import BoxGrid, IntTotals, Sensitivity
from dpeffects.privacy.exact_matching import Lattice, Smoothing, SmoothlyNoisy
from dpeffects.privacy.losses import Logistic
from dpeffects.privacy.release import Split
from tests.calls import CALLS, PLAIN, SPECS
from tests.cases import each
from tests.neighbours import BOUNDS, PAIRS, TYPES, pair
from tests.replay import Frozen, Measuring, replay

WAYS = [("", False), ("", True), ("polars", False), ("duckdb", True)]


def test_every_method_level_and_estimand_has_a_call():
    wanted = {
        (name, level, estimand)
        for name, spec in SPECS.items()
        for level in spec.levels
        for estimand in spec.estimands
        if level == "sample" or estimand != "ATC"
    }
    have = {(c.method, c.given.get("level", "sample"), c.estimand) for c in CALLS.values()}
    assert wanted <= have


@pytest.mark.sampled(11)
@pytest.mark.parametrize("name", CALLS)
def test_neighbours_move_no_release_by_more_than_declared(name):
    pairs, largest = list(PAIRS), 0.0
    first = list(CALLS).index(name)
    if CALLS[name].function == "asked":  # a holder's file hides many differences
        largest = CALLS[name].replay("outcome from end to end", "", False, seed=1).largest
    for way, (engine, unordered) in enumerate(WAYS):
        for k in (first + 5 * way, first + 5 * way + 9)[: 1 if engine else 2]:
            chosen = pairs[k % len(pairs)]
            found = CALLS[name].replay(chosen, engine, unordered, seed=k)
            assert not found.violations, (chosen, engine, unordered)
            assert "BudgetError" not in found.failed, chosen
            largest = max(largest, found.largest)
    assert 0.0 < largest <= 1.0


@each("public", [(), ("treatment",), ("treatment", "covariates")])
@each("name", PAIRS)
def test_pairs_differ_in_one_record(name, public):
    nasty = pair(name, 60, public)
    differs = [not nasty.one[c].equals(nasty.other[c]) for c in nasty.one]
    assert any(differs)
    one, other = (table.drop(index=nasty.record) for table in nasty.ordered())
    if name in TYPES:  # types are what differs; values do not
        one, other = (table.astype(object) for table in (one, other))
    pd.testing.assert_frame_equal(one, other)
    for table, before in zip(nasty.unordered(), nasty.ordered(), strict=True):
        pd.testing.assert_frame_equal(table.sort_index(), before)
    for column, role in (("t", "treatment"), ("x1", "covariates"), ("g", "covariates")):
        assert role not in public or nasty.one[column].equals(nasty.other[column])


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_two_calls_on_one_ledger(make):
    """Charges, order of columns and kind of frame: nothing but releases depends on the record."""

    def call(data, noise):
        ledger, shown = noise.ledger(), []
        declared = dpe.declare(make(data.to_dict("list")), BOUNDS)
        for method in ("diff_in_means", "private_ipw"):
            fit = dpe.dp_ate(PLAIN, declared, method, epsilon=1, ledger=ledger, seed=noise)
            shown.append((fit.to_json(), fit.tidy().to_dict("list"), fit.glance().to_dict("list")))
        return shown

    found = replay(call, *pair("far outside the bounds", 60).ordered())
    assert not found.violations
    assert found.largest == 1.0


# --- the replay has teeth -------------------------------------------------------------------------


def _steps(values, l1, l2):
    return IntTotals(values, Sensitivity(l1, l2), 1.0)


def _release(releaser, values, l1=9, share="a", l2=100.0):
    return releaser.release("sum", _steps(values, l1, l2), share=share, claim=1)


def _fails(releaser, data):
    _release(releaser, data[:1])
    if data[0]:
        raise dpe.errors.EstimationError("no estimate")


def _warns(releaser, data):
    _release(releaser, data[:1])
    if data[0]:
        warnings.warn("a large value", stacklevel=1)


def _charges(releaser, data):
    for _ in range(1 + data[0]):
        _release(releaser, 0 * data)


def _refuses(releaser, data):
    if data[0]:
        raise dpe.errors.DataError("not with this value")
    _release(releaser, 0 * data)


def _smooth(value, log):
    def planted(releaser, data):
        lattice, way = Lattice(1.0, 1e6), Smoothing(0.5, 0.01)
        noisy = SmoothlyNoisy(value * data[0], 10.0 * math.exp(log * data[0]), 1.0, lattice, way)
        return releaser.smooth_laplace("f", noisy, 1.0, share="a", claim=15)

    return planted


def _along(value, widens):
    def planted(releaser, data):
        levels = 0.1 * 1.01 ** (widens * data[0] + np.arange(99.0))
        return releaser.along("f", value * data[0], levels, (-9.0, 9.0), 0.1, share="a", claim=34)

    return planted


PLANTED = {
    "along": (_along(0.06, 0.0), "f: moved by"),
    "ladder": (_along(0.01, 3.0), r"f \(ladder\): moved by"),
    "L1": (lambda r, x: _release(r, x, 7), "sum: moved by 8"),
    "L2 under L1": (lambda r, x: _release(r, x, 100, l2=3.9), r"sum \(L2\): moved by 4"),
    "L2": (lambda r, x: _release(r, x, 100, "pooled", 3.9), r"sum \(L2\): moved by 4"),
    "L1 alone": (
        lambda r, x: r.laplace("sum", _steps(x, 7, 100.0), Share(1.0), share="a", claim=1),
        "sum: moved by 8",
    ),
    "L2 alone": (
        lambda r, x: r.gaussian(
            "sum", _steps(x, 9, 3.9), 9.0, Share(1.0, 1e-6), share="a", claim=1
        ),
        r"sum \(L2\): moved by 4",
    ),
    "smooth": (_smooth(6, 0.0), "f: moved by 12"),
    "log of smooth": (_smooth(1, 0.006), r"f \(log\): moved by 0.012"),
    "bits": (lambda r, x: r.respond("t", x > 0, 2, share="a", claim=3), "t: moved by 4"),
    "levels": (lambda r, x: r.respond("t", x, 3, share="a", claim=3), "t: moved by 4"),
    "price": (
        lambda r, x: _release(r, 0 * x, share="a" if x[0] else "b"),
        "where the neighbour has",
    ),
    "sensitivity": (
        lambda r, x: _release(r, 0 * x, 9 + x[0]),
        "where the neighbour has",
    ),
    "charges": (_charges, "where the neighbour has the end|ends before"),
    "failure": (_fails, "shown differently"),
    "method_warnings": (_warns, "shown on one only"),
    "result": (lambda r, x: x[0], "shown differently"),
    "refusal": (_refuses, "refused on one"),
    "other error": (lambda r, x: 1 // int(x[0]), "raised ZeroDivisionError"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name):
    planted, message = PLANTED[name]

    def call(data, noise):
        shares = {"a": Share(1.0, 1e-6), "b": Share(0.5, 1e-6), "pooled": Share(1.0, 1e-6)}
        split = Split(shares, {"pooled": 0.2})
        return planted(Measuring(split, noise.ledger(), noise), data)

    zeros, twos = np.zeros(4, dtype=np.int64), np.full(4, 2, dtype=np.int64)
    for one, other in ((zeros, twos), (twos, zeros)):
        found = replay(call, one, other, never_refuses=True)
        assert re.search(message, "\n".join(found.violations))


@pytest.mark.parametrize(
    "name",
    [
        "sample_aggregate, any model",
        "model_folds, any model",
        "private_ipw, split",
        "private_psm, printed",
    ],
)
def test_going_by_the_order_of_rows_is_found(name, monkeypatch):
    """Without the secret order, tables of the same records in other orders move releases too far;
    tables in the same order do not show it."""
    monkeypatch.setattr(Frozen, "permutation", lambda self, n: np.arange(n))
    assert not CALLS[name].replay("outcome from end to end").violations
    found = CALLS[name].replay("outcome from end to end", unordered=True)
    assert "moved by" in " ".join(found.violations)
    assert found.largest > 1.0


def test_a_sensitivity_that_is_too_small_is_found(monkeypatch):
    ends = BoxGrid.ends
    half = property(lambda grid: tuple(end // 2 for end in ends.func(grid)))
    reach = BoxGrid.reach.func

    def halved(grid):
        with monkeypatch.context() as patch:
            patch.setattr(BoxGrid, "ends", half)
            return reach(grid)

    monkeypatch.setattr(BoxGrid, "reach", property(halved))
    found = CALLS["diff_in_means"].replay("outcome from end to end")
    assert found.largest == pytest.approx(2.0)
    assert "declared" in found.violations[0]


def test_a_solver_that_stops_too_early_is_found(monkeypatch):
    solve = Logistic.solve
    monkeypatch.setattr(Logistic, "solve", lambda self, *given: solve(self, *given) + 1e-6)
    found = CALLS["private_ipw"].replay("outcome from end to end")
    assert "solver: moved by" in " ".join(found.violations)
