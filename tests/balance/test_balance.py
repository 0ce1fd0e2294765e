"""dp_balance: the numbers as noise vanishes, the noise that is stated, and what is refused."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
from statsmodels.stats.weightstats import DescrStatsW

import dpeffects as dpe
from dpeffects.errors import DataError, OptionError
from dpeffects.inference.joint import Margin
from dpeffects.inference.table_one import Spreads
from dpeffects.inference.tables import not_negative
from dpeffects.privacy.tight_domains import cube_noise_sd
from tests.balance.columns import columns, noise

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


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("kind", "n", "m", "share", "budget"),
    [
        ("normal", 6000, 6, 0.5, {"epsilon": 3.0, "delta": 1e-5}),
        ("correlated", 6000, 6, 0.5, {"epsilon": 4.0}),
        ("indicators", 5000, 2, 0.5, {"epsilon": 1.2}),
        ("skewed", 6000, 3, 0.5, {"epsilon": 4.0}),
        ("normal", 6000, 3, 0.05, {"epsilon": 8.0}),
    ],
)
def test_the_noise_is_as_large_as_stated(kind, n, m, share, budget):
    """Of reruns on the same data; after weighting, noise in the propensity model is a part."""
    for value, ratio, missing in noise(
        columns(kind, n, m, share), 40, adjusted=True, **budget
    ).values():
        assert missing < 0.01
        assert value < 0.5
        assert 0.85 < ratio < 1.2


def test_noise_of_a_histogram_and_of_a_count():
    data = frame(6000, 1)
    runs = [balance(data, 2.0, adjusted=False, overlap=True, seed=k) for k in range(80)]
    treated = np.array([run.treated[0] for run in runs])
    assert treated.std() == pytest.approx(runs[0].treated[1], rel=0.25)
    assert treated.mean() == pytest.approx(data["t"].sum(), abs=3 * runs[0].treated[1] / 80**0.5)
    counts = np.array([run.counts for run in runs])
    assert counts.min() >= 0.0
    assert counts.sum(axis=(1, 2)) == pytest.approx(6000)


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
    assert "variance" in table.loc["x2", "reason"]
    text = str(found.summary())
    assert f"{table.loc['x1', 'smd']:.3f}†" in text
    assert "n/a" in text
    assert "NOT PRIVATE: a seed was set" in text
    sure = balance(frame(20_000), 5.0)
    assert not sure.tidy()["within_noise"].iloc[0]
    assert f"{sure.smd[0]:.3f}†" not in str(sure.summary())


def test_what_is_released_is_chosen_from_public_numbers():
    few, many = balance(frame(400)), balance(frame(40_000))
    assert len(many.smd_adjusted) == 4
    middle = balance(frame(4000))
    assert middle.smd_adjusted == ()
    assert "Balance after weighting was not released" in " ".join(str(middle.summary()).split())
    assert {s.share for s in middle.charges} == {"balance", "propensity", "overlap"}
    assert {s.share for s in few.charges} == {"balance"}
    assert sum(s.epsilon for s in few.charges) == pytest.approx(1.0)
    assert "all of epsilon was used for the differences" in " ".join(str(few.summary()).split())
    assert (few.edges, few.counts, len(few.overlap())) == ((), ((), ()), 0)
    assert np.isnan(few.glance().loc[0, "scores_outside"])
    assert dpe.Balance.from_json(few.to_json()).to_json() == few.to_json()
    with pytest.raises(OptionError, match="no histogram"):
        few.plot("overlap")
    forced = balance(frame(400), adjusted=False, overlap=True)
    assert "mostly noise" in str(forced.summary())  # the propensity model, at this n
    assert min(forced.noise_sd) > 1.5 * max(few.noise_sd)


def wide(n=300, m=25):
    names = [f"x{j}" for j in range(m)]
    data = pd.DataFrame(np.random.default_rng(0).random((n, m)), columns=names)
    return (
        f"y ~ t | {' + '.join(names)}",
        data.assign(t=[0, 1] * (n // 2)),
        dict.fromkeys(names, (0, 1)),
    )


def test_what_would_be_noise_is_refused_before_a_charge():
    formula, data, bounds = wide()
    ledger = dpe.Ledger(100.0)
    call = {"bounds": bounds, "ledger": ledger, "seed": 1}
    with pytest.raises(OptionError, match=r"n = 300, epsilon = 0\.1 and 25 columns") as refused:
        dpe.dp_balance(formula, data, epsilon=0.1, **call)
    assert not ledger.charges
    needed = float(re.search(r"epsilon = (\S+) would suffice", str(refused.value)).group(1))
    assert 1.0 < needed < 10.0
    found = dpe.dp_balance(formula, data, epsilon=1.1 * needed, **call)
    assert not np.isnan(found.smd).any()
    assert max(found.noise_sd) < 0.6
    with pytest.raises(OptionError, match="would suffice; adjusted=False, fewer"):
        dpe.dp_balance(formula, data, epsilon=1.1 * needed, adjusted=True, **call)
    assert len(ledger.charges) == len(found.charges)


def test_indicators_need_no_squares():
    """Their variance is that of their mean; the noise is that of a cube of counts and sums."""
    formula, data, bounds = columns("indicators", 2000, 5)
    found = dpe.dp_balance(formula, data, epsilon=1.0, bounds=bounds, overlap=False, seed=1)
    assert [charge.label for charge in found.charges] == ["covariates by arm"]
    assert found.treated[1] == pytest.approx(cube_noise_sd(6, 2.0, 1.0) / 2**0.5, rel=1e-6)
    real = dpe.dp_balance(
        formula, data, epsilon=1.0, bounds=dict.fromkeys(bounds, (0, 1.5)), overlap=False, seed=1
    )
    labels = ["covariates by arm", "squares of covariates by arm"]
    assert [charge.label for charge in real.charges] == labels
    assert real.treated[1] > 1.15 * found.treated[1]
    exact = dpe.dp_balance(formula, data, epsilon=1e6, bounds=bounds)
    x, t = data.drop(columns="t"), data["t"] == 1
    spread = np.sqrt((x[t].var(ddof=0) + x[~t].var(ddof=0)) / 2)
    assert exact.smd == pytest.approx(((x[t].mean() - x[~t].mean()) / spread).tolist(), abs=1e-3)


@pytest.mark.parametrize("treated", [1, 1998])
def test_an_arm_without_records_stops_the_releases(treated):
    data = frame(2000).assign(t=(np.arange(2000) < treated).astype(int))
    for seed in range(5):
        found = balance(data, 4.0, adjusted=True, seed=seed)
        assert np.isnan([*found.smd, *found.noise_sd]).all()
        assert found.tidy()["reason"].str.contains("an arm may have no records").all()
        assert {charge.share for charge in found.charges} == {"balance", "check_bounds"}
        assert found.guarantee.epsilon == 4.0  # noisy counts decided to stop
        assert 0 <= found.treated[0] <= 2000
        text = " ".join(str(found.summary()).split())
        assert "no propensity model was released" in text
        assert "No difference is known" in " ".join(str(found.report()).split())


def test_shares_and_counts_are_possible_ones():
    """At a budget where noise makes counts of thousands below 0, and of more than n."""
    data = frame(300)
    for seed in range(20):
        found = balance(data, 1.3, overlap=True, adjusted=False, seed=seed)
        if not found.edges:
            continue
        assert np.min(found.counts) >= 0.0
        assert np.sum(found.counts) == pytest.approx(300)
        assert 0.0 <= found.scores_outside[0] <= 1.0
        assert not re.search(
            r" -\d", str(found.summary()).split("Records by propensity")[1].split("Notes")[0]
        )


def test_counts_are_the_closest_that_are_possible():
    """No other counts that are possible are closer: against many, and those next to them."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        noisy, total = rng.laplace(3, 5, 8), 20.0
        found = not_negative(noisy, total)
        assert found.min() >= 0.0
        assert found.sum() == pytest.approx(total)
        others = rng.dirichlet(np.full(8, 0.5), 2000) * total
        others = np.vstack([others, found + 0.01 * (others - found)])
        least = ((others - noisy) ** 2).sum(axis=1).min()
        assert ((found - noisy) ** 2).sum() <= least + 1e-9


