"""Life tables against Kaplan-Meier, Cox, log-rank, Wilson and Newcombe; noise; odd tables."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from statsmodels.duration.api import PHReg, SurvfuncRight, survdiff
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

import dpeffects as dpe
from dpeffects.abilities.survival import SurvivalEffects
from dpeffects.errors import OptionError
from dpeffects.formula.expression import Column, Survival
from dpeffects.inference.life_table import CumulativeProportions, LifeTable
from dpeffects.inference.simultaneous import critical_value
from dpeffects.inference.tables import ArmTable
from tests.calls import ENGINES

ALONE = 1.959964
TRIAL = {"horizon": 360.0, "design": "randomised"}
FORMULA = "Surv(time, event) ~ treatment"
LARGE = 1e6


def exact(frame: pd.DataFrame, bins: int, horizon: float = 360.0, noise: float = 0.0) -> LifeTable:
    """The life table of a frame, with no noise in it."""
    edges = np.linspace(0.0, horizon, bins + 1)
    node = Survival(Column("time"), Column("event"), tuple(edges))
    cell = node.cell(frame["time"].to_numpy(float), frame["event"].to_numpy(float))
    arms = [cell[frame["treatment"] == arm].astype(int) for arm in (1, 0)]
    counts = np.stack([np.bincount(arm, minlength=node.cells) for arm in arms]).astype(float)
    return LifeTable(ArmTable(counts, (noise, noise)), edges)


def kaplan_meier(frame: pd.DataFrame, arm: int, times: np.ndarray) -> np.ndarray:
    own = frame[frame["treatment"] == arm]
    curve = SurvfuncRight(own["time"], own["event"])
    before = np.searchsorted(curve.surv_times, times, side="right")
    return np.concatenate([[1.0], curve.surv_prob])[before]


CASES = [
    {"hazard_ratio": 0.3},
    {"hazard_ratio": 1.0, "shape": 0.7},
    {"hazard_ratio": 3.0, "shape": 2.0},
    {"hazard_ratio": 0.3, "censoring": 0.9},
    {"hazard_ratio": 3.0, "censoring": 0.9, "treated": 0.1},
    {"hazard_ratio": 0.5, "treated": 0.1, "risk": 0.05},
    {"hazard_ratio": 2.0, "risk": 0.7},
]


@pytest.mark.sampled(14)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("bins", [10, 100])
def test_without_noise_the_table_says_what_kaplan_meier_cox_and_the_log_rank_test_do(case, bins):
    frame = dpe.simulate("survival", 4_000, 5, prognosis=0.0, randomised=True, **case).frame
    found, near = exact(frame, bins), 1e-2 if bins == 10 else 3e-3
    curve = kaplan_meier(frame, 1, found.edges[1:])
    assert np.abs(1.0 - found.shares(found.edges[1:]).values[0] - curve).max() < near
    fine = np.linspace(0.0, 360.0, 5001)
    means = [np.trapezoid(kaplan_meier(frame, arm, fine), fine) / 360.0 for arm in (1, 0)]
    lost = found.shares(np.array([360.0]), lost=True).values[:, 0]
    assert 1.0 - lost == pytest.approx(means, abs=near)
    cox = PHReg(frame["time"], frame["treatment"], status=frame["event"]).fit()
    ratio, error = found.hazard_ratio()
    assert ratio == pytest.approx(math.exp(cox.params[0]), rel=0.05 if bins == 10 else 0.01)
    assert error == pytest.approx(cox.bse[0], rel=0.05)
    low, high = found.hazard_ratios(ALONE)
    assert np.log([low, high]) == pytest.approx(cox.conf_int()[0], abs=0.1)
    chi2, _ = survdiff(frame["time"], frame["event"], frame["treatment"])
    assert found.logrank**2 == pytest.approx(chi2, rel=0.12, abs=0.2)
    assert np.sign(found.logrank) == np.sign(cox.params[0])


def test_everything_follows_an_independent_library_where_it_is_installed():
    lifelines = pytest.importorskip("lifelines")
    frame = dpe.simulate("survival", 5000, 2, randomised=True).frame
    cox = lifelines.CoxPHFitter().fit(frame[["time", "event", "treatment"]], "time", "event")
    assert exact(frame, 12).hazard_ratio()[0] == pytest.approx(cox.hazard_ratios_.iloc[0], rel=0.05)


def test_intervals_are_those_of_wilson_and_newcombe_without_censoring_and_noise():
    cells = np.array([[0, 3, 0, 4, 93], [0, 20, 0, 10, 170]], float)
    found = LifeTable(ArmTable(cells, (0.0, 0.0)), np.array([0.0, 1.0, 2.0])).shares(
        np.array([2.0])
    )
    events, sizes = [7, 30], [100, 200]
    assert found.values[:, 0] == pytest.approx(np.divide(events, sizes), rel=1e-4)
    # an arm with fewer than ten events borrows some to know how many people it rests on
    assert found.sizes[:, 0] == pytest.approx(sizes, rel=0.01)
    lower, upper = found.each(ALONE)
    for arm in range(2):
        expected = proportion_confint(events[arm], sizes[arm], method="wilson")
        assert (lower[arm, 0], upper[arm, 0]) == pytest.approx(expected, rel=5e-3)
    low, high = found.differences(ALONE)
    expected = confint_proportions_2indep(7, 100, 30, 200, method="newcomb", compare="diff")
    assert (low[0], high[0]) == pytest.approx(expected, abs=1e-3)
    low, high = found.ratios(ALONE)
    expected = confint_proportions_2indep(7, 100, 30, 200, method="score", compare="ratio")
    assert np.log([low[0], high[0]]) == pytest.approx(np.log(expected), abs=0.1)


def test_noise_that_arms_share_counts_in_differences_and_ratios():
    """Without sampling error: a normal distribution, and Fieller's quadratic equation."""
    (x, y), (a, b), c, q = (0.5, 0.4), (4e-4, 9e-4), 3e-4, ALONE**2
    values, noise, sizes = np.array([[[x], [y]], [[a], [b]], [[1e15], [1e15]]])
    found = CumulativeProportions(values, values, values, sizes, noise, np.array([c]), noise)
    far = math.sqrt(q * (a + b - 2.0 * c))
    assert np.ravel(found.differences(ALONE)) == pytest.approx([x - y - far, x - y + far], abs=1e-6)
    ends = np.roots([y * y - q * b, -2.0 * (x * y - q * c), x * x - q * a])
    assert np.ravel(found.ratios(ALONE)) == pytest.approx(np.sort(ends), rel=1e-3)


