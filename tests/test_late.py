"""Effects among compliers: limits, intervals of any shape, who takes treatment, refusals."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from statsmodels.sandbox.regression.gmm import IV2SLS

import dpeffects as dpe
from dpeffects.inference.compliers import Wald
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable
from tests.refused import refusals

BOUNDS = {"y": (-2.0, 3.0), "x": (-1.0, 1.0)}
HUGE = 1e6


def study(n=4000, compliers=0.5, seed=1, confounded=False, always=0.2, effect=0.8):
    """Records whose treatment has a cause in common with the outcome."""
    rng = np.random.default_rng(seed)
    x, cause = rng.uniform(-1, 1, n), rng.normal(size=n)
    z = rng.random(n) < (1 / (1 + np.exp(-1.5 * x)) if confounded else 0.4)
    rank = norm.cdf(0.6 * cause + 0.8 * rng.normal(size=n))
    d = np.where(rank > 1 - always, 1, np.where(rank > 1 - always - compliers, z, 0))
    y = np.clip(0.3 * cause + 0.5 * x + effect * d + 0.3 * rng.normal(size=n), -2, 3)
    return pd.DataFrame({"y": y, "d": d, "z": z.astype(int), "x": x})


def late(data, formula="y ~ d", epsilon=HUGE, **given):
    asked = {"instrument": "z", "bounds": BOUNDS, "epsilon": epsilon, "seed": 1}
    return dpe.dp_late(formula, data, **asked | given)


def plain_wald(data):
    """Both differences by arm of the instrument, and their covariance matrix."""
    arms = [data.loc[data["z"] == k, ["y", "d"]].astype(float) for k in (1, 0)]
    difference = (arms[0].mean() - arms[1].mean()).to_numpy()
    return difference, sum(arm.cov().to_numpy() / len(arm) for arm in arms)


def fieller(data, level=0.95):
    """The ends of Fieller's interval, by its quadratic equation."""
    (a, b), v = plain_wald(data)
    q = norm.ppf((1 + level) / 2) ** 2
    roots = np.roots([b * b - q * v[1, 1], -2 * (a * b - q * v[0, 1]), a * a - q * v[0, 0]])
    return np.sort(roots.real)


def test_the_limit_is_the_wald_estimate_with_fieller_s_interval():
    data = study()
    fit, (of_outcome, of_treatment) = late(data), plain_wald(data)[0]
    terms = fit.tidy().set_index("term")["estimate"]
    assert fit.estimate == pytest.approx(of_outcome / of_treatment, abs=1e-4)
    assert terms["first_stage"] == pytest.approx(of_treatment, abs=1e-4)
    assert terms["reduced_form"] == pytest.approx(of_outcome, abs=1e-4)
    ends = fieller(data)
    assert list(fit.conf_int()) == pytest.approx(ends, abs=0.02 * (ends[1] - ends[0]))
    always = data.loc[data["z"] == 0, "d"].mean()
    assert terms["always_takers"] == pytest.approx(always, abs=1e-3)
    assert terms["never_takers"] == pytest.approx(1 - always - of_treatment, abs=1e-3)


@pytest.mark.parametrize("compliers", [0.08, 0.03, 0.0])
def test_whatever_shape_an_interval_has_it_is_fieller_s(compliers):
    data = study(n=2000, compliers=compliers, seed=3)
    (a, b), v = plain_wald(data)
    tried = np.linspace(-5, 5, 401)
    distance = np.abs(a - tried * b)
    sd = np.sqrt(v[0, 0] - 2 * tried * v[0, 1] + tried**2 * v[1, 1])
    kept = distance <= norm.ppf(0.975) * sd
    pieces = late(data).region()
    found = np.any([(low <= tried) & (tried <= high) for low, high in pieces], axis=0)
    assert np.mean(found == kept) > 0.98


@pytest.mark.parametrize("design", ["randomised", "observational"])
def test_covariates_are_used_as_by_two_stage_least_squares(design):
    data = study(n=20_000, confounded=design == "observational")
    fit = late(data, "y ~ d | x", design=design)
    x = np.column_stack([np.ones(len(data)), data["x"]])
    two_stage = IV2SLS(
        data["y"].to_numpy(),
        np.column_stack([x, data["d"]]).astype(float),
        np.column_stack([x, data["z"]]).astype(float),
    ).fit()
    assert fit.estimate == pytest.approx(two_stage.params[2], abs=two_stage.bse[2])
    assert fit.std_error == pytest.approx(two_stage.bse[2], rel=0.5)
    assert fit.identification == ("randomised" if design == "randomised" else "adjusted")
    crude = late(data, "y ~ d")
    if design == "observational":  # what the covariate confounds, the crude ratio has
        assert abs(crude.estimate - 0.8) > 5 * abs(fit.estimate - 0.8)
    else:
        assert fit.std_error < 0.9 * crude.std_error