def test_columns_that_cannot_be_compared_are_said():
    data = frame(3000).assign(z=0.5, r=np.where(np.arange(3000) < 4, "rare", "usual"))
    more = {**BOUNDS, "z": (0, 1), "r": ["usual", "rare"]}
    found = dpe.dp_balance("y ~ t | x1 + z + r", data, epsilon=1, bounds=more, seed=2).tidy()
    assert found["smd"].isna().tolist() == [False, True, True]
    assert found["reason"].str.contains("variance of the covariate").tolist() == [False, True, True]
    with pytest.raises(DataError, match="missing"):
        balance(data.assign(x1=np.where(data["x1"] < 0.1, np.nan, data["x1"])))


def test_many_columns():
    formula, data, bounds = wide(40_000, 50)
    found = dpe.dp_balance(formula, data, epsilon=2.0, bounds=bounds, seed=1)
    assert max(found.noise_sd) < 0.05
    assert np.abs(found.smd).max() < 0.25


def test_the_price_is_what_was_asked_and_the_ledger_knows():
    ledger = dpe.Ledger(1.5)
    found = balance(frame(), ledger=ledger, budget_split={"overlap": 0.5})
    assert sum(s.epsilon for s in found.charges) == pytest.approx(1.0, abs=1e-9)
    assert found.guarantee.holds
    assert found.guarantee.epsilon == 1.0
    assert float(ledger.spent[0]) == pytest.approx(1.0)
    overlap = sum(s.epsilon for s in found.charges if s.share == "overlap")
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
    lines = str(found.summary()).splitlines()
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
        ({"budget_split": {"adjusted": 1.0}}, dpe.DPEffectsError, "adjusted"),
        ({"epsilon": 0}, dpe.DPEffectsError, "epsilon"),
    ],
)
def test_mistakes_are_named(change, error, says):
    given = {"formula": FORMULA, "epsilon": 1.0, "bounds": BOUNDS, **change}
    with pytest.raises(error, match=says):
        dpe.dp_balance(given.pop("formula"), frame(1000), **given)


def test_noise_of_a_difference_against_the_delta_method():
    """By hand for one covariate at known sums: derivatives of the ratio, one release at a time."""
    sds, sizes = np.array([4.0, 5.0, 2.0]), np.array([480.0, 520.0])
    at = np.stack([sizes, sizes * [0.12, 0.04], sizes * [0.07, 0.09]])
    columns = at[1:, :, None, None]
    margin, number = Margin(at[0][:, None], *columns, sds**2), np.array([True])

    def smd(size, total, square):
        mean = total / size
        noise = (sds[1] ** 2 + sds[0] ** 2 * mean**2) / size**2
        return -np.diff(mean)[0] / np.sqrt(np.mean(square / size - mean**2 + noise))

    (found,) = Spreads.of(margin, number).differences(margin, number, 2.0)
    steps = 1e-4 * np.eye(6).reshape(6, 3, 2)
    slopes = np.array([(smd(*(at + h)) - smd(*(at - h))) / 2e-4 for h in steps]).reshape(3, 2)
    assert found.value == pytest.approx(smd(*at))
    assert found.noise_sd == pytest.approx(np.linalg.norm(sds[:, None] * slopes), rel=0.03)