def test_a_joint_band_is_as_wide_as_simulated_errors_say():
    rng = np.random.default_rng(1)
    steps = np.tril(np.ones((10, 10)))
    for root in (np.eye(10), steps, steps * np.linspace(1.0, 3.0, 10)):
        covariance = root @ root.T
        errors = rng.normal(size=(200_000, 10)) @ root.T / np.sqrt(np.diag(covariance))
        drawn = np.quantile(np.abs(errors).max(axis=1), 0.95)
        assert critical_value(covariance, 0.95) == pytest.approx(drawn, rel=0.01)
    assert critical_value(np.zeros((3, 3)), 0.9) == pytest.approx(1.645, abs=1e-3)


def fit_of(counts, noise=8.0, edges=(0.0, 1.0, 2.0, 3.0)) -> SurvivalEffects:
    """A result whose table is as given."""
    data = pd.DataFrame({"t": [0, 1] * 4, "time": [0.5] * 8, "died": [1] * 8})
    asked = {"horizon": 3.0, "bins": 3, "epsilon": 1.0, "design": "randomised", "seed": 1}
    made = dpe.dp_survival("Surv(time, died) ~ t", data, **asked)
    table = ArmTable(np.array(counts, float), (noise, noise))
    return SurvivalEffects(**{**vars_of(made), "arm_table": table, "edges": edges})


def vars_of(made) -> dict:
    from dataclasses import fields

    return {field.name: getattr(made, field.name) for field in fields(made)}


ODD = {
    "nobody": np.zeros((2, 7)),
    "fewer than nobody": -5.0 * np.ones((2, 7)),
    "no events": [[0, 0, 0, 0, 0, 0, 500]] * 2,
    "all at once": [[0, 500, 0, 0, 0, 0, 0]] * 2,
    "all censored": [[300, 0, 200, 0, 100, 0, 0]] * 2,
    "one treated": [[0, 1, 0, 0, 0, 0, 0], [10, 20, 30, 20, 10, 20, 900]],
    "fewer than no events": [[0, -9, 0, -9, 0, -9, 500], [0, 20, 0, 20, 0, 20, 500]],
    "no control events": [[0, 20, 0, 20, 0, 20, 500], [0, 0, 0, 0, 0, 0, 500]],
    "only noise late": [[300, 50, 100, 40, -3, 2, -4], [300, 50, 100, 40, 5, -2, 1]],
    "enormous": [[1e9, 1e8, 1e9, 1e8, 1e9, 1e8, 1e9]] * 2,
}


