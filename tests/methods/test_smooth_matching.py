"""Matching on strata, smooth and global: the contract, neighbours, bad input, coverage."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import BudgetError, DPEffectsError, FormulaError, OptionError
from dpeffects.privacy.exact_matching import StratumCounts
from tests.plain import plain, stratified

BOUNDS = {"y": (0, 1), "x": (0, 90), "g": ["a", "b", "c"]}
FORMULA = "y ~ t | cut(x, [0, 40, 90]) * g"
CASES = [
    ("smooth_matching", {}),
    ("smooth_matching", {"matching": "round_robin"}),
    ("smooth_matching", {"matching": "round_robin", "paper_constants": True}),
    ("smooth_matching", {"variance_noise": "smooth"}),
    ("smooth_matching", {"sensitivity_noise": "gaussian"}),
    ("global_matching", {}),
    ("global_matching", {"matching": "round_robin"}),
]
IDS = [f"{name[:6]}-{'-'.join(map(str, options.values())) or 'default'}" for name, options in CASES]
cases = pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)


def frame(n=600, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 90, n)
    t = rng.random(n) < 0.35 + 0.3 * (x > 40)
    y = np.clip(0.3 * x / 90 + 0.2 * t + 0.4 * rng.random(n), 0, 1)
    return pd.DataFrame({"y": y, "t": t, "x": x, "g": rng.choice(list("abc"), n)})


def run(name, options, data=None, formula=FORMULA, **more):
    delta = 1e-5 if name == "smooth_matching" else 0.0
    more = {"epsilon": 1.0, "delta": delta, "bounds": BOUNDS, "seed": 1, **more}
    return dpe.dp_ate(formula, frame() if data is None else data, name, **options, **more)


def printed_sensitivity(data, beta):
    """Equation (1) of the paper for an outcome of range 1, with R^(k) as in its appendix."""
    strata = data.groupby(["g", data["x"] > 40])["t"].agg(treated="sum", size="size")
    best, n = 0.0, len(data)
    for treated, size in strata.itertuples(index=False):
        large, small = max(treated, size - treated), min(treated, size - treated)
        for k in range(n):
            r = math.ceil((large + k + 1) / (small - k)) if k < small else large + k
            best = max(best, math.exp(-k * beta) * 4 / n * (1 + r))
    return best


def test_the_printed_bound_stays_below_a_record_that_all_are_matched_to():
    """However slowly it shrinks: 4 (1 + R), and R is at most the number of records."""
    counts = StratumCounts(np.array([3, 2]), np.array([4, 1]), empty=False)
    assert counts.estimate_sensitivity(1e-7, paper=True) == pytest.approx(4 * (10 + 1), rel=1e-4)


@pytest.mark.long
def test_algorithm_2_of_the_paper_with_all_of_epsilon():
    """The spread of the estimates is 2 S / epsilon, for S by the printed formula."""
    data, options = frame(2_000, 3), {"matching": "round_robin", "paper_constants": True}
    beta = 1.0 / (2 * math.log(2 / 1e-5))
    fits = [run("smooth_matching", options, data, seed=s, variance=False) for s in range(600)]
    assert fits[0].details["smoothing beta"] == pytest.approx(beta, rel=1e-5)
    values = np.array([fit.released.value for fit in fits])
    spread = np.abs(values - np.median(values)).mean()  # mean |Laplace(1)| is 1
    assert spread == pytest.approx(2 * printed_sensitivity(data, beta), rel=4 / math.sqrt(600))


@pytest.mark.long
def test_the_estimate_alone_beats_half_the_budget():
    """All of epsilon on the estimate: less noise than its share of a call with a variance has."""
    data = frame(2_000, 3)
    target = plain(FORMULA, data, "smooth_matching", bounds=BOUNDS).estimate
    spread = [
        np.mean(
            [
                abs(run("smooth_matching", {}, data, seed=s, variance=v).estimate - target)
                for s in range(300)
            ]
        )
        for v in (False, True)
    ]
    assert spread[0] < 0.75 * spread[1]


def numbers_in(value):
    if isinstance(value, dict):
        return [x for part in value.values() for x in numbers_in(part)]
    if isinstance(value, list):
        return [x for part in value for x in numbers_in(part)]
    return [value] if isinstance(value, float) else []


def test_a_private_scale_stands_nowhere():
    """All that is shown but the estimate is the same for other strata with the same draw."""
    shown = []
    for data in (frame(600, 1), frame(600, 2).assign(g="a")):
        fit = run("smooth_matching", {}, data, variance=False)
        document = json.loads(fit.to_json().replace(str(fit.released.value), "0.0"))
        shown.append((numbers_in(document), fit.charges, fit.details, fit.notes, fit.warnings))
    assert shown[0] == shown[1]


def test_a_site_does_not_send_an_estimate_of_unknown_noise():
    ledger = dpe.Ledger(1.0, 1e-5)
    call = {"method": "smooth_matching", "epsilon": 1.0, "delta": 1e-5, "bounds": BOUNDS}
    with pytest.raises(OptionError, match="scale of its noise is private"):
        dpe.site_release(FORMULA, frame(), site="a", variance=False, ledger=ledger, **call)
    assert ledger.charges == ()
    fit = run("smooth_matching", {}, variance=False)
    with pytest.raises(DPEffectsError, match="scale of its noise is private"):
        dpe.SiteRelease.from_result(fit, "a")


@cases
def test_estimates_approach_the_reference_as_epsilon_grows(name, options):
    data = frame(20_000, 5)
    target = plain(FORMULA, data, name, bounds=BOUNDS)
    fit = run(name, options, data, epsilon=1e6)
    near = 0.15 if options.get("matching", "means") == "means" else 1.0
    assert fit.estimate == pytest.approx(target.estimate, abs=near * target.std_error)
    more = 1.1 if options.get("matching", "means") == "means" else 1.4
    assert 0.9 * target.std_error < fit.std_error < more * target.std_error


# --- bad input: clear errors, nothing charged

BAD = {
    "a plain number": ("y ~ t | x", FormulaError, r"Write cut\(x, \[...\]\)"),
    "a number in an interaction": ("y ~ t | g + g:x", FormulaError, "a few values"),
    "a function": ("y ~ t | log(1 + x)", FormulaError, r"cut\(x"),
    "a spline": ("y ~ t | bs(x, knots=[30], lower_bound=0, upper_bound=90)", FormulaError, "cut"),
    "no covariates": ("y ~ t", OptionError, "covariates"),
}


@pytest.mark.parametrize("name", ["smooth_matching", "global_matching"])
@pytest.mark.parametrize("case", BAD)
def test_covariates_that_are_no_strata_are_refused(name, case):
    formula, error, message = BAD[case]
    ledger = dpe.Ledger(1.0, 1e-5)
    with pytest.raises(error, match=message):
        run(name, {}, formula=formula, ledger=ledger)
    # nor is anything spent on bounds before the refusal
    with pytest.raises(error, match=message):
        run(name, {}, formula=formula, ledger=ledger, bounds={"g": list("abc"), "x": (0, 90)})
    assert ledger.charges == ()


@pytest.mark.parametrize(
    ("options", "more", "error", "message"),
    [
        ({}, {"delta": 0.0}, OptionError, "needs a delta"),
        ({}, {"delta": 0.0, "bounds": {"g": list("abc"), "x": (0, 90)}}, OptionError, "a delta"),
        ({"matching": "mean"}, {}, OptionError, "matching"),
        ({"paper_constants": 1}, {}, OptionError, "True or False"),
        ({"variance_noise": "none"}, {}, OptionError, "variance_noise"),
        ({"sensitivity_noise": "none"}, {}, OptionError, "sensitivity_noise"),
        ({"matchin": "means"}, {}, OptionError, "Did you mean"),
        ({}, {"level": "label"}, OptionError, "level"),
        ({}, {"epsilon": 1e-5}, DPEffectsError, "too small"),
        ({}, {"delta": 1e-60}, BudgetError, "too small"),
    ],
)
def test_bad_options_charge_nothing(options, more, error, message):
    ledger = dpe.Ledger(1.0, 1e-5)
    with pytest.raises(error, match=message):
        run("smooth_matching", options, ledger=ledger, **more)
    assert ledger.charges == ()


@pytest.mark.parametrize("options", [{}, {"variance_noise": "smooth"}])
def test_a_ledger_without_delta_is_not_touched(options):
    ledger = dpe.Ledger(1.0)
    with pytest.raises(BudgetError, match="delta"):
        run("smooth_matching", options, ledger=ledger)
    assert ledger.charges == ()


@cases
@pytest.mark.parametrize("kind", ["one arm", "empty strata", "all strata one-armed", "one record"])
def test_odd_strata_are_data_not_errors(name, options, kind):
    data = frame(300)
    if kind == "one arm":
        data.loc[data["g"] == "a", "t"] = True
    elif kind == "empty strata":
        data["g"] = "b"
    elif kind == "all strata one-armed":
        data["t"] = data["x"] > 40
    else:
        data["g"] = ["a"] + ["b"] * 299
    fit = run(name, options, data)
    assert np.isfinite(fit.estimate)
    assert len(fit.charges) >= 2
    if kind == "all strata one-armed":
        exact = run(name, options, data, epsilon=1e9)
        assert exact.estimate == pytest.approx(0.0, abs=1e-4)
        assert plain(FORMULA, data, name, bounds=BOUNDS).estimate == 0.0


def test_discrete_covariates_of_every_kind():
    data = frame(2_000)
    data["flag"], data["k"] = data["x"] > 70, (data["x"] // 30).astype(int)
    formula = "y ~ t | flag + I(x > 20) + C(k, levels=[0, 1, 2]) + g + g:flag - 1"
    bounds = {"y": (0, 1), "x": (0, 90), "g": list("abc")}
    fit = run("smooth_matching", {}, data, formula, bounds=bounds)
    assert fit.details["strata declared"] == 2 * 2 * 3 * 3


# --- accuracy


def test_half_the_noise_of_the_paper():
    """The same call with the paper's constants: at least twice the noise, in released scales."""
    for n in (600, 5000, 50_000):
        ours = run("smooth_matching", {}, frame(n))
        paper = {"matching": "round_robin", "paper_constants": True}
        assert ours.noise_variance < run("smooth_matching", paper, frame(n)).noise_variance / 4


