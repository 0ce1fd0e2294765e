"""Studies by weights of a released model, and missing outcomes: by hand, and by distribution."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpeffects as dpe
from dpeffects.abilities import study as joint
from dpeffects.errors import OptionError
from dpeffects.inference.joint import JointSums, Margin, StudyColumn, agreeing
from dpeffects.inference.tables import Confounding

BOUNDS = {"pain": (0, 10), "x": (0, 1), "sex": ["f", "m"], "grade": ["i", "ii", "iii"]}
FORMULA = "pain + died ~ t | x + sex"


def people(n: int = 3000, seed: int = 1) -> pd.DataFrame:
    """Confounded by x and sex; half of the pain scores of one column are missing."""
    rng = np.random.default_rng(seed)
    x, man = rng.random(n), rng.random(n) < 0.4
    t = rng.random(n) < 1.0 / (1.0 + np.exp(-(2.0 * (x - 0.5) + 0.6 * man - 0.3)))
    pain = np.clip(3.0 + 3.0 * x + man + t + rng.normal(size=n), 0.0, 10.0)
    data = {"t": t.astype(int), "x": x, "sex": np.where(man, "m", "f"), "pain": pain}
    data |= {"died": rng.random(n) < 0.05 + 0.1 * x, "grade": rng.choice(["i", "ii", "iii"], n)}
    data["score"] = np.where(rng.random(n) < 0.3 + 0.3 * t, np.nan, pain)
    data["late"] = np.where(np.isnan(data["score"]), None, data["grade"])
    return pd.DataFrame(data)


@pytest.fixture
def weight(monkeypatch: pytest.MonkeyPatch) -> list:
    """What the study's records count for, as it is released; outcomes are not predicted."""
    found, own = [], joint._adjustment
    monkeypatch.setattr(joint, "worth", lambda *facts: False)

    def kept(*arguments: object) -> object:
        found.append(own(*arguments))
        return found[-1]

    monkeypatch.setattr(joint, "_adjustment", kept)
    return found


def by_hand(found: list, data: pd.DataFrame) -> np.ndarray:
    """Weights of the released model, from its coefficients."""
    model = found[-1].score
    x = np.column_stack([np.ones(len(data)), data["x"], data["sex"] == "m"]).astype(float)
    rows = (x - [0.0, 0.5, 0.5]) / math.sqrt(1.0 + 2.0 / 4.0)
    e = 1.0 / (1.0 + np.exp(-(model.offset + rows @ model.weights)))
    e, t = np.clip(e, model.low, model.high), data["t"] == 1
    estimand = found[-1].estimand
    own = {"ATE": (1 / e, 1 / (1 - e)), "ATT": (1.0 + 0 * e, e / (1 - e))}
    own["ATC"] = ((1 - e) / e, 1.0 + 0 * e)
    return np.where(t, *own[estimand])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_margins_are_sums_of_weights(weight: list, estimand: str, delta: float) -> None:
    data = people()
    fit = dpe.dp_study(
        FORMULA,
        data,
        subgroups="sex",
        estimand=estimand,
        epsilon=1e6,
        delta=delta,
        bounds=BOUNDS,
        flexible=0,
        seed=1,
    )
    w, sums = by_hand(weight, data), fit.sums
    z = np.column_stack([data["pain"] / 10, data["died"], data["x"], data["sex"] == "m"]) - 0.5
    for a, arm in enumerate((1, 0)):
        own = (data["t"] == arm).to_numpy()
        for margin, many in ((sums.whole, w), (sums.unadjusted, np.ones(len(w)))):
            assert margin.sizes[a, 0] == pytest.approx(many[own].sum(), rel=1e-3)
            expected = many[own] @ z[own, :2].astype(float)
            assert margin.sums[a, 0] == pytest.approx(expected, rel=1e-3)
            squares = many[own] @ z[own, :2].astype(float) ** 2
            assert margin.squares[a, 0] == pytest.approx(squares, rel=1e-3)
        for margin, many in ((sums.baseline, np.ones(len(w))), (sums.weighted_baseline, w)):
            expected = np.average(z[own, 2:].astype(float), axis=0, weights=many[own])
            assert margin.means()[a, 0] == pytest.approx(expected, abs=1e-3)
        for k, level in enumerate(sums.groups[0].levels):
            inside = own & (data["sex"] == level.split()[-1]).to_numpy()
            assert sums.groups[0].sizes[a, k] == pytest.approx(w[inside].sum(), rel=1e-3)
            expected = w[inside] @ z[inside, :2].astype(float)
            assert sums.groups[0].sums[a, k] == pytest.approx(expected, rel=1e-3, abs=0.05)
    mean = [np.average(data["pain"][data["t"] == a], weights=w[data["t"] == a]) for a in (1, 0)]
    assert fit.estimates[0] == pytest.approx(mean[0] - mean[1], abs=1e-3)
    # baseline variables are balanced by weights, and were not before
    tables = sums.baseline, sums.weighted_baseline
    before, after = (np.abs(np.subtract(*margin.means()[:, 0])) for margin in tables)
    assert (after < before / 5).all()
    assert sums.groups[0].sums.sum(axis=1) == pytest.approx(sums.whole.sums[:, 0])
    assert dpe.StudyEffects.from_json(fit.to_json()) == fit


