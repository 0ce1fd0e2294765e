"""Rates per person-time: sums and squares by brute force, statsmodels, noise, refusals, engines."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpeffects as dpe
from dpeffects.abilities.rate import lacking, most_lacking
from dpeffects.errors import BoundsError, DataError, FormulaError, OptionError
from dpeffects.formula.expression import Column, Pair
from dpeffects.inference.rates import ArmSums, RateTable
from dpeffects.inference.tables import Confounding
from dpeffects.privacy.rows import Block
from tests.refused import refusals

BOUNDS = {"events": (0, 10), "years": (0, 5), "x1": (0, 1), "x2": (0, 1), "x3": (0, 1)}
ASKED = {"offset": "years", "epsilon": 1.0, "bounds": BOUNDS}
TRIAL = {**ASKED, "design": "randomised"}
PLAIN, ADJUSTED = "events ~ treatment", "events ~ treatment | x1 + x2 + x3"


def made(n: int = 600, seed: int = 1, **more: object) -> pd.DataFrame:
    return dpe.simulate("rates", n=n, seed=seed, **more).frame


def poisson(frame: pd.DataFrame) -> object:
    """A Poisson regression with exposure and robust standard errors."""
    design = sm.add_constant(frame["treatment"].astype(float))
    family = sm.families.Poisson()
    model = sm.GLM(frame["events"], design, family=family, exposure=frame["years"])
    return model.fit(cov_type="HC0")


@pytest.mark.parametrize("more", [{}, {"most": 1, "dispersion": 1.0}, {"dispersion": 4.0}])
def test_without_noise_rates_are_those_of_a_robust_poisson_regression(more: dict) -> None:
    frame = made(4000, randomised=True, **more)
    top = more.get("most", 10)
    asked = {**TRIAL, "epsilon": 1e7, "bounds": {"events": (0, top), "years": (0, 5)}}
    found = dpe.dp_rate(PLAIN, frame, **asked, seed=1).tidy().set_index("term")
    expected = poisson(frame)
    log_control, log_ratio = expected.params
    ratio = found.loc["rate_ratio"]
    assert ratio["estimate"] == pytest.approx(math.exp(log_ratio), rel=1e-4)
    assert ratio["std_error"] / ratio["estimate"] == pytest.approx(expected.bse.iloc[1], rel=1e-3)
    control = found.loc["rate_control"]
    assert control["estimate"] == pytest.approx(math.exp(log_control), rel=1e-4)
    assert control["std_error"] == pytest.approx(
        math.exp(log_control) * expected.bse.iloc[0], rel=1e-3
    )
    rates = found.loc["rate_treated", "estimate"], control["estimate"]
    assert found.loc["rate_difference", "estimate"] == pytest.approx(rates[0] - rates[1])
    # the interval of the ratio is Fieller's: close to that of the logarithm
    ends = np.exp(expected.conf_int().iloc[1])
    assert ratio[["conf_low", "conf_high"]].to_numpy(float) == pytest.approx(ends, rel=0.01)


def test_adjusted_rates_are_those_of_weighted_sums() -> None:
    frame = made(20_000)
    fit = dpe.dp_rate(ADJUSTED, frame, **{**ASKED, "epsilon": 1e6}, seed=1)
    t, x = frame["treatment"], sm.add_constant(frame[["x1", "x2", "x3"]])
    e = sm.Logit(t, x).fit(disp=0).predict(x)
    for arm, weight, term in ((1, 1 / e, 0), (0, 1 / (1 - e), 1)):
        w = weight[t == arm]
        own = frame[t == arm]
        rate = (w * own["events"]).sum() / (w * own["years"]).sum()
        assert fit.tidy()["estimate"][term] == pytest.approx(rate, rel=0.02)
    crude = dpe.dp_rate(PLAIN, frame, **{**ASKED, "epsilon": 1e6}, seed=1)
    truth = frame["mu1"].sum() / frame["mu0"].sum()
    assert abs(fit.tidy()["estimate"][3] - truth) < 0.06
    assert crude.tidy()["estimate"][3] - truth > 0.25
    assert (fit.identification, crude.identification) == ("adjusted", "unadjusted")
    assert np.isnan(crude.tidy()["p_value"][3])
    assert "ASSOCIATION" in str(crude.summary())


def test_what_squares_lack_is_never_negative_and_within_its_box() -> None:
    rng = np.random.default_rng(3)
    n = 4000
    events, time = rng.choice([0.0, 0.1, 0.5, 0.9, 1.0], (2, n))
    outcome = Pair(Column("a"), Column("b")).together(events, time)
    rows = Block(treated=rng.random(n) < 0.5, outcome=outcome)
    for rates in ([0.0, 0.0], [0.05, 0.6], [1.0, 16.0]):
        largest = most_lacking(np.array(rates))
        found = lacking(None, np.array(rates), largest)(rows)
        assert np.abs(found).max() <= 1.0 + 1e-9
        assert (np.where(rows.treated, found, -found) >= -1e-7).all()
        r, most = np.where(rows.treated, *rates), np.where(rows.treated, *largest)
        there = np.where(time > 0, 1.0, 0.0)
        square = there * (events - r * time) ** 2
        short = np.where(rows.treated, found, -found) * most
        assert there * (events + r**2 * time) - short == pytest.approx(square, abs=1e-5)


def test_records_without_time_count_as_nothing() -> None:
    frame = made(300, randomised=True)
    more = frame.head(60).assign(years=np.resize([0.0, -1.0, -50.0], 60), events=10)
    asked = {**TRIAL, "epsilon": 1e6}
    one, other = (dpe.dp_rate(PLAIN, x, **asked, seed=1) for x in (frame, pd.concat([frame, more])))
    assert one.tidy()["estimate"].tolist() == pytest.approx(
        other.tidy()["estimate"].tolist(), rel=1e-4
    )


@pytest.mark.long
def test_noise_in_both_rates_is_what_their_law_says() -> None:
    """Half the variance of sums by arm, and independent but for its distribution."""
    frame = made(400, randomised=True)
    fits = [dpe.dp_rate(PLAIN, frame, **TRIAL, seed=seed) for seed in range(400)]
    events = np.array([fit.arm_table.sums.events for fit in fits])
    own = fits[0].arm_table.sums
    treated = frame["treatment"] == 1
    assert events.mean(axis=0) == pytest.approx(
        [frame["events"][treated].sum(), frame["events"][~treated].sum()], abs=6.0
    )
    sd = 2.0 * own.scales[0]  # two Laplace terms of this scale
    assert events.std(axis=0) == pytest.approx([sd, sd], rel=0.15)
    assert sd == pytest.approx(10 * 2.5 / 0.82, rel=1e-6)
    assert abs(np.corrcoef(events.T)[0, 1]) < 0.2


def test_variance_of_noisy_rates_by_simulation() -> None:
    rng = np.random.default_rng(5)
    sums = ArmSums((300.0, 500.0), (1000.0, 1200.0), (8.0, 20.0))
    table = RateTable(sums, (0.0, 0.0), (0.0, 0.0), (10.0, 5.0))
    draws = rng.laplace(size=(2, 2, 20_000)) * np.array([[[8.0]], [[20.0]]])
    (e1, e0), (t1, t0) = (
        (own[0] + half + gap, own[1] + half - gap)
        for own, (half, gap) in zip((sums.events, sums.time), draws, strict=True)
    )
    means = table.means()
    for a, b in ((1.0, 0.0), (1.0, -1.0), (1.0, -0.72)):
        expected = np.var(a * e1 / t1 + b * e0 / t0)
        assert means.combined(a, b).noise_variance == pytest.approx(expected, rel=0.05)
    per = table.means(1000.0)
    assert per.treated == pytest.approx(1000.0 * means.treated)
    assert per.combined(1, -1).noise_variance == pytest.approx(
        1e6 * means.combined(1, -1).noise_variance
    )


@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_the_largest_variance_is_that_of_records_at_the_ends(unit: float) -> None:
    """30 records of 10 events and no time, 200 of 5 years and no event: .3 events a year."""
    sums = ArmSums((300.0, 500.0), (1000.0, 1200.0), (0.0, 0.0))
    table = RateTable(sums, (0.0, 0.0), (0.0, 0.0), (10.0, 5.0))
    squares = 30 * 10.0**2 + 200 * (0.3 * 5.0) ** 2
    found = table.means(unit).sampling[0].variance.largest
    assert found == pytest.approx(squares * (unit / 1000.0) ** 2)


def test_what_is_left_of_confounding_does_not_depend_on_the_unit_of_time() -> None:
    """By hand for rare events, whose mean deviation is twice their rate."""
    about = Confounding(0.1, 0.5, 0.3, 0.01, far=(0.4, 0.6))
    sums = ArmSums((30.0, 20.0), (5000.0, 4000.0), (0.1, 0.1))
    table = RateTable(sums, (30.0, 20.0), (0.0, 0.0), (1.0, 1.0), (5000.0, 4000.0), about)
    (year,), (thousand,) = table.means(1.0).parts, table.means(1000.0).parts
    apart = 0.4 * 2 * 30 / 5000 + 0.6 * 2 * 20 / 4000
    assert year.treated - year.control == pytest.approx(apart * math.sqrt(0.01 + 0.3 * 0.1))
    assert thousand.treated == pytest.approx(1000.0 * year.treated)


@pytest.mark.parametrize(
    "sums", [((-3.0, -1.0), (-5.0, 2.0)), ((0.0, 0.0), (0.0, 0.0)), ((5.0, -8.0), (100.0, 90.0))]
)
@pytest.mark.parametrize("gaussian", [False, True])
def test_whatever_is_released_gives_an_answer(sums: tuple, gaussian: bool) -> None:
    own = ArmSums(*sums, (10.0, 20.0), gaussian)
    about = Confounding(0.1, 0.5, 0.3, 0.01)
    table = RateTable(own, (-9.0, 0.0), (5.0, 5.0), (10.0, 5.0), (50.0, 40.0), about, own)
    fit = dpe.dp_rate(PLAIN, made(), **TRIAL, seed=1)
    from dataclasses import replace

    rows = replace(fit, arm_table=table).tidy().set_index("term")
    assert rows.loc["rate_ratio", "conf_low"] == 0.0
    assert rows.loc["rate_ratio", "conf_high"] == math.inf
    assert (rows["conf_low"] <= rows["conf_high"]).all()
    assert (rows.loc[["rate_treated", "rate_control"], "conf_low"] >= 0.0).all()
    assert "inf" in str(replace(fit, arm_table=table).summary())


def test_rates_not_bounded_away_from_zero_have_no_upper_end() -> None:
    frame = made(120, randomised=True, rate=0.02)
    fit = dpe.dp_rate(PLAIN, frame, **{**TRIAL, "epsilon": 0.2}, seed=3)
    low, high = fit.conf_int()[3]
    assert low == 0.0
    assert high == math.inf


def test_csv_files_codebooks_and_dots_know_the_offset(tmp_path) -> None:
    data = made(300)[["treatment", "events", "years", "x1", "x2"]]
    path = tmp_path / "data.csv"
    data.to_csv(path, index=False)
    codebook = pd.DataFrame(
        {
            "name": ["events", "years", "x1", "x2"],
            "lower": [0, 0, 0, 0],
            "upper": [10, 5, 1, 1],
        }
    )
    asked = {"offset": "years", "epsilon": 1.0, "adjust": True, "seed": 2, "bounds": codebook}
    here = dpe.dp_rate("events ~ treatment | .", data, **asked)
    there = dpe.dp_rate("events ~ treatment | x1 + x2", path, **asked)
    assert here.arm_table == there.arm_table
    assert here.formula == "events ~ treatment | x1 + x2"
    assert {name for name, *_ in here.bounds} == {"events", "years", "x1", "x2"}


def test_missing_times_and_subsets_count_as_nothing() -> None:
    data = made(500, randomised=True)
    holes = data.assign(years=data["years"].mask(data.index < 100))
    asked = {**TRIAL, "epsilon": 1e6, "seed": 1}
    with pytest.raises(DataError, match="missing values in years"):
        dpe.dp_rate(PLAIN, holes, **asked)
    complete = dpe.dp_rate(PLAIN, holes, **asked, missing={"years": "complete"})
    rest = dpe.dp_rate(PLAIN, data.iloc[100:], **asked)
    inside = dpe.dp_rate(PLAIN, data.assign(i=data.index), **asked, subset="i >= 100")
    for fit in (complete, inside):
        assert fit.tidy()["estimate"].tolist() == pytest.approx(
            rest.tidy()["estimate"].tolist(), rel=1e-3
        )
        assert fit.tidy()["std_error"].tolist() == pytest.approx(
            rest.tidy()["std_error"].tolist(), rel=1e-2
        )


def test_weights_and_units_count_as_they_should() -> None:
    data = made(2000, randomised=True)
    weight = np.resize([1.0, 4.0], len(data))
    asked = {**TRIAL, "epsilon": 1e6, "seed": 1, "bounds": {**BOUNDS, "w": (0, 4)}}
    fit = dpe.dp_rate(PLAIN, data.assign(w=weight), **asked, weights="w").tidy()
    errors = []
    for arm in (1, 0):
        own, w = data[data["treatment"] == arm], weight[data["treatment"] == arm]
        rate = (w * own["events"]).sum() / (w * own["years"]).sum()
        assert fit["estimate"][1 - arm] == pytest.approx(rate, rel=1e-3)
        square = (w**2 * (own["events"] - rate * own["years"]) ** 2).sum()
        errors.append(math.sqrt(square) / (w * own["years"]).sum())
    assert fit["std_error"][:2].tolist() == pytest.approx(errors, rel=0.1)
    once = data.head(500).assign(id=range(500))
    thrice = pd.concat([once] * 3, ignore_index=True)
    fits = [dpe.dp_rate(PLAIN, x, **TRIAL, unit="id", seed=5) for x in (once, thrice)]
    assert fits[1].n == 500
    assert fits[0].arm_table.sums.events == pytest.approx(fits[1].arm_table.sums.events, rel=1e-3)


test_refusals_cost_nothing = refusals(
    partial(dpe.dp_rate, PLAIN, made(), **ASKED),
    ({"bounds": {"events": (0, 10)}}, BoundsError, "largest possible value of years"),
    ({"bounds": {"years": (0, 5)}}, BoundsError, "largest possible value of events"),
    ({"bounds": {"events": (0, 10), "years": (5, 5)}}, BoundsError, "the lower end must be below"),
    ({"bounds": {"events": (-1, 10), "years": (0, 5)}}, BoundsError, "from 0 to the largest"),
    ({"bounds": {"events": (0, 10), "years": (-5, 5)}}, BoundsError, "from 0 to the largest"),
    ({"offset": "months"}, DataError, "'months'"),
    ({"offset": "events"}, OptionError, "is the outcome"),
    ({"offset": "treatment"}, FormulaError, "also used in the outcome"),
    ({"offset": ""}, OptionError, "needs person-time"),
    ({"offset": 3}, OptionError, "name of a column"),
    ({"per": 0}, OptionError, "per must be"),
    ({"design": "trial"}, OptionError, "design must be"),
    ({"adjust": True}, OptionError, "needs covariates"),
    ({"cluster": "x1"}, OptionError, "cluster is only for average effects"),
    ({"missing": "weight"}, OptionError, "average effects"),
    ({"missing": {"yeras": "complete"}}, OptionError, "years"),
    ({"horizon": 3}, OptionError, "It is for dp_survival"),
)


def test_other_functions_point_to_this_one() -> None:
    with pytest.raises(OptionError, match="dp_rate"):
        dpe.dp_ate(PLAIN, made(), epsilon=1, bounds=BOUNDS, offset="years")
    with pytest.raises(FormulaError, match="dp_rate"):
        dpe.dp_ate(f"{PLAIN} | offset(years)", made(), epsilon=1, bounds=BOUNDS)


def test_words_and_exports() -> None:
    fit = dpe.dp_rate(PLAIN, made(3000, randomised=True), **TRIAL, per=100, seed=1)
    assert "events / years" in str(fit.summary())
    assert "rate ratio" in fit.summary().as_latex()
    assert "per 100" in str(fit.summary())
    text = " ".join(str(fit.report()).split())
    assert "rate ratio" in text
    assert "per 100" in text
    assert "rate" in list(dpe.methods()["method"])
    assert "offset" in dpe.methods("rate")
    assert fit.identification == "randomised"
    booleans = made(500, most=1, dispersion=1.0, randomised=True).astype({"events": bool})
    declared = {**TRIAL, "bounds": {"years": (0, 5)}}
    assert dpe.dp_rate(PLAIN, booleans, **declared, seed=1).arm_table.tops == (1.0, 5.0)


def test_gaussian_noise_where_a_delta_pays_for_it() -> None:
    fit = dpe.dp_rate(PLAIN, made(), **{**TRIAL, "delta": 1e-6, "epsilon": 0.5}, seed=1)
    assert fit.guarantee.delta <= 1e-6
    assert np.isfinite(fit.tidy()["std_error"]).all()