@pytest.mark.sampled(5)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ODD)
def test_any_table_has_answers(name):
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    fit = fit_of(ODD[name])
    frame = fit.tidy()
    ends = frame.set_index("term")[["conf_low", "conf_high"]].drop("logrank")
    assert not ends.isna().any().any()
    assert (ends["conf_low"] <= ends["conf_high"]).all()
    assert frame.query("term == 'logrank'")["p_value"].between(0, 1).all()
    curves = fit.curves()
    assert curves[["survival", "conf_low", "conf_high"]].stack().between(0, 1).all()
    assert (curves["at_risk"] >= 0).all()
    for _, arm in curves.groupby("arm"):
        assert (arm["survival"].diff().dropna() <= 0).all()
    assert len(fit.median()) == 2
    assert str(fit.summary())
    assert fit.report()
    assert type(fit).from_json(fit.to_json()) == fit
    plt.close(fit.plot().figure)


def test_where_nobody_is_at_risk_intervals_allow_for_anything_and_the_summary_says_so():
    fit = fit_of(ODD["only noise late"])
    assert fit.life.known_until == 2.0
    assert "TOO FEW AT RISK after 2" in fit.warnings
    before, after = fit.risk(at=[2.0, 3.0]).query("term == 'risk_treated'").to_dict("records")
    assert before["conf_high"] < 0.9
    assert after["conf_high"] == 1.0
    assert after["conf_low"] <= before["estimate"]
    early, late = (fit.rmst(end).set_index("term").loc["rmst_treated"] for end in (2.0, 3.0))
    assert late["conf_low"] == pytest.approx(early["conf_low"], abs=0.2)
    assert late["conf_high"] > early["conf_high"] + 0.3


def test_ratios_that_no_test_can_bound_say_so():
    fit = fit_of(ODD["no control events"]).tidy().set_index("term")
    assert fit.loc["risk_ratio", "conf_high"] == math.inf
    assert fit.loc["risk_ratio", "conf_low"] > 1.0
    assert fit.loc["hazard_ratio", "conf_high"] == math.inf
    none = fit_of(ODD["no events"]).tidy().set_index("term")
    assert none.loc["hazard_ratio", ["conf_low", "conf_high"]].tolist() == [0.0, math.inf]
    assert none.loc["hazard_ratio", "p_value"] == 1.0


def test_p_values_and_intervals_agree():
    trial = dpe.simulate("survival", 3000, 4, randomised=True, hazard_ratio=0.85)
    fit = dpe.dp_survival(FORMULA, trial, epsilon=2, seed=3, **TRIAL)
    for term in fit.terms():
        if term.tested and term.name != "logrank":
            interval = term.conf_int(1.0 - term.p_value)
            null = 1.0 if "ratio" in term.name else 0.0
            assert min(abs(interval.lower - null), abs(interval.upper - null)) < 1e-3
    frame = fit.tidy().set_index("term")
    pairs = [("rmst_difference", "rmst_ratio"), ("risk_difference", "risk_ratio")]
    for one, other in [*pairs, ("hazard_ratio", "logrank")]:
        assert frame.loc[one, "p_value"] == pytest.approx(frame.loc[other, "p_value"], abs=1e-4)


