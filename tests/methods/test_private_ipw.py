"""Inverse probability weighting: against statsmodels, coverage, options, bad input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import BoundsError, DPEffectsError
from dpeffects.estimators import get
from dpeffects.estimators.default.arm_summaries import ArmStats
from dpeffects.estimators.weighting.propensity import PropensityEstimate
from dpeffects.inference.estimate import Unavailable
from dpeffects.replication.private_ipw import PrivateIPWOptions
from dpeffects.replication.weighting_error import WeightingError
from tests.plain import plain
from tests.populations import POPULATIONS
from tests.refused import refusals

FORMULA = "y ~ t | x1 + x2"
BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (0, 1)}
DOORS = {"ATE": dpe.dp_ate, "ATT": dpe.dp_att, "ATC": dpe.dp_atc}


def frame(n=4000, seed=0, effect=0.1, binary=False, shift=0.0):
    """Confounded, with propensities well inside [0.1, 0.9]; effects differ with x1."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 2))
    t = rng.random(n) < 1 / (1 + np.exp(-(-0.3 + 1.5 * (x[:, 0] - 0.5) - (x[:, 1] - 0.5))))
    mean = 0.35 + 0.4 * (x[:, 0] - 0.5) + effect * t * (1 + 2 * (x[:, 0] - 0.5))
    y = rng.random(n) < mean if binary else np.clip(mean + rng.normal(0, 0.12, n), 0, 1)
    return pd.DataFrame({"y": y + shift, "t": t, "x1": x[:, 0], "x2": x[:, 1]})


def run(data=None, estimand="ATE", **more):
    more = {"epsilon": 1.0, "bounds": BOUNDS, "seed": 1, "method": "private_ipw", **more}
    return DOORS[estimand](FORMULA, frame() if data is None else data, **more)


# --- against statsmodels ----------------------------------------------------------------------


@pytest.mark.parametrize(("estimand", "group"), [("ATE", "all"), ("ATT", 1), ("ATC", 0)])
@pytest.mark.parametrize("level", ["sample", "label"])
def test_statsmodels_at_huge_epsilon(estimand, group, level):
    import statsmodels.api as sm
    from statsmodels.treatment.treatment_effects import TreatmentEffect

    data = frame(20_000)
    x = sm.add_constant(data[["x1", "x2"]].to_numpy())
    logit = sm.Logit(data["t"].astype(float), x).fit(disp=0)
    peer = TreatmentEffect(
        sm.OLS(data["y"].to_numpy(), x), data["t"].astype(int).to_numpy(), results_select=logit
    )
    theirs = peer.ipw(return_results=False, effect_group=group)[0]
    ours = run(data, estimand, epsilon=1e6, level=level)
    assert ours.estimate == pytest.approx(theirs, abs=0.05 * ours.std_error)
    reference = plain(FORMULA, data, "private_ipw", estimand=estimand, bounds=BOUNDS)
    assert ours.estimate == pytest.approx(reference.estimate, abs=0.02 * ours.std_error)
    # where arms are public, squares are taken from the middle of what each arm can add
    within = 0.01 if level == "sample" else 0.03
    assert ours.std_error == pytest.approx(reference.std_error, rel=within)


def test_estimands_differ_where_effects_do():
    data = frame(40_000)
    att, ate, atc = (run(data, e, epsilon=100).estimate for e in ("ATT", "ATE", "ATC"))
    assert att > ate > atc
    naive = data["y"][data["t"]].mean() - data["y"][~data["t"]].mean()
    assert abs(ate - 0.1) < 0.2 * abs(naive - 0.1)


def test_rare_treatment_is_counted_as_it_is():
    """The ATT divides by the number of treated, however far below the clip their share is."""
    rng = np.random.default_rng(3)
    n = 20_000
    x = rng.random((n, 2))
    t = rng.random(n) < 0.03 * (1 + x[:, 0])
    y = np.clip(0.3 + 0.3 * x[:, 0] + 0.2 * t + rng.normal(0, 0.1, n), 0, 1)
    data = pd.DataFrame({"y": y, "t": t, "x1": x[:, 0], "x2": x[:, 1]})
    assert run(data, "ATT", epsilon=1e5).estimate == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize("options", [{"propensity": "output"}, {"split": True}, {"centre": "none"}])
