"""The randomisation test: its distribution against brute force, its level, and what it refuses."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpeffects as dpe
from dpeffects.inference import randomisation_distribution
from dpeffects.inference.randomisation_distribution import (
    GAMMA,
    Assignment,
    RandomisationStatistic,
    p_value,
)
from tests.refused import refusals

DESIGNS = {
    "half": Assignment(7, 1, 2, fixed=False),
    "third": Assignment(7, 1, 3, fixed=False),
    "fixed": Assignment(7, 3, 7, fixed=True),
    "fixed half": Assignment(8, 1, 2, fixed=True),
    "one treated": Assignment(6, 1, 6, fixed=True),
}


def laplace(scale, far=400):
    """Chances of discrete Laplace noise, from its definition."""
    k = np.arange(-far, far + 1)
    chance = np.exp(-np.abs(k) / scale)
    return k, chance / chance.sum()


def assignments(design):
    """Every assignment and its chance."""
    for t in itertools.product((0, 1), repeat=design.n):
        if design.fixed:
            yield t, (sum(t) == design.treated) / math.comb(design.n, design.treated)
        else:
            share = design.r / design.s
            yield t, share ** sum(t) * (1 - share) ** (design.n - sum(t))


def brute_force(statistic, successes, w, alternative):
    """Chance of a statistic at least as extreme, over all assignments and all noise."""
    design, found = statistic.assignment, 0.0
    y = np.arange(design.n) < successes
    every = np.array([t for t, _ in assignments(design)], dtype=bool)
    chances = np.array([chance for _, chance in assignments(design)])
    for count, p in zip(*laplace(statistic.count, 60), strict=True):
        released = float(successes + count)
        a, b, c, d = design.scores(statistic.centre(released))
        each = np.where(y, np.where(every, a, b), np.where(every, c, d)).sum(axis=1)
        totals, which = np.unique(each, return_inverse=True)
        noise, dist = laplace(statistic.scale(statistic.centre(released)))
        value = (totals[:, None] + noise) * statistic.of(1.0, released)
        extreme = {
            "greater": value >= w - 1e-9,
            "less": value <= w + 1e-9,
            "two-sided": np.abs(value) >= abs(w) - 1e-9,
        }[alternative]
        found += p * float(np.bincount(which, chances) @ (extreme @ dist))
    return found


@pytest.mark.sampled(5)
@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize("name", DESIGNS)
def test_the_law_of_the_statistic_is_that_of_all_assignments(name, alternative):
    design = DESIGNS[name]
    statistic = RandomisationStatistic(design, 1.3, 2.2)
    for successes, w in ((0, 0.4), (2, 0.8), (design.n - 1, 0.1), (design.n, -0.6)):
        beyond = randomisation_distribution._Beyond(statistic, w, alternative)
        expected = brute_force(statistic, successes, w, alternative)
        assert beyond(successes) == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize(("n", "successes", "treated"), [(10, 3, 4), (10, 8, 7), (40, 39, 1)])
def test_successes_among_a_fixed_number_of_treated_are_hypergeometric(n, successes, treated):
    values, chances = randomisation_distribution._hypergeometric(n, successes, treated)
    dist = stats.hypergeom(n, successes, treated)
    assert (values[0], values[-1]) == dist.support()
    assert chances == pytest.approx(dist.pmf(values), rel=1e-9)


@pytest.mark.parametrize("centre", randomisation_distribution.CENTRES)
@pytest.mark.parametrize("successes", [0, 3, 40, 97, 100])
def test_sums_have_the_moments_that_the_design_says(centre, successes):
    for design in (Assignment(100, 1, 2, False), Assignment(100, 3, 10, False)):
        sums, chance = design.sums(successes, centre)
        assert chance.sum() == pytest.approx(1.0, abs=1e-10)
        assert chance @ sums == pytest.approx(0.0, abs=1e-6)
        known = float(design.variance(np.array(float(successes)), centre))
        assert chance @ sums**2 == pytest.approx(known, rel=1e-6, abs=1e-6)
    fixed = Assignment(100, 3, 10, True)
    sums, chance = fixed.sums(successes, "both")
    assert chance.sum() == pytest.approx(1.0, abs=1e-10)
    assert chance @ sums**2 == pytest.approx(
        float(fixed.variance(np.array(float(successes)), "both")), rel=1e-6, abs=1e-6
    )


@pytest.mark.parametrize("a", [8, 12, 16, 19])
def test_without_noise_it_is_fishers_test(a):
    """A fixed number treated and hardly any noise: the hypergeometric tail, but for gamma."""
    design = Assignment(60, 1, 2, fixed=True)
    successes, quiet = 24, (1e-3, 1e-3)
    total = 2.0 * (2 * a - successes)
    table = [[a, successes - a], [30 - a, 30 - successes + a]]
    for ours, theirs in (("greater", "greater"), ("less", "less"), ("two-sided", "two-sided")):
        expected = stats.fisher_exact(table, alternative=theirs)[1]
        found = p_value(RandomisationStatistic(design, *quiet), total, float(successes), ours)
        assert found == pytest.approx(min(1.0, expected + GAMMA), abs=1e-6)


def test_a_coarser_look_at_the_number_of_successes_is_never_smaller(monkeypatch):
    statistic = RandomisationStatistic(Assignment(60, 2, 5, False), 4.0, 12.0)
    exact = [p_value(statistic, t, m, "two-sided") for t, m in ((120.0, 20.0), (9.0, 55.0))]
    for most in (5, 20, 33):
        monkeypatch.setattr(randomisation_distribution, "_MOST", most)
        coarse = [p_value(statistic, t, m, "two-sided") for t, m in ((120.0, 20.0), (9.0, 55.0))]
        assert all(c >= e for c, e in zip(coarse, exact, strict=True))
    # every second number: one success more changes no chance by more than this factor
    assert all(c <= math.exp(1 / 4 + 1 / 12) * e for c, e in zip(coarse, exact, strict=True))


def test_released_numbers_of_successes_go_to_the_nearest_multiple():
    statistic = RandomisationStatistic(Assignment(600, 2, 5, False), 4.0, 41.0)
    assert statistic.step == 20
    for count in range(-30, 620):
        assert abs(20 * statistic.bucket(count) - count) <= 10


def released(design, successes, statistic, rng):
    """What is released under the null hypothesis."""
    if design.fixed:
        treated = rng.hypergeometric(successes, design.n - successes, design.treated)
        others = design.treated - treated
    else:
        treated = rng.binomial(successes, design.r / design.s)
        others = rng.binomial(design.n - successes, design.r / design.s)

    def noise(scale):
        return float(np.subtract(*rng.geometric(1.0 - math.exp(-1.0 / scale), 2)))

    count = successes + noise(statistic.count)
    centre = statistic.centre(count)
    a, b, c, d = design.scores(centre)
    failures = design.n - successes
    total = a * treated + b * (successes - treated) + c * others + d * (failures - others)
    return float(total) + noise(statistic.scale(centre)), count


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("design", "successes", "epsilon"),
    [
        (Assignment(20, 1, 2, True), 0, 1.0),
        (Assignment(20, 1, 2, False), 20, 0.05),
        (Assignment(50, 1, 5, False), 4, 3.0),
        (Assignment(50, 3, 10, True), 25, 2.0),
    ],
)
def test_p_values_keep_their_level(design, successes, epsilon):
    """100 p-values each, seeds fixed; benchmarks/by_arm.py has more."""
    rng = np.random.default_rng(5)
    statistic = RandomisationStatistic(design, 1 / (0.75 * epsilon), 1 / (0.25 * epsilon))
    found = np.array(
        [
            p_value(statistic, *released(design, successes, statistic, rng), "two-sided")
            for _ in range(100)
        ]
    )
    for alpha in (0.01, 0.05, 0.1):
        assert np.mean(found <= alpha) <= alpha + 2.6 * math.sqrt(alpha * (1 - alpha) / 100)


# --- the call -----------------------------------------------------------------------------------


def trial(n=400, effect=0.0, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(n) < n // 2
    y = (rng.random(n) < 0.4 + effect * t).astype(int)
    return pd.DataFrame({"y": y, "t": t, "x": rng.random(n)})


CALL = {"epsilon": 1.0, "bounds": {"y": [0, 1]}}


def test_what_is_released_has_the_noise_of_the_law():
    """Sums are whole numbers, and move by what the scores say: the charges say it."""
    found = dpe.dp_randomisation_test("y ~ t", trial(), treated=200, seed=1, **CALL)
    count, total = found.charges
    assert (count.epsilon, total.epsilon) == (0.25, 0.75)
    assert count.scale[0] == pytest.approx(4.0)
    assert total.sensitivity == (2.0,)  # (t - p)(y - c) for p = c = 1/2, times 4
    assert total.scale[0] == found.scale == pytest.approx(2.0 / 0.75)
    assert float(found.total).is_integer()
    assert float(found.successes).is_integer()


def test_large_epsilon_gives_the_exact_sums():
    data = trial(effect=0.1)
    for given in ({"treated": 200}, {"treated_share": 0.5}, {"treated_share": 0.3}):
        found = dpe.dp_randomisation_test(
            "y ~ t", data, epsilon=1e6, bounds=CALL["bounds"], **given
        )
        success, treated = data["y"] == 1, data["t"]
        assert found.successes == success.sum()
        p = given.get("treated_share", 0.5)
        c = {"successes": 0.0, "both": 0.5, "failures": 1.0}[found.centre]
        expected = float(((treated - p) * (data["y"] - c)).sum()) / (len(data) * p * (1 - p))
        assert found.estimate == pytest.approx(expected)
    strong = dpe.dp_randomisation_test("y ~ t", trial(effect=0.4), treated=200, seed=1, **CALL)
    assert strong.p_value < 0.001
    assert strong.estimate == pytest.approx(0.4, abs=0.15)
    wrong = dpe.dp_randomisation_test(
        "y ~ t", trial(effect=0.4), treated=200, alternative="less", seed=1, **CALL
    )
    assert wrong.p_value > 0.99


def test_the_result_is_shown_and_written():
    found = dpe.dp_randomisation_test("y ~ t", trial(), treated_share=0.5, seed=1, **CALL)
    assert dpe.RandomisationTest.from_json(found.to_json()) == found
    assert "has no effect on y in any unit" in str(found)
    assert "NOT PRIVATE" in str(found)
    assert "\\begin{tabular}" in found.summary().as_latex()
    assert found.summary().as_html()
    assert f"p = {found.p_value:.4f}" in str(found.report()).replace("\n", " ")
    row = found.tidy().iloc[0]
    assert (row["term"], row["p_value"]) == ("t", found.p_value)
    assert found.glance()["p_value"][0] == found.p_value
    assert "randomisation_test" in list(dpe.methods()["method"])
    assert "treated_share" in dpe.methods("randomisation_test")


test_refusals_come_before_any_charge = refusals(
    partial(dpe.dp_randomisation_test, data=trial(), epsilon=1, bounds={"y": [0, 1], "x": (0, 1)}),
    ("y ~ t", {}, "declare how treatment was assigned"),
    ("y ~ t", {"treated": 200, "treated_share": 0.5}, "declare how treatment was assigned"),
    ("y ~ t", {"treated": 400}, "below the number of records"),
    ("y ~ t", {"treated": 0}, "treated"),
    ("y ~ t", {"treated_share": 1.0}, "treated_share"),
    ("y ~ t", {"treated_share": 0.5, "alternative": "more"}, "alternative"),
    ("x ~ t", {"treated": 200}, "an outcome declared as 0 and 1"),
    ("y ~ t", {"treated": 200, "bounds": {"y": (0, 3)}}, "an outcome declared as 0 and 1"),
    ("y ~ t", {"treated": 200, "bounds": None}, "an outcome declared as 0 and 1"),
    ("log(y + 1) ~ t", {"treated": 200}, "an outcome declared as 0 and 1"),
)


@pytest.mark.parametrize("y", [0, 1])
@pytest.mark.parametrize("t", [False, True])
@pytest.mark.parametrize("given", [{"treated": 1}, {"treated_share": 0.01}])
def test_data_of_one_kind_give_an_answer(y, t, given):
    """One treated or one control record, everybody a success: nothing fails after the charge."""
    data = pd.DataFrame({"y": [y] * 12, "t": [not t] + [t] * 11})
    for epsilon in (1e-3, 1.0, 1e3):
        found = dpe.dp_randomisation_test(
            "y ~ t", data, epsilon=epsilon, bounds=CALL["bounds"], seed=2, **given
        )
        assert 0 < found.p_value <= 1
        assert math.isfinite(found.estimate)


def test_outcomes_of_all_kinds_are_read():
    data = trial(effect=0.1)
    data["b"], data["f"] = data["y"] == 1, data["y"].astype(float)
    given = {"epsilon": 1.0, "treated": 200, "seed": 3}
    known = dpe.dp_randomisation_test("y ~ t", data, bounds={"y": range(2)}, **given)
    for formula, bounds in (
        ("b ~ t", None),
        ("y ~ t", {"y": [0, 1]}),
        ("I(f > 0.5) ~ t", {"f": (0, 1)}),
        ("I(y == 1) ~ t", {"y": (0, 1)}),
    ):
        found = dpe.dp_randomisation_test(formula, data, bounds=bounds, **given)
        assert (found.total, found.successes) == (known.total, known.successes)
