"""Weighted tables by arm: brute force, statsmodels' weights, simulated errors, refusals."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpeffects as dpe
from dpeffects.abilities.survival import SurvivalEffects
from dpeffects.errors import OptionError
from dpeffects.estimands import ESTIMANDS
from dpeffects.formula.expression import Column, Survival
from dpeffects.inference.tables import ArmTable, Confounding
from dpeffects.services.sites.pooled_tables import tables as together

FORMULA = "Surv(time, died) ~ t | x1 + x2"
BOUNDS = {"x1": (0, 1), "x2": (0, 1)}
ASKED = {"horizon": 1.0, "bins": 6, "bounds": BOUNDS, "seed": 1}
LARGE = 1e7


def sd_of(dist):
    """The standard deviation of the first number of a table."""
    return math.sqrt((dist.sampling + dist.noise + dist.left)[0, 0])


def people(n: int, seed: int = 0, skewed: bool = False) -> pd.DataFrame:
    """Records whose covariates move treatment and hazard the same way."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 2))
    if skewed:
        x = np.minimum(0.15 * rng.exponential(size=(n, 2)), 1.0)
    index = (x - x.mean(axis=0)) @ [2.0, 1.0] / (2.0 if skewed else 1.0)
    t = rng.random(n) < 1.0 / (1.0 + np.exp(0.4 - 1.2 * index))
    time = rng.exponential(size=n) / np.exp(-0.5 + index - 0.4 * t)
    end = rng.uniform(0.2, 3.0, n)
    own = {"t": t.astype(int), "time": np.minimum(time, end), "died": (time <= end).astype(int)}
    return pd.DataFrame({"x1": x[:, 0], "x2": x[:, 1], **own})


def limits(fit: SurvivalEffects) -> tuple[float, float]:
    """Between which propensities are clipped, as the details say."""
    low, high = fit.details["propensity scores truncated to"].strip("[]").split(", ")
    return float(low), float(high)


def weights_of(
    frame: pd.DataFrame, estimand: str, within: tuple[float, float], flexible: int = 0
) -> np.ndarray:
    """Weights by statsmodels' logit, on squares and products too."""
    x1, x2 = frame["x1"], frame["x2"]
    more = [[], [x1**2, x2**2], [x1**2, x2**2, x1 * x2]][flexible]
    rows = sm.add_constant(pd.concat([x1, x2, *more], axis=1))
    e = np.clip(sm.Logit(frame["t"], rows).fit(disp=0).predict(rows).to_numpy(), *within)
    of = {"ATE": (1 / e, 1 / (1 - e)), "ATT": (1 + 0 * e, e / (1 - e)), "ATC": (1 / e - 1, 1)}
    return np.where(frame["t"] == 1, *of[estimand])


def weighted_cells(frame: pd.DataFrame, weights: np.ndarray, bins: int = 6) -> np.ndarray:
    """Sums of weights by arm and cell, one record after the other."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    found = np.zeros((2, 2 * bins + 1))
    rows = zip(frame["t"], frame["time"], frame["died"], weights, strict=True)
    for t, time, died, weight in rows:
        later = time > 1.0
        b = int(np.searchsorted(edges, time, side="left")) - 1
        found[1 - t, 2 * bins if later else 2 * max(b, 0) + died] += weight
    return found


def weighted_survival(frame: pd.DataFrame, weights: np.ndarray, arm: int) -> float:
    """Kaplan-Meier's curve at time 1, each record counted by its weight."""
    own = frame["t"] == arm
    order = np.argsort(frame["time"][own].to_numpy())
    died, w = frame["died"][own].to_numpy()[order], weights[own.to_numpy()][order]
    time = frame["time"][own].to_numpy()[order]
    at_risk = np.cumsum(w[::-1])[::-1]
    return float(np.prod((1.0 - died * w / at_risk)[time <= 1.0]))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("level", ["sample", "label"])
@pytest.mark.parametrize(
    ("estimand", "flexible"), [("ATE", 0), ("ATT", 0), ("ATC", 0), ("ATE", 1), ("ATT", 2)]
)
def test_a_large_epsilon_gives_tables_by_brute_force_with_weights_of_statsmodels(
    estimand, flexible, level
):
    frame = people(3000)
    asked = {**ASKED, "epsilon": LARGE, "estimand": estimand, "level": level}
    fit = dpe.dp_survival(FORMULA, frame, **asked, flexible=flexible)
    weights = weights_of(frame, estimand, limits(fit), flexible)
    cells = weighted_cells(frame, weights)
    assert np.allclose(fit.arm_table.counts, cells, rtol=0.01, atol=1.0)
    assert np.allclose(fit.arm_table.sizes, cells.sum(axis=1), rtol=2e-3)
    found = fit.tidy().set_index("term")["estimate"]
    for arm, name in ((1, "treated"), (0, "control")):
        curve = weighted_survival(frame, weights, arm)
        assert found[f"risk_{name}"] == pytest.approx(1.0 - curve, abs=0.01)
    unadjusted = weighted_cells(frame, np.ones(3000))
    if level == "sample":
        assert np.allclose(fit.arm_table.unadjusted.counts, unadjusted, atol=0.1)
    assert fit.identification == "adjusted"
    assert "curves, products" in str(fit.summary())