def test_other_ways_agree_at_huge_epsilon(options):
    data = frame(20_000)
    plain = run(data, epsilon=1e6)
    other = run(data, epsilon=1e6, **options)
    assert other.estimate == pytest.approx(plain.estimate, abs=3 * other.std_error)


def test_centred_estimates_do_not_move_with_the_outcomes():
    near, far = frame(), frame(shift=10.0)
    wide = {**BOUNDS, "y": (10, 11)}
    assert run(far, bounds=wide).estimate == pytest.approx(run(near).estimate, abs=1e-6)
    paper = {"centre": "none", "propensity": "output"}
    moved = run(far, bounds=wide, **paper).estimate - run(near, **paper).estimate
    assert abs(moved) > 0.05


# --- intervals --------------------------------------------------------------------------------


def covered(estimand, truth, runs=60, n=2000, **more):
    hits = []
    for seed in range(runs):
        fit = run(frame(n, seed), estimand, seed=seed, **more)
        low, high = fit.conf_int()
        hits.append(low <= truth <= high)
    return np.mean(hits)


@pytest.mark.long
def test_intervals_cover():
    """Wide limits for few runs; the docstring of the method's module has the measured rates."""
    assert 0.87 <= covered("ATE", 0.1) <= 1.0
    assert 0.87 <= covered("ATE", 0.1, epsilon=3.0, delta=1e-6) <= 1.0
    truth = 0.1 * (1 + 2 * 0.0678)  # x1 is higher among the treated
    assert 0.87 <= covered("ATT", truth, epsilon=2.0) <= 1.0
    assert 0.87 <= covered("ATE", 0.1, level="label") <= 1.0


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("level", "n", "epsilon"), [("sample", 10_000, 2.0), ("label", 2000, 0.5)])
def test_intervals_cover_where_few_are_treated(level, n, epsilon):
    """Centres are noisy there, and propensities far below a clip of 0.1."""
    few = POPULATIONS["few treated"]
    call = {"epsilon": epsilon, "bounds": few.declared, "level": level}
    hits, errors = [], []
    for seed in range(40):
        fit = dpe.dp_ate(few.formula, few.sample(n, seed), "private_ipw", seed=seed, **call)
        low, high = fit.conf_int()
        hits.append(low <= few.truth["ATE"] <= high)
        errors.append((fit.estimate - few.truth["ATE"]) / fit.std_error)
    assert np.mean(hits) >= 0.9
    assert 0.5 < np.std(errors) < 1.3  # neither too short nor much too wide


@pytest.mark.sampled(2)
@pytest.mark.parametrize("level", ["sample", "label"])
def test_the_reported_noise_is_that_of_reruns(level):
    data = frame(5000, 3)
    fits = [run(data, epsilon=1.0, level=level, seed=seed) for seed in range(60)]
    reported = np.sqrt(np.mean([fit.noise_variance for fit in fits]))
    assert 0.75 < reported / np.std([fit.released.value for fit in fits]) < 1.35


def test_noise_in_the_model_widens_the_interval():
    """Where outcomes go with covariates, noise in the model matters, and is accounted for."""
    data = frame(20_000, binary=True)
    flat = data.assign(y=np.random.default_rng(0).permutation(data["y"]))
    steep, even = (run(d, epsilon=0.3) for d in (data, flat))
    assert steep.std_error > even.std_error


# --- parts of the error -----------------------------------------------------------------------


def made(estimand="ATE", share=0.3, kept=0.7, level_sd=0.1, **more):
    """What is released of an estimate, made up."""
    slopes = np.full(2, kept)
    model = PropensityEstimate(
        weights=np.zeros(3),
        offset=0.0,
        scores=np.full(400, share),
        noise_sd=np.zeros(3),
        level_sd=level_sd,
        spreads=np.full(2, 0.08),
        spread_sd=np.zeros(2),
        penalised=1 - slopes,
        kept_slopes=slopes,
        details={},
    )
    means, unknown = np.array([0.6, 0.4]), np.array([0.05, 0.03])
    shares = np.array([share, 1.0 - share])
    centres = ArmStats(2000, shares, 0.01, means, unknown, (0.0, 1.0), False)
    known = {"extra": -0.03, "noise": 1e-4, "moved": 1e-4, "lost": 0.0, "spread": 0.02}
    known |= {"sampling": 1e-4, "centred": True} | more
    return WeightingError(estimand, model, centres, **known)


