"""Mean outcomes by arm, and effects as ratios, odds, lifts and numbers needed to treat."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

import dpeffects as dpe
from dpeffects.errors import OptionError
from dpeffects.inference import intervals, scales
from dpeffects.inference.estimate import (
    ArmMeans,
    Estimate,
    MeansPart,
    MeansVariance,
    SamplingVariance,
    Unavailable,
)
from dpeffects.results.export import record

BOUNDS = {"y": [0, 1], "z": (0, 10), "x1": (-1, 1), "x2": (0, 1)}
EXACT = {"epsilon": 1e5, "bounds": BOUNDS, "seed": 1}


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def frame(n=4000, seed=1, trial=False):
    """Records whose treatment and outcomes depend on two covariates."""
    rng = np.random.default_rng(seed)
    x1, x2 = rng.uniform(-1, 1, n), rng.integers(0, 2, n)
    t = rng.random(n) < (0.3 if trial else sigmoid(x1 + 0.5 * x2 - 1.0))
    risk = 0.1 + 0.1 * t + 0.05 * x1 + 0.05 * x2
    y = (rng.random(n) < risk).astype(int)
    z = np.clip(2.0 + t + 0.5 * x1 + 0.5 * x2 + rng.normal(0, 0.5, n), 0, 10)
    return pd.DataFrame({"y": y, "z": z, "t": t, "x1": x1, "x2": x2})


def risks(x1, n1, x0, n0, **noise):
    own = MeansVariance(SamplingVariance(1.0, 0.0, 1.0), 1.0, 1.0)
    design = (1.0 / n1, 1.0 / n0, 0.0)
    return ArmMeans(x1 / n1, x0 / n0, (own,), possible=(0.0, 1.0), design=design, **noise)


COUNTS = [(30, 400, 20, 500), (4, 200, 36, 1800), (250, 500, 200, 500), (3, 20, 18, 20)]


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize(("scale", "called"), [("ratio", "ratio"), ("odds", "odds-ratio")])
def test_without_noise_intervals_of_risks_are_those_of_score_tests(counts, scale, called):
    found = getattr(scales, scale)(risks(*counts)).interval
    about = {"compare": called, "method": "score", "correction": False}
    assert tuple(found) == pytest.approx(confint_proportions_2indep(*counts, **about), rel=1e-6)


def test_a_risk_in_a_column_of_floats_has_odds_too():
    about = {"design": "randomised", "epsilon": 1e4, "bounds": BOUNDS, "seed": 1}
    data = frame(trial=True)
    whole, floats = (dpe.dp_ate("y ~ t", x, **about) for x in (data, data.astype({"y": float})))
    for scale in ("ratio", "odds"):
        one, other = (tuple(fit.effect(scale).conf_int()) for fit in (whole, floats))
        assert one == pytest.approx(other, rel=0.03)


def test_without_noise_the_interval_of_a_risk_is_wilsons():
    found = scales.mean_interval(risks(3, 20, 18, 20), True)
    assert tuple(found) == pytest.approx(proportion_confint(3, 20, method="wilson"), rel=1e-6)


def test_without_noise_the_interval_of_a_ratio_is_fiellers():
    one, zero, v1, v0 = 30.0, 20.0, 4.0, 2.0
    parts = (
        MeansVariance(SamplingVariance(v1, 0.0, 99.0), 1.0, 0.0),
        MeansVariance(SamplingVariance(v0, 0.0, 99.0), 0.0, 1.0),
    )
    z2 = 1.959963984540054**2
    a, b, c = zero**2 - z2 * v0, -2.0 * one * zero, one**2 - z2 * v1
    root = math.sqrt(b * b - 4.0 * a * c)
    expected = (-b - root) / (2.0 * a), (-b + root) / (2.0 * a)
    assert tuple(scales.ratio(ArmMeans(one, zero, parts)).interval) == pytest.approx(expected)


def test_a_control_mean_that_may_be_zero_has_no_upper_end():
    found = scales.ratio(risks(10, 100, 1, 100, laplace=((0.0, 0.05),)))
    assert found.interval.upper == math.inf
    assert found.interval.lower > 0.0
    nothing = scales.ratio(risks(0, 100, 0, 100, laplace=((0.05, 0.0), (0.0, 0.05))))
    assert tuple(nothing.interval) == (0.0, math.inf)
    assert math.isnan(nothing.value)


@pytest.mark.parametrize("values", [(-0.5, 0.5), (0.5, -0.5), (-1.0, -2.0), (2.0, 3.0), (0, 0)])
@pytest.mark.parametrize("scale", [scales.ratio, scales.odds])
def test_whatever_noise_did_to_the_means_there_is_an_interval(values, scale):
    noise = {"laplace": ((0.1, 0.1), (0.05, -0.02)), "gaussian": ((0.01, 0.0),)}
    parts = (MeansPart("bias", 0.01, 0.02),)
    means = replace(risks(1, 10, 1, 10, parts=parts, **noise), treated=values[0], control=values[1])
    low, high = scale(means).interval
    assert 0.0 <= low <= high
    low, high = scales.mean_interval(means, True)
    assert 0.0 <= low <= high <= 1.0


def test_the_law_of_a_combination_is_that_of_its_parts():
    rng, size = np.random.default_rng(3), 400_000
    own = MeansVariance(SamplingVariance(0.5, 0.0, 9.0), 1.0, 0.4, 0.3)
    means = ArmMeans(
        3.0,
        2.0,
        (own,),
        laplace=((0.4, 0.1), (0.0, -0.3)),
        gaussian=((0.2, -0.1),),
        parts=(MeansPart("bias", 0.1, 0.3),),
    )
    normal = rng.multivariate_normal([0, 0], [[0.5, 0.15], [0.15, 0.2]], size)
    draws = normal + rng.laplace(size=(size, 2)) @ np.array(means.laplace)
    draws += rng.normal(size=(size, 1)) * means.gaussian[0] + rng.normal(size=(size, 1)) * (
        0.1,
        0.3,
    )
    for a, b in ((1.0, -1.5), (0.0, 1.0), (1.0, 0.0), (0.3, 0.7)):
        made = means.combined(a, b)
        half = intervals.interval(made, 0.9).upper - made.value
        assert np.mean(np.abs(draws @ (a, b)) <= half) == pytest.approx(0.9, abs=0.003)


@pytest.mark.parametrize("counts", [(200, 400, 150, 500), (4, 400, 2, 500)])
@pytest.mark.parametrize("curve", [scales._Ratio(1.0), scales._Odds()], ids=["ratio", "odds"])
def test_the_pair_that_fits_best_weighs_means_by_sampling_and_noise(curve, counts):
    """Generalised least squares along the curve, moved away from its ends by noise alone."""
    noise = np.outer([0.01, 0.02], [0.01, 0.02]) + np.diag([0.0, 0.03**2])
    means = risks(*counts, gaussian=((0.01, 0.02), (0.0, 0.03)))
    for q in (0.4, 0.6):

        def weights(total, q=q):
            pair = np.array(curve.at(q, total))
            sampling = np.diag(pair * (1.0 - pair) / counts[1::2])
            return pair, np.linalg.solve(noise + sampling, curve.slope(q, pair))

        def score(total):
            pair, own = weights(total)
            return own @ (np.array([means.treated, means.control]) - pair)

        top = curve.most(q)
        best = brentq(score, 1e-9, top - 1e-9, xtol=1e-13)
        pair, own = weights(best)
        sd = math.sqrt(own @ noise @ own) / (own @ curve.slope(q, pair))
        expected = curve.at(q, scales.within(best, sd, (0.0, top)))
        assert scales._fitted(means, curve, q)[0] == pytest.approx(expected, rel=1e-6)


METHODS = [
    ("diff_in_means", {"design": "randomised"}),
    ("clipped_contrast", {"design": "randomised"}),
    ("one_step", {"design": "randomised"}),
    ("auto", {"design": "randomised"}),
    ("auto", {}),
    ("auto", {"level": "label"}),
    ("one_step", {"level": "label", "design": "randomised"}),
    ("private_ipw", {}),
    ("private_ipw", {"level": "label"}),
    ("private_psm", {"level": "label", "means": True}),
    ("model_folds", {"means": True}),
    ("global_matching", {"means": True}),
]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("outcome", ["y", "z"])
@pytest.mark.parametrize(("method", "given"), METHODS)
def test_the_difference_of_the_means_is_the_estimate(method, given, outcome):
    x = "x2" if method == "global_matching" else "x1 + x2"
    levels = {**BOUNDS, "x2": [0, 1]} if method == "global_matching" else BOUNDS
    arguments = {"epsilon": 1.0, "bounds": levels, "seed": 1, **given}
    fit = dpe.dp_ate(f"{outcome} ~ t | {x}", frame(), method, **arguments)
    means, released = fit.released.means, fit.released
    assert means.treated - means.control == pytest.approx(released.value, abs=1e-9)
    difference = means.combined(1.0, -1.0)
    assert difference.sampling.value == pytest.approx(released.sampling.value)
    assert difference.noise_variance == pytest.approx(released.noise_variance)
    assert difference.bias_variance == pytest.approx(released.bias_variance)
    table = fit.means
    assert table["arm"].tolist() == ["treated", "control"]
    assert (table["conf_low"] < table["conf_high"]).all()
    assert fit.effect("ratio").estimate > 1.0


def adjusted_means(data, estimand, outcome):
    """Means of predictions with and without treatment over a population: a linear model."""
    x = np.column_stack([np.ones(len(data)), data["x1"], data["x2"]])
    t, y = data["t"].to_numpy(), data[outcome].to_numpy(float)
    over = {"ATE": np.ones(len(data), bool), "ATT": t, "ATC": ~t}[estimand]
    return [(x[over] @ np.linalg.lstsq(x[arm], y[arm], rcond=None)[0]).mean() for arm in (t, ~t)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
@pytest.mark.parametrize("method", ["one_step", "private_ipw"])
@pytest.mark.parametrize("level", ["sample", "label"])
def test_without_noise_adjusted_means_are_those_of_g_computation(estimand, method, level):
    data = frame(20_000)
    function = getattr(dpe, f"dp_{estimand.lower()}")
    fit = function("z ~ t | x1 + x2", data, method, level=level, **EXACT)
    expected = adjusted_means(data, estimand, "z")
    assert fit.means["mean"].tolist() == pytest.approx(expected, abs=0.02)
    if estimand == "ATT":
        assert fit.means["mean"][0] == pytest.approx(data.loc[data["t"], "z"].mean(), abs=1e-3)


@pytest.mark.parametrize("method", ["diff_in_means", "clipped_contrast"])
def test_without_noise_means_of_a_trial_are_those_of_the_arms(method):
    data = frame(trial=True)
    fit = dpe.dp_ate("y ~ t", data, method, design="randomised", **EXACT)
    expected = data.groupby("t")["y"].mean()
    assert fit.means["mean"].tolist() == pytest.approx([expected[True], expected[False]], abs=1e-3)
    counts = [f(data.loc[data["t"] == arm, "y"]) for arm in (True, False) for f in (np.sum, len)]
    about = {"compare": "ratio", "method": "score", "correction": False}
    score = confint_proportions_2indep(*counts, **about)
    assert tuple(fit.effect("ratio").conf_int()) == pytest.approx(score, rel=0.01)


def test_every_arm_has_a_mean():
    data = dpe.simulate("three_arms", n=3000, seed=1)
    for method in ("diff_in_means", "clipped_contrast", "one_step", "private_ipw", "private_psm"):
        given = {"level": "label"} if method == "private_psm" else {}
        about = {"epsilon": 1e4, "seed": 1, "contrasts": "pairwise", **given}
        fit = dpe.dp_ate("outcome ~ treatment | x1 + x2 + x3", data, method, **about)
        means = fit.means.set_index("arm")["mean"]
        assert means.index.tolist() == ["none", "low", "high"]
        expected = data.frame[["mu0", "mu1", "mu2"]].mean().to_numpy()
        if method in ("diff_in_means", "clipped_contrast"):  # not adjusted
            expected = data.frame.groupby("treatment")["outcome"].mean()[means.index].to_numpy()
        assert means.to_numpy() == pytest.approx(expected, abs=0.03)
        again = type(fit).from_json(fit.to_json())
        assert again.means.equals(fit.means)
        table = fit.tidy(scale="ratio")
        assert table["term"].tolist() == list(fit.labels)
        assert (table["conf_low"] < table["conf_high"]).all()


def test_subsets_have_means_by_arm():
    by = {"low": "x1 < 0", "high": "x1 >= 0"}
    fit = dpe.dp_ate("y ~ t | x1 + x2", frame(), epsilon=4, bounds=BOUNDS, seed=1, by=by)
    assert fit.means["term"].tolist() == ["low", "low", "high", "high"]
    assert fit.difference("high", "low").means.reason


def test_clusters_and_units_make_the_intervals_of_means_longer():
    rng = np.random.default_rng(2)
    data = frame(6000, trial=True)
    data["c"] = rng.integers(0, 60, 6000)
    shift = rng.normal(0, 0.15, 60)[data["c"]]
    data["y"] = (rng.random(6000) < np.clip(0.3 + 0.1 * data["t"] + shift, 0, 1)).astype(int)
    about = {"design": "randomised", "epsilon": 50, "bounds": BOUNDS, "seed": 1}
    plain = dpe.dp_ate("y ~ t", data, "diff_in_means", **about)
    grouped = dpe.dp_ate("y ~ t", data, "diff_in_means", cluster="c", clusters=60, **about)
    factor = grouped.sampling_variance / plain.sampling_variance
    widths = [np.diff([*fit.effect("ratio").conf_int()])[0] for fit in (plain, grouped)]
    assert factor > 1.05
    assert widths[1] / widths[0] == pytest.approx(math.sqrt(factor), rel=0.1)
    assert any("Intervals of means and ratios" in note for note in grouped.notes)


def test_missing_outcomes_and_weights_reach_the_means():
    data = frame()
    data["w"] = np.random.default_rng(5).uniform(1, 3, len(data))
    about = {"design": "randomised", "epsilon": 20, "seed": 1}
    bounds = {**BOUNDS, "w": (0, 3)}
    weighted = dpe.dp_ate("y ~ t", data, weights="w", bounds=bounds, **about)
    assert weighted.effect("ratio").conf_int().upper < math.inf
    data["y"] = data["y"].astype(float).mask(np.random.default_rng(1).random(len(data)) < 0.2)
    fit = dpe.dp_ate("y ~ t | x1", data, missing="weight", bounds=BOUNDS, **about)
    assert any(part.name == "the model of missing outcomes" for part in fit.released.means.parts)


def test_scales_say_the_same_effect():
    about = {"design": "randomised", "epsilon": 2, "bounds": BOUNDS, "seed": 1}
    fit = dpe.dp_ate("y ~ t", frame(trial=True), **about)
    one, zero = fit.means["mean"]
    assert fit.effect("ratio").estimate == pytest.approx(one / zero)
    assert fit.effect("lift").estimate == pytest.approx(one / zero - 1.0)
    assert fit.effect("odds").estimate == pytest.approx(one * (1 - zero) / (zero * (1 - one)))
    assert fit.effect("nnt").estimate == pytest.approx(1.0 / fit.estimate)
    assert fit.effect().conf_int() == fit.conf_int()
    ratio, lift = (fit.effect(x).conf_int() for x in ("ratio", "lift"))
    assert lift.lower == pytest.approx(ratio.lower - 1.0)
    for scale in ("difference", "ratio", "odds", "lift", "nnt"):
        found = fit.effect(scale)
        assert type(found).from_json(found.to_json()) == found
        row = fit.tidy(scale=scale).iloc[0]
        assert row["term"] == "t"
        assert (row["conf_low"], row["conf_high"]) == tuple(found.conf_int())
        assert "95 % confidence interval" in found.words
        assert max(map(len, str(found).splitlines())) <= 80


def test_a_number_needed_to_treat_goes_through_infinity_where_there_may_be_no_effect():
    means = risks(30, 100, 28, 100)
    own = SamplingVariance(0.004, 0.0, 1.0)
    from dpeffects.results.scaled import scaled_effect
    from dpeffects.results.wording import effect_cells

    found = scaled_effect(Estimate(0.02, own, means=means), "nnt", 0.95, "t", "y")
    assert found.through_infinity
    assert found.conf_int().upper < 0.0 < found.conf_int().lower
    assert "for one more with y = 1: 50" in str(found)
    low, high = found.conf_int()
    one, other = (f"{abs(end):.0f}" for end in (low, high))
    text = " ".join(str(found).split())
    assert (
        f"from {one} for one more, through infinity (no effect), to {other} for one fewer" in text
    )
    row = found.tidy().to_dict("records")[0]
    assert row["through_infinity"]
    assert row["conf_low"] > row["conf_high"]
    assert effect_cells(row)[2:] == (one, f"inf to -{other}")
    fewer = scaled_effect(Estimate(-0.02, own, means=means), "nnt", 0.95, "t", "y")
    turned = " ".join(str(fewer).split())
    assert (
        f"from {one} for one fewer, through infinity (no effect), to {other} for one more" in turned
    )
    certain = scaled_effect(Estimate(-0.5, own, means=means), "nnt", 0.95, "t", "y")
    assert not certain.tidy()["through_infinity"].any()
    assert "through infinity" not in str(certain)


@pytest.mark.parametrize(
    ("scale", "told"),
    [("hazard ratio", "dp_survival"), ("HR", "dp_survival"), ("rate_ratio", "dp_rate")],
)
def test_a_scale_of_another_call_is_named_with_that_call(scale, told):
    fit = dpe.dp_ate("y ~ t", frame(trial=True), bounds=BOUNDS, epsilon=1, seed=1)
    with pytest.raises(OptionError, match=rf"one of difference, ratio.*{told}"):
        fit.effect(scale)


def test_an_association_has_ratios_and_no_test():
    fit = dpe.dp_ate("y ~ t", frame(), "clipped_contrast", epsilon=5, bounds=BOUNDS, seed=1)
    found = fit.effect("ratio")
    assert isinstance(found.p_value, Unavailable)
    assert found.words.startswith("Association of t with y")


def test_scales_that_an_outcome_does_not_have_are_refused():
    about = {"epsilon": 1, "seed": 1, "design": "randomised"}
    data = frame()
    fit = dpe.dp_ate("z ~ t", data, bounds=BOUNDS, **about)
    for scale in ("odds", "nnt"):
        with pytest.raises(
            OptionError, match=r"outcomes of 0 and 1.*has: difference, ratio, lift$"
        ):
            fit.effect(scale)
    negative = dpe.dp_ate("z ~ t", data, bounds={"z": (-1, 10)}, **about)
    with pytest.raises(OptionError, match=r"cannot be negative.*has: difference$"):
        negative.effect("ratio")
    with pytest.raises(OptionError, match="scale must be one of"):
        fit.effect("logit")


def test_a_method_without_means_says_what_to_write():
    about = {"epsilon": 1, "bounds": BOUNDS, "seed": 1}
    fit = dpe.dp_ate("y ~ t | x1", frame(), "model_folds", **about)
    assert "means=True" in str(fit.means)
    with pytest.raises(OptionError, match="means=True"):
        fit.effect("ratio")
    more = dpe.dp_ate("y ~ t | x1", frame(), "model_folds", means=True, **about)
    assert {charge.share for charge in more.charges} - {charge.share for charge in fit.charges} == {
        "means"
    }
    assert sum(charge.epsilon for charge in more.charges) == pytest.approx(1.0)


def test_budgets_do_not_change_where_means_are_released_anyway():
    about = {"epsilon": 1, "bounds": BOUNDS, "seed": 1}
    for method in ("auto", "diff_in_means", "clipped_contrast", "private_ipw"):
        charges = [
            dpe.dp_ate("y ~ t | x1", frame(500), method, means=means, **about).charges
            for means in (False, True)
        ]
        assert charges[0] == charges[1]


def test_means_are_refused_before_the_charge_where_they_make_no_sense():
    ledger = dpe.Ledger(10)
    data = dpe.simulate("three_arms", n=500, seed=1)
    with pytest.raises(OptionError, match="more than two arms"):
        dpe.dp_ate(
            *("outcome ~ treatment | x1", data, "one_step"),
            **{"level": "label", "epsilon": 1, "means": True, "ledger": ledger},
        )
    with pytest.raises(OptionError, match="True or False"):
        dpe.dp_ate("y ~ t", frame(), means=1, epsilon=1, bounds=BOUNDS, ledger=ledger)
    with pytest.raises(OptionError, match="means"):
        dpe.dp_cate("y ~ t | x1", frame(), means=True, epsilon=1, bounds=BOUNDS, ledger=ledger)
    assert ledger.spent == (0, 0)


def test_results_without_means_are_still_read():
    fit = dpe.dp_ate("y ~ t", frame(), "diff_in_means", epsilon=1, bounds=BOUNDS, seed=1)
    document = json.loads(fit.to_json())
    assert record(ArmMeans, document["released"]["means"]) == fit.released.means
    del document["released"]["means"], document["means"]
    old = dpe.Result.from_dict(document)
    assert old.estimate == fit.estimate
    assert isinstance(old.means, Unavailable)


def test_without_a_variance_there_are_means_and_no_intervals():
    about = {"epsilon": 1, "bounds": BOUNDS, "seed": 1, "variance": False}
    fit = dpe.dp_ate("y ~ t", frame(), "diff_in_means", **about)
    assert fit.means["conf_low"].isna().all()
    assert isinstance(fit.effect("ratio").conf_int(), Unavailable)
    assert "by arm" in str(fit.summary())


def test_summary_paragraph_and_comparison_have_means_and_scales():
    about = {"design": "randomised", "epsilon": 2, "bounds": BOUNDS, "seed": 1}
    fit = dpe.dp_ate("y ~ t", frame(trial=True), **about)
    text = str(fit.summary())
    assert "Means of y by arm" in text
    assert "Risks of y = 1, in per cent, were" in fit.report().text
    table = dpe.compare(fit, fit, scale="ratio")
    assert table.tidy()["estimate"].tolist() == [fit.effect("ratio").estimate] * 2
    assert "ratio of means" in str(table)
    given = {"release": "points", "at": {"x1": [0.0]}, "epsilon": 1, "bounds": BOUNDS, "seed": 1}
    points = dpe.dp_cate("y ~ t | x1", frame(500), **given)
    with pytest.raises(OptionError, match="scale is for average effects"):
        dpe.compare(points, scale="ratio")


def test_sites_send_means_and_a_combination_has_them():
    about = {"design": "randomised", "epsilon": 2, "bounds": BOUNDS}
    sent = [
        dpe.site_release("y ~ t", frame(seed=k, trial=True), site=f"S{k}", seed=k, **about)
        for k in range(3)
    ]
    for release in sent:
        again = dpe.SiteRelease.from_json(release.to_json())
        assert again == release
        assert release.to_dict()["version"] == 1
    for rule in ("ivw", "mvagg", "all", "random"):
        fit = dpe.combine(sent, rule)
        one, zero = fit.means["mean"]
        assert one - zero == pytest.approx(fit.estimate)
        weighted = [w * r.released.means.control for w, r in zip(fit.weights, sent, strict=True)]
        assert zero == pytest.approx(sum(weighted))
        found = fit.effect("ratio")
        assert found.conf_int().lower < one / zero < found.conf_int().upper
        alone = [np.diff([*scales.ratio(r.released.means).interval])[0] for r in sent]
        assert np.diff([*found.conf_int()])[0] < np.mean(alone)
    without = replace(sent[0], released=replace(sent[0].released, means=None))
    old = dpe.combine([dpe.SiteRelease.from_json(without.to_json()), *sent[1:]])
    assert isinstance(old.means, Unavailable)


def test_means_that_are_not_those_of_the_estimate_are_refused():
    about = {"design": "randomised", "epsilon": 2, "bounds": BOUNDS, "seed": 1}
    release = dpe.site_release("y ~ t", frame(trial=True), site="A", **about)
    wrong = replace(release.released.means, treated=0.9)
    changed = replace(release, released=replace(release.released, means=wrong)).to_json()
    with pytest.raises(dpe.DPEffectsError, match="their difference"):
        dpe.SiteRelease.from_json(changed)


@pytest.mark.long
def test_intervals_of_ratios_cover_in_a_small_trial_with_rare_outcomes():
    rng, covered = np.random.default_rng(11), 0
    runs, n, risk = 120, 3000, (0.04, 0.02)
    for k in range(runs):
        t = rng.random(n) < 0.2
        y = (rng.random(n) < np.where(t, *risk)).astype(int)
        data = pd.DataFrame({"y": y, "t": t})
        about = {"design": "randomised", "epsilon": 2, "bounds": {"y": (0, 1)}, "seed": k}
        fit = dpe.dp_ate("y ~ t", data, "clipped_contrast", **about)
        means = fit.released.means
        covered += scales._fits(means, scales._Ratio.of(means), 1.0 - 1.0 / 3.0) > 0.05
    assert covered >= 108
