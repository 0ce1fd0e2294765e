"""Populations that bend are as they say, and so is the table of benchmarks/bent.py."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests import bent_populations as made

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
bent = import_module("bent")
SEEDS = (*range(6), made.FIRST_TEST_SEED)


def rng(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


def explained(values: np.ndarray, x: np.ndarray) -> float:
    """The share of the variance that lines in the columns explain; 1 of a constant."""
    lines = np.column_stack([np.ones(len(x)), (x - x.mean(axis=0)) / x.std(axis=0)])
    left = values - lines @ np.linalg.lstsq(lines, values, rcond=None)[0]
    return 1 - left.var() / max(values.var(), 1e-20)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", SEEDS[-3:])
def test_a_population_is_that_of_its_seed(seed: int) -> None:
    one, other = made.population(seed), made.population.__wrapped__(seed)
    assert one is not other
    assert one.description == other.description
    assert one.bounds == other.bounds
    assert one.kind == made.KINDS[seed % 3]
    frame = one.draw(500, rng())
    x, t, y = other.arrays(500, rng())
    assert np.array_equal(frame[["y", "t", *one.names]].to_numpy(), np.column_stack([y, t, x]))
    for column, (low, high) in one.bounds.items():
        assert frame[column].between(low, high).all()


@pytest.mark.parametrize("population", [*map(made.population, (*range(12), *SEEDS[-1:]))])
def test_kinds_mean_what_they_say(population: made.Population) -> None:
    x = population.columns(rng(), 20_000)
    shapes = (population.log_odds, population.control, population.effect)
    score, control, effect = (explained(shape(x), x) > 1 - 1e-9 for shape in shapes)
    assert {
        "right": score and control and effect,
        "effect": score and control and not effect,
        "bent": not (score and control),
    }[population.kind]
    assert 0.04 < population.arrays(20_000, rng())[1].mean() < 0.62


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", [4, 6, 8])
def test_true_effects_are_the_means_of_outcomes(seed: int) -> None:
    """Of outcomes that happen and treatments that are drawn, not of means and probabilities."""
    population, n, chance = made.population(seed), 200_000, rng()
    _, odds, both, _ = population.records(n, chance)
    treated, effects = chance.random(n) < odds, both[:, 1] - both[:, 0]
    for estimand, some in (("ATE", treated | True), ("ATT", treated), ("ATC", ~treated)):
        found = effects[some]
        error = 1e-9 * np.ptp(both) + found.std() / np.sqrt(len(found))
        assert abs(found.mean() - population.truths[estimand]) < 4.5 * error


def test_generous_ranges_are_of_the_same_records() -> None:
    tight = made.population(8).tight()
    wide = tight.generous(5)
    assert all(map(np.array_equal, tight.arrays(50, rng()), wide.arrays(50, rng())))
    for name in wide.bounds.keys() - wide.binary:
        assert np.ptp(wide.bounds[name]) == pytest.approx(5 * np.ptp(tight.bounds[name]))
        assert wide.bounds[name][0] <= tight.bounds[name][0]


def test_a_row_has_what_its_runs_say() -> None:
    """By hand: two populations; of the first one interval of two holds, with a warning on one."""
    about = {"half_width": 3.0, "std_error": 1.0, "warned": 1.0, "peer": np.nan}
    runs = [
        {"population": 1, "error": 3.0, "cover95": 0.0, **about, "peer": 1.5},
        {"population": 1, "error": -1.0, "cover95": 1.0, **about, "warned": 0.0, "std_error": 0.2},
        {"population": 4, "error": 2.0, "cover95": 1.0, **about, "half_width": 12.0, "peer": 1.5},
    ]
    row = bent.of_held_out(pd.DataFrame(runs))
    assert (row["populations"], row["coverage"], row["least population"]) == (2, 66.7, 50.0)
    assert (row["populations below 85 %"], row["of them not warned"]) == (1, 1)
    assert row["half-width / 1.96 rmse"] == round((3 / 5**0.5 * 12 / 2) ** 0.5 / 1.96, 2)
    assert row["width over that without privacy"] == 4.0  # of 2 and 8
    assert row["worst / standard error"] == 5.0


def test_more_epsilon_is_judged_within_populations() -> None:
    """By hand: from 4 to 2 to 1, and from 1 to 2 to 1 of the other unit."""
    half = {1: (4.0, 2.0, 1.0), 2: (10.0, 20.0, 10.0)}
    runs = [
        {"population": seed, "epsilon": e, "half_width": x, "cover95": 1.0}
        for seed, values in half.items()
        for e, x in zip((0.5, 1.0, 2.0), values, strict=True)
    ]
    row = bent.of_epsilons(pd.DataFrame(runs))
    assert (row["steps"], row["above 1.02"], row["largest ratio"]) == (4, 1, 2.0)
    assert row["geometric mean"] == 0.71


def test_life_tables_have_the_truth_of_their_records() -> None:
    """Against the times of 300,000 records, drawn with treatment and without it."""
    drawn, chance = made.population(3), rng()
    x, *_ = drawn.records(300_000, chance)
    rate = np.exp(bent.log_hazard(3, x))
    one, none = (chance.exponential(size=len(x)) / (rate * k) for k in (np.exp(-0.4), 1.0))
    risks = np.array([(one <= 1).mean(), (none <= 1).mean()])
    lived = np.minimum(one, 1).mean() - np.minimum(none, 1).mean()
    found = bent.truth(3)
    assert found[0] == pytest.approx(risks[0] - risks[1], abs=0.006)
    assert found[1] == pytest.approx(risks[0] / risks[1], rel=0.015)
    assert found[2] == pytest.approx(lived, abs=0.005)