def test_weights_remove_what_a_logit_does() -> None:
    data = people(20_000)
    fit = dpe.dp_study(FORMULA, data, epsilon=1e6, bounds=BOUNDS, seed=1)
    x = sm.add_constant(np.column_stack([data["x"], data["sex"] == "m"]).astype(float))
    e = sm.Logit(data["t"], x).fit(disp=0).predict(x)
    t = data["t"] == 1
    for j, y in enumerate(("pain", "died")):
        one = np.average(data[y][t], weights=1 / e[t])
        expected = one - np.average(data[y][~t], weights=1 / (1 - e[~t]))
        assert fit.estimates[j] == pytest.approx(expected, abs=2e-3)
    assert fit.identification == "adjusted"
    assert fit.method_warnings.startswith("Functional form")
    crude = dpe.dp_study(FORMULA, data, epsilon=1e6, bounds=BOUNDS, adjust=False, seed=1)
    assert crude.estimates[0] > fit.estimates[0] + 0.3
    assert crude.associated
    assert crude.sums.confounding is not None


def test_standard_errors_are_those_of_weighted_means(weight: list) -> None:
    data = people()
    fit = dpe.dp_study(FORMULA, data, epsilon=1e6, bounds=BOUNDS, flexible=0, seed=1)
    w, variance = by_hand(weight, data), 0.0
    for arm in (1, 0):
        own = data["t"] == arm
        y, v = data["pain"][own], w[own]
        variance += (v**2 * (y - np.average(y, weights=v)) ** 2).sum() / v.sum() ** 2
    assert fit.tidy()["std_error"][0] == pytest.approx(math.sqrt(variance), rel=0.05)


def test_what_is_left_of_confounding() -> None:
    """The part of `Confounding.left` at the mean deviation of an indicator, by hand."""
    sizes = np.array([[1000.0], [1000.0]])
    sums = np.array([[[-300.0]], [[-400.0]]])  # shares of 0.2 and 0.1
    margin = Margin(sizes, sums, sums * 0.0 + 250.0, np.zeros(3))
    plain = replace(margin, sums=np.array([[[-250.0]], [[-400.0]]]))
    column = StudyColumn("died", two_valued=True)
    about = Confounding(prior=0.3, kept=0.8, part=0.1, moved=0.01, far=(0.5, 0.5))
    study = JointSums(("1", "0"), ((0, 1),), (column,), margin, confounding=about, unadjusted=plain)
    (effect,) = study.effects()
    unit = ((2 * 0.2 * 0.8) ** 2 + (2 * 0.1 * 0.9) ** 2) / 2
    error = (0.2 * 0.8 + 0.1 * 0.9) / 999 / 2
    expected = about.left(np.array(unit), np.array(0.05), np.array(error))
    (part,) = effect.parts
    assert part.variance == pytest.approx(float(expected))
    assert effect.means is not None
    assert effect.means.combined(1.0, -1.0).bias_variance == pytest.approx(float(expected))
    without = replace(study, unadjusted=None).effects()[0].parts[0].variance
    assert without == pytest.approx(float(about.left(np.array(unit))))
    # of an outcome that is predicted but for a quarter, weights have to remove only that
    rest = replace(about, kept=1.0 - (1.0 - 0.8) * 0.5, part=0.25 * 0.1, moved=0.25 * 0.01)
    made = (replace(study, missed=(0.25,)), replace(study, missed=(1.0,), confounding=rest))
    one, other = (x.effects()[0].parts[0].variance for x in made)
    assert one == pytest.approx(other)
    # a subgroup has no less than what is expected before anything is seen
    groups = replace(margin, factor="sex", levels=("f",))
    (_, (within,)) = next(replace(study, groups=(groups,)).effects_by_level(0))
    assert within.parts[0].variance == pytest.approx(max(float(expected), without), rel=1e-6)


