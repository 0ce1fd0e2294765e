"""What thousands of odd calls found: raw exceptions, and a value of the data in a message."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import BoundsError, DataError, LedgerError, OptionError, ReleaseError

BOUNDS = {"y": (0, 1), "x": (0, 1), "g": ["a", "b"]}
ARRAY = np.array([0.0, 1.0])


def frame(**columns):
    index = np.arange(24)
    base = {
        "y": index % 5 / 4,
        "t": index % 2,
        "x": index * 7 % 11 / 10,
        "s": ["N", "S"] * 12,
    }
    return pd.DataFrame({**base, "g": np.where(index % 3, "a", "b"), **columns})


def effect(**given):
    call = {"formula": "y ~ t | x", "data": frame(), "epsilon": 1, "bounds": BOUNDS, **given}
    return getattr(dpe, call.pop("function", "dp_ate"))(**call)


@pytest.mark.parametrize(
    "given",
    [
        {"level": ARRAY},
        {"level": pd.NA},
        {"dataset": ARRAY},
        {"method": "auto", "design": ARRAY},
        {"method": "diff_in_means", "arms": ARRAY},
        {"method": "global_matching", "formula": "y ~ t | g", "weights": ARRAY},
        {"method": "smooth_matching", "formula": "y ~ t | g", "variance_noise": pd.NA},
        {"function": "dp_balance", "estimand": ARRAY},
        {"function": "site_release", "site": "North", "estimand": [1, 2]},
        {"function": "dp_multisite", "site": "s", "sites": 3},
        {"function": "dp_multisite", "site": "s", "sites": [["N"], "S"]},
    ],
    ids=str,
)
def test_options_of_any_type_are_refused_in_words(given):
    """Comparing an array or a missing value with a name raised a raw error of another library."""
    ledger = dpe.Ledger(1)
    with pytest.raises(OptionError):
        effect(ledger=ledger, **given)
    assert ledger.charges == ()


@pytest.mark.parametrize(
    "given",
    [
        {"repeats": "many"},
        {"repeats": 0},
        {"repeats": float("inf")},
        {"confounding": {}},
        {"power": pd.NaT},
        {"conf_level": None},
        {"outcome_sd": "wide"},
        {"outcome_mean": (1, 2)},
    ],
    ids=str,
)
def test_options_of_a_plan_are_refused_in_words(given):
    """A plan compared and converted whatever it was given, and raised what Python raises."""
    with pytest.raises(OptionError, match=next(iter(given))):
        dpe.plan("y ~ t", n=30, epsilon=1, bounds=BOUNDS, method="diff_in_means", **given)


@pytest.mark.parametrize("bounds", [5, [("y", (0, 1))]])
def test_bounds_of_a_plan_are_a_mapping(bounds):
    """A plan with bounds that are no mapping raised an AttributeError."""
    with pytest.raises(BoundsError, match="range or levels by column name"):
        dpe.plan("y ~ t", n=30, epsilon=1, bounds=bounds)


def test_options_of_an_audit_are_refused_in_words():
    """An array in place of a name raised a raw error."""
    with pytest.raises(OptionError, match="watch"):
        dpe.audit("diff_in_means", epsilon=1, runs=100, watch=ARRAY)


@pytest.mark.parametrize("trust", [5.0, ["keys"], True])
def test_keys_are_in_a_folder(trust):
    """What is no path raised a TypeError after all releases had been read."""
    pytest.importorskip("cryptography")
    sent = effect(function="site_release", site="North", method="diff_in_means", seed=1)
    with pytest.raises(ReleaseError, match="not a folder"):
        dpe.combine([sent], public_keys=trust)


@pytest.mark.parametrize("entry", ["format", "checksum"])
def test_entries_of_a_release_of_any_type(entry):
    """A release in memory may hold anything, also what cannot be compared with a text."""
    sent = effect(function="site_release", site="North", method="diff_in_means", seed=1).to_dict()
    with pytest.raises(ReleaseError):
        dpe.combine([{**sent, entry: pd.NA}])
    with pytest.raises(ReleaseError):
        dpe.combine([{**sent, entry: ARRAY}])


def test_categories_stay_out_of_messages():
    """The type of a categorical column was shown with its categories: values of the data."""
    column = pd.Categorical(["low"] * 24, ["low", "a very rare disease"], ordered=True)
    with pytest.raises(DataError, match="must be numeric or bool") as caught:
        effect(data=frame(y=column))
    assert "rare" not in str(caught.value)


def test_an_outcome_whose_squares_are_no_numbers_is_refused_before_a_charge():
    """A range of 1e90 was accepted, and the variance overflowed after all had been paid."""
    ledger = dpe.Ledger(1)
    with pytest.raises(BoundsError, match="too wide"):
        effect(bounds={**BOUNDS, "y": (0, 1e90)}, method="sample_aggregate", ledger=ledger)
    assert ledger.charges == ()


def test_treatments_that_are_no_arms_on_an_engine():
    """Two values, neither of them an arm, ended in a KeyError."""
    polars = pytest.importorskip("polars")
    lazy = polars.from_pandas(frame().assign(t=lambda f: f["t"] + 7)).lazy()
    with pytest.raises(DataError, match="treatment"):
        effect(data=lazy, method="diff_in_means")


def test_a_table_with_a_name_twice_or_without_rows_has_no_sites():
    """Splitting such a table by sites raised what the frame's library raises."""
    sites = {"function": "dp_multisite", "site": "s", "epsilon": {"N": 1, "S": 1}}
    twice = pd.concat([frame(), frame()[["y"]]], axis=1)
    for data in (twice, frame().iloc[:0]):
        with pytest.raises(DataError):
            effect(data=data, method="diff_in_means", **sites)


def test_a_ledger_whose_name_is_too_long_for_a_file():
    """The operating system's error came through."""
    with pytest.raises(LedgerError, match="there is no ledger"):
        effect(ledger="x" * 3000)


def test_bounds_of_an_arrow_table_are_declared():
    """The columns of an Arrow table are no names, and declaring bounds raised a raw TypeError."""
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"y": [0.0, 1.0], "x": [1.0, 2.0]})
    assert dpe.declare(table, y=(0, 1)).bounds["y"] == (0.0, 1.0)
    with pytest.raises(dpe.DPEffectsError, match="'z' that the data does not have"):
        dpe.declare(table, z=(0, 1))
