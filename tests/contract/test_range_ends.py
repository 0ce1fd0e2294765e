"""Outcomes in another unit are clipped to one end: every call that releases a mean says so.

Nothing is charged for it, and means that lie near an end for other reasons are no warning.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.inference.range_ends import arms_warning, end_warning
from tests.calls import CALLS
from tests.contract.test_clipped import NAMES, records
from tests.neighbours import BOUNDS, Pair
from tests.replay import Frozen

WORDS = "is at the upper end of its declared range"
NO_MEAN = {
    *("global_matching", "smooth_matching", "sample_aggregate", "model_folds", "randomisation"),
    *("dp_balance", "dp_randomisation_test", "dp_rate", "dp_ordinal", "dp_late", "dp_did"),
    *("dp_qte", "dp_survival", "study_release"),
}
"""What releases no mean of the outcome; quantiles and survival have a warning of their own, and the
centre says it of sites' studies."""


def _has_mean(name):
    call = CALLS[name]
    by_pairs = call.method == "private_psm"  # no level is released beside them
    paired = by_pairs and (call.function == "site_release" or call.given.get("level") == "label")
    contrasts = name == "one_step, three arms, label"  # come without the means of their arms
    return not paired and not contrasts and not {call.method, call.function} & NO_MEAN


MEANS = [name for name in NAMES if _has_mean(name)]


def called(name, data):
    call = CALLS[name]
    given = {**call.given, "epsilon": 60.0, "check_bounds": False}
    return replace(call, given=given).run(data, Frozen(3), Pair("", data, data, 0, BOUNDS))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", MEANS)
def test_outcomes_in_another_unit_are_noticed_by_the_mean_that_is_released(name):
    fit, honest = called(name, records(y=100)), called(name, records())
    assert WORDS in str(fit) + fit.to_json()
    assert WORDS not in str(honest) + honest.to_json()
    before, after = (len(getattr(x, "charges", ())) for x in (honest, fit))
    assert before == after  # it is free


def people(n, seed=1):
    rng = np.random.default_rng(seed)
    arm = rng.choice(["none", "low", "high"], n)
    data = {"t": rng.integers(0, 2, n), "arm": arm, "site": np.resize(["N", "S"], n)}
    return pd.DataFrame(data | {"y": 2.5 + rng.normal(0.0, 0.5, n)})


BY = {"y": (0, 5), "t": [0, 1], "arm": ["none", "low", "high"]}


@pytest.mark.parametrize("formula", ["y ~ t", "y ~ arm"])
def test_grams_with_a_range_of_kilograms(formula):
    """A null effect of [5, 5, 5, ...] looked like any other."""
    given = {"method": "diff_in_means", "bounds": BY, "epsilon": 1, "seed": 1}
    data = people(4000)
    grams = dpe.dp_ate(formula, data.assign(y=1000 * data["y"]), **given)
    above, about, _ = str(grams).partition("About ")
    assert "The released mean of y is at the upper end of its declared range (0 to 5)" in " ".join(
        above.split()
    )
    assert about
    assert "Compare the unit of the values" in " ".join(str(grams.explain()).split())
    tonnes = dpe.dp_ate(formula, data.assign(y=data["y"] / 1e4), **given)
    assert "lower end" in tonnes.warnings
    assert "end of its" not in dpe.dp_ate(formula, data, **given).warnings


def test_sites_and_their_combination_say_it():
    data = people(4000)
    data["y"] *= 1000
    given = {"method": "diff_in_means", "bounds": BY, "epsilon": 1}
    sent = [
        dpe.site_release("y ~ t", data[data["site"] == s], site=s, seed=k, **given)
        for k, s in enumerate("NS")
    ]
    assert all(WORDS in site.to_json() for site in sent)
    assert f"N and S: The released mean of y {WORDS}" in dpe.combine(sent).warnings.replace(
        "N, S:", "N and S:"
    )
    again = dpe.combine([type(site).from_json(site.to_json()) for site in sent])
    assert WORDS in again.warnings


def test_a_study_of_sites_says_it_of_its_outcome():
    data = people(4000).assign(z=lambda x: x["y"], y=lambda x: 1000 * x["y"])
    bounds = {"y": (0, 5), "z": (0, 5), "t": [0, 1]}
    asked = dpe.Protocol("y + z ~ t", bounds=bounds, epsilon=2, design="randomised")
    sent = [dpe.study_release(asked, data[data["site"] == s], site=s, seed=1) for s in "NS"]
    fit = dpe.combine_studies(sent)
    assert "The released mean of y is at" in fit.warnings
    assert "mean of z" not in fit.warnings


def test_outcomes_that_are_honestly_near_an_end():
    """Rare events, ceilings and skewed money have means near an end, too."""
    rng, n = np.random.default_rng(2), 4000
    rare = (rng.random(n) < 0.01).astype(int)
    money = np.clip(rng.lognormal(np.log(20.0) - 0.5, 1.0, n), 0, 1000)
    happy = np.clip(np.round(rng.normal(4.8, 0.6, n)), 1, 5)
    for y, bound in ((rare, [0, 1]), (rare, (0, 1)), (1 - rare, [0, 1]), (money, (0, 1000))):
        _quiet(y, bound)
    _quiet(happy, (0, 5))


def _quiet(y, bound):
    data = people(len(y)).assign(y=y)
    for method in ("diff_in_means", "clipped_contrast"):
        given = {"bounds": {"y": bound, "t": [0, 1]}, "epsilon": 1, "seed": 5}
        assert (
            "end of its declared range" not in dpe.dp_ate("y ~ t", data, method, **given).warnings
        )


def test_the_rule():
    assert end_warning("y", 4.99, 0.02, 0.0, 5.0)
    assert end_warning("y", 0.01, 0.02, 0.0, 5.0)
    assert end_warning("y", 5.5, 0.02, 0.0, 5.0)  # noise beyond the end
    assert not end_warning("y", 4.9, 0.02, 0.0, 5.0)
    assert not end_warning("y", 4.99, 0.2, 0.0, 5.0)  # a mean that is not known says nothing
    assert not end_warning("y", 0.0, 0.0, 0.0, 1.0)  # rare events, written as a range
    assert end_warning("y", 1.0, 0.0, 0.0, 1.0)
    assert not end_warning("y", 1.0, 0.1, 0.0, np.inf)
    assert not end_warning("y", np.nan, np.nan, 0.0, 5.0)
    for far in (0.0, 100.0):  # near is in parts of the range, wherever that lies
        assert end_warning("y", far + 4.98, 0.001, far, far + 5.0)
        assert not end_warning("y", far + 4.96, 0.001, far, far + 5.0)
    assert arms_warning("y", None) == ""


def test_one_arm_at_an_end_is_an_effect():
    data = people(4000)
    data["y"] = np.where(data["t"] == 1, 5.0, data["y"])
    given = {"bounds": BY, "epsilon": 4, "seed": 1}
    assert "end of its" not in dpe.dp_ate("y ~ t", data, "diff_in_means", **given).warnings


def test_a_count_of_clipped_values_says_it_better():
    data = people(4000)
    data["y"] *= 1000
    fit = dpe.dp_ate("y ~ t", data, "diff_in_means", bounds=BY, epsilon=2, seed=1)
    assert "Values clipped to declared ranges" in fit.warnings
    assert "end of its declared range" not in fit.warnings
