"""benchmarks/populations.py: populations are those of their seed, and as they say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

PLACE = importlib.util.spec_from_file_location(
    "bent_populations", Path(__file__).parents[1] / "benchmarks" / "populations.py"
)
made = importlib.util.module_from_spec(PLACE)
sys.modules[PLACE.name] = made
PLACE.loader.exec_module(made)
SEEDS = (*range(6), made.FIRST_TEST_SEED)


def rng(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


def explained(values: np.ndarray, x: np.ndarray) -> float:
    """The share of the variance that lines in the columns explain; 1 of a constant."""
    lines = np.column_stack([np.ones(len(x)), (x - x.mean(axis=0)) / x.std(axis=0)])
    left = values - lines @ np.linalg.lstsq(lines, values, rcond=None)[0]
    return 1 - left.var() / max(values.var(), 1e-20)


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