def part(error, name):
    return next((p.variance for p in error.parts() if p.name == name), 0.0)


@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
def test_noise_of_the_centres_moves_the_estimate_as_reported(estimand):
    """Centres, weights and the size of the population are drawn anew with known weighted means."""
    rng = np.random.default_rng(5)
    seen = -float(np.hypot(0.03, np.hypot(0.05, 0.03)))  # what is removed, and noise
    error, runs, pi = made(estimand, kept=0.9, extra=seen), 200_000, 0.3
    u = rng.normal(size=(runs, 2)) * error.centres.unknown
    level = rng.normal(size=runs) * error.model.level_sd
    chance = rng.normal(size=(runs, 2)) / np.sqrt(error.centres.sizes)
    share = {"ATE": 1.0, "ATT": pi, "ATC": 1 - pi}[estimand]
    off = {"ATE": (-(1 - pi), pi), "ATT": (0.0, 1.0), "ATC": (-1.0, 0.0)}[estimand]
    sums = 1 + np.outer(level, off) + chance * np.abs(off)
    counted = 1.0 if share == 1.0 else 1 + rng.normal(size=runs) * 0.01 / share
    removed = np.array([0.015, -0.015])  # means of the arms less weighted means
    each = sums * (-removed - u)
    extra = (each[:, 0] - each[:, 1]) / counted
    values = u[:, 0] - u[:, 1] + (1 + error.further) * extra
    level_alone = (1 + error.further) * level * (-removed @ (np.array(off) * [1, -1]))
    found = part(error, "the treated share and the arm means")
    assert found == pytest.approx(values.var() - level_alone.var(), rel=0.1)


def test_an_estimate_goes_further_where_that_lowers_its_error():
    """Brute force over factors, for confounding of which the weights remove a part."""
    rng = np.random.default_rng(6)
    for kept, noise in ((0.5, 1e-5), (0.8, 1e-4), (0.8, 1e-2), (1.0, 1e-5)):
        error = made(kept=kept, noise=noise, moved=0.0, sampling=0.0)
        confounding = rng.normal(size=200_000) * np.sqrt(error._confounding)
        in_sum = rng.normal(size=200_000) * np.sqrt(noise)
        in_centres = rng.normal(size=200_000) * np.hypot(*error.centres.unknown)
        factors = np.linspace(0.0, 1.0, 101)
        part_removed = kept + error.model.kept_sd * rng.normal(size=200_000)
        removed = part_removed * confounding - in_sum + in_centres
        left = confounding + in_centres
        errors = [np.mean((left - (1 + factor) * removed) ** 2) for factor in factors]
        assert error.further == pytest.approx(factors[np.argmin(errors)], abs=0.021)
        k, beta = kept, error.further
        allowed = part(error, "residual confounding from the shrunken model")
        assert allowed >= np.mean(((1 - k - beta * k) * confounding) ** 2) * 0.98


def test_a_penalty_leaves_less_confounding_than_it_leaves_slopes_out():
    data = frame(40_000, 2)
    call = {"epsilon": 1e5, "penalty": 0.01}
    pulled, plain = run(data, **call), run(data, **call, centre="middle")
    assert "propensity coefficients shrunk to" in pulled.details
    truth = run(data, epsilon=1e6).estimate
    assert abs(pulled.estimate - truth) < 0.5 * abs(plain.estimate - truth)


# --- the clip ---------------------------------------------------------------------------------


def beyond(fit):
    return float(fit.details["records beyond the propensity limits"].removesuffix(" %")) / 100


@pytest.mark.parametrize("level", ["sample", "label"])
def test_records_beyond_a_clip_are_counted_and_said(level):
    import statsmodels.api as sm

    data = frame(20_000, 4)
    x = sm.add_constant(data[["x1", "x2"]].to_numpy())
    e = sm.Logit(data["t"].astype(float), x).fit(disp=0).predict(x)
    fit = run(data, clip=0.4, epsilon=1e5, level=level)
    assert fit.details["propensity scores truncated to"] == "[0.4, 0.6]"
    assert beyond(fit) == pytest.approx(np.mean((e < 0.4) | (e > 0.6)), abs=0.002)
    assert "scores outside the limits" in fit.warnings
    text = " ".join(str(fit.summary()).split())
    said, shown = (text.index(word) for word in ("scores outside the limits", "std. error"))
    assert said < shown
    chosen = run(data, epsilon=1e5, level=level)
    assert beyond(chosen) < 0.02
    assert not chosen.estimate_warnings


