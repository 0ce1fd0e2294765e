"""Theorem 3 of paper 000, Lemma 3 and Theorems 4 and 5 of paper 004, against simulation."""

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


def matched_by_hand(scores, treated, neighbors, limit=None):
    """Algorithm 3, lines 13-15: in data order, the nearest of the other arm that have room."""
    used = np.zeros(len(scores), dtype=int)
    found = []
    for i, score in enumerate(scores):
        others = np.flatnonzero((treated != treated[i]) & ((limit is None) | (used < (limit or 0))))
        nearest = others[np.argsort(np.abs(scores[others] - score), kind="stable")][:neighbors]
        used[nearest] += 1
        found.append(nearest)
    return found, used


def test_theorem_3_bounds_the_squared_error_of_a_matched_sum():
    rng = np.random.default_rng(3)
    attained = 0.0
    for _ in range(300):
        n, neighbors = int(rng.integers(8, 30)), int(rng.integers(1, 4))
        scores, treated = rng.normal(size=n).round(1) + rng.random(n) / 50, rng.random(n) < 0.5
        scores[treated] += rng.random() * 2
        arms = treated.sum(), (~treated).sum()
        if min(arms) < neighbors:
            continue
        k = int(np.ceil(max(arms) / min(arms)))  # nobody is left without a match
        free, used = matched_by_hand(scores, treated, neighbors)
        limited, _ = matched_by_hand(scores, treated, neighbors, k * neighbors)
        for arm in (True, False):  # the matched sum of this arm's outcomes
            weight = np.zeros(n)
            for i in np.flatnonzero(treated != arm):
                weight[limited[i]] += 1 / len(limited[i])
                weight[free[i]] -= 1 / len(free[i])
            # outcomes of 0 and 1 that move the sum most: those whose weight has grown
            bias = weight[weight > 0].sum()
            case = {"used": used[treated == arm], "neighbors": neighbors, "outcome_range": 1.0}
            at_most = dpe.matching_error_bound(1.0, k, **case)
            noise = dpe.matching_error_bound(1.0, k, used=[0], neighbors=1, outcome_range=1.0)
            assert bias**2 <= at_most - noise + 1e-9
            assert at_most <= dpe.matching_error_bound(1.0, k, **case, as_printed=True)
            attained += bias > 0 and bias**2 > at_most - noise - 1e-9
    assert attained > 20  # the bound is attained, so none that knows only these can be smaller


def test_theorem_3_has_the_variance_of_the_papers_noise():
    bound = dpe.matching_error_bound(0.5, 3, used=[4, 1], neighbors=2, outcome_range=2.0)
    drawn = np.random.default_rng(0).laplace(0, (3 + 1) * 2.0 / 0.5, 400_000)
    assert bound == pytest.approx(np.mean(drawn**2), rel=0.02)


@pytest.mark.parametrize("wrong", ["epsilon", "match_limit", "neighbors", "outcome_range"])
def test_theorem_3_asks_for_positive_numbers(wrong):
    good = {"epsilon": 1.0, "match_limit": 1, "neighbors": 1, "outcome_range": 1.0}
    with pytest.raises(OptionError, match=wrong):
        dpe.matching_error_bound(**{**good, wrong: 0}, used=[1])
