"""benchmarks/populations.py and bent.py: populations are as they say, and so are the tables."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
made, bent = import_module("populations"), import_module("bent")
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
    frame, truths = one.draw(500, rng())
    x, t, y = other.arrays(500, rng())
    assert np.array_equal(frame[["y", "t", *one.names]].to_numpy(), np.column_stack([y, t, x]))
    assert {"ATE", "ATT", "ATC", "sample_ate"} == set(truths)
    for column, (low, high) in one.bounds.items():
        assert frame[column].between(low, high).all()


@pytest.mark.parametrize("population", [*map(made.population, SEEDS), *made.PINNED.values()])
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
@pytest.mark.parametrize("name", ["seed 4", "seed 6", "exp"])
def test_true_effects_are_the_means_of_outcomes(name: str) -> None:
    """Of outcomes that happen and treatments that are drawn, not of means and probabilities."""
    population, n, chance = made.find(name), 200_000, rng()
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


def test_a_cell_has_what_its_runs_say() -> None:
    """By hand: errors 3 and -1, one interval of two holds; the peers' 2^2 + 2 (1/2)^2 is 4.5."""
    first = {"error": 3.0, "low": 1.0, "high": 5.0, "std_error": 1.0, "cautioned": False}
    second = {"error": -1.0, "low": -2.0, "high": 0.0, "std_error": 0.5, "cautioned": True}
    peer = {"linear": 2.0, "boosted": 9.0, "linear_draw": 1.0, "boosted_draw": 0.0}
    runs = pd.DataFrame([{"epsilon": 2.0, **x} for x in (first | peer, second)])
    row = bent.summary(runs)
    assert (row["coverage"], row["cautioned"], row["its runs"]) == (50, 50, 1)
    assert row["worst / se"] == 3
    assert row["half / 1.96 rmse"] == pytest.approx(1.5 / 1.96 / 5**0.5)
    assert (row["better"], row["rmse / better"]) == ("linear", pytest.approx((5 / 4.5) ** 0.5))
    cell = {"population": "product", "n": 10, "estimand": "ATE", "epsilon": 2.0, "delta": 0.0}
    found = bent.about(pd.DataFrame([{**cell, **row, "runs": 2}]))
    assert found["kind"].item() == "bent"
    both = bent.pooled(pd.concat([found, found.assign(coverage=100.0, runs=6)]))
    assert (both["coverage"][0], both["least"][0], both["below 85 and not told"][0]) == (
        87.5,
        50,
        1,
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
def test_what_the_package_is_compared_with_is_right_where_lines_are(estimand: str) -> None:
    population = made.PINNED["thirty columns"]
    x, t, y = population.arrays(20_000, rng())
    found = bent.terms(x, t, y, estimand, boosted=False)
    error = found.std() / np.sqrt(len(found))
    assert abs(found.mean() - population.truths[estimand]) < 4 * error
