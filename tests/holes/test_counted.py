"""Holes in which rows count, and for how much: found by attack, closed, and kept closed."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dpeffects as dpe
from dpeffects.errors import DataError

HUGE = 1e6


def surveyed(n=20_000, arms=2, seed=0):
    """Records of which the outcome is missing at random, by covariate and arm; some are inside."""
    rng = np.random.default_rng(seed)
    x, inside = rng.random(n), rng.random(n) < 0.1
    t = rng.integers(0, arms, n)
    y = np.clip(0.2 * x + 0.2 * t / (arms - 1) * (1 + x) + rng.normal(0, 0.05, n), 0, 1)
    seen = rng.random(n) < 1 / (1 + np.exp(3 * x - 1.5 - 0.7 * (t == arms - 1)))
    named = np.array(["none", "low", "high"])[t] if arms == 3 else t
    whole = {"whole": y, "y": np.where(seen, y, np.nan), "t": named, "x": x}
    return pd.DataFrame({**whole, "inside": inside.astype(int)})


BOUNDS = {"y": (0, 1), "whole": (0, 1), "x": (0, 1)}


def test_missing_outcomes_of_three_arms():
    """A view of the rows had two arms, whatever these had."""
    data, arms = surveyed(arms=3), ["none", "low", "high"]
    bounds = {**BOUNDS, "t": arms}
    for method in ("diff_in_means", "one_step", "private_ipw", "clipped_contrast"):
        fit = dpe.dp_ate(
            "y ~ t | x", data, method, epsilon=HUGE, bounds=bounds, missing="weight", seed=1
        )
        truth = data.groupby("t")["whole"].mean()
        found = [effect.value for effect in fit.effects]
        assert found == pytest.approx([truth[a] - truth["none"] for a in arms[1:]], abs=0.012)


def test_the_part_with_an_outcome_is_that_of_the_records_that_count():
    """It was that of all records, of whom few are in the subset, and the model leant on it."""
    data = surveyed()
    given = {"epsilon": 50.0, "bounds": BOUNDS, "missing": "weight", "seed": 1}
    fit = dpe.dp_ate("y ~ t | x", data, "one_step", subset="inside == 1", **given)
    inside = data[data["inside"] == 1]
    shown = float(fit.details["outcomes observed (noisy)"].removesuffix(" %"))
    assert shown == pytest.approx(100 * inside["y"].notna().mean(), abs=4)


def test_clipped_values_are_a_share_of_those_that_were_looked_at():
    """Where outcomes are missing it was one of the records with an outcome, by their weight."""
    data = surveyed()
    truth = 100 * (data["x"] > 0.9).mean()
    bounds = {**BOUNDS, "x": (0, 0.9)}
    for more in ({}, {"subset": "inside == 1"}):
        given = {"epsilon": 50.0, "bounds": bounds, "missing": "weight", "check_bounds": True}
        fit = dpe.dp_ate("y ~ t | x", data, "one_step", seed=1, **given, **more)
        (note,) = [note for note in fit.notes if note.startswith("x: about")]
        assert float(note.split()[2]) == pytest.approx(truth, abs=2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("partitions", [1, 5])
def test_the_name_of_a_unit_does_not_depend_on_the_rows_beside_it(partitions):
    """pandas writes dates with or without a time, as the other rows of a partition have one."""
    dask = pytest.importorskip("dask.dataframe")
    rng = np.random.default_rng(0)
    person = np.sort(rng.integers(0, 200, 2000))
    person = np.concatenate([person[person == 7], rng.permutation(person[person != 7])])
    hours = np.where(person == 7, 12, 0)
    data = pd.DataFrame({"y": rng.random(2000), "t": rng.integers(0, 2, 2000), "person": person})
    expected = dpe.dp_ate("y ~ t", data, "diff_in_means", **_of_person())
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(24 * person + hours, unit="h")
    mixed = [int(x) if k % 2 else float(x) for k, x in enumerate(person)]
    tens = [Decimal(int(x)) if k % 2 else Decimal(f"{x}.0") for k, x in enumerate(person)]
    held = dask.from_pandas(data.assign(person=days), npartitions=partitions)
    objects = [data.assign(person=pd.Series(list(x), dtype=object)) for x in (days, mixed, tens)]
    for frame in (held, *objects):
        fit = dpe.dp_ate("y ~ t", frame, "diff_in_means", **_of_person())
        assert (fit.n, fit.estimate) == (expected.n, expected.estimate)


def _of_person():
    return {"epsilon": 1, "bounds": {"y": (0, 1)}, "unit": "person", "seed": 1}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("arms", [2, 3])
@pytest.mark.parametrize("method", ["diff_in_means", "private_ipw", "clipped_contrast"])
def test_noise_in_how_many_records_count_is_in_the_interval(method, arms):
    """Sums are measured from the middle of a range, times a number of records that is noisy."""
    rng = np.random.default_rng(4)
    n, levels = 3000, ["none", "low", "high"][:arms]
    t, x, inside = rng.integers(0, arms, n), rng.random(n), np.arange(n) % 5 == 0
    y = 0.05 + 0.8 * (t == arms - 1) + rng.normal(0, 0.02, n)
    data = pd.DataFrame({"y": y, "t": np.array(levels)[t], "x": x, "inside": inside})
    bounds, options = {"y": (0, 1), "t": levels, "x": (0, 1)}, {}
    if method != "private_ipw":
        options = {"design": "randomised"}
    found = []
    for seed in range(40):
        given = {"epsilon": 2, "bounds": bounds, "subset": "inside", "seed": seed, **options}
        fit = dpe.dp_ate("y ~ t | x", data, method, **given)
        low, high = fit.conf_int() if arms == 2 else fit.conf_int(simultaneous=False)[-1]
        found.append(low <= 0.8 <= high)
    assert np.mean(found) >= 0.9


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("subset", ["day == '2020-01-01'", "name == 1", "flag == 'yes'"])
def test_a_comparison_that_no_value_can_meet_is_refused_for_nothing(subset, lazy):
    """Nobody was in the subset then, and the budget was spent to say so."""
    data = surveyed(200).assign(day=pd.Timestamp("2020-01-01"), name="1", flag=True)
    held, ledger = pl.from_pandas(data).lazy() if lazy else data, dpe.Ledger(1)
    given = {"epsilon": 1, "bounds": BOUNDS, "subset": subset, "ledger": ledger}
    with pytest.raises(DataError, match=f"column '{subset.split()[0]}'"):
        dpe.dp_ate("whole ~ t", held, "diff_in_means", **given)
    assert not ledger.charges


def test_a_subset_by_the_outcome_says_what_it_is():
    given = {"epsilon": 1, "bounds": BOUNDS, "subset": "whole > 0.1", "seed": 1}
    fit = dpe.dp_ate("whole ~ t", surveyed(2000), "diff_in_means", **given)
    assert any("chosen by the outcome" in note for note in fit.notes)