def test_margins_agree_by_least_squares_where_arms_have_other_noise() -> None:
    rng, levels = np.random.default_rng(1), (2, 3)
    noise = rng.uniform(1.0, 9.0, (3, 3, 2))  # margins, numbers, arms
    made = [
        Margin(
            rng.normal(50, 5, (2, m)),
            rng.normal(0, 5, (2, m, 1)),
            rng.normal(9, 1, (2, m, 1)),
            noise[i],
        )
        for i, m in enumerate((1, *levels))
    ]
    found = agreeing(made[0], made[1:], 100.0)
    for a in range(2):
        # cells of one table that has all margins, with the smallest change of each by its noise
        values = np.concatenate([m.sums[a, :, 0] for m in made])
        v = np.concatenate([np.full(m, noise[i, 1, a]) for i, m in enumerate((1, *levels))])
        constraint = np.array([[-1, 1, 1, 0, 0, 0], [-1, 0, 0, 1, 1, 1]], float)
        gain = np.diag(v) @ constraint.T @ np.linalg.inv(constraint @ np.diag(v) @ constraint.T)
        expected = values - gain @ constraint @ values
        own = np.concatenate([m.sums[a, :, 0] for m in found])
        assert own == pytest.approx(expected)
        left = np.diag(np.diag(v) - gain @ constraint @ np.diag(v))
        has = np.concatenate([np.full(m, found[i].noise[1, a]) for i, m in enumerate((1, *levels))])
        assert has == pytest.approx(left)
    assert sum(found[0].sizes.ravel()) == pytest.approx(100.0)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_an_outcome_is_averaged_over_those_who_have_it(delta: float) -> None:
    data = people()
    formula = "score + I(score > 5) + sqrt(score) + late + died ~ t | x"
    bounds = {**BOUNDS, "score": (0, 10), "late": BOUNDS["grade"]}
    fit = dpe.dp_study(
        formula,
        data,
        subgroups="sex",
        design="randomised",
        epsilon=1e6,
        delta=delta,
        bounds=bounds,
        missing={"score": "available", "late": "available"},
        seed=1,
    )
    made = {
        "score": data["score"],
        "I(score > 5)": (data["score"] > 5).where(data["score"].notna()),
        "sqrt(score)": data["score"] ** 0.5,
        "late[T.ii]": (data["late"] == "ii").where(data["late"].notna()),
        "late[T.iii]": (data["late"] == "iii").where(data["late"].notna()),
        "died": data["died"].astype(float),
    }
    assert fit.outcomes == tuple(made)
    for j, y in enumerate(made.values()):
        one, two = (y.astype(float)[data["t"] == arm] for arm in (1, 0))
        assert fit.estimates[j] == pytest.approx(one.mean() - two.mean(), abs=2e-3)
        expected = math.sqrt(one.var() / one.count() + two.var() / two.count())
        assert fit.tidy()["std_error"][j] == pytest.approx(expected, rel=0.02)
        inside = data["sex"] == "m"
        means = [y.astype(float)[(data["t"] == arm) & inside].mean() for arm in (1, 0)]
        row = fit.by("sex").labels.index(f"{fit.labels[j]} | {fit.sums.groups[0].levels[1]}")
        assert fit.by("sex").estimates[row] == pytest.approx(means[0] - means[1], abs=5e-3)
    assert [c.name for c in fit.sums.baseline_columns] == ["x"]
    assert [c.missing for c in fit.sums.outcomes] == [6, 6, 6, 7, 7, -1]
    assert "among the records in which it is observed" in " ".join(str(fit.summary("full")).split())


def test_a_flag_that_is_an_outcome_serves_both() -> None:
    data = people()
    given = {"epsilon": 1e6, "bounds": {"score": (0, 10)}, "design": "randomised", "seed": 1}
    fit = dpe.dp_study("score + is_na(score) ~ t", data, **given)
    share = data.groupby("t")["score"].agg(lambda y: y.isna().mean())
    mean = data.groupby("t")["score"].mean()
    assert fit.estimates == pytest.approx([mean[1] - mean[0], share[1] - share[0]], abs=1e-3)
    assert fit.sums.whole.sums.shape[2] == 2


def test_refusals_come_before_the_charge() -> None:
    data, ledger = people(200), dpe.Ledger(10.0)
    given = {"epsilon": 1.0, "bounds": {**BOUNDS, "score": (0, 10)}, "ledger": ledger, "seed": 1}
    for formula, more, words in (
        ("score ~ t", {"missing": "weight"}, "available"),
        ("died ~ t | x", {"missing": {"x": "available"}}, "is for the outcome"),
        ("score ~ t", {"missing": {"score": "indicator"}}, "complete"),
        ("died ~ grade | x", {"adjust": True}, "two arms"),
        ("died ~ grade | x", {"on_unadjusted": "error"}, "more than two arms"),
        ("died ~ t", {"adjust": True}, "needs covariates"),
        ("died ~ t", {"on_unadjusted": "error"}, "no covariates"),
        ("I(score + other > 3) ~ t", {"missing": "available"}, "several columns"),
        ("died ~ grade | x", {"estimand": "ATT"}, "two arms"),
        ("died ~ t | x", {"estimand": "CATE"}, "estimates"),
    ):
        table = data.assign(other=data["score"])
        bounds = {**given["bounds"], "other": (0, 10)}
        with pytest.raises(OptionError, match=words):
            dpe.dp_study(formula, table, **{**given, "bounds": bounds, **more})
    with pytest.raises(OptionError, match="dp_study"):
        dpe.dp_ate("score ~ t", data, **given, missing="available")
    assert not ledger.charges


def test_nobody_treated_and_nobody_observed_are_answers() -> None:
    data = people(300).assign(t=0, score=np.nan)
    data.loc[0, "t"] = 1
    given = {"bounds": {**BOUNDS, "score": (0, 10)}, "missing": "available", "subgroups": "sex"}
    for delta in (0.0, 1e-6):
        fit = dpe.dp_study(
            "score + pain ~ t | x", data, epsilon=0.5, delta=delta, adjust=True, seed=1, **given
        )
        for found in (fit, fit.by("sex")):
            low, high = found.conf_int().T
            assert np.isfinite(found.estimates).all()
            assert ((low <= found.estimates) & (found.estimates <= high)).all()