def test_a_call_with_a_large_epsilon_gives_the_known_answers():
    trial = dpe.simulate("survival", 20_000, 6, randomised=True)
    fit = dpe.dp_survival(FORMULA, trial, epsilon=LARGE, **TRIAL)
    frame = trial.frame
    curves = fit.curves()
    for arm, name in ((1, "treated"), (0, "control")):
        own = curves[curves["arm"] == name]
        expected = kaplan_meier(frame, arm, own["time"].to_numpy())
        assert np.abs(own["survival"].to_numpy() - expected).max() < 2e-3
        assert own["at_risk"].iloc[:-1].tolist() == [
            ((frame["treatment"] == arm) & (frame["time"] > time)).sum()
            + ((frame["treatment"] == arm) & (frame["time"] == 0.0) & (time == 0)).sum()
            for time in own["time"].iloc[:-1]
        ]
    found = fit.tidy().set_index("term")
    truth = (frame["mu1"] - frame["mu0"]).mean()
    assert found.loc["rmst_difference", "conf_low"] < truth
    assert found.loc["rmst_difference", "conf_high"] > truth
    harsh = dpe.simulate("survival", 20_000, 6, randomised=True, risk=0.9)
    median = dpe.dp_survival(FORMULA, harsh, epsilon=LARGE, **TRIAL).median().set_index("term")
    for arm, name in ((1, "treated"), (0, "control")):
        own = harsh.frame[harsh.frame["treatment"] == arm]
        curve = SurvfuncRight(own["time"], own["event"])
        expected, (low, high) = curve.quantile(0.5), curve.quantile_ci(0.5)
        row = median.loc[f"median_{name}"]
        assert row["estimate"] == pytest.approx(expected, abs=2.0)
        assert (row["conf_low"], row["conf_high"]) == pytest.approx((low, high), abs=3.0)


def test_adjustment_removes_confounding_of_a_simulated_study():
    study = dpe.simulate("survival", 20_000, 7)
    truth = (study.frame["mu1"] - study.frame["mu0"]).mean()
    given = {"horizon": 360.0, "epsilon": LARGE}
    adjusted = dpe.dp_survival(f"{FORMULA} | x1 + x2", study, **given).rmst().set_index("term")
    crude = dpe.dp_survival(FORMULA, study, **given)
    assert adjusted.loc["rmst_difference", "estimate"] == pytest.approx(truth, rel=0.2)
    assert crude.associated
    found = crude.rmst().set_index("term").loc["rmst_difference"]
    assert found["estimate"] < truth - 5.0
    assert found["conf_high"] < truth  # the interval is that of the association
    terms = [term.name for term in crude.terms()]
    low, high = crude.effect_conf_int()[terms.index("rmst_difference")]
    assert low < truth < high  # confounding is allowed for
    assert math.isnan(found["p_value"])


@pytest.mark.parametrize("engine", [name for name in ENGINES if name])
@pytest.mark.parametrize("bins", [2, 7, (10.0, 30.0, 90.0)])
def test_engines_put_times_at_the_ends_of_intervals_where_the_memory_does(engine, bins):
    pytest.importorskip(engine.split()[0])
    ends = (0.0, 10.0, 30.0, 90.0, *(90.0 * k / 7 for k in range(1, 8)), 45.0, 200.0)
    times = [x for end in ends for x in (np.nextafter(end, -1), end, np.nextafter(end, 999))]
    rows = [(t, x, e) for t in (0, 1) for x in times for e in (0, 1)]
    data = pd.DataFrame(rows, columns=["treatment", "time", "event"])
    given = {"horizon": 90.0, "bins": bins, "epsilon": 1.0, "design": "randomised", "seed": 2}
    here = dpe.dp_survival(FORMULA, data, **given)
    assert dpe.dp_survival(FORMULA, ENGINES[engine](data), **given).arm_table == here.arm_table


def test_hazards_that_cross_are_noticed_and_proportional_ones_are_not():
    rng = np.random.default_rng(3)
    n = 4000
    treatment = rng.integers(0, 2, n)
    shape = np.where(treatment == 1, 0.6, 2.0)
    until = 250.0 * rng.exponential(size=n) ** (1.0 / shape)
    time = np.minimum(until, 360.0)
    event = (until <= 360.0).astype(int)
    crossing = pd.DataFrame({"treatment": treatment, "time": time, "event": event})
    fit = dpe.dp_survival(FORMULA, crossing, epsilon=1, seed=1, **TRIAL)
    assert "hazard ratio falls with time" in str(fit.summary())
    parallel = dpe.simulate("survival", n, 3, randomised=True, prognosis=0.0)
    fit = dpe.dp_survival(FORMULA, parallel, epsilon=1, seed=1, **TRIAL)
    assert "with time" not in str(fit.summary())