def test_one_sided_noncompliance_has_no_always_takers():
    data = study(always=0.0)
    terms = late(data).tidy().set_index("term")
    assert terms.loc["always_takers", "estimate"] == pytest.approx(0.0, abs=1e-3)
    assert terms.loc["never_takers", "estimate"] == pytest.approx(0.5, abs=0.05)


def test_where_everybody_complies_it_is_the_effect_of_the_instrument():
    data = study()
    data["d"] = data["z"]
    fit = late(data)
    same = dpe.dp_ate("y ~ z", data, epsilon=HUGE, bounds=BOUNDS, design="randomised", seed=1)
    assert fit.estimate == pytest.approx(same.estimate, abs=1e-3)
    assert list(fit.conf_int()) == pytest.approx(list(same.conf_int()), abs=1e-2)
    noisy = late(data, epsilon=1.0)
    again = dpe.dp_ate("y ~ z", data, epsilon=1, bounds=BOUNDS, design="randomised", seed=1)
    assert noisy.std_error == pytest.approx(again.std_error, rel=0.25)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, HUGE])
def test_without_compliers_nothing_is_excluded_for_long(epsilon):
    data = study(compliers=0.0)
    fit = late(data, epsilon=epsilon)
    assert fit.arm_table.weak
    assert "WEAK INSTRUMENT" in fit.warnings
    assert fit.shape() in ("everything", "outside", "half")
    assert fit.conf_int().upper - fit.conf_int().lower > 5
    assert "WEAK" in str(fit.summary())
    assert "WEAK" in str(fit.report())


@pytest.mark.parametrize("column", ["z", "d", "y"])
@pytest.mark.parametrize("epsilon", [0.05, 2.0])
def test_constant_columns_are_answered(column, epsilon):
    data = study(n=300)
    data[column] = 0
    if column == "z":
        data.loc[0, "z"] = 1
    fit = late(data, epsilon=epsilon)
    assert all(math.isfinite(end) for end in fit.conf_int())
    assert fit.summary().as_text()
    assert fit.report()
    assert -5 <= fit.estimate <= 5


def test_every_format_has_the_first_stage():
    fit = late(study(), "y ~ d | x", epsilon=1.0)
    for text in (fit.summary().as_latex(), fit.summary().as_html()):
        assert "First stage" in text
        assert "only through" in text


def test_the_law_is_that_of_the_combination():
    one = Estimate(0.3, SamplingVariance(0.04, 0.001, 1.0), laplace=(0.1,), gaussian=0.02)
    other = Estimate(0.5, SamplingVariance(0.01, 0.002, 4.0), laplace=(0.2,), gaussian=0.03)
    wald = Wald(one, other, 0.005, 0.0001, 0.4, (-2.0, 2.0))
    found = wald.at(1.0)  # 0.6 beyond the start
    assert found.value == pytest.approx(0.3 - 0.6 * 0.5)
    assert found.sampling.value == pytest.approx(0.04 - 2 * 0.6 * 0.005 + 0.36 * 0.01)
    assert found.laplace == pytest.approx((0.1, 0.12))
    assert found.gaussian == pytest.approx(0.02 + 0.36 * 0.03)
    assert wald.value == pytest.approx(1.0)
    assert wald.p_value(1.0) == pytest.approx(1.0)
    for low, high in wald.region():
        for end in (low, high):
            assert abs(end) == 2.0 or wald.p_value(end) == pytest.approx(0.05, abs=1e-6)


def test_shapes_of_intervals():
    fit = late(study(200), epsilon=1.0)

    def shape(effect, first, most=1.0):
        exact = SamplingVariance(0.01, 0.0, 1.0)
        wald = Wald(Estimate(effect, exact), Estimate(first, exact), 0.0, 0.0, 0.0, (-most, most))
        return type(fit)(**{**vars(fit), "arm_table": wald}).shape()

    assert shape(0.1, 1.0) == "interval"
    assert shape(0.35, 0.5) == "half"
    assert shape(0.3, 0.05, 10.0) == "outside"
    assert shape(0.0, 0.05) == "everything"
    nothing = Wald(
        Estimate(0.1, Unavailable("none")), Estimate(0.1, Unavailable("none")), 0, 0, 0, (-1, 1)
    )
    assert nothing.region()[0].lower == -1
    assert nothing.weak
    for f_statistic in (9.5, 10.5):  # below 10 an instrument is called weak
        first = Estimate(math.sqrt(f_statistic), SamplingVariance(1.0, 0.0, 9.0))
        assert Wald(first, first, 0.0, 0.0, 0.0, (-1.0, 1.0)).weak == (f_statistic < 10.0)
    zero = Estimate(0.0, SamplingVariance(0.0, 0.0, 0.0))
    still = Wald(zero, zero, 0.0, 0.0, 0.0, (-1.0, 1.0))
    assert still.value == 0.0
    assert isinstance(still.std_error, Unavailable)


