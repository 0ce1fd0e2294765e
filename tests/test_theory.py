"""Lemma 3 and Theorems 4 and 5 of paper 004, against simulation."""

from __future__ import annotations

import numpy as np
import pytest

import dpeffects as dpe
from dpeffects.errors import OptionError

PRICE = {"epsilon": 0.6, "m": 300, "penalty": 0.1, "delta": 1e-6}


def rows(n=40, d=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1).max()
    w = rng.normal(size=d)
    t = rng.random(n) < 1 / (1 + np.exp(-x @ w))
    return {"outcome": rng.random(n) + t, "treated": t, "rows": x, "weights": w}


def estimate(case, weights, estimand="ATE", clip=None):
    """Equations 5 and those of Appendix F, for many weights at once."""
    e = 1 / (1 + np.exp(-case["rows"] @ weights))
    if clip is not None:
        e = np.clip(e, clip, 1 - clip)
    t, y = case["treated"][:, None], case["outcome"][:, None]
    a, b = {
        "ATE": (1 / e, 1 / (1 - e)),
        "ATT": (np.ones_like(e), e / (1 - e)),
        "ATC": ((1 - e) / e, np.ones_like(e)),
    }[estimand]
    return (np.where(t, a, -b) * y).mean(axis=0)


def noisy_weights(case, draws=200_000, seed=1):
    sd = dpe.ipw_noise_sd(**PRICE)
    noise = np.random.default_rng(seed).normal(0, sd, (case["weights"].size, draws))
    return case["weights"][:, None] + noise


@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
@pytest.mark.parametrize("clip", [None, 0.3])
def test_lemma_3_against_simulation(estimand, clip):
    case = rows()
    drawn = estimate(case, noisy_weights(case), estimand, clip)
    without = estimate(case, case["weights"][:, None], estimand, clip)[0]
    bias = dpe.ipw_bias(**PRICE, **case, estimand=estimand, clip=clip)
    error = 4.5 * drawn.std() / np.sqrt(drawn.size)
    assert bias == pytest.approx(drawn.mean() - without, abs=error)
    assert abs(bias) > 3 * error  # the simulation can tell


def test_lemma_3_as_printed_is_off():
    case = rows()
    drawn = estimate(case, noisy_weights(case))
    without = estimate(case, case["weights"][:, None])[0]
    printed = dpe.ipw_bias(**PRICE, **case, as_printed=True)
    assert abs(printed - (drawn.mean() - without)) > 20 * drawn.std() / np.sqrt(drawn.size)
    controls = {**case, "treated": np.zeros(40, dtype=bool)}  # right where nobody is treated
    assert dpe.ipw_bias(**PRICE, **controls) == dpe.ipw_bias(**PRICE, **controls, as_printed=True)


def test_the_bias_vanishes_as_the_paper_says():
    case = rows()
    sizes = [abs(dpe.ipw_bias(0.5, m, 0.1, 1e-6, **case)) for m in (300, 3_000, 30_000)]
    assert sizes[0] > 50 * sizes[1] > 2500 * sizes[2]


def test_the_bound_on_the_bias_holds():
    for seed in range(30):
        case = rows(seed=seed)
        case["outcome"] = np.clip(case["outcome"], 0, 1)
        case["weights"] = case["weights"] * 4
        bias = dpe.ipw_bias(**PRICE, **case, clip=0.2)
        assert abs(bias) <= dpe.ipw_bias_bound(**PRICE, largest_outcome=1.0, clip=0.2)


def worst(effect, low, size=400_000):
    """A variable within [-1, 1] with two values, 1 and ``low``, and mean ``effect``."""
    chance = (effect - low) / (1 - low)
    return np.where(np.random.default_rng(3).random(size) < chance, 1.0, low)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("effect", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("noise", [0.0, 0.2, 2.0])
def test_theorems_4_and_5_hold_and_are_attained(effect, noise, both):
    rng = np.random.default_rng(4)
    bound = dpe.wrong_sign_probability(2 * effect, 0.0, 2.0, 2 * noise, both=both)
    largest = 0.0
    for low in (-1.0, -0.5, -0.2, -0.1, 0.0):
        partial = worst(effect, low)
        released = partial + noise * rng.standard_normal(partial.size)
        wrong = (released <= 0) & ((partial <= 0) | (not both))
        largest = max(largest, wrong.mean())
    assert largest <= bound + 0.004
    assert largest >= bound - 0.03


def test_theorem_4_as_printed_holds_but_is_not_sharp():
    for effect in np.linspace(0.01, 0.99, 30):
        sharp = dpe.wrong_sign_probability(effect, 0.0, 1.0)
        assert sharp == pytest.approx(1 - effect)
        assert sharp <= dpe.wrong_sign_probability(effect, 0.0, 1.0, as_printed=True)


def test_theorem_5_as_printed_is_no_bound():
    """With a partial estimate near zero it claims half of what happens."""
    effect, noise = 0.5, 0.1
    partial = worst(effect, -0.3)
    released = partial + noise * np.random.default_rng(5).standard_normal(partial.size)
    happens = ((released <= 0) & (partial <= 0)).mean()
    printed = dpe.wrong_sign_probability(effect, 0, 1, noise, partial=0.0, as_printed=True)
    assert happens > printed
    assert happens <= dpe.wrong_sign_probability(effect, 0, 1, noise, both=True)


def test_signs_and_limits():
    assert dpe.wrong_sign_probability(-0.5, 0.1, 1.0) == dpe.wrong_sign_probability(0.5, -0.1, 1.0)
    assert dpe.wrong_sign_probability(0.5, -0.6, 1.0) == 1.0
    printed = dpe.wrong_sign_probability(0.5, 0.0, 1.0, 0.3, partial=0.0, as_printed=True)
    assert printed == pytest.approx(0.5 * np.exp(-0.5))
    assert dpe.ipw_bound(3.0, 0.25) == 12.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dpe.ipw_noise_sd(0.0, 10, 0.1, 1e-6), "epsilon"),
        (lambda: dpe.ipw_noise_sd(0.5, 10, 0.1, 0.0), "delta"),
        (lambda: dpe.ipw_bias(**PRICE, **{**rows(), "weights": [1.0]}), "rows"),
        (lambda: dpe.ipw_bias(**PRICE, **rows(), estimand="LATE"), "estimand"),
        (lambda: dpe.ipw_bias(**PRICE, **rows(), clip=0.6), "clip"),
        (lambda: dpe.ipw_bias(**PRICE, **rows(), clip=0.1, as_printed=True), "clip"),
        (lambda: dpe.ipw_bound(1.0, 0.0), "clip"),
        (lambda: dpe.wrong_sign_probability(1.0, 0.0, 0.0), "bound"),
        (lambda: dpe.wrong_sign_probability(1.0, 0.0, 1.0, 0.1, as_printed=True), "partial"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(OptionError, match=words):
        call()
