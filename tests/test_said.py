"""What summaries say of the levels that are compared, of missing outcomes, and of weights."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import OptionError
from dpeffects.results.average import Result


def people(n=1500):
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"drug": rng.choice(["no", "yes"], n), "w": rng.uniform(0.2, 1.0, n)})
    data["sex"] = rng.choice(["f", "m", "x"], n, p=[0.5, 0.495, 0.005])
    data["days"] = 10 + 3 * (data["drug"] == "yes") + rng.normal(0.0, 2.0, n)
    return data.assign(died=(rng.random(n) < 0.3).astype(int))


BOUNDS = {"days": (0, 30), "drug": ["no", "yes"], "sex": ["f", "m", "x"], "died": [0, 1]}
GIVEN = {"epsilon": 4, "seed": 1, "design": "randomised"}


def about(fit):
    return dict(fit.summary("short").blocks[0].rows)


@pytest.mark.parametrize(
    ("levels", "words"), [(["no", "yes"], " (yes vs. no)"), (["yes", "no"], " (no vs. yes)")]
)
def test_the_levels_that_are_compared_are_said(levels, words):
    """Levels in the wrong order turned the sign of an effect, and nothing but a note said it."""
    given = GIVEN | {"bounds": BOUNDS | {"drug": levels}}
    fit = dpe.dp_ate("days ~ drug", people(), **given)
    assert about(fit)["About"] == f"effect of drug{words} on days (ATE)"
    assert f"of drug{words} on days" in fit.table().title
    assert f"of drug{words} on days" in str(fit.report()).replace("\n", " ")
    assert Result.from_json(fit.to_json()) == fit
    study = dpe.dp_study("days + died ~ drug", people(), **given)
    for several in (study, dpe.dp_ate("days ~ drug", people(), by="sex", **given)):
        assert words in about(several)["About"]
    for whole in (study.effect_on("days"), dpe.dp_qte("days ~ drug", people(), **given)):
        assert words in about(whole)["About"]
    del given["design"]
    sites = [dpe.site_release("days ~ drug", people(), site=s, **given) for s in "ab"]
    assert words in about(dpe.combine(sites[:1]))["About"]


@pytest.mark.parametrize("coded", [int, bool, float])
def test_numbers_need_no_words_unless_they_are_turned(coded):
    data = people().assign(drug=lambda x: (x["drug"] == "yes").astype(coded))
    given = GIVEN | {"bounds": {"days": (0, 30)} | ({} if coded is bool else {"drug": [0, 1]})}
    assert (
        about(dpe.dp_ate("days ~ drug", data, **given))["About"] == "effect of drug on days (ATE)"
    )
    if coded is int:
        given["bounds"]["drug"] = [1, 0]
        assert "drug (0 vs. 1)" in about(dpe.dp_ate("days ~ drug", data, **given))["About"]


def test_an_instrument_does_not_lend_its_levels_to_the_treatment():
    data = people().assign(taken=lambda x: (x["drug"] == "yes").astype(int))
    given = {"bounds": BOUNDS | {"taken": [0, 1]}, "epsilon": 8, "seed": 1}
    fit = dpe.dp_late("days ~ taken", data, instrument="drug", **given)
    assert "taken (yes" not in str(fit)


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("weight", "outcomes are missing at random given covariates and treatment"),
        ("complete", ""),
    ],
)
def test_what_is_assumed_of_missing_outcomes(missing, words):
    data = people()
    data.loc[::5, "days"] = np.nan
    fit = dpe.dp_ate("days ~ drug", data, bounds=BOUNDS, missing=missing, **GIVEN)
    assert about(fit)["Assumes"].endswith(words)
    assert ("missing at random" in about(fit)["Assumes"]) is bool(words)


def test_what_is_assumed_of_available_outcomes():
    data = people()
    data.loc[::5, "days"] = np.nan
    given = {"bounds": BOUNDS, "missing": {"days": "available"}, **GIVEN}
    assert (
        "missing at random within each arm"
        in about(dpe.dp_study("days + died ~ drug", data, **given))["Assumes"]
    )
    whole = dpe.dp_study("days + died ~ drug", people(), bounds=BOUNDS, **GIVEN)
    assert "missing at random" not in about(whole)["Assumes"]


def test_sites_with_weights_are_combined_whatever_their_effective_sizes():
    given = {"bounds": BOUNDS | {"w": (0, 1)}, "epsilon": 4, "weights": "w"}
    asked = (("a", 1), ("b", 2))
    sent = [dpe.site_release("days ~ drug", people(), site=x, seed=k, **given) for x, k in asked]
    assert [x.sample["size"].startswith("effective sample size about") for x in sent] == [True] * 2
    assert dpe.combine(sent).used == tuple(sent)


def test_risk_differences_by_group_are_all_in_per_cent():
    """That of a group with too few records was not."""
    fit = dpe.dp_ate("died ~ drug", people(), bounds=BOUNDS, by="sex", **GIVEN)
    labels = [row[0] for row in fit.table().blocks[0].rows]
    assert fit.effects[2].means is None
    assert labels == ["sex f, %", "sex m, %", "sex x, %"]


def test_combine_says_which_argument_has_the_rule():
    with pytest.raises(OptionError, match=r"no argument 'method'\. Write rule=\"random\""):
        dpe.combine([], method="random")
