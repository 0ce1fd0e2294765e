"""Ordered outcomes: levels as numbers, comparisons against other libraries, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import BoundsError, DataError, OptionError
from dpeffects.inference import ordered_levels
from dpeffects.inference.tables import ArmTable
from tests.calls import ENGINES

LEVELS = ["none", "mild", "severe", "worst"]
BOUNDS = {"pain": LEVELS, "grade": [1, 2, 3, 4], "x": (0, 1)}
HUGE = 1e7


def made(n: int = 3000, seed: int = 0, effect: float = 0.6) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    t = rng.integers(0, 2, n)
    level = np.digitize(rng.logistic(size=n) + effect * t, [-1.0, 0.3, 1.5])
    return pd.DataFrame(
        {"t": t, "x": rng.random(n), "pain": np.array(LEVELS)[level], "grade": level + 1}
    )


def compared(formula: str, data, epsilon: float = 1.0, **given):
    given = {"design": "randomised", "seed": 1, "bounds": BOUNDS, **given}
    return dpe.dp_ordinal(formula, data, epsilon=epsilon, **given)


def test_without_noise_it_is_mann_whitney_and_the_ordered_logit():
    from scipy.stats import mannwhitneyu
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    data = made()
    terms = compared("pain ~ t", data, HUGE).tidy().set_index("term")
    grade, t = data["grade"], data["t"]
    arms = grade[t == 1], grade[t == 0]
    higher = mannwhitneyu(*arms)
    sizes = len(arms[0]) * len(arms[1])
    found = terms.loc["probability_higher"]
    assert found["estimate"] == pytest.approx(higher.statistic / sizes, abs=1e-4)
    assert found["p_value"] == pytest.approx(higher.pvalue, rel=0.5)
    model = OrderedModel(grade, t.to_frame().astype(float), distr="logit").fit(disp=0)
    odds = terms.loc["odds_ratio"]
    assert np.log(odds["estimate"]) == pytest.approx(model.params["t"], abs=2e-3)
    assert odds["std_error"] / odds["estimate"] == pytest.approx(model.bse["t"], rel=0.02)
    for k, level in enumerate(LEVELS[1:], 2):
        gap = (arms[0] >= k).mean() - (arms[1] >= k).mean()
        assert terms.loc[f"at least {level}", "estimate"] == pytest.approx(gap, abs=1e-4)
        error = np.sqrt(sum((a >= k).mean() * (a < k).mean() / len(a) for a in arms))
        assert terms.loc[f"at least {level}", "std_error"] == pytest.approx(error, rel=0.01)


def test_texts_and_numbers_are_the_same_levels():
    data = made()
    one, other = compared("pain ~ t", data), compared("grade ~ t", data)
    assert one.arm_table == other.arm_table
    assert one.levels == tuple(LEVELS)
    assert other.levels == ("1", "2", "3", "4")
    assert other.tidy()["term"].tolist()[:3] == ["at least 2", "at least 3", "at least 4"]
    ordered = pd.Categorical(data["pain"], categories=LEVELS, ordered=True)
    assert compared("pain ~ t", data.assign(pain=ordered)).arm_table == one.arm_table
    back = compared("pain ~ t", data, HUGE, bounds={"pain": LEVELS[::-1]}).arm_table.counts
    assert np.array_equal(back[:, ::-1], compared("pain ~ t", data, HUGE).arm_table.counts)


def test_intervals_cover():
    true = made(1_000_000, 1)
    arms = [true.loc[true["t"] == a, "grade"].to_numpy() for a in (1, 0)]
    shares = np.stack([np.bincount(a, minlength=5)[1:] / a.size for a in arms])
    want = [
        *ordered_levels.at_least(shares),
        *ordered_levels.probability_higher(shares),
        np.exp(ordered_levels.log_odds_ratio(shares, np.array([5e5, 5e5]))[0]),
    ]
    fit, rng, inside = compared("grade ~ t", made(200)), np.random.default_rng(4), []
    for _ in range(40):
        counts = np.stack([rng.multinomial(400, p) for p in shares])
        noisy = counts + rng.laplace(scale=2.0, size=counts.shape)
        low, high = replace(fit, arm_table=ArmTable(noisy, (8.0, 8.0))).conf_int().T
        inside.append((low <= want) & (want <= high))
    assert np.mean(inside) > 0.9
    assert np.mean(inside, axis=0).min() > 0.84  # 95 % less three standard errors


@pytest.mark.parametrize("seed", range(8))
def test_odds_ratios_have_a_value_whatever_the_shares_are(seed):
    rng = np.random.default_rng(seed)
    k = [2, 3, 7, 30][seed % 4]
    shares = rng.dirichlet(np.full(k, 0.2), 2) + rng.normal(0.0, 0.3 * (seed % 2), (2, k))
    for sizes in ([1.0, 1.0], [50.0, 1e6], [1e9, 3.0]):
        found = ordered_levels.log_odds_ratio(shares, np.array(sizes))
        assert abs(found[0]) <= 20.0
        swapped = ordered_levels.log_odds_ratio(shares[::-1], np.array(sizes[::-1]))
        assert swapped[0] == pytest.approx(-found[0], abs=1e-5)


def test_two_levels_have_the_usual_odds_ratio():
    shares, sizes = np.array([[0.3, 0.7], [0.6, 0.4]]), np.array([1e6, 1e6])
    expected = np.log((0.7 / 0.3) / (0.4 / 0.6))
    assert ordered_levels.log_odds_ratio(shares, sizes)[0] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_missing_levels_and_files(engine, tmp_path):
    data = made(1500)
    data.loc[::7, "pain"] = None
    with pytest.raises(DataError, match="missing values in pain"):
        compared("pain ~ t", ENGINES[engine](data))
    fit = compared("pain ~ t", ENGINES[engine](data), missing="complete", epsilon=20.0)
    assert fit.arm_table.counts.sum() == pytest.approx(len(data.dropna()), abs=20)
    if not engine:
        path = tmp_path / "pain.csv"
        data.dropna().to_csv(path, index=False)
        fits = [compared("pain ~ t", x) for x in (data.dropna(), str(path))]
        assert fits[0].arm_table == fits[1].arm_table


def test_words():
    fit = compared("pain ~ t | x", made(), design="observational")
    assert "at least severe" in str(fit.summary())
    assert "probability" in str(fit.report())
    shares = fit.distribution()
    assert shares.groupby("arm")["share"].sum().to_numpy() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    ("formula", "bounds", "error", "match"),
    [
        ("pain ~ t", {}, BoundsError, "levels of pain must be declared"),
        ("grade ~ t", {"grade": (1, 4)}, BoundsError, "in their order, as a list"),
        ("pain ~ t", {"pain": LEVELS[:2]}, DataError, "that are not among its declared levels"),
        ("log(grade) ~ t", BOUNDS, OptionError, "an outcome with ordered levels"),
    ],
)
def test_refusals_cost_nothing(formula, bounds, error, match):
    ledger = dpe.Ledger(epsilon=1)
    with pytest.raises(error, match=match):
        compared(formula, made(200), bounds=bounds, ledger=ledger)
    assert ledger.spent == (0.0, 0.0)


@pytest.mark.parametrize("call", [dpe.dp_ate, dpe.dp_qte])
def test_other_calls_say_which_one_has_levels(call):
    with pytest.raises(BoundsError, match="dp_ordinal"):
        call("pain ~ t", made(200), bounds=BOUNDS, epsilon=1)


def test_the_picture_has_the_shares_of_both_arms():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    fit = compared("pain ~ t", made(500))
    axes = fit.plot()
    assert [label.get_text() for label in axes.get_xticklabels()] == LEVELS
    marks = np.concatenate([line.get_ydata() for line in axes.lines if len(line.get_ydata()) == 4])
    assert set(np.round(fit.distribution()["share"], 9)) <= set(np.round(marks, 9))
    matplotlib.pyplot.close(axes.figure)
