"""Holes that were found in whole studies, kept moments, instruments and panels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe

BOUNDS = {"y": (0, 1), "x": (0, 1), "s": ["m", "f"]}


def people(n=300, seed=0):
    rng = np.random.default_rng(seed)
    t, x = rng.integers(0, 2, n), rng.random(n)
    data = {"t": t, "x": x, "y": np.clip(0.3 * x + 0.2 * t + 0.4 * rng.random(n), 0, 1)}
    return pd.DataFrame(data | {"d": rng.random(n) < 0.3, "s": rng.choice(["m", "f"], n)})


@pytest.mark.parametrize("epsilon", np.linspace(0.5, 3.0, 12).tolist())
def test_a_site_reads_what_it_released(epsilon):
    """Variances and covariances that are equal may differ in their last digit."""
    protocol = dpe.Protocol(
        "y ~ t | x", epsilon=epsilon, design="randomised", bounds={"y": (0, 1), "x": (0, 1)}
    )
    release = dpe.study_release(protocol, people(), site="north", seed=1)
    assert dpe.combine_studies([release]).labels == ("y",)


def test_table_one_has_possible_numbers_where_noise_is_large():
    """Spreads that are mostly noise are not given; any other is one that so many could have."""
    given = {"data": people(20), "bounds": BOUNDS}
    arms, spreads = ("treated", "control", "overall"), []
    for seed in range(6):
        table = dpe.dp_study("y ~ t | x + s", epsilon=100, seed=seed, **given).table1()
        number = table[~table["share"]].iloc[0]
        most = [0.5 * np.sqrt(number[f"{arm}_n"] / (number[f"{arm}_n"] - 1)) for arm in arms]
        spreads.append([number[f"{arm}_sd"] for arm in arms] / np.array(most))
    assert np.isnan(spreads).any()
    assert np.isfinite(spreads).sum() > 9
    assert np.nanmax(spreads) <= 1 + 1e-9
    fit = dpe.dp_study("y ~ t | x + s", epsilon=1e-3, seed=1, **given)
    table = fit.table1()
    spread = [f"{arm}_sd" for arm in arms]
    assert table.loc[~table["share"], spread].isna().all(axis=None)
    assert "over 100%" in str(fit.summary())


def test_effects_among_compliers_and_rates_are_drawn():
    import matplotlib as mpl

    mpl.use("Agg")
    about = {"bounds": BOUNDS, "epsilon": 1, "seed": 1}
    data = people()
    fits = (
        dpe.dp_late("y ~ d", data, instrument="t", **about),
        dpe.dp_rate("d ~ t", data, offset="x", **about),
    )
    for fit in fits:
        labels = [text.get_text() for text in fit.plot().get_yticklabels()]
        terms = [
            term for term in fit.tidy()["term"] if "ratio" not in term
        ]  # the zero line is drawn
        assert labels == [fit._in_words(term) for term in terms]
        assert len(set(labels)) == len(labels)


def test_what_is_no_number_is_not_among_the_details_of_an_effect():
    kept = dpe.dp_moments("y ~ t | x", people(20), epsilon=1e-3, bounds=BOUNDS, seed=1)
    assert "nan" not in str(kept.effect("y ~ t | x").summary())


@pytest.mark.parametrize("call", [dpe.dp_study, dpe.dp_moments])
@pytest.mark.parametrize("width", [1e300, 1e-300])
def test_ranges_whose_squares_are_no_numbers_are_refused_before_a_charge(call, width):
    data, ledger = people().assign(y=0.0), dpe.Ledger(10.0)
    with pytest.raises(dpe.errors.BoundsError, match="too narrow or too wide"):
        call("y + d ~ t", data, epsilon=1, bounds={"y": (0, width)}, ledger=ledger, seed=1)
    assert ledger.spent == (0, 0)


LONG = {"time": "year", "unit": "id", "periods": [2018, 2019, 2020]}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda data: dpe.dp_study("y ~ t", data, subgroups=5, epsilon=1), "subgroups must be"),
        (
            lambda data: dpe.dp_study("y ~ t", data, method="auto", epsilon=1),
            "method cannot be set here: leave it out",
        ),
        (lambda data: dpe.dp_study("y, x ~ t", data, epsilon=1), "joined by \\+"),
        (
            lambda data: dpe.dp_late("y ~ d", data, instrument="t", method="auto", epsilon=1),
            "method cannot be set here: leave it out",
        ),
        (lambda data: dpe.dp_did("y ~ t", data, epsilon=1, **LONG), "write start="),
    ],
)
def test_mistakes_are_told_in_a_line(call, words):
    with pytest.raises(dpe.errors.DPEffectsError, match=words) as told:
        call(people())
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("formula", ["y + x ~ t", "y", "~", 3])
def test_a_regression_has_one_outcome_and_a_right_side(formula):
    kept = dpe.dp_moments("y ~ t | x", people(), epsilon=1, bounds=BOUNDS, seed=1)
    with pytest.raises(dpe.errors.DPEffectsError):
        kept.regression(formula)


def test_moments_that_noise_made_unusable_give_no_intervals():
    """Intervals around coefficients that are pulled to 0 had a coverage of 70 %."""
    data = people().assign(y=lambda x: 0.8 * x["t"] + 0.1)
    for seed in range(5):
        kept = dpe.dp_moments("y ~ t | x", data, epsilon=0.02, bounds=BOUNDS, seed=seed)
        table = kept.regression("y ~ t + x")
        assert table.fit.cut
        assert np.isnan(table.conf_int()[1]).all()
        assert (
            "coefficients that this changes have no interval" in kept.effect("y ~ t | x").warnings
        )