def test_who_is_treated_may_be_computed_or_boolean():
    data = study(500)
    data["dose"] = np.where(data["d"] == 1, 7.5, 0.0)
    bounds = BOUNDS | {"dose": (0, 10)}
    fit = late(data, "y ~ I(dose > 1)", epsilon=4.0, bounds=bounds)
    assert fit.arm_table == late(data, epsilon=4.0).arm_table
    assert fit.treatment == "I(dose > 1)"
    assert fit.instrument == "z"
    assert late(data.astype({"d": bool, "z": bool}), epsilon=4.0).arm_table == fit.arm_table
    levels = data.assign(z=np.where(data["z"] == 1, "invited", "not"))
    named = late(levels, epsilon=4.0, bounds=BOUNDS | {"z": ["not", "invited"]})
    assert named.arm_table == fit.arm_table


def test_rows_that_do_not_count_do_not_move_it():
    data = study(2000)
    more = pd.concat(
        [data.assign(keep=1, w=1.0), study(500, seed=7, effect=-1).assign(keep=0, w=0)]
    )
    expected = late(data).estimate
    assert late(more, subset="keep == 1").estimate == pytest.approx(expected, abs=1e-2)
    weighted = late(more, weights="w", bounds=BOUNDS | {"w": (0, 1)})
    assert weighted.estimate == pytest.approx(expected, abs=1e-2)
    gaps = more.reset_index(drop=True).assign(y=lambda f: f["y"].where(f["keep"] == 1))
    assert late(gaps, missing="complete").estimate == pytest.approx(expected, abs=1e-2)
    twice = pd.concat([data.assign(who=range(2000))] * 2)
    unit = late(twice, unit="who")
    assert unit.estimate == pytest.approx(expected, abs=1e-2)
    assert unit.std_error == pytest.approx(late(data).std_error, rel=0.05)


test_refusals_come_before_any_charge = refusals(
    lambda **asked: late(study(200), **{"formula": "y ~ d", **asked}),
    ({"instrument": ""}, "the instrument is missing"),
    ({"instrument": "x", "formula": "y ~ d | x"}, "is also in the formula"),
    ({"instrument": "d"}, "is also in the formula"),
    ({"instrument": 3}, "name of a column"),
    ({"instrument": ["z"], "formula": "y ~ d | ."}, "name of a column"),
    ({"instrument": "nowhere"}, "nowhere"),
    ({"bounds": {"x": (-1, 1)}}, "declared"),
    ({"formula": "y ~ C(d, levels=[0, 1])"}, "column of 0 and 1"),
    ({"formula": "Surv(y, d) ~ x"}, "dp_survival"),
    ({"formula": "y ~ x"}, "must be 0 or 1"),
    ({"cluster": "x"}, "cluster"),
    ({"level": "label"}, "level"),
    ({"design": "other"}, "design"),
    ({"missing": {"y": "weight"}}, "complete"),
    (
        {"formula": "y ~ d | x", "on_unadjusted": "error", "epsilon": 0.01},
        "nothing was charged",
    ),
    error=dpe.DPEffectsError,
)


def test_first_stage_and_effect_are_paid_for():
    fit = late(study(2000), "y ~ d | x", epsilon=1.0, delta=1e-6)
    assert {charge.label.split(":")[0] for charge in fit.charges} >= {"first stage", "effect"}


@pytest.mark.long
def test_intervals_cover_and_more_epsilon_is_not_worse():
    widths, hits, runs = {0.5: 0.0, 1.0: 0.0, 4.0: 0.0}, 0, 40
    for seed in range(runs):
        data = study(3000, compliers=0.4, seed=seed)
        for epsilon in widths:
            fit = late(data, epsilon=epsilon, seed=1000 + seed)
            widths[epsilon] += fit.std_error
            hits += epsilon == 1.0 and fit.arm_table.p_value(0.8) > 0.05
    assert hits >= 34  # of 40 at 95 %: fewer by a chance of one in 500
    assert widths[0.5] > widths[1.0] > widths[4.0]