def test_cells_of_brute_force_are_those_of_the_formula():
    frame = people(500)
    node = Survival(Column("time"), Column("died"), tuple(np.linspace(0.0, 1.0, 7)))
    cell = node.cell(frame["time"].to_numpy(), frame["died"].to_numpy()).astype(int)
    counts = [np.bincount(cell[frame["t"] == arm], minlength=13) for arm in (1, 0)]
    assert np.array_equal(weighted_cells(frame, np.ones(500)), np.stack(counts))


def test_with_public_covariates_the_model_is_free_and_arms_have_their_sizes():
    frame = people(2000)
    fit = dpe.dp_survival(FORMULA, frame, **ASKED, epsilon=1.0, level="label")
    assert fit.details["terms added"] == "2 squares, 1 product"
    weights = weights_of(frame, "ATE", limits(fit), 2)
    assert np.allclose(fit.arm_table.sizes, weighted_cells(frame, weights).sum(axis=1), rtol=2e-3)
    assert {charge.share for charge in fit.charges} == {"table"}
    assert fit.arm_table.exact
    plain = dpe.dp_survival("Surv(time, died) ~ t", frame, **ASKED, epsilon=1.0, level="label")
    assert plain.arm_table.sizes == pytest.approx([frame["t"].sum(), 2000 - frame["t"].sum()])


def test_noise_in_counts_with_known_sums_is_that_of_the_law():
    rng = np.random.default_rng(3)
    counts = np.array([[50.0, 300.0, 150.0, 400.0], [200.0, 100.0, 300.0, 100.0]])
    noise, values = 8.0, []

    def first(shares):
        return np.array([shares[0, 0] - shares[1, 0], np.log(shares[0, 1] / shares[1, 1])])

    for _ in range(4000):
        noisy = counts + rng.laplace(scale=noise / np.sqrt(2.0), size=counts.shape)
        noisy += (counts - noisy).sum(axis=1, keepdims=True) / 4
        values.append(first(noisy / noisy.sum(axis=1, keepdims=True)))
    known = ArmTable(counts, (noise**2, noise**2), exact=True).statistics(first).noise
    assert np.allclose(np.diag(known), np.var(values, axis=0), rtol=0.08)
    assert (
        np.diag(known) < np.diag(ArmTable(counts, (noise**2,) * 2).statistics(first).noise)
    ).all()


def test_what_is_left_of_confounding_follows_from_what_weights_removed():
    rng = np.random.default_rng(4)
    about = Confounding(prior=0.4, kept=0.7, part=0.15, moved=0.01)
    unit, error = np.full(200_000, 0.25), np.full(200_000, 0.003)
    strength = rng.normal(size=unit.size) * np.sqrt(0.4 * 0.25)
    seen = np.sqrt(error + 0.01 * unit)
    removed = 0.7 * strength + seen * rng.normal(size=unit.size)
    left = about.left(unit, removed, error) - 0.01 * unit
    for part in (np.abs(removed) < 0.1, np.abs(removed) > 0.2):
        assert left[part].mean() == pytest.approx(0.15 * np.mean(strength[part] ** 2), rel=0.03)
    nothing = about.left(unit[:1])
    assert nothing == pytest.approx(0.01 * 0.25 + 0.15 * 0.4 * 0.25)


@pytest.mark.long
def test_noise_of_model_and_table_is_as_large_as_claimed():
    frame, found = people(2000), []
    for seed in range(120):
        own = {**ASKED, "seed": seed, "flexible": 0}
        fit = dpe.dp_survival(FORMULA, frame, **own, epsilon=4.0)
        dist = fit.arm_table.statistics(lambda shares: shares[:1, -1] - shares[1:, -1])
        claimed = dist.noise[0, 0] + fit.arm_table.confounding.moved * 0.25
        found.append((dist.values[0], claimed, sd_of(dist)))
    values, claimed, sd = np.array(found).T
    assert 0.6 < values.std() / np.sqrt(claimed.mean()) < 1.15
    exact = weighted_cells(frame, weights_of(frame, "ATE", (0.02, 0.98)))
    shares = exact / exact.sum(axis=1, keepdims=True)
    assert np.mean(np.abs(values - shares[0, -1] + shares[1, -1]) < 1.96 * sd) > 0.9


