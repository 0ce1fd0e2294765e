"""The clipped contrast: a difference in means for about half the noise, and honest about itself."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from tests.plain import plain

BOUNDS = {"y": (0, 1)}


def trial(n=5000, seed=1, share=0.5, binary=False):
    rng = np.random.default_rng(seed)
    t = rng.random(n) < share
    y = np.clip(0.3 + 0.1 * t + 0.08 * rng.normal(size=n), 0, 1)
    if binary:
        y = (rng.random(n) < 0.3 + 0.1 * t).astype(int)
    return pd.DataFrame({"y": y, "t": t})


def fit(frame, call=dpe.dp_ate, **more):
    more = {"epsilon": 1.0, "bounds": BOUNDS, "seed": 1, "design": "randomised", **more}
    return call("y ~ t", frame, "clipped_contrast", **more)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("share", [0.5, 0.1])
@pytest.mark.parametrize("call", [dpe.dp_ate, dpe.dp_att, dpe.dp_atc])
def test_without_noise_it_is_the_difference_in_means(call, share, binary):
    frame = trial(share=share, binary=binary)
    made = fit(frame, call, epsilon=1e6)
    target = plain("y ~ t", frame, "diff_in_means", bounds=BOUNDS)
    assert made.estimate == pytest.approx(target.estimate, abs=0.05 * target.std_error)
    assert made.std_error == pytest.approx(target.std_error, rel=0.05)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_it_has_less_noise_than_a_difference_in_means(epsilon):
    ours = [fit(trial(), epsilon=epsilon, seed=s) for s in range(40)]
    given = {"bounds": BOUNDS, "epsilon": epsilon}
    theirs = [dpe.dp_ate("y ~ t", trial(), "diff_in_means", seed=s, **given) for s in range(40)]
    spreads = [np.std([m.estimate for m in made]) for made in (ours, theirs)]
    widths = [np.median([m.std_error for m in made]) for made in (ours, theirs)]
    assert spreads[0] < 0.75 * spreads[1]
    assert widths[0] < 0.9 * widths[1]


@pytest.mark.long
@pytest.mark.parametrize(("n", "epsilon", "share"), [(300, 1.0, 0.5), (5000, 0.5, 0.1)])
def test_intervals_cover(n, epsilon, share):
    """200 trials with seeds that are fixed: at least 90 % of intervals for 95 %."""
    hits = 0
    for seed in range(200):
        low, high = fit(trial(n, seed, share), epsilon=epsilon, seed=seed).conf_int()
        hits += low < 0.1 < high
    assert hits >= 180


@pytest.mark.long
def test_the_noise_is_as_large_as_it_says():
    """Reruns on the same records: their spread is the reported one."""
    made = [fit(trial(), seed=seed) for seed in range(300)]
    spread = np.std([m.estimate for m in made])
    assert spread == pytest.approx(np.median([np.sqrt(m.noise_variance) for m in made]), rel=0.3)


def test_an_observational_study_gets_an_association_without_a_test():
    made = fit(trial(), design="observational")
    assert made.released.identification == "unadjusted"
    assert made.std_error == fit(trial()).std_error
    (low, high), wide = made.conf_int(), made.effect_conf_int()
    assert wide[1] - wide[0] > 2 * (high - low)  # confounding that may be there
    assert not any("confounding" in part.name for part in made.released.parts)
    assert any("confounding" in part.name for part in made.released.as_effect().parts)
    assert "ASSOCIATION" in str(made)


def test_public_arms_cost_nothing():
    made = fit(trial(), level="label")
    assert "count" not in {charge.share for charge in made.charges}
    assert made.guarantee.public == ("n", "covariates", "treatment")
    assert made.guarantee.epsilon == pytest.approx(1.0)
