import math

import numpy as np
import pandas as pd
import pytest

from dpeffects.datasets import simulate
from dpeffects.errors import OptionError
from dpeffects.evidence.simulations.metrics import pehe


def test_pehe_by_hand():
    # differences 1, -2, 2: mean square 3
    assert pehe([2.0, 0.0, 5.0], [1.0, 2.0, 3.0]) == pytest.approx(math.sqrt(3))
    assert pehe([1, 2], [1, 2]) == 0.0
    assert isinstance(pehe([1, 2], [1, 2]), float)


@pytest.mark.parametrize("kind", [list, tuple, np.array, pd.Series, pd.array])
def test_pehe_takes_anything_like_an_array(kind):
    assert pehe(kind([2, 0, 5]), kind([1, 2, 3])) == pytest.approx(math.sqrt(3))


def test_pehe_compares_by_position():
    effect = pd.Series([1.0, 2.0], index=[0, 1])
    truth = pd.Series([1.0, 2.0], index=[1, 0])
    assert pehe(effect, truth) == 0.0


def test_pehe_of_the_best_constant_is_the_spread_of_the_effects():
    frame = simulate("cate_1", n=100_000, seed=1).frame
    truth = frame["mu1"] - frame["mu0"]
    best = pehe(np.full(len(truth), truth.mean()), truth)
    assert best == pytest.approx(truth.std(ddof=0))

    # the same from the distribution: x uniform on [0, 1], midpoint rule
    x = (np.arange(100_000) + 0.5) / 100_000
    theta = np.exp(2 * x) + 3 * np.sin(4 * x)
    assert best == pytest.approx(theta.std(), abs=0.015)
    assert best == pytest.approx(1.147, abs=0.015)
    assert pehe(np.full(len(truth), truth.mean() + 0.5), truth) == pytest.approx(
        math.hypot(best, 0.5)
    )


@pytest.mark.parametrize(
    ("effect", "truth", "message"),
    [
        ([1.0], [1.0, 2.0], "same length, got 1 and 2"),
        ([], [], "effect must not be empty"),
        ([1.0], [], "truth must not be empty"),
        ([1.0, math.nan], [1.0, 2.0], "effect must be finite"),
        ([1.0, 2.0], [1.0, math.inf], "truth must be finite"),
        ([1.0, 2.0], [1.0, None], "truth must be finite"),
        ([[1.0], [2.0]], [1.0, 2.0], r"effect must have one dimension, got shape \(2, 1\)"),
        (1.0, [1.0, 2.0], "effect must have one dimension"),
        (["a", "b"], [1.0, 2.0], "effect must be numbers"),
        ([1.0, 2.0], pd.array([1, pd.NA]), "truth must be"),
    ],
)
def test_pehe_refuses(effect, truth, message):
    with pytest.raises(OptionError, match=message):
        pehe(effect, truth)