def test_the_clip_follows_the_share_of_treated_records():
    few = POPULATIONS["few treated"]
    call = {"epsilon": 4.0, "bounds": few.declared, "seed": 1}
    data = few.sample(20_000, 1)
    chosen = dpe.dp_ate(few.formula, data, "private_ipw", **call)
    low = float(chosen.details["propensity scores truncated to"].strip("[]").split(",")[0])
    assert 0.08 * 0.15 * 0.9 < low < 0.04
    given = dpe.dp_ate(few.formula, data, "private_ipw", clip=0.1, **call)
    assert given.details["propensity scores truncated to"].startswith("[0.1,")
    assert beyond(given) > 0.5 > 0.06 > beyond(chosen)
    assert abs(chosen.estimate - 0.06) < abs(given.estimate - 0.06)


@pytest.mark.parametrize("estimand", ["ATT", "ATC"])
def test_halves_estimate_the_effect_that_was_asked_for(estimand):
    data = frame(40_000)
    whole = {name: run(data, name, epsilon=1e5).estimate for name in DOORS}
    half = run(data, estimand, epsilon=1e5, split=True)
    nearest = min(whole, key=lambda name: abs(half.estimate - whole[name]))
    assert nearest == estimand


def test_what_the_estimate_rests_on_is_said():
    words = " ".join(str(run(frame(20_000))).split())
    assert "linear in its terms" in words
    nothing = run(frame(300), epsilon=0.1)
    assert nothing.associated
    assert isinstance(nothing.p_value, Unavailable)


# --- budget and options -----------------------------------------------------------------------


def test_delta_is_spent_where_gaussian_noise_is_smaller():
    names = [f"x{i}" for i in range(1, 41)]
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.random((300, 40)), columns=names)
    data["t"], data["y"] = rng.random(300) < 0.5, rng.random(300)
    bounds = dict.fromkeys([*names, "y"], (0, 1))
    fit = dpe.dp_ate(
        "y ~ t | " + " + ".join(names), data, "private_ipw", epsilon=1, delta=1e-5, bounds=bounds
    )
    assert {s.mechanism for s in fit.charges if s.share == "model"} >= {"discrete Gaussian"}
    assert 0 < fit.guarantee.delta <= 1e-5
    assert fit.guarantee.status == "exact"


@pytest.mark.parametrize("options", [{}, {"noise": "gaussian"}, {"propensity": "output"}])
def test_split_charges_the_even_half_only(options):
    ledger = dpe.Ledger(1.0, 1e-6)
    fit = run(ledger=ledger, split=True, delta=1e-6, **options)
    assert {s.share for s in fit.charges if s.epsilon} == {"counts", "spread", "model"}
    assert fit.guarantee.epsilon == pytest.approx(1.0)
    assert fit.conf_int().lower < fit.estimate < fit.conf_int().upper
    assert isinstance(run(split=True, variance=False).std_error, Unavailable)


@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
def test_as_printed_is_algorithm_1(estimand):
    """Against scikit-learn's penalised regression and the formulas of Appendix F, divided by n."""
    from sklearn.linear_model import LogisticRegression

    data = frame(40_000, shift=1.0)
    x = np.column_stack([np.ones(len(data)), data[["x1", "x2"]] - 0.5]) / np.sqrt(1.5)
    t, y = data["t"].to_numpy(), data["y"].to_numpy()
    model = LogisticRegression(C=1 / (0.1 * len(t)), fit_intercept=False, tol=1e-10).fit(x, t)
    e = np.clip(model.predict_proba(x)[:, 1], 0.3, 0.7)
    a, b = {
        "ATE": (1 / e, 1 / (1 - e)),
        "ATT": (1.0, e / (1 - e)),
        "ATC": ((1 - e) / e, 1.0),
    }[estimand]
    terms = np.where(t, a * y, -b * y)
    bounds = {**BOUNDS, "y": (1, 2)}
    call = {"epsilon": 1e5, "delta": 1e-6, "bounds": bounds, "clip": 0.3}
    fit = run(data, estimand, as_printed=True, **call)
    assert fit.estimate == pytest.approx(terms.mean(), abs=4 * terms.std() / np.sqrt(20_000))
    assert ("divided by n" in fit.warnings) == (estimand != "ATE")
    assert isinstance(fit.std_error, Unavailable)


