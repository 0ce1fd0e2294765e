"""Matching of groups of a released score, against subclassification by hand and the truth."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpeffects as dpe
from dpeffects.estimators.default.propensity_score import PropensityScore
from dpeffects.replication import matched_groups
from tests.privacy.bare import Block
from tests.refused import refusals

BOUNDS = {"y": (0, 3), "x1": (-4, 4), "x2": (-4, 4)}
FORMULA = "y ~ t | x1 + x2"
EFFECTS = {"ATE": dpe.dp_ate, "ATT": dpe.dp_att, "ATC": dpe.dp_atc}
HUGE = 1e6


def data(n=20_000, seed=0):
    """Effects of .3 + .1 x1, log odds .8 x1 - .4 x2, outcomes within their range."""
    rng = np.random.default_rng(seed)
    x = np.clip(rng.normal(size=(n, 2)), -4, 4)
    t = rng.random(n) < 1 / (1 + np.exp(-(0.8 * x[:, 0] - 0.4 * x[:, 1])))
    y = 1.2 + 0.15 * x[:, 0] - 0.1 * x[:, 1] + t * (0.3 + 0.1 * x[:, 0]) + 0.15 * rng.normal(size=n)
    return pd.DataFrame({"y": np.clip(y, 0, 3), "t": t, "x1": x[:, 0], "x2": x[:, 1]})


def fit(frame, estimand="ATE", **more):
    given = {"epsilon": 1.0, "bounds": BOUNDS, "seed": 1, **more}
    return EFFECTS[estimand](FORMULA, frame, method="private_psm", **given)


def by_hand(frame, estimand, groups):
    """Subclassification on statsmodels' score at its quantiles, of residuals from one regression.

    Returns the effect and its standard error, groups and slopes taken as they are.
    """
    x, t = frame[["x1", "x2"]].to_numpy(), frame["t"].to_numpy()
    score = sm.Logit(t.astype(float), sm.add_constant(x)).fit(disp=0).predict()
    slopes = sm.OLS(frame["y"], np.column_stack([x, t, ~t])).fit().params[:2].to_numpy()
    left = frame["y"].to_numpy() - x @ slopes
    group = pd.qcut(score, groups, labels=False)
    effect, variance, whole = 0.0, 0.0, 0.0
    for g in range(groups):
        one, other = left[(group == g) & t], left[(group == g) & ~t]
        size = {"ATE": one.size + other.size, "ATT": one.size, "ATC": other.size}[estimand]
        effect += size * (one.mean() - other.mean())
        variance += size**2 * (one.var() / one.size + other.var() / other.size)
        whole += size
    return effect / whole, variance**0.5 / whole


@pytest.mark.sampled(2)
@pytest.mark.parametrize("groups", [5, 10])
@pytest.mark.parametrize("estimand", EFFECTS)
def test_without_noise_it_is_subclassification_on_the_score(estimand, groups):
    frame = data()
    effect, error = by_hand(frame, estimand, groups)
    found = fit(frame, estimand, epsilon=HUGE, groups=groups)
    # limits are those of a score out of moments, not quantiles of the sample
    assert found.estimate == pytest.approx(effect, abs=1.5 * error)
    assert found.sampling_variance**0.5 == pytest.approx(error, rel=0.2)
    others = [by_hand(frame, x, groups)[0] for x in EFFECTS if x != estimand]
    assert min(abs(found.estimate - x) for x in others) > 8 * error


def test_weights_of_both_arms_add_up_to_the_records_of_a_group(monkeypatch):
    """A full matching: in each group, treated and control records stand for the same people."""
    kept = []

    def keep(curator, score, count):
        made = match(curator, score, count)
        kept.append((score, made))
        return made

    match = matched_groups.match_groups
    monkeypatch.setattr(matched_groups, "match_groups", keep)
    frame = data(5000)
    fit(frame, epsilon=HUGE, groups=6)
    score, groups = kept[0]
    scaled = (frame[["x1", "x2"]].to_numpy() + 4) / 8
    rows = Block(treated=frame["t"].to_numpy(), covariates=np.column_stack([np.ones(5000), scaled]))
    chance, share = score.of(rows)[:, 0], groups.of(rows)[:, 0]
    assert isinstance(score, PropensityScore)
    group = np.digitize(chance, groups.limits[0])
    for g in range(6):
        inside, t = group == g, rows.treated
        assert inside.sum() == pytest.approx(5000 / 6, rel=0.2)
        assert share[inside] == pytest.approx(t[inside].mean(), abs=1e-3)
        assert (1 / share)[inside & t].sum() == pytest.approx(inside.sum(), rel=0.01)
        assert (1 / (1 - share))[inside & ~t].sum() == pytest.approx(inside.sum(), rel=0.01)


def test_at_epsilon_1_it_adjusts_and_says_so():
    """A quarter of the confounding at most, in every run; four fifths of them much less."""
    errors = []
    for seed in range(8):
        frame = data(10_000, seed)
        truth = 0.3 + 0.1 * frame["x1"].mean()
        plain = frame.groupby("t")["y"].mean().diff().iloc[-1] - truth
        found = fit(frame, seed=seed)
        errors.append(abs(found.estimate - truth) / plain)
        assert found.identification == "adjusted"
        assert "ASSOCIATION" not in str(found)
    assert max(errors) < 0.25
    assert np.median(errors) < 0.1


@pytest.mark.long
def test_intervals_cover():
    hits = 0
    for seed in range(100):
        frame = data(4000, seed)
        low, high = fit(frame, seed=seed).conf_int(0.95)
        hits += low <= 0.3 <= high
    assert hits >= 92


def test_what_noise_hides_is_what_the_score_says():
    """Where counts are noise the shares are those of the score: the weights do not explode."""
    found = [fit(data(2000), seed=s, budget_split={"groups": 0.002}, epsilon=4.0) for s in range(5)]
    for one in found:
        assert one.estimate == pytest.approx(0.3, abs=5 * one.std_error)
        assert one.std_error < 0.1


def test_several_arms_have_groups_of_their_own():
    declared = dpe.simulate("three_arms", n=20_000, seed=1)
    formula = dpe.data_info("three_arms").formula
    given = {"contrasts": "pairwise", "seed": 1}
    means = declared.frame.groupby("treatment")["outcome"].mean()
    truth = declared.frame[["mu0", "mu1", "mu2"]].mean().to_numpy()
    found = dpe.dp_ate(formula, declared, "private_psm", epsilon=HUGE, **given)
    for k, (a, b) in enumerate(((1, 0), (2, 0), (2, 1))):
        apart = means.loc[["none", "low", "high"]].to_numpy()
        error = found.tidy()["std_error"].iloc[k]
        assert found.estimates[k] == pytest.approx(truth[a] - truth[b], abs=4 * error)
        assert abs(apart[a] - apart[b] - truth[a] + truth[b]) > 8 * error
    counts = [s for s in found.charges if s.share == "groups"]
    assert len(counts) == 3
    assert len({s.epsilon for s in counts}) == 1


def test_what_is_printed_is_as_it_was():
    """By seed, as before groups were matched by this name."""
    from tests.methods.test_private_psm import data as older
    from tests.methods.test_private_psm import fit as printed

    given = {"level": "sample", "seed": 7}
    made = printed(older(800), **given)
    assert made.estimate == pytest.approx(0.17854817929453537, rel=1e-9)
    assert made.conf_int() == pytest.approx((-0.0715783, 0.428675), rel=1e-5)
    other = printed(older(800), debias=False, **given)
    assert other.estimate == pytest.approx(0.05911137593123357, rel=1e-9)
    limited = {"neighbors": 2, "match_limit": (1, 3), "penalty": 0.5, "epsilon": 4.0}
    assert printed(older(800), **limited, **given).estimate == pytest.approx(0.21600826150538874)


test_options_of_the_other_matching_are_refused_before_anything_is_paid = refusals(
    partial(fit, data(500), seed=None),
    ({"neighbors": 3}, "neighbors is for"),
    ({"debias": False}, "as_printed=True"),
    ({"groups": 5, "level": "label"}, 'groups is for level="sample"'),
    ({"groups": 5, "as_printed": True}, "groups is for"),
    ({"groups": 1}, "from 5"),
    ({"estimand": "ATT", "as_printed": True}, "ATE, not ATT"),
)
