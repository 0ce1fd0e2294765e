"""Private matching: the paper's quantities, the corrections, and what the summary says of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpeffects as dpe
from dpeffects.replication.nearest import match
from dpeffects.replication.private_psm import mixing, mixture_of

FORMULA = "y ~ t | x1 + x2"
BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (0, 1)}


def data(n=1500, seed=0, strength=2.0, treated=0.0):
    rng = np.random.default_rng(seed)
    x = rng.random((n, 2))
    t = rng.random(n) < 1 / (1 + np.exp(-(strength * (x[:, 0] - 0.5) + treated)))
    y = 0.1 + 0.4 * x[:, 0] + 0.15 * t + 0.3 * rng.random(n)
    return pd.DataFrame({"y": y, "t": t, "x1": x[:, 0], "x2": x[:, 1]})


def fit(frame, **more):
    more = {"epsilon": 1.0, "bounds": BOUNDS, "level": "label", **more}
    more |= {"as_printed": True} if more["level"] == "sample" else {}
    return dpe.dp_ate(FORMULA, frame, "private_psm", **more)


def test_label_level_removes_confounding_that_a_difference_in_means_keeps():
    frame = data(20_000)
    plain = frame.groupby("t")["y"].mean().diff().iloc[-1]
    assert plain > 0.2
    made = fit(frame, seed=1)
    assert made.estimate == pytest.approx(0.15, abs=4 * made.std_error)
    assert made.std_error < 0.01


def test_sensitivity_is_the_range_times_the_largest_realised_weight():
    frame = data(300)
    made = fit(frame, match_limit=3, epsilon=2)
    # from outside: the same match by brute force
    import statsmodels.api as sm

    x = sm.add_constant(frame[["x1", "x2"]].to_numpy())
    scores = sm.Logit(frame["t"].astype(float), x).fit(disp=0).predict()
    t = frame["t"].to_numpy()
    used, weight = np.zeros(300), np.ones(300)
    for i in range(300):
        order = sorted(np.flatnonzero(t != t[i]), key=lambda j: abs(scores[i] - scores[j]))
        best = [j for j in order if used[j] < 15][:5]
        for j in best:
            used[j] += 1
            weight[j] += 1 / len(best)
    charge = next(s for s in made.charges if s.share == "estimate")
    assert charge.sensitivity[0] == pytest.approx(weight.max(), rel=1e-4)
    assert charge.scale[0] == pytest.approx(weight.max() / (2 * 0.8), rel=1e-4)


def test_one_draw_of_the_difference_is_less_noise_than_the_papers_two():
    """Algorithm 3 noises both sums: c1^2 + c0^2 in place of max(c1, c0)^2 in the variance."""
    frame = data(2000)
    made = fit(frame, match_limit=(3, 3), variance=False)
    t = frame["t"].to_numpy()
    import statsmodels.api as sm

    x = sm.add_constant(frame[["x1", "x2"]].to_numpy())
    scores = sm.Logit(frame["t"].astype(float), x).fit(disp=0).predict()
    weight = 1 + match(scores, t, 5, (15, 15)).weight
    paper = 2 * (weight[t].max() ** 2 + weight[~t].max() ** 2) / 2000**2
    assert made.noise_variance < 0.8 * paper


def test_an_infeasible_limit_is_raised_and_said():
    frame = data(600, treated=-2.0)
    made = fit(frame, match_limit=1)
    assert "raised" in made.details["match limit k (treated, control)"]
    assert made.details["records with fewer matches than asked"] < 30


def test_the_adaptive_limit_grows_with_epsilon():
    frame = data(400, treated=-1.5)
    limits = [
        int(fit(frame, epsilon=e).details["match limit k (treated, control)"].split(",")[0])
        for e in (0.1, 5, 200)
    ]
    assert limits == sorted(limits)
    assert limits[0] < limits[-1]


@pytest.mark.long
def test_released_variance_agrees_with_the_spread_over_samples():
    """Abadie-Imbens variance, released privately, against the spread over new samples."""
    fits = [fit(data(1000, seed), epsilon=200, seed=seed) for seed in range(150)]
    spread = np.var([f.estimate for f in fits])
    assert np.mean([f.sampling_variance for f in fits]) == pytest.approx(spread, rel=0.3)


@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "most"), [(1.0, 1.0), (8.0, 0.95)])
def test_label_level_intervals_cover(epsilon, most):
    """At epsilon 1 the released variance is mostly noise, so intervals are wider than nominal."""
    runs = (fit(data(800, s), seed=s, epsilon=epsilon).conf_int(0.9) for s in range(200))
    hits = sum(low <= 0.15 <= high for low, high in runs)
    assert 0.85 <= hits / 200 <= most


def test_attenuation_is_what_flipping_does():
    """Simulated: flip treatments, take the difference in means, compare with the true one."""
    rng = np.random.default_rng(3)
    n, share, flip = 400_000, 0.25, 0.3
    t = rng.random(n) < share
    y = t + rng.random(n)
    released = t ^ (rng.random(n) < flip)
    shrunk = y[released].mean() - y[~released].mean()
    mixture = mixture_of(np.array([released.mean(), 1.0 - released.mean()]), mixing(2, flip))
    assert shrunk == pytest.approx(mixture[0, 0] - mixture[1, 0], abs=0.01)


@pytest.mark.long
def test_debiasing_undoes_the_attenuation():
    """Randomised treatment: with debias the sample level is centred on the effect."""
    frames = [data(3000, seed, strength=0.0) for seed in range(40)]
    more = {"level": "sample", "epsilon": 3.0}
    centred = [fit(f, seed=i, **more).estimate for i, f in enumerate(frames)]
    shrunk = [fit(f, seed=i, debias=False, **more).estimate for i, f in enumerate(frames)]
    assert stats.ttest_1samp(centred, 0.15).pvalue > 0.001
    assert np.mean(shrunk) < 0.13
    assert "not available" in str(fit(frames[0], debias=False, **more).conf_int())


def test_paper_split_at_sample_level():
    made = fit(data(500), level="sample", debias=False, epsilon=2.0)
    split = {s.share: s.epsilon / 2.0 for s in made.charges}
    expected = {"model": 0.05, "scores": 0.05, "treatment": 0.7, "estimate": 0.2}
    assert split == pytest.approx(expected)
    other = {"model": 1, "scores": 1, "treatment": 1, "estimate": 1}
    made = fit(data(500), level="sample", debias=False, budget_split=other)
    assert {s.epsilon for s in made.charges} == {0.25}


def test_the_summary_says_that_the_printed_matching_adjusts_for_little():
    text = str(fit(data(500), level="sample").summary())
    assert "adjusts for little" in " ".join(text.split())


def test_reference_is_loudly_not_private():
    text = str(dpe.reference(FORMULA, data(300)))
    assert text.startswith("*** NOT PRIVATE")