def test_as_printed_gives_all_of_the_budget_to_two_steps():
    ledger = dpe.Ledger(0.5, 1e-6)
    fit = run(ledger=ledger, epsilon=0.5, delta=1e-6, as_printed=True)
    assert {(s.share, s.covered) for s in fit.charges} == {("model", False), ("estimate", True)}
    assert [s.epsilon for s in ledger.charges] == pytest.approx([0.5])
    classical = np.sqrt(2 * np.log(1.25 / 1e-6)) / 0.5 * 2 * 2 / 2000  # section 3.2, weights of 2
    assert 0.4 * classical < np.sqrt(fit.noise_variance) < classical
    same = run(epsilon=0.5, delta=1e-6, as_printed=True, split=True, noise="gaussian")
    assert same.estimate == fit.estimate


def test_gaussian_noise_everywhere_when_asked_for():
    fit = run(delta=1e-6, noise="gaussian", propensity="output")
    found = {s.label: s.mechanism for s in fit.charges}
    assert found["weighted sum and squares"] == found["propensity model"] == "discrete Gaussian"
    assert fit.noise_variance > 0


def test_a_penalty_too_small_for_the_objective_is_raised():
    fit = run(penalty=1e-12)
    assert fit.details["ridge penalty"] > 0.1
    assert run(penalty=0.1, propensity="output").details["ridge penalty"] == pytest.approx(400)


test_bad_options_charge_nothing = refusals(
    run,
    ({"clip": 0.0}, "clip"),
    ({"clip": 0.5}, "clip"),
    ({"clip": -1}, "clip"),
    ({"clip": float("nan")}, "clip"),
    ({"clip": True}, "clip"),
    ({"clip": "0.1"}, "clip"),
    ({"penalty": 0.0}, "penalty"),
    ({"penalty": float("inf")}, "penalty"),
    ({"propensity": "forest"}, "propensity"),
    ({"centre": True}, "centre"),
    ({"split": 1}, "split"),
    ({"model_share": 1.0}, "model_share"),
    ({"model_share": 0.3, "split": True}, "model_share"),
    ({"model_share": 0.3, "level": "label"}, "model_share"),
    ({"noise": "gauss"}, "noise"),
    ({"noise": "gaussian"}, "delta"),
    ({"split": True, "level": "label"}, "split"),
    ({"as_printed": 1}, "as_printed"),
    ({"as_printed": True}, "delta"),
    ({"as_printed": True, "centre": "arms", "noise": "laplace"}, "noise"),
    ({"as_printed": True, "level": "label"}, "delta"),
    ({"clipp": 0.1}, "clip"),
    ({"method": "private_psm", "clip": 0.1}, "clip"),
)


def test_covariates_without_bounds_charge_nothing():
    ledger = dpe.Ledger(1.0)
    with pytest.raises(BoundsError, match="x2"):
        run(frame(100), ledger=ledger, bounds={"y": (0, 1), "x1": (0, 1)})
    with pytest.raises(DPEffectsError, match="covariates"):
        dpe.dp_ate("y ~ t", frame(100), "private_ipw", epsilon=1, bounds=BOUNDS, ledger=ledger)
    assert ledger.charges == ()


def test_shares_given_for_the_second_half_are_used():
    fixed = {"split": True, "variance": False, "centre": "middle"}
    plain, mostly = run(**fixed), run(**fixed, budget_split={"estimate": 100.0})
    assert mostly.noise_variance < plain.noise_variance


def test_a_weak_model_is_left_flat_and_says_so():
    small = run(frame(200), epsilon=0.3)
    assert "Weak adjustment" in " ".join(str(small.summary()).split())
    assert small.options["model_share"] < 0.3 < run(frame(20_000)).options["model_share"] + 0.01
    assert "Weak adjustment" not in " ".join(str(run(frame(20_000)).summary()).split())


def test_what_the_method_says_of_itself():
    spec = get("private_ipw")
    assert spec.estimands == ("ATE", "ATT", "ATC")
    for level in spec.levels:
        for options in (PrivateIPWOptions(), PrivateIPWOptions(centre="none")):
            assert sum(spec.budget_split(level, options).values()) <= 1.0 + 1e-9
    assert "clip" in dpe.methods("private_ipw")
    assert "Not normalised" in str(run(centre="middle").summary())
