"""`dp_study`: several outcomes, subgroups and baseline variables from one release."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpeffects as dpe
from dpeffects.errors import DPEffectsError
from dpeffects.inference.intervals import std_error
from dpeffects.inference.joint import JointSums, Margin, StudyColumn, agreeing

FORMULA = "pain + cost + died ~ t | age + region"
BOUNDS = {
    "pain": (0.0, 10.0),
    "cost": (-50.0, 150.0),
    "died": (0, 1),
    "age": (18.0, 90.0),
    "region": ["n", "s", "w"],
}
ASKED = {"bounds": BOUNDS, "design": "randomised"}
SUBGROUPS = ["region", "cut(age, [18, 50, 90])"]
EXACT = 1e7
"""An epsilon that leaves nothing of the noise."""


def made(n=1200, seed=3):
    rng = np.random.default_rng(seed)
    t = (rng.random(n) < 0.4).astype(int)
    return pd.DataFrame(
        {
            "t": t,
            "pain": np.clip(rng.normal(5.0 - t, 2.0), 0.0, 10.0),
            "cost": np.clip(rng.gamma(1.0, 20.0 + 10.0 * t), -50.0, 150.0),
            "died": (rng.random(n) < 0.1 + 0.1 * t).astype(int),
            "age": rng.uniform(18.0, 90.0, n).round(1),
            "region": rng.choice(["n", "s", "w"], n, p=[0.5, 0.3, 0.2]),
        }
    )


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_without_noise_effects_and_errors_are_those_of_a_regression(delta):
    data = made()
    fit = dpe.dp_study(FORMULA, data, **ASKED, epsilon=EXACT, delta=delta, seed=1)
    found = fit.tidy().set_index("term")
    for outcome in ("pain", "cost", "died"):
        model = sm.OLS(data[outcome], sm.add_constant(data["t"])).fit(cov_type="HC2")
        assert found.loc[outcome, "estimate"] == pytest.approx(model.params["t"], rel=1e-4)
        assert found.loc[outcome, "std_error"] == pytest.approx(model.bse["t"], rel=2e-3)


def test_without_noise_subgroups_are_those_of_the_records_in_them():
    data = made()
    fit = dpe.dp_study(FORMULA, data, **ASKED, subgroups=SUBGROUPS, epsilon=EXACT, seed=1)
    found = fit.by("region").tidy().set_index("term")
    means = data.groupby(["region", "t"])["cost"].mean()
    for level in "nsw":
        expected = means[level, 1] - means[level, 0]
        assert found.loc[f"cost | region {level}", "estimate"] == pytest.approx(expected, rel=1e-3)


def test_subgroups_add_up_to_the_whole_whatever_the_noise():
    fit = dpe.dp_study(FORMULA, made(), **ASKED, subgroups=SUBGROUPS, epsilon=0.5, seed=2)
    whole = fit.sums.whole
    assert whole.sizes.sum() == pytest.approx(1200)
    for margin in fit.sums.groups:
        np.testing.assert_allclose(margin.sizes.sum(axis=1), whole.sizes[:, 0])
        np.testing.assert_allclose(margin.sums.sum(axis=1), whole.sums[:, 0])
        np.testing.assert_allclose(margin.squares.sum(axis=1), whole.squares[:, 0])


def test_margins_agree_as_generalised_least_squares_would_have_them():
    """Against the normal equations of the whole problem, with its covariance."""
    rng = np.random.default_rng(4)
    none = np.zeros((1, 1, 0))
    whole = Margin(rng.normal(30, 2, (1, 1)), none, none, (4.0, 1.0, 1.0))
    two = Margin(rng.normal(15, 3, (1, 2)), none, none, (9.0, 1.0, 1.0))
    three = Margin(rng.normal(10, 1, (1, 3)), none, none, (1.0, 1.0, 1.0))
    # unknowns: a, b of the first factor, c, d of the second; its last level is a + b - c - d
    design = np.array(
        [
            *([[1, 1, 0, 0]]),
            *([[1, 0, 0, 0], [0, 1, 0, 0]]),
            *([[0, 0, 1, 0], [0, 0, 0, 1], [1, 1, -1, -1]]),
        ],
        float,
    )
    seen = np.concatenate([x.sizes[0] for x in (whole, two, three)])
    precision = np.diag(1.0 / np.array([4.0, 9.0, 9.0, 1.0, 1.0, 1.0]))
    covariance = np.linalg.inv(design.T @ precision @ design)
    a, b, c, d = covariance @ design.T @ precision @ seen
    new = agreeing(whole, [two, three], None)
    np.testing.assert_allclose(new[0].sizes[0], [a + b])
    np.testing.assert_allclose(new[1].sizes[0], [a, b])
    np.testing.assert_allclose(new[2].sizes[0], [c, d, a + b - c - d])
    np.testing.assert_allclose(new[1].noise[0], covariance[0, 0])
    np.testing.assert_allclose(new[2].noise[0], covariance[2, 2])
    np.testing.assert_allclose(new[0].noise[0], covariance[:2, :2].sum())


def test_noise_of_means_of_noisy_sizes_is_that_of_draws():
    """A size that noise moves by a seventh: not less than the linear part says, nor far more."""
    rng, (size, mean, draws) = np.random.default_rng(5), (100.0, 0.3, 200_000)
    sizes = rng.normal(size, 14.0, (1, draws))
    sums = rng.normal(size * mean, 5.0, (1, draws, 1))
    seen = Margin(sizes, sums, 0.0 * sums, (14.0**2, 5.0**2, 1.0))
    stated = sum(part.mean() for part in seen.mean_noise())
    assert 1.0 <= stated / ((seen.means() - mean) ** 2).mean() < 1.3


def test_a_variance_of_a_subgroup_that_is_noise_is_that_of_the_whole():
    known, one = 1e-3, np.ones((2, 1))
    noise = (1e-12, 1e-12, 1e-12)
    whole = Margin(1000.0 * one, 0.0 * one[..., None], 1000.0 * known * one[..., None], noise)
    squares = np.full((2, 1, 1), 100.0 * (known + 0.02))  # off by two standard deviations
    group = Margin(100.0 * one, 0.0 * one[..., None], squares, (1e-12, 1e-12, 1.0), "g", ("a",))
    study = JointSums(("0", "1"), ((1, 0),), (StudyColumn("y"),), whole, (group,))
    [(_, (effect,))] = study.effects_by_level(0)
    assert std_error(effect) == pytest.approx(np.sqrt(2.0 * known / 99.0), rel=0.1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("delta", "mechanism"), [(0.0, "K-norm, l-infinity ball"), (0.05, "discrete Gaussian")]
)
def test_stated_noise_is_that_of_repeated_releases(delta, mechanism):
    data, names = made(600), [f"y{j}" for j in range(16)]
    rng = np.random.default_rng(6)
    data = data.assign(**{name: rng.random(600) for name in names})
    formula, bounds = f"{' + '.join(names)} ~ t", dict.fromkeys(names, (0.0, 1.0))
    asked = {"bounds": bounds, "design": "randomised", "epsilon": 1.0, "delta": delta}
    fits = [dpe.dp_study(formula, data, **asked, seed=seed) for seed in range(80)]
    assert fits[0].charges[0].mechanism == mechanism
    by_arm = data.groupby("t")[names].mean()
    errors = np.array([fit.estimates for fit in fits]) - (by_arm.loc[1] - by_arm.loc[0]).to_numpy()
    stated = np.mean([effect.noise_variance for fit in fits for effect in fit.effects])
    assert np.mean(errors**2) == pytest.approx(stated, rel=0.15)


def test_three_arms_are_compared_with_the_first():
    data = made(2000)
    arms = np.random.default_rng(5).choice(["none", "low", "high"], 2000)
    data = data.assign(arm=arms)
    bounds = {**BOUNDS, "arm": ["none", "low", "high"]}
    asked = {"bounds": bounds, "design": "randomised", "epsilon": EXACT, "seed": 1}
    fit = dpe.dp_study("pain + died ~ arm", data, **asked)
    means = data.groupby("arm")["pain"].mean()
    assert fit.labels[:2] == ("pain: low - none", "pain: high - none")
    assert fit.estimates[1] == pytest.approx(means["high"] - means["none"], rel=1e-3)
    pairs = dpe.dp_study("pain + died ~ arm", data, **asked, contrasts="pairwise")
    assert len(pairs.labels) == 6


def test_a_factor_among_the_outcomes_has_an_effect_for_each_level_but_the_first():
    data = made()
    fit = dpe.dp_study("region + pain ~ t", data, **ASKED, epsilon=EXACT, seed=1)
    assert fit.labels == ("region[T.s]", "region[T.w]", "pain")
    share = data.groupby("t")["region"].apply(lambda x: (x == "w").mean())
    assert fit.estimates[1] == pytest.approx(share[1] - share[0], abs=1e-5)


def test_ratios_of_an_outcome_of_two_values():
    data = made()
    fit = dpe.dp_study(FORMULA, data, **ASKED, epsilon=EXACT, seed=1)
    risk = data.groupby("t")["died"].mean()
    ratio = fit.effect_on("died").effect("ratio")
    assert ratio.estimate == pytest.approx(risk[1] / risk[0], rel=1e-3)
    frame = fit.effect_on("died").means.set_index("arm")
    assert frame["mean"].tolist() == pytest.approx([risk[1], risk[0]], abs=1e-4)


def test_more_epsilon_makes_every_interval_shorter():
    data, before = made(4000), np.full(3, np.inf)
    for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
        fit = dpe.dp_study(FORMULA, data, **ASKED, epsilon=epsilon, seed=2)
        now = np.array([effect.noise_variance for effect in fit.effects])
        assert (now < before).all()
        before = now


@pytest.mark.parametrize(
    ("call", "given", "words"),
    [
        ("dp_ate", {}, "for several use dp_study"),
        ("dp_study", {"subgroups": "age"}, "terms with a few values"),
        ("dp_study", {"subgroups": [3]}, "subgroups must be terms"),
        ("dp_study", {"budget_split": {"outcome": 1.0}}, "Did you mean 'outcomes'"),
        ("dp_study", {"cluster": "region"}, "cluster is only for average effects"),
    ],
)
def test_mistakes_are_answered_before_anything_is_charged(call, given, words):
    ledger = dpe.Ledger(epsilon=1.0)
    with pytest.raises(DPEffectsError, match=words):
        getattr(dpe, call)(FORMULA, made(), **ASKED, epsilon=1.0, ledger=ledger, **given)
    assert ledger.remaining[0] == 1.0
