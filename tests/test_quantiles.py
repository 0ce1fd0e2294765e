"""Quantile effects: where bins are, what they give, intervals, engines, refusals."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri

import dpeffects as dpe
from dpeffects.errors import DataError, OptionError
from dpeffects.inference.bins import MOST, OutcomeRange, place
from dpeffects.inference.quantiles import Distributions
from dpeffects.inference.tables import ArmTable
from tests.cases import each
from tests.refused import refusals

Q = (0.1, 0.25, 0.5, 0.75, 0.9)
HUGE = 1e7
Z = float(ndtri(0.975))
BOUNDS = {"cost": (0, 1e6), "visits": range(366), "score": range(11), "x": (0, 1), "w": (0, 2)}
BOUNDS |= {"change": (-1000, 1000), "pay": (0, 2e5)}


def made(n: int = 4000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    t = rng.integers(0, 2, n)
    pay = np.where(rng.random(n) < 0.35 - 0.06 * t, 0.0, rng.gamma(1.3, 6000.0, n))
    return pd.DataFrame(
        {
            "t": t,
            "x": rng.random(n),
            "w": rng.random(n) + 1.0,
            "cost": np.exp(rng.normal(7.6, 1.2, n) + 0.2 * t),
            "visits": np.minimum(rng.negative_binomial(1.2, 0.2, n) + t, 365),
            "score": rng.binomial(10, 0.6, n),
            "change": 2.0 * rng.standard_t(3, n) + 0.5 * t,
            "pay": pay,
            "id": np.repeat(np.arange(n // 2), 2),
        }
    )


def qte(formula: str, data, epsilon: float = 1.0, **given):
    given = {"design": "randomised", "seed": 1, "bounds": BOUNDS, **given}
    return dpe.dp_qte(formula, data, epsilon=epsilon, **given)


def plain(data: pd.DataFrame, name: str) -> np.ndarray:
    """Quantiles of both arms, as defined."""
    arms = [data.loc[data["t"] == arm, name].to_numpy() for arm in (1, 0)]
    return np.stack([np.quantile(arm, Q, method="inverted_cdf") for arm in arms])


# --- what a table without noise gives -----------------------------------------------------------


@pytest.mark.parametrize("name", ["cost", "change", "pay"])
def test_quantiles_without_noise_are_those_of_the_sample(name):
    data = made(20_000)
    found = qte(f"{name} ~ t", data, HUGE).quantiles()
    for arm, true in zip(("treated", "control"), plain(data, name), strict=True):
        own = data.loc[data["t"] == (arm == "treated"), name].to_numpy()
        for p, value, exact in zip(Q, found[arm], true, strict=True):
            share = [(own < value).mean(), (own <= value).mean()]  # an atom has many quantiles
            assert share[0] - 0.002 <= p <= share[1] + 0.002
            if exact == 0.0:
                assert value == 0.0


@pytest.mark.parametrize("name", ["visits", "score"])
def test_quantiles_of_whole_numbers_are_exact(name):
    data = made()
    fit = qte(f"{name} ~ t", data, HUGE)
    found = fit.quantiles()
    assert np.array_equal(found[["treated", "control"]].to_numpy().T, plain(data, name))
    values = found.loc[:, ~found.columns.str.endswith("noise_ratio")]
    assert (values == values.round(2)).all(axis=None)
    assert fit.whole
    assert len(fit.ends) <= MOST + 4


def test_few_whole_numbers_and_given_bins_need_no_first_stage():
    data = made()
    spent = [e.share for e in qte("score ~ t", data).charges]
    assert spent == ["table"]
    fit = qte("cost ~ t", data, bins=(500.0, 1000.0, 2000.0, 4000.0, 8000.0))
    assert {500.0, 8000.0} < set(fit.ends)
    assert [e.share for e in fit.charges] == ["table"]
    charges = {e.share: e.epsilon for e in qte("cost ~ t", data).charges}
    assert charges == pytest.approx({"place": 0.18, "table": 0.82})


def test_other_quantiles_afterwards_cost_nothing():
    data = made(20_000)
    fit = qte("cost ~ t", data, HUGE, quantiles=0.5)
    assert fit.tidy()["term"].tolist() == ["quantile 0.5"]
    found = fit.quantiles([0.2, 0.6])
    own = data.loc[data["t"] == 1, "cost"].to_numpy()
    assert [(own <= x).mean() for x in found["treated"]] == pytest.approx([0.2, 0.6], abs=0.01)


def test_adjusted_quantiles_are_those_of_weighted_records():
    rng = np.random.default_rng(3)
    n = 40_000
    x = rng.random(n)
    chance = 1.0 / (1.0 + np.exp(3.0 * (0.5 - x)))
    t = (rng.random(n) < chance).astype(int)
    y = np.exp(6.0 + 2.0 * x + 0.3 * rng.normal(size=n))  # no effect
    data = pd.DataFrame({"t": t, "x": x, "cost": y})
    given = {"epsilon": 50.0, "quantiles": 0.5, "bounds": {"cost": (0, 1e6), "x": (0, 1)}}
    crude = qte("cost ~ t", data, **given).quantiles()["difference"][0]
    fit = qte("cost ~ t | x", data, design="observational", **given)
    assert fit.identification == "adjusted"
    row = fit.quantiles().iloc[0]
    order = np.argsort(y[t == 1])
    weight = np.cumsum((1.0 / chance[t == 1])[order])
    weighted = y[t == 1][order][np.searchsorted(weight, weight[-1] / 2.0)]
    assert row["treated"] == pytest.approx(weighted, rel=0.02)
    assert abs(row["difference"]) < 0.1 * crude
    assert row["difference_low"] <= 0.0 <= row["difference_high"]


# --- bins -----------------------------------------------------------------------------------------

SCALES = [
    OutcomeRange(0, 1e6),
    OutcomeRange(-1000, 1000),
    OutcomeRange(100, 250),
    OutcomeRange(-5, -1),
    OutcomeRange(0, 1),
]
SCALES += [OutcomeRange(0, 365, True), OutcomeRange(-5, 400, True), OutcomeRange(3, 900, True)]


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_grids_are_in_order_and_have_points_at_zero_and_at_the_ends(scale):
    ends = scale.grid()
    assert (np.diff(ends) > 0.0).all()
    assert ends.size < 250
    points = [p for p in (scale.lower, 0.0, scale.upper) if scale.lower <= p <= scale.upper]
    step = 1.0 if scale.whole else 1e-9 * (scale.upper - scale.lower)
    for p in points:
        inside = [x for x in (p - step, p, p + step) if scale.lower <= x <= scale.upper]
        bins = np.searchsorted(ends, inside, side="left")
        assert len(set(bins)) == len(inside)
    if scale.whole:
        assert (ends == np.round(ends)).all()


def test_grids_have_no_scale_of_their_own():
    one, other = OutcomeRange(-8, 8).grid(), OutcomeRange(-8 * 1024, 8 * 1024).grid()
    far = (np.abs(one) > 1e-5) & (np.abs(one) < 8)
    assert np.array_equal(one[far] * 1024, other[far])


@each("scale", SCALES)
@each("seed", range(4))
def test_bins_follow_whatever_noise_says(scale, seed):
    rng = np.random.default_rng(seed)
    grid = scale.grid()
    counts = np.maximum(rng.laplace(scale=[1.0, 1e3, 1e6, 0.0][seed], size=(2, grid.size + 1)), 0)
    ends = place(scale, grid, counts, Q, 30)
    assert (np.diff(ends) > 0.0).all()
    assert {scale.lower, *scale.fixed} <= set(ends)
    assert ends.min() >= scale.lower
    assert ends.max() < scale.upper
    assert ends.size <= 70


def test_a_frequent_whole_number_has_a_bin_of_its_own():
    scale = OutcomeRange(0, 365, True)
    each = scale.each()
    for number in (1, 30, 364):
        counts = np.full((2, each.size + 1), 1.0) + 900.0 * (np.arange(each.size + 1) == number)
        assert {number - 1.0, float(number)} <= set(place(scale, each, counts, Q, 30))


def test_most_bins_are_around_the_quantiles_asked_for():
    data = made(20_000)
    own = np.sort(data["cost"].to_numpy())
    median = qte("cost ~ t", data, 20.0, quantiles=0.5)
    shares = np.searchsorted(own, median.ends) / own.size
    assert ((shares > 0.4) & (shares < 0.6)).sum() > ((shares > 0.1) & (shares < 0.3)).sum()


# --- intervals --------------------------------------------------------------------------------


def simulated(rng, sample, scale: OutcomeRange, n: int, epsilon: float, treated: float = 0.5):
    """The two stages, with noise of numpy."""
    t = rng.random(n) < treated
    y = sample(rng, t)

    def counts(ends, share):
        found = [np.bincount(np.searchsorted(ends, y[a]), minlength=ends.size + 1) for a in (t, ~t)]
        return found + rng.laplace(scale=2.0 / share, size=(2, ends.size + 1))

    grid = scale.grid()
    seen = ArmTable(counts(grid, 0.2 * epsilon), (1.0, 1.0))
    ends = place(scale, grid, seen.plausible, Q, 40)
    noise = 8.0 / (0.8 * epsilon) ** 2
    return Distributions(ArmTable(counts(ends, 0.8 * epsilon), (noise, noise)), ends, scale)


def costs(rng, t):
    return np.exp(rng.normal(7.6, 1.2, t.size) + 0.2 * t)


def heaped(rng, t):
    y = costs(rng, t)
    return np.where(rng.random(t.size) < 0.3, np.round(y, -3), y)


def visits(rng, t):
    return np.minimum(rng.negative_binomial(1.2, 0.2, t.size) + (rng.random(t.size) < 0.2 * t), 365)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("sample", "scale", "n", "epsilon", "treated"),
    [
        (costs, OutcomeRange(0, 1e6), 5000, 1.0, 0.5),
        (costs, OutcomeRange(0, 1e6), 4000, 2.0, 0.1),
        (heaped, OutcomeRange(0, 1e6), 5000, 1.0, 0.5),
        (visits, OutcomeRange(0, 365, True), 3000, 0.5, 0.5),
    ],
)
def test_intervals_cover_the_difference(sample, scale, n, epsilon, treated):
    rng = np.random.default_rng(5)
    many = np.arange(1_000_000) % 2 == 0
    y = sample(rng, many)
    one, other = (np.quantile(y[a], Q, method="inverted_cdf") for a in (many, ~many))
    inside, everywhere = [], []
    for k in range(80):
        found = simulated(rng, sample, scale, n, epsilon, treated)
        ends = found.difference(Q, Z)
        slack = 1e-3 * np.abs(other)  # the truth is itself of a sample
        inside.append((ends.lower - slack <= one - other) & (one - other <= ends.upper + slack))
        if k >= 30:
            continue
        ends = found.difference(Q, found.at_once(Q).critical_value(0.95))
        everywhere.append(
            np.all((ends.lower - slack <= one - other) & (one - other <= ends.upper + slack))
        )
    assert np.mean(inside, axis=0).min() >= 0.875  # 95 % less three standard errors
    assert np.mean(inside) > 0.93
    assert np.mean(everywhere) > 0.83


def test_quantiles_of_a_single_bin_are_parts_of_the_way_through_it():
    table = ArmTable(np.array([[0.0, 400.0], [0.0, 100.0]]), (1.0, 1.0))
    found = Distributions(table, np.array([10.0]), OutcomeRange(10, 30))
    for arm in (0, 1):
        values = found.quantile(arm, (0.25, 0.5, 0.9), 0.0).value
        assert values == pytest.approx([15.0, 20.0, 28.0])


def test_bands_hold_for_both_distributions():
    rng = np.random.default_rng(6)
    many = np.arange(1_000_000) % 2 == 0
    y = costs(rng, many)
    arms = [np.sort(y[a]) for a in (many, ~many)]
    held = []
    for _ in range(25):
        found = simulated(rng, costs, OutcomeRange(0, 1e6), 4000, 1.0)
        true = [np.searchsorted(own, found.edges, side="right") / own.size for own in arms]
        bands = found.band(0.9)
        held.append(
            all(
                ((band.lower <= f + 0.002) & (f - 0.002 <= band.upper)).all()
                for band, f in zip(bands, true, strict=True)
            )
        )
    assert np.mean(held) > 0.72


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(12))
def test_everything_has_a_value_whatever_the_counts_are(seed):
    rng = np.random.default_rng(seed)
    scale = SCALES[seed % len(SCALES)]
    ends = place(scale, scale.grid(), np.zeros((2, scale.grid().size + 1)), Q, 28)
    counts = rng.normal(size=(2, ends.size + 1)) * 10.0 ** rng.integers(0, 6)
    counts[seed % 2] *= seed % 3  # sometimes nobody
    found = Distributions(ArmTable(counts, (1e4, 1e4)), ends, scale)
    before = found.difference(Q, 0.0)
    for z in (0.5, 1.0, 3.0, 40.0):
        ends_of = found.difference(Q, z)
        assert np.isfinite(ends_of).all()
        assert (ends_of.lower <= before.lower).all()
        assert (ends_of.upper >= before.upper).all()
        before = ends_of
        for arm in (0, 1):
            one = found.quantile(arm, Q, z)
            assert (np.diff(one.value) >= 0.0).all()
            assert scale.lower <= one.lower.min() <= one.upper.max() <= scale.upper
    for band in found.band(0.95):
        assert (np.diff(band.value) >= 0.0).all()
        assert np.isfinite(band).all()
    assert (found.reach(Q) >= 0.0).all()
    assert (
        Z - 1e-9 <= found.at_once(Q).critical_value(0.95) <= float(ndtri(1.0 - 0.05 / 10.0)) + 1e-9
    )


def test_p_values_go_with_intervals_and_more_epsilon_is_never_worse():
    data = made()
    fit = qte("cost ~ t", data)
    table = fit.tidy()
    apart = (table["conf_low"] > 0.0) | (table["conf_high"] < 0.0)
    assert ((table["p_value"] < 0.05) == apart).all()
    for level in (0.5, 0.99):
        low, high = fit.conf_int(level).T
        assert (((low > 0.0) | (high < 0.0)) == (table["p_value"] < 1.0 - level)).all()
    assert (fit.conf_int(simultaneous=True)[:, 0] <= fit.conf_int()[:, 0]).all()
    widths = [np.diff(qte("cost ~ t", data, e).conf_int(), axis=1).mean() for e in (0.3, 1, 100)]
    assert widths[0] > widths[1] > widths[2]


def test_quantiles_beyond_the_declared_range_are_said_first():
    data = made()
    fit = qte("cost ~ t", data, bounds={"cost": (0, 3000)})
    assert "AT OR BEYOND AN END OF THE DECLARED RANGE" in str(fit.summary()).split("Formula")[0]
    assert fit.quantiles()["treated"].max() == 3000.0
    assert not qte("pay ~ t", data).estimate_warnings  # many have no pay: zero is no end that cuts


# --- the call -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {"unit": "id"},
        {"weights": "w"},
        {"subset": "x > 0.3"},
        {"level": "label"},
        {"delta": 1e-5},
        {"estimand": "ATT", "design": "observational"},
        {"missing": "complete"},
    ],
    ids=str,
)
def test_rows_that_do_not_count_alike(more):
    data = made(6000)
    if "missing" in more:
        data.loc[::9, "cost"] = np.nan
    fit = qte("cost ~ t | x", data, 4.0, **more)
    middle = fit.quantiles(0.5).iloc[0]
    assert middle["control"] == pytest.approx(2000.0, rel=0.15)
    assert middle["control_low"] < middle["control"] < middle["control_high"]


test_refusals_cost_nothing = refusals(
    partial(qte, "cost ~ t", made(200)),
    ({"quantiles": []}, OptionError),
    ({"quantiles": [0.0, 0.5]}, OptionError),
    ({"quantiles": [0.5, 0.5]}, OptionError),
    ({"quantiles": "median"}, OptionError),
    ({"quantiles": float("nan")}, OptionError),
    ({"bins": 2}, OptionError),
    ({"bins": (3.0, 1.0)}, OptionError),
    ({"bins": "many"}, OptionError),
    ({"location_share": 1.0}, OptionError),
    ({"location_share": -0.1}, OptionError),
    ({"adjust": True}, OptionError),
    ({"bounds": {"cost": ["a", "b"]}}, DataError),
)


# --- pictures and words -------------------------------------------------------------------------


def test_the_picture_has_both_distributions_with_their_bands():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    for name in ("cost", "pay", "visits", "change"):
        fit = qte(f"{name} ~ t", made(2000))
        axes = fit.plot(conf_level=0.9)
        found = fit.distribution(0.9)
        for arm in ("treated", "control"):
            line = next(line for line in axes.lines if line.get_gid() == arm)
            own = found[found["arm"] == arm]
            assert line.get_ydata() == pytest.approx(own["share"].to_numpy())
            assert line.get_xdata() == pytest.approx(own[name].to_numpy())
        assert axes.get_xlabel().removesuffix(" (logarithmic scale)") == name
        assert axes.get_xscale() == ("symlog" if name == "cost" else "linear")
        assert "Simultaneous 90% CI" in axes.get_legend().get_title().get_text()
        axes.figure.canvas.draw()
        matplotlib.pyplot.close(axes.figure)


def test_summary_and_paragraph_have_the_quantiles():
    fit = qte("visits ~ t", made())
    text = str(fit.summary())
    assert "whole numbers" in text
    assert "Quantiles of visits" in text
    assert "not a quantile of individual effects" in " ".join(text.split())
    row = fit.tidy().iloc[2]
    assert f"0.5: {row['estimate']:.0f} (" in str(fit.report())