def test_bins_in_which_one_arm_is_lost_in_noise_say_nothing_of_a_drift():
    control = [100, 100, 100, 100, 100, 100, 100, 100, 200]
    found = []
    for late in ([0, 30, 0, 0, 10], [30, 0, 0, 0, 10]):
        cells = np.array([[300, 100, 500, 60, *late], control], float)
        table = LifeTable(ArmTable(cells, (50.0, 50.0)), np.arange(5.0))
        assert table.reach == (2, 4)
        found.append(table.drift)
    assert found[0] == pytest.approx(found[1], rel=0.02)


def test_other_times_cost_nothing_and_must_be_within_the_horizon():
    trial, ledger = dpe.simulate("survival", 1000, 1, randomised=True), dpe.Ledger(1.0)
    fit = dpe.dp_survival(FORMULA, trial, epsilon=1, ledger=ledger, **TRIAL)
    assert fit.risk(at=[30, 100.5]).groupby("time").size().to_dict() == {30.0: 4, 100.5: 4}
    assert fit.rmst(90)["time"].unique().tolist() == [90.0]
    assert fit.hazard_ratio()["term"].tolist() == ["hazard_ratio"]
    assert fit.logrank()["p_value"].notna().all()
    whole = fit.tidy().set_index("term")["estimate"]
    assert fit.rmst().set_index("term")["estimate"].equals(whole[:4])
    assert fit.risk().set_index("term")["estimate"].equals(whole[4:8])
    for wrong in (0.0, -1.0, 361.0, math.nan):
        with pytest.raises(OptionError, match="at most the horizon"):
            fit.risk(at=wrong)
        with pytest.raises(OptionError, match="at most the horizon"):
            fit.rmst(wrong)
    with pytest.raises(OptionError, match="needs a time"):
        fit.risk(at=[])
    assert ledger.spent == (1.0, 0.0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("risk", "share", "scale"), [(0.02, 0.1, 0.5), (0.3, 0.5, 2.0)])
def test_intervals_cover_with_few_events_and_much_noise(risk, share, scale):
    rng, n, edges, runs = np.random.default_rng(9), 2000, np.linspace(0.0, 1.0, 11), 150
    truth, hits = -math.log1p(-risk), np.zeros(4)
    node = Survival(Column("time"), Column("event"), tuple(edges))
    for _ in range(runs):
        treated = rng.random(n) < share
        until, leave = rng.exponential(1.0 / truth, n), rng.uniform(0.0, 2.0, n)
        time, event = np.minimum(until, leave), (until <= leave).astype(float)
        cell = node.cell(time, event).astype(int)
        counts = np.stack([np.bincount(cell[arm], minlength=21) for arm in (treated, ~treated)])
        noisy = counts + rng.laplace(scale=scale, size=counts.shape)
        found = LifeTable(ArmTable(noisy, (2 * scale**2,) * 2), edges)
        risks, lost = found.shares(np.ones(1)), found.shares(np.ones(1), lost=True)
        for k, (low, high) in enumerate(
            (
                risks.differences(ALONE),
                lost.differences(ALONE),
            )
        ):
            hits[k] += low[0] <= 0.0 <= high[0]
        (low,), (high,) = risks.ratios(ALONE)
        hits[2] += low <= 1.0 <= high
        hits[3] += abs(found.logrank) < ALONE
    assert (hits / runs > 0.9).all()
    assert (hits / runs < 0.995).all()


def test_the_picture_has_both_curves_their_bands_and_the_numbers_at_risk():
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    trial = dpe.simulate("survival", 2000, 1, randomised=True)
    fit = dpe.dp_survival(FORMULA, trial, epsilon=1, **TRIAL)
    axes = fit.plot(conf_level=0.9)
    curves = fit.curves(0.9)
    for arm in ("treated", "control"):
        own = curves[curves["arm"] == arm]
        line = next(line for line in axes.lines if line.get_gid() == arm)
        assert line.get_ydata() == pytest.approx(own["survival"].to_numpy())
        texts = [text.get_text() for text in axes.texts if text.get_gid() == f"at risk {arm}"]
        shown = [int(text) for text in texts if text.isdigit()]
        assert shown == pytest.approx(own["at_risk"].iloc[::2].to_numpy(), abs=5.0)
        assert all(count % 10 == 0 for count in shown)  # the noise has a standard deviation of 14
    assert "Number at risk, privacy noise SD 1" in axes.get_xlabel()
    assert "Simultaneous 90% CI" in axes.get_legend().get_title().get_text()
    plt.close(axes.figure)
