"""Every spend of every method cites a claim that is proved, or says that there is none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.estimators import proved
from tests.test_proofs import CLAIMS


def frame(n=60):
    rng = np.random.default_rng(0)
    x = rng.random(n)
    return pd.DataFrame(
        {"y": rng.random(n), "t": rng.random(n) < 0.3 + 0.4 * x, "x": x, "g": ["a", "b"] * (n // 2)}
    )


BOUNDS = {"y": (0, 1), "x": (0, 1), "g": ["a", "b"]}
PATHS = {
    **{
        f"{name}, {level}": (name, {"level": level})
        for name, spec in proved().items()
        for level in spec.levels
    },
    "public arms": ("diff_in_means", {"arms": "public"}),
    "noise on the weights": ("private_ipw", {"propensity": "output"}),
    "halves": ("private_ipw", {"split": True}),
    "Gaussian": ("private_ipw", {"noise": "gaussian", "delta": 1e-5}),
    "Gaussian halves": ("private_ipw", {"noise": "gaussian", "split": True, "delta": 1e-5}),
    "a trial": ("one_step", {"design": "randomised"}),
    "Gaussian moments": ("one_step", {"pool": "all", "delta": 1e-5}),
    "smooth variance": ("smooth_matching", {"variance_noise": "smooth"}),
    "found bounds": ("diff_in_means", {"bounds": {}, "epsilon": 8.0}),
}
EFFECTS = {
    "function": {},
    "kernel": {"noise": "kernel"},
    "points": {"release": "points", "at": {"x": [0.2, 0.8]}},
    "groups": {"release": "groups", "by": "g"},
}


def checked(charges):
    assert charges
    for charge in charges:
        assert charge.claim in CLAIMS
        assert charge.epsilon > 0 or charge.delta > 0 or "claim 11" in charge.label
        if charge.mechanism in (
            "discrete Laplace",
            "discrete Gaussian",
            "Laplace, smooth sensitivity",
        ):
            assert all(s > 0 for s in (*charge.sensitivity, *charge.scale))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("name", "given"), PATHS.values(), ids=PATHS)
def test_every_spend_of_a_method_cites_a_claim(name, given):
    spec = proved()[name]
    formula = "y ~ t | g" if spec.needs_strata else "y ~ t | x"
    call = {"epsilon": 1.0, "delta": 1e-5 * spec.needs_delta, "bounds": BOUNDS, "seed": 1, **given}
    checked(dpe.dp_ate(formula, frame(1200), name, **call).charges)


@pytest.mark.parametrize("given", EFFECTS.values(), ids=EFFECTS)
def test_every_spend_of_conditional_effects_cites_a_claim(given):
    fit = dpe.dp_cate("y ~ t | x", frame(), epsilon=1, delta=1e-5, bounds=BOUNDS, seed=1, **given)
    checked(fit.charges)


def test_every_spend_of_balance_cites_a_claim():
    balance = dpe.dp_balance(
        "y ~ t | x", frame(), epsilon=20, delta=1e-5, bounds=BOUNDS, adjusted=True, seed=1
    )
    checked(balance.charges)
    assert {charge.share for charge in balance.charges} == {
        "balance",
        "propensity",
        "overlap",
        "adjusted",
    }