def test_smooth_noise_shrinks_with_n_and_global_noise_does_not():
    small, large = (run("smooth_matching", {}, frame(n)).noise_variance for n in (5000, 50_000))
    assert large < small / 50
    small, large = (run("global_matching", {}, frame(n)).noise_variance for n in (5000, 50_000))
    assert large == pytest.approx(small, rel=0.01)


@pytest.mark.long
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_released_noise_variance_is_right_on_average(noise):
    """E[S_DP^2] is corrected: released noise variances average to that of the estimates."""
    data, options = frame(2_000, 3), {"sensitivity_noise": noise}
    fits = [run("smooth_matching", options, data, seed=s) for s in range(400)]
    target = plain(FORMULA, data, "smooth_matching", bounds=BOUNDS).estimate
    true = np.mean([(f.estimate - target) ** 2 for f in fits])
    said = np.mean([f.noise_variance for f in fits])
    assert said == pytest.approx(true, rel=0.3)


def test_gaussian_noise_on_the_sensitivity_has_the_scale_of_the_analytic_mechanism():
    """Balle and Wang's curve at the charged epsilon and delta, solved here by bisection."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    fit = run("smooth_matching", {"sensitivity_noise": "gaussian"}, frame(5_000))
    charge = next(s for s in fit.charges if s.share == "smooth sensitivity")
    epsilon, delta = charge.epsilon, charge.delta

    def excess(sigma):
        least, most = 0.5 / sigma - epsilon * sigma, -0.5 / sigma - epsilon * sigma
        return norm.cdf(least) - math.exp(epsilon) * norm.cdf(most) - delta

    sigma = brentq(excess, 0.1, 1e3)
    assert charge.mechanism == "discrete Gaussian"
    assert charge.scale[0] / fit.details["smoothing beta"] == pytest.approx(sigma, rel=1e-4)
    assert sigma < math.sqrt(2 * math.log(1.25 / delta)) / epsilon  # the printed one


@pytest.mark.long
@pytest.mark.parametrize("binary", [False, True])
def test_intervals_cover(binary):
    rng = np.random.default_rng(21)
    hits = 0
    for seed in range(150):
        g = rng.choice(4, 2_000, p=[0.4, 0.3, 0.2, 0.1])
        t = rng.random(g.size) < 0.35 + 0.1 * g
        mean = 0.2 + 0.1 * g + 0.1 * t
        y = (rng.random(g.size) < mean) if binary else mean + rng.uniform(-0.2, 0.2, g.size)
        data = pd.DataFrame({"y": y.astype(float), "t": t, "g": g})
        fit = dpe.dp_ate(
            "y ~ t | C(g, levels=[0, 1, 2, 3])",
            data,
            "smooth_matching",
            epsilon=1.0,
            delta=1e-5,
            bounds={"y": (0, 1)},
            seed=seed,
        )
        low, high = fit.conf_int()
        hits += low <= 0.1 <= high
    assert hits >= 150 * 0.95 - 3.5 * math.sqrt(150 * 0.95 * 0.05)


def test_a_useless_variance_says_so():
    fit = run("smooth_matching", {"variance_noise": "smooth"}, frame(300), epsilon=0.3)
    assert "exceeds any variance" in str(fit.std_error)
    assert "not available" in str(fit.conf_int())


# --- the reference


def test_reference_is_a_regression_by_stratum():
    """Differences in means by stratum, averaged by size: OLS within each stratum gives the same."""
    import statsmodels.formula.api as smf

    data = frame(900, 8).assign(t=lambda d: d["t"].astype(int))
    got = plain("y ~ t | g", data, "smooth_matching", bounds=BOUNDS)
    effect, variance = 0.0, 0.0
    for _, part in data.groupby("g"):
        model = smf.ols("y ~ t", part).fit(cov_type="HC2")
        effect += len(part) / 900 * model.params["t"]
        variance += (len(part) / 900) ** 2 * model.bse["t"] ** 2
    assert got.estimate == pytest.approx(effect)
    assert got.std_error == pytest.approx(math.sqrt(variance))


def test_reference_on_odd_strata():
    rows = np.array([[1.0, 0], [1, 0], [1, 1], [1, 1], [1, 1]])
    treated = np.array([True, False, True, True, True])
    effect, error = stratified(np.array([3.0, 1, 5, 6, 7]), treated, rows)
    assert effect == pytest.approx(2 * 2 / 5)
    assert error == 0.0  # no arm with two records in the only stratum with both
