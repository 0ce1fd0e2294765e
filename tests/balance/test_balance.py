"""dp_balance: the numbers as noise vanishes, the noise that is stated, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
from statsmodels.stats.weightstats import DescrStatsW

import dpeffects as dpe
from dpeffects.errors import DataError, OptionError
from dpeffects.estimators.balance import differences
from dpeffects.privacy.charges import Noisy

BOUNDS = {"x1": (0, 1), "x2": (-1, 1), "g": ["a", "b", "c"]}
FORMULA = "y ~ t | x1 + x2 + g"
TERMS = ["x1", "x2", "g[T.b]", "g[T.c]"]


def frame(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    x1, x2, g = rng.random(n), rng.normal(0, 0.8, n), rng.choice(list("abc"), n, p=[0.5, 0.3, 0.2])
    t = rng.random(n) < 1 / (1 + np.exp(-(2 * x1 - 1 + np.clip(x2, -1, 1) - 0.6 * (g == "b"))))
    return pd.DataFrame({"y": rng.random(n), "t": t, "x1": x1, "x2": x2, "g": g})


def encoded(data):
    """Columns by hand: clipped, dummies against the first level."""
    return np.column_stack(
        [data["x1"], np.clip(data["x2"], -1, 1), data["g"] == "b", data["g"] == "c"]
    ).astype(float)


def by_hand(data, weights=None):
    """Weighted means by statsmodels over the root of the average unweighted variance."""
    x, t = encoded(data), data["t"].to_numpy()
    weights = np.ones(len(x)) if weights is None else weights
    means = [DescrStatsW(x[arm], weights[arm], ddof=0).mean for arm in (t, ~t)]
    variance = (x[t].var(axis=0) + x[~t].var(axis=0)) / 2
    return (means[0] - means[1]) / np.sqrt(variance)


def balance(data, epsilon=1.0, **given):
    return dpe.dp_balance(FORMULA, data, epsilon=epsilon, **{"bounds": BOUNDS, **given})


def test_without_noise_differences_are_those_of_the_data():
    data = frame()
    found = balance(data, 1e6, adjusted=True).tidy()
    assert found["term"].tolist() == TERMS
    assert found["smd"].to_numpy() == pytest.approx(by_hand(data), abs=1e-3)
    assert (found["noise_sd"] < 1e-4).all()


@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
def test_without_noise_weighted_differences_are_those_of_a_logistic_regression(estimand):
    """A nearly unpenalised model: the propensities of statsmodels, clipped, give the weights."""
    data = frame(8000, 3)
    found = balance(data, 1e6, adjusted=True, estimand=estimand, clip=0.05)
    x, t = encoded(data), data["t"].to_numpy()
    e = np.clip(sm.Logit(t, sm.add_constant(x)).fit(disp=0).predict(), 0.05, 0.95)
    w = {
        "ATE": np.where(t, 1 / e, 1 / (1 - e)),
        "ATT": np.where(t, 1, e / (1 - e)),
        "ATC": np.where(t, (1 - e) / e, 1),
    }[estimand]
    assert found.tidy()["smd_adjusted"].to_numpy() == pytest.approx(by_hand(data, w), abs=5e-3)
    assert np.abs(found.smd_adjusted).max() < 0.2 * np.abs(found.smd).max()
    counts = np.array(found.counts)
    e = sm.Logit(t, sm.add_constant(x)).fit(disp=0).predict()
    exact = np.array([np.histogram(e[arm], found.edges)[0] for arm in (t, ~t)])
    assert np.abs(counts - exact).sum() < 0.02 * len(data)
    assert found.treated[0] == pytest.approx(t.sum(), abs=1)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_noise_is_as_large_as_stated(delta):
    data = frame(6000, 1)
    runs = [balance(data, 2.0, delta=delta, adjusted=True, seed=k) for k in range(80)]
    for value, sd in (("smd", "noise_sd"), ("smd_adjusted", "noise_sd_adjusted")):
        found = np.array([getattr(run, value) for run in runs])
        stated = np.array([getattr(run, sd) for run in runs]).mean(axis=0)
        centre = by_hand(data) if value == "smd" else found.mean(axis=0)
        size = np.sqrt(((found - centre) ** 2).mean(axis=0))
        # weighted differences also vary with the model, which is not noise in them
        assert (size < (1.3 if value == "smd" else 1.6) * stated).all()
        assert (size > 0.7 * stated).all()
    cells = np.array([run.counts[0][0] for run in runs])  # an empty bin: noise only
    assert cells.std() == pytest.approx(runs[0].count_sd, rel=0.3)
    treated = np.array([run.treated[0] for run in runs])
    assert treated.std() == pytest.approx(runs[0].treated[1], rel=0.3)


def test_a_difference_within_its_noise_is_marked():
    data = frame(2000, 2)
    data["x1"] = np.tile([0.1, 0.9], 1000)  # the same in both arms, nearly
    runs = [balance(data, bounds={**BOUNDS, "x2": (-1e6, 1e6)}, seed=k) for k in range(40)]
    marked = [run.tidy()["within_noise"].iloc[0] for run in runs]
    assert 0.85 < np.mean(marked) <= 1.0  # nominally 95 %
    found = runs[0]
    table = found.tidy().set_index("term")
    assert bool(table.loc["x1", "within_noise"])
    assert abs(table.loc["x1", "smd"]) <= 1.96 * table.loc["x1", "noise_sd"]
    assert np.isnan(table.loc["x2", "smd"])  # all in one point of its declared range
    assert "vary" in table.loc["x2", "reason"]
    text = str(found)
    assert f"({table.loc['x1', 'smd']:.3f})" in text
    assert "n/a" in text
    assert "NOT PRIVATE: seeded" in text
    sure = balance(frame(20_000), 5.0)
    assert not sure.tidy()["within_noise"].iloc[0]
    assert f"({sure.smd[0]:.3f})" not in str(sure)


def test_weighting_is_chosen_from_public_numbers():
    few, many = frame(400), frame(40_000)
    assert balance(few).smd_adjusted == ()
    assert "not released" in str(balance(few))
    assert len(balance(many).smd_adjusted) == 4
    assert {s.share for s in balance(few).spends} == {"balance", "propensity", "overlap"}
    forced = balance(few, adjusted=True)
    assert "adjusted" in {s.share for s in forced.spends}
    assert "mostly noise" in str(forced)  # the propensity model, at this n


def test_the_price_is_what_was_asked_and_the_ledger_knows():
    ledger = dpe.Ledger(1.5)
    found = balance(frame(), ledger=ledger, shares={"overlap": 0.5})
    assert sum(s.epsilon for s in found.spends) == pytest.approx(1.0, abs=1e-9)
    assert found.guarantee.holds
    assert found.guarantee.epsilon == 1.0
    assert float(ledger.spent[0]) == pytest.approx(1.0)
    overlap = sum(s.epsilon for s in found.spends if s.share == "overlap")
    assert overlap > 0.35
    with pytest.raises(dpe.DPEffectsError, match="left"):
        balance(frame(), ledger=ledger)


def test_frames_of_other_kinds_and_no_outcome():
    data = frame(1000)
    one = balance(data, seed=4)
    other = balance(pl.DataFrame(data.to_dict("list")), seed=4)
    assert one.to_json() == other.to_json()
    without = balance(data.drop(columns="y"), seed=4)  # outcomes need not be there
    assert without.smd == one.smd
    words = data.assign(t=np.where(data["t"], "drug", "placebo"))
    levels = balance(words, seed=4, bounds={**BOUNDS, "t": ["placebo", "drug"]})
    assert levels.smd == one.smd
    study = dpe.declare(data, BOUNDS)
    assert dpe.dp_balance(FORMULA, study, epsilon=1, seed=4).smd == one.smd
    no_intercept = dpe.dp_balance(f"{FORMULA} - 1", study, epsilon=1, seed=4)
    assert no_intercept.terms == one.terms


def test_exports():
    found = balance(frame(2000), seed=2, bins=10)
    plain = json.loads(found.to_json())
    assert plain["terms"] == TERMS
    assert plain["guarantee"]["void"] == ["seeded"]
    assert len(found.overlap()) == 20
    assert found.overlap()["count"].tolist() == [*found.counts[0], *found.counts[1]]
    assert found.glance().loc[0, "covariates"] == 4
    assert "NOT PRIVATE" in repr(found)
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("0.") for line in lines) == 10


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"estimand": "ATO"}, OptionError, "ATE, ATT, ATC"),
        ({"adjusted": "yes"}, OptionError, "True, False or None"),
        ({"clip": 0.5}, OptionError, "clip"),
        ({"bins": 1}, OptionError, "bins"),
        ({"bins": 10.0}, OptionError, "bins"),
        ({"formula": "y ~ t"}, OptionError, "covariates"),
        ({"formula": "y ~ t | zz"}, DataError, "zz"),
        ({"shares": {"adjusted": 1.0}}, dpe.DPEffectsError, "adjusted"),
        ({"epsilon": 0}, dpe.DPEffectsError, "epsilon"),
    ],
)
def test_mistakes_are_named(change, error, says):
    given = {"formula": FORMULA, "epsilon": 1.0, "bounds": BOUNDS, **change}
    with pytest.raises(error, match=says):
        dpe.dp_balance(given.pop("formula"), frame(100), **given)


def test_noise_of_a_difference_against_the_delta_method():
    """By hand for one covariate at known sums: derivatives of the ratio, one release at a time."""
    n, sigma, (n1, n0) = 1000, 5.0, (400.0, 600.0)
    s1, s0, v1, v0 = 0.1 * n1, -0.05 * n0, 0.30, 0.25
    q1, q0 = ((v + (s / m) ** 2 - 0.5) * m / 2 for v, s, m in ((v1, s1, n1), (v0, s0, n0)))
    value = np.array([[n1, s1, q1], [n0, s0, q0]])
    found = differences(Noisy(value, sigma, gaussian=True), None, n)

    def smd(c1, a1, b1, c0, a0, b0):
        m1 = (c1 + n - c0) / 2
        m0 = n - m1
        spread = [
            2 * b / m + 0.5 - (a / m) ** 2 + (sigma / m) ** 2
            for a, b, m in ((a1, b1, m1), (a0, b0, m0))
        ]
        return (a1 / m1 - a0 / m0) / np.sqrt(np.mean(spread))

    at = value.reshape(-1)
    slopes = [(smd(*(at + h)) - smd(*(at - h))) / 2e-4 for h in 1e-4 * np.eye(6)]
    assert found.raw[0] == pytest.approx(smd(*at))
    assert found.raw_sd[0] == pytest.approx(sigma * np.linalg.norm(slopes), rel=1e-3)
    assert found.treated == (pytest.approx(n1), pytest.approx(sigma / np.sqrt(2)))
