"""Theorem 3 of paper 000; Lemmas 3 and 6, Corollary 7, Theorems 4 and 5 of paper 004; simulated."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

import dpeffects as dpe
from dpeffects.errors import OptionError
from tests.cases import each

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


def noisy_weights(case, draws=200_000, seed=1, price=PRICE):
    sd = dpe.ipw_noise_sd(**price)
    noise = np.random.default_rng(seed).normal(0, sd, (case["weights"].size, draws))
    return case["weights"][:, None] + noise


@pytest.mark.sampled(7)
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


def signed(seed=0):
    """Outcomes of either sign in both arms."""
    case = rows(seed=seed)
    return {**case, "outcome": case["outcome"] - np.where(case["treated"], 1.5, 0.5)}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
def test_the_mean_square_of_corollary_7_against_simulation(estimand):
    case = rows()
    drawn = estimate(case, noisy_weights(case), estimand)
    squares = (drawn - estimate(case, case["weights"][:, None], estimand)[0]) ** 2
    distance = 2 * np.sqrt(squares.mean())
    found = dpe.ipw_error_probability(distance, **PRICE, **case, estimand=estimand)
    error = 4.5 * squares.std() / np.sqrt(squares.size) / distance**2
    assert found == pytest.approx(squares.mean() / distance**2, abs=error)


def test_corollary_7_as_printed_is_no_bound():
    """Neither with the printed bias nor with the right one."""
    price, broken = {**PRICE, "m": 1500}, np.zeros(2)
    for seed in range(10):
        case = rows(seed=seed)
        drawn = estimate(case, noisy_weights(case, 20_000, price=price))
        moved = np.abs(drawn - estimate(case, case["weights"][:, None]))
        for distance in np.quantile(moved, [0.1, 0.5, 0.9]):
            happens = (moved >= distance).mean()
            assert happens <= dpe.ipw_error_probability(distance, **price, **case) + 0.01
            printed = dpe.ipw_error_probability(distance, **price, **case, as_printed=True)
            proved = abs(dpe.ipw_bias(**price, **case)) / distance
            broken += happens > np.array([printed, proved]) + 0.02
    assert (broken > 10).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
def test_lemma_6_holds_as_corrected(estimand):
    short = 0
    for seed in range(10):
        case = signed(seed)
        first, second = np.split(estimate(case, noisy_weights(case, 40_000), estimand), 2)
        for chance in (0.5, 0.1):
            given = {"chance": chance, **PRICE, **case, "estimand": estimand}
            beyond = np.abs(first - second) > dpe.ipw_noise_range(**given)
            assert beyond.mean() <= chance
            printed = dpe.ipw_noise_range(**given, as_printed=True)
            short += (np.abs(first - second) > printed).mean() > chance
    assert short > 2  # outcomes of either sign cancel in the printed one


def worst(effect, low, size=400_000):
    """A variable within [-1, 1] with two values, 1 and ``low``, and mean ``effect``."""
    chance = (effect - low) / (1 - low)
    return np.where(np.random.default_rng(3).random(size) < chance, 1.0, low)


@pytest.mark.sampled(2)
@each("both", [False, True])
@each("effect", [0.1, 0.5, 0.9])
@each("noise", [0.0, 0.2, 2.0])
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


MATCHED = {"epsilon": 1.0, "match_limit": 1, "used": [1], "neighbors": 1, "outcome_range": 1.0}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dpe.ipw_noise_sd(0.0, 10, 0.1, 1e-6), "epsilon"),
        (lambda: dpe.ipw_noise_sd(0.5, 10, 0.1, 0.0), "delta"),
        (lambda: dpe.ipw_bias(**PRICE, **{**rows(), "weights": [1.0]}), "rows"),
        (lambda: dpe.ipw_bias(**PRICE, **rows(), estimand="LATE"), "estimand"),
        (lambda: dpe.ipw_bias(**PRICE, **rows(), clip=0.6), "clip"),
        (lambda: dpe.ipw_bias(**PRICE, **rows(), clip=0.1, as_printed=True), "clip"),
        (lambda: dpe.ipw_error_probability(0.0, **PRICE, **rows()), "distance"),
        (lambda: dpe.ipw_noise_range(1.0, **PRICE, **rows()), "chance"),
        (lambda: dpe.ipw_bound(1.0, 0.0), "clip"),
        (lambda: dpe.wrong_sign_probability(1.0, 0.0, 0.0), "bound"),
        (lambda: dpe.wrong_sign_probability(1.0, 0.0, 1.0, 0.1, as_printed=True), "partial"),
        *(
            (partial(dpe.matching_error_bound, **MATCHED | {x: 0}), x)
            for x in MATCHED
            if x[0] != "u"
        ),
        *(
            (partial(dpe.matching_error_bound, **MATCHED | {"used": used}), "used")
            for used in ([-1.0], [math.nan], [1.0, math.inf])
        ),
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


CASE = {
    "outcome": [1.0, 2.0, 1.5],
    "treated": [1, 0, 1],
    "rows": [[0.6, 0.8], [0.6, -0.8], [0.6, 0.1]],
    "weights": [0.1, 0.5],
}
NONSENSE = {
    "a negative sd": {"noise_sd": -1.0},
    "no number": {"noise_sd": math.nan},
    "an endless sd": {"noise_sd": math.inf},
    "an outcome that is none": {"outcome": [1.0, math.nan, 1.0]},
    "no records": {"outcome": [], "treated": [], "rows": np.zeros((0, 2))},
}


@pytest.mark.parametrize("change", NONSENSE.values(), ids=NONSENSE.keys())
@pytest.mark.parametrize("as_printed", [False, True])
def test_corollary_7_and_lemma_6_refuse_nonsense(change, as_printed):
    for bound in (dpe.ipw_error_probability, dpe.ipw_noise_range):
        with pytest.raises(OptionError):
            bound(0.5, 0.5, 500, 0.1, 1e-6, **{**CASE, **change}, as_printed=as_printed)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("as_printed", [False, True])
def test_corollary_7_and_lemma_6_say_nothing_where_noise_is_beyond_floats(as_printed):
    case = {**CASE, "as_printed": as_printed}
    for sd in (30.0, 1e3, 1e200):
        assert dpe.ipw_error_probability(0.5, 0.5, 500, 0.1, 1e-6, **case, noise_sd=sd) == 1.0
    assert dpe.ipw_error_probability(1e-300, 0.5, 500, 0.1, 1e-6, **case) == 1.0
    assert dpe.ipw_noise_range(0.5, 0.5, 500, 0.1, 1e-6, **case, noise_sd=1e4) == math.inf