def test_more_epsilon_is_never_worse():
    frame, errors = people(3000), []
    for epsilon in (0.5, 2.0, 8.0, 32.0):
        each = []
        for seed in range(4):
            fit = dpe.dp_survival(FORMULA, frame, **{**ASKED, "seed": seed}, epsilon=epsilon)
            each.append(
                sd_of(fit.arm_table.statistics(lambda shares: shares[:1, -1] - shares[1:, -1]))
            )
        errors.append(np.mean(each))
    assert (np.diff(errors) < 0.0).all()


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("estimand", ["ATE", "ATT"])
def test_inequality_of_weights_is_about_that_of_the_records(estimand, skewed):
    frame = people(5000, skewed=skewed)
    fit = dpe.dp_survival(FORMULA, frame, **ASKED, epsilon=20.0, estimand=estimand)
    weights = weights_of(frame, estimand, limits(fit))
    assert not fit.arm_table.exact
    for arm, claimed in zip((1, 0), fit.arm_table.unequal, strict=True):
        own = weights[frame["t"] == arm]
        assert 0.9 < claimed / (np.mean(own**2) / own.mean()) < 1.5


def test_a_model_that_cannot_be_learnt_is_an_association_or_refused_before_the_charge():
    frame = people(150)
    ledger = dpe.Ledger(5)
    asked = {**ASKED, "epsilon": 0.1, "ledger": ledger}
    with pytest.raises(OptionError, match=r"carry no adjustment.*nothing was charged"):
        dpe.dp_survival(FORMULA, frame, **asked, on_unadjusted="error")
    with pytest.raises(OptionError, match="no covariates to adjust for"):
        dpe.dp_survival("Surv(time, died) ~ t", frame, **asked, on_unadjusted="error")
    assert ledger.charges == ()
    fit = dpe.dp_survival(FORMULA, frame, **{**ASKED, "epsilon": 0.1})
    assert fit.associated
    assert fit.tidy()["p_value"].isna().all()
    assert str(fit.summary()).index("NOT ADJUSTED") < str(fit.summary()).index("risk difference")
    assert {charge.share for charge in fit.charges} == {"table"}
    assert fit.arm_table.confounding is None
    assert fit.allowed.kept == 0.0
    forced = dpe.dp_survival(FORMULA, frame, **{**ASKED, "epsilon": 0.1}, adjust=True)
    assert "Weak adjustment" in forced.warnings
    trial = dpe.dp_survival(FORMULA, frame, **ASKED, epsilon=0.1, design="randomised")
    assert trial.arm_table.confounding is None


def test_choices_that_make_no_sense_are_refused():
    frame = people(100)
    for given in ({"model_share": 0.0}, {"model_share": 0.5, "level": "label"}):
        with pytest.raises(OptionError, match="model_share"):
            dpe.dp_survival(FORMULA, frame, **ASKED, epsilon=1.0, **given)


def test_tables_of_sites_keep_what_is_left_and_the_table_without_weights():
    fits = [dpe.dp_survival(FORMULA, people(900, k), **ASKED, epsilon=4.0) for k in (1, 2)]
    both = together([fit.arm_table for fit in fits])
    parts = [fit.arm_table.confounding.part for fit in fits]
    assert both.confounding.part in parts
    plain = together([fit.arm_table.unadjusted for fit in fits])
    assert both.unadjusted == plain


def test_weights_are_those_of_the_estimand():
    e = np.array([0.2, 0.5, 0.8])
    for name, own in ESTIMANDS.items():
        if name != "CATE":
            a, b = own.weights(e)
            population = own.population(e, 1.0 - e)
            assert np.allclose(e * a, population)
            assert np.allclose((1.0 - e) * b, population)


def test_scores_that_are_all_alike_are_not_said_to_be_cut():
    """Pairs with the same covariates, one of them treated; a score that matters is cut and said."""
    n, said = 40_000, []
    for slope in (0.0, 2.0):
        rng = np.random.default_rng(2)
        x = np.repeat(rng.uniform(-1, 1, (n // 2, 3)), 2, axis=0)
        likely = rng.random(n) < 1.0 / (1.0 + np.exp(-slope * x.sum(axis=1)))
        t = likely.astype(int) if slope else np.arange(n) % 2
        y = np.clip(0.5 + 0.1 * x.sum(axis=1) + 0.1 * rng.normal(size=n), 0, 1)
        frame = pd.DataFrame(x, columns=["x1", "x2", "x3"]).assign(t=t, y=y, z=rng.random(n))
        bounds = dict.fromkeys(["x1", "x2", "x3", "y", "z"], (-1, 1))
        asked = {"epsilon": 1, "bounds": bounds, "seed": 2}
        said.append(dpe.dp_study("y + z ~ t | x1 + x2 + x3", frame, **asked).warnings)
    assert ["Truncated propensity scores" in warnings for warnings in said] == [False, True]
