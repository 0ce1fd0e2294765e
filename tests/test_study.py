"""Simulation studies: same numbers however they are run, and measures that are right."""

from __future__ import annotations

import math
import sys

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import MissingExtraError, OptionError

MEANS = {"means": {"method": "diff_in_means"}}


def coin(n, seed, effect=0.1):
    """A randomised trial with a known effect."""
    rng = np.random.default_rng(seed)
    treatment = rng.random(n) < 0.5
    base = 0.4 + 0.2 * rng.random(n)
    outcome = base + effect * treatment
    frame = pd.DataFrame({"outcome": outcome, "treatment": treatment, "mu0": 0.5, "mu1": 0.6})
    return dpe.declare(frame, outcome=(0, 1), mu0=(0, 1), mu1=(0, 1))


def known(data, epsilon, seed):
    """A fit with an error of known size: normal with standard deviation 1 / epsilon."""

    class Minimisation:
        def tidy(self, level):
            draw = np.random.default_rng(seed).normal() / epsilon
            low, high = draw - 1.96 / epsilon, draw + 1.96 / epsilon
            row = {"estimate": draw, "std_error": 1 / epsilon, "conf_low": low, "conf_high": high}
            return pd.DataFrame([row])

    return Minimisation()


def nothing(n, seed):
    return pd.DataFrame({"x": [0.0]}), 0.0


def test_measures_are_those_of_a_known_law():
    study = dpe.simulate_study({"known": known}, nothing, n=4, epsilon=[0.5, 2.0], repeats=600)
    table = study.tidy().set_index("epsilon")
    for epsilon in (0.5, 2.0):
        row = table.loc[epsilon]
        assert row["error"] == pytest.approx(1 / epsilon, rel=0.12)
        assert abs(row["bias"]) < 4 / epsilon / math.sqrt(600)
        assert abs(row["coverage"] - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 600)
        assert row["width"] == pytest.approx(2 * 1.96 / epsilon)
        assert math.isnan(row["relative_error"])


def test_coverage_of_a_trial():
    study = dpe.simulate_study(
        MEANS, coin, n=500, epsilon=1.0, repeats=100, formula="outcome ~ treatment"
    )
    row = study.tidy().iloc[0]
    assert row["runs"] == 100
    assert row["failed"] == 0
    assert 0.88 < row["coverage"] <= 1.0
    assert abs(row["bias"]) < 4 * row["error"] / math.sqrt(100)


def test_processes_and_order_change_nothing():
    pytest.importorskip("joblib")
    ask = {"n": [50, 80], "epsilon": [1.0, 2.0], "repeats": 15, "formula": "outcome ~ treatment"}
    one = dpe.simulate_study(MEANS, "confounded", seed=3, **ask)
    two = dpe.simulate_study(MEANS, "confounded", seed=3, workers=2, **ask)
    alone = dpe.simulate_study(
        MEANS, "confounded", seed=3, **{**ask, "n": 80, "epsilon": 2.0, "repeats": 3}
    )
    drop = ["seconds"]
    pd.testing.assert_frame_equal(one.runs.drop(columns=drop), two.runs.drop(columns=drop))
    kept = one.runs.query("n == 80 and epsilon == 2.0 and repeat < 3").reset_index(drop=True)
    pd.testing.assert_frame_equal(alone.runs.drop(columns=drop), kept.drop(columns=drop))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cut", [0, 7])
def test_a_study_goes_on_where_it_was_stopped(tmp_path, cut):
    path = tmp_path / "study.csv"
    ask = {"n": 60, "epsilon": [0.5, 1.0], "seed": 1, "formula": "outcome ~ treatment"}
    dpe.simulate_study(MEANS, "confounded", repeats=12, path=path, **ask)
    if cut:
        path.write_text(path.read_text()[:-cut])  # killed in the middle of a line
    calls = []

    def counted(data, epsilon, seed):
        calls.append(epsilon)
        return dpe.dp_ate("outcome ~ treatment", data, "diff_in_means", epsilon=epsilon, seed=seed)

    again = dpe.simulate_study({"means": counted}, "confounded", repeats=20, path=path, **ask)
    whole = dpe.simulate_study(MEANS, "confounded", repeats=20, **ask)
    assert len(calls) == 16 + bool(cut)
    pd.testing.assert_frame_equal(
        again.runs.drop(columns="seconds"), whole.runs.drop(columns="seconds"), check_dtype=False
    )


def test_truth_follows_the_estimand():
    frame = pd.DataFrame(
        {"treatment": [1, 1, 0, 0], "mu0": 0.0, "mu1": [1.0, 3.0, 5.0, 7.0], "outcome": 0.0}
    )
    for estimand, truth in {"ATE": 4.0, "ATT": 2.0, "ATC": 6.0}.items():
        study = dpe.simulate_study(
            {"zero": lambda *_: 0.0},
            lambda n, seed: frame,
            n=4,
            epsilon=1.0,
            repeats=1,
            estimand=estimand,
        )
        assert study.tidy()["error"].item() == truth


def test_failures_are_counted_and_named():
    study = dpe.simulate_study(
        {"bad": {"method": "diff_in_means", "arms": "no"}}, coin, n=50, epsilon=1.0, repeats=3
    )
    assert study.tidy()["failed"].item() == 3
    assert "arms must be one of private, public" in str(study.summary())
    assert all(len(line) <= 80 for line in str(study).splitlines())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fits": {}}, "give fits"),
        ({"fits": {"a": 3}}, "fit 'a'"),
        ({"fits": {"a": {"epsilon": 1}}}, "set by the study"),
        ({"n": 0}, "n must be"),
        ({"epsilon": [1.0, -1.0]}, "epsilon must be"),
        ({"epsilon": "much"}, "epsilon must be"),
        ({"repeats": 0}, "repeats must be"),
        ({"workers": True}, "workers must be"),
        ({"estimand": "LATE"}, "estimand must be"),
    ],
)
def test_mistakes_are_named(given, said):
    ask = {"fits": MEANS, "data": coin, "n": 50, "epsilon": 1.0, "repeats": 1, **given}
    with pytest.raises(OptionError, match=said):
        dpe.simulate_study(**ask)


def test_processes_without_joblib_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(MissingExtraError, match=r"dpeffects\[study\]"):
        dpe.simulate_study(MEANS, "confounded", n=50, epsilon=1.0, repeats=1, workers=2)


def test_a_strange_file_is_left_alone(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(OptionError, match="not a file of a study"):
        dpe.simulate_study(MEANS, coin, n=50, epsilon=1.0, repeats=1, path=path)
    assert path.read_text() == "a,b\n1,2\n"
