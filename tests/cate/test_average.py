"""Averages, quantiles and labels of conditional effects; noise of nuisances; confounding left."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import dpeffects as dpe
from dpeffects.design.features import Fourier
from dpeffects.errors import OptionError
from dpeffects.flow import Estimation, Request
from dpeffects.results.effect_function import EffectFunction
from dpeffects.results.feature_moments import BINS, spread_by
from dpeffects.seeded import SeededNoise
from tests.cate.cases import FORMULA, run
from tests.neighbours import frame
from tests.populations import POPULATIONS

CONFOUNDED = POPULATIONS["three confounders"]
NEW = ("undone", "average_sd", "nuisance_sd", "confounding", "warnings")


def estimation(population, data, method, **more):
    bounds = {"bounds": population.declared, "seed": 0}
    request = Request.of_effect(
        "CATE", population.formula, data, method, epsilon=more.pop("epsilon"), **bounds
    )
    return Estimation(replace(request, **more))


def test_the_average_that_is_shown_is_adjusted():
    data = CONFOUNDED.sample(20_000, 1)
    apart = data.groupby("t")["y"].mean().diff().iloc[-1]
    assert apart > 0.1  # where the effect is 0.05
    for method in ("r_learner", "dr_learner"):
        fit = dpe.dp_cate(
            CONFOUNDED.formula, data, method, epsilon=4, bounds=CONFOUNDED.declared, seed=1
        )
        value, sd = fit.function.over_records("effect")
        assert value == pytest.approx(0.05, abs=0.012)
        assert abs(value - 0.05) < 3 * sd < 0.05
        assert fit.effect(data).mean() == pytest.approx(value, abs=0.005)
        for text in (str(fit.summary()), str(fit.report()), repr(fit)):
            assert f"{value:.4f}"[:5] in text or f"{value:.3f}" in text
            assert f"{apart:.4f}"[:5] not in text


def flat(features, weights, average, noise_sd=0.0, **more):
    """A function of records that spread evenly, with all numbers known."""
    return EffectFunction(
        features=features,
        weights=weights,
        average=average,
        unit=0.5,
        strength=40.0,
        noise_sd=noise_sd,
        inside=True,
        information=300.0,
        variation=None,
        margins=np.full((2, BINS), 1 / BINS),
        spread=1.0,
        usual=300.0,
        n=300,
        **more,
    )


def ridge(features, targets, average, noise=0.0):
    """Weights by the normal equations, on the points that stand for the records."""
    at = features(spread_by(np.full((2, BINS), 1 / BINS)))
    a = 300.0 * at.T @ at / len(at) + 40.0 * np.eye(features.size)
    return np.linalg.solve(a, 300.0 * at.T @ ((targets - average) / 0.5) / len(at) + noise)


def test_a_recentred_function_is_the_fit_around_its_own_average():
    """Against refitting until the centre is the average of the fit; one fit would keep a third."""
    features = Fourier.gaussian(2, 0.35)
    rows = spread_by(np.full((2, BINS), 1 / BINS))
    targets = 0.3 + 0.4 * rows[:, 1] ** 2 - 0.2 * rows[:, 2]
    wrong = flat(features, ridge(features, targets, 5.0), 5.0)
    assert wrong.over_records("noise")[0] > targets.mean() + 0.3
    right, centre = wrong.recentred(0.0, 1.0), 5.0
    for _ in range(200):
        fitted = flat(features, ridge(features, targets, centre), centre)
        centre = fitted.over_records("noise")[0]
    assert right.average == pytest.approx(centre, abs=1e-6)
    assert right(rows[:50]) == pytest.approx(fitted(rows[:50]), abs=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("confounding", [0.0, 0.1, 2.0])
def test_noise_of_a_recentred_function_by_drawing_it(confounding):
    """Noise in the gradient and in the difference of the means, 600 times."""
    features, rng = Fourier.gaussian(2, 0.35), np.random.default_rng(3)
    rows, sd, difference_sd = spread_by(np.full((2, BINS), 1 / BINS)), 6.0, 0.2
    targets, values, averages = np.full(len(rows), 0.3), [], []
    for _ in range(600):
        average = 0.4 + difference_sd * rng.normal()
        weights = ridge(features, targets, average, sd * rng.normal(size=features.size))
        made = flat(features, weights, average, sd).recentred(difference_sd, confounding)
        values.append(made(rows[:20]))
        averages.append(made.over_records("noise")[0])
    assert made.sd(rows[:20], "noise") == pytest.approx(np.std(values, axis=0), rel=0.1)
    assert made.over_records("noise")[1] == pytest.approx(np.std(averages), rel=0.1)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("release", ["function", "groups"])
@pytest.mark.parametrize("method", ["r_learner", "dr_learner"])
def test_reported_noise_is_that_of_reruns(method, release):
    """On the same 2,000 records; noise of the first stage is in both."""
    data, by = CONFOUNDED.sample(2000, 3), "cut(x1, [-1, 0, 1])"
    asked = {"by": by} if release == "groups" else {}
    made = estimation(CONFOUNDED, data, method, epsilon=2, release=release, **asked)
    at = np.column_stack([np.ones(30), np.random.default_rng(1).random((30, 3))])
    values, sds = [], []
    for seed in range(30):
        found = made.fit(SeededNoise(seed))
        if release == "function":
            values.append(found(at))
            sds.append(found.sd(at, "noise"))
        else:
            values.append([effect.value for effect in found.estimates])
            sds.append([math.sqrt(effect.noise_variance) for effect in found.estimates])
    shown = np.sqrt(np.mean(np.square(sds)))
    assert 0.8 < shown / np.sqrt(np.mean(np.var(values, axis=0, ddof=1))) < 1.3


def test_intervals_of_groups_allow_for_confounding_that_is_left():
    """Twenty-five covariates: of 0.03 nothing is adjusted for; without the allowance 65 %."""
    population, inside = POPULATIONS["twenty-five covariates"], []
    for seed in range(8):
        fit = dpe.dp_cate(
            population.formula,
            population.sample(2500, seed),
            "dr_learner",
            release="groups",
            by="cut(x1, [-3, 0, 3])",
            epsilon=4,
            bounds=population.declared,
            seed=seed,
        )
        low, high = fit.conf_int().T
        inside += [*((low <= 0.03) & (high >= 0.03))]
        assert fit.warnings.startswith("Weak adjustment")
        assert "Weak adjustment" in "\n".join(str(fit.summary()).splitlines()[:5])
    assert np.mean(inside) > 0.9


def test_a_trial_has_no_propensity_model_and_no_allowance():
    data = frame(400)
    trial, study = (run(data=data, design=design) for design in ("randomised", "observational"))
    assert trial.function.confounding == 0.0 < study.function.confounding
    assert not any("propensity" in charge.label for charge in trial.charges)
    assert trial.estimate_warnings == ""


def test_groups_of_the_r_learner_are_labelled():
    asked = {"path": "groups", "data": frame(300)}
    weighted, plain = run("r_learner", **asked), run("dr_learner", **asked)
    assert weighted.warnings.startswith("Overlap-weighted")
    assert "Overlap-weighted" in str(weighted).splitlines()[3]
    assert set(weighted.tidy()["estimand"]) == {"overlap-weighted CATE"}
    assert "Overlap-weighted effects by group" in " ".join(str(weighted.report()).split())
    assert "verlap-weighted" not in str(plain)
    assert type(plain).from_json(weighted.to_json()).warnings == weighted.warnings


def test_defaults_by_release():
    data = frame(60)
    more = {"bounds": {"y": (0, 1), "x1": (0, 1), "x2": (-1, 1), "g": list("abc")}, "epsilon": 1}
    assert dpe.dp_cate(FORMULA, data, release="groups", by="g", **more).method == "one_step"
    assert dpe.dp_cate(FORMULA, data, **more).method == "r_learner"


def test_points_are_where_records_are():
    rng = np.random.default_rng(8)
    data = frame(3000).assign(
        x1=rng.beta(2, 6, 3000), g=rng.choice(list("abc"), 3000, p=[1 / 6, 0.5, 1 / 3])
    )
    fit = run(data=data, epsilon=1e4)
    shares = [0.1, 0.5, 0.9]
    assert fit.quantiles("x1", shares) == pytest.approx(data["x1"].quantile(shares), abs=0.03)
    shown = fit.tidy()
    assert shown.query("covariate == 'x1'")["value"].tolist() == pytest.approx(
        data["x1"].quantile(shares), abs=0.03
    )
    fixed = {"x2": 0.0, "g": "b"}
    chosen = fit.tidy(points={"x1": [0.2, 0.3]}, at=fixed)
    by_hand = fit.effect({"x1": [0.2, 0.3], "x2": [0.0, 0.0], "g": ["b", "b"]})
    assert chosen["estimate"].to_numpy() == pytest.approx(by_hand)
    median = {"x2": float(fit.quantiles("x2", [0.5])[0]), "g": "b"}  # its most frequent level
    alone = fit.curve("x1", [0.2, 0.3])["effect"]
    assert alone.to_numpy() == pytest.approx(fit.curve("x1", [0.2, 0.3], median)["effect"])
    assert "0.2" in str(fit.summary(points={"x1": [0.2, 0.3]}))
    for bad in (0, True, "x1", 2.5):
        with pytest.raises(OptionError):
            fit.tidy(points=bad)


@pytest.mark.parametrize("kernel", ["gaussian", "additive"])
def test_bandwidths_are_those_of_the_kernel(kernel):
    """One bandwidth away, what varies of the kernel has fallen to exp(-1/2)."""
    data = frame(80).assign(x1=lambda d: 20 + 40 * d["x1"])
    more = {"bounds": {"y": (0, 1), "x1": (20, 60), "x2": (-1, 1)}, "kernel": kernel}
    fit = run(data=data, formula="y ~ t | x1 + x2", **more)
    width = fit.bandwidths["x1"]
    features, away = fit.function.features, np.array([0.0, width / 40, 40.0])
    start = 0.5 - away[1] / 2
    rows = np.column_stack([np.ones(2), [start, start + away[1]], [0.5, 0.5]])
    own = (1.0 - features.constant) / (1.0 if kernel == "gaussian" else 2.0)
    fallen = 1.0 - (1.0 - float(features.kernel(rows[:1], rows[1:])[0, 0])) / own
    assert fallen == pytest.approx(math.exp(-0.5), abs=0.06)
    assert f"{width:.2g} of x1" in " ".join(str(fit.summary()).split())
    assert run(path="linear", data=frame(80)).bandwidths == {}
