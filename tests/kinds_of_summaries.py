"""One of everything that has a summary, for tests of what is shown first."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

import dpeffects as dpe
from tests.once import once
from tests.releases import BOUNDS, release

OF_RELEASES = (
    "one_step-sample-ATE",
    "private_psm-sample-ATE",
    "private_ipw-label-ATT",
    "seeded",
    "randomised",
    "without variance",
    "function",
    "function without variance",
    "points",
    "groups",
    "claimed",
    "sites",
    "seeded site",
    "blind site",
    "study",
    "study of three arms",
    "study without baseline",
    "study of sites",
    "balance",
    "randomisation test",
)
"""Names in `tests.releases`."""


@cache
def people(n=3000):
    """Everything that a call may ask for."""
    rng = np.random.default_rng(1)
    x, z = rng.random(n), rng.integers(0, 2, n)
    t = (rng.random(n) < 0.3 + 0.4 * x).astype(int)
    time = np.clip(rng.exponential(40 + 20 * t), 0, 60)
    y = np.clip(0.2 + 0.3 * t + 0.3 * x + rng.normal(0, 0.1, n), 0, 1)
    return pd.DataFrame(
        {
            "y": y,
            "t": t,
            "x": x,
            "z": z,
            "d": z * (rng.random(n) < 0.7),
            "time": time,
            "event": (time < 60).astype(int),
            "arm": rng.choice(["none", "low", "high"], n),
            "level": rng.choice(["mild", "severe", "worst"], n),
            "g": rng.choice(["a", "b"], n),
            "before": np.clip(y - 0.2 * t, 0, 1),
            "earlier": np.clip(y - 0.2 * t + rng.normal(0, 0.05, n), 0, 1),
        }
    )


WIDE = {
    "y": (0, 1),
    "x": (0, 1),
    "time": (0, 60),
    "event": (0, 1),
    "d": (0, 1),
    "arm": ["none", "low", "high"],
    "level": ["mild", "severe", "worst"],
    "g": ["a", "b"],
    "before": (0, 1),
    "earlier": (0, 1),
}
CALL = {"epsilon": 2.0, "bounds": WIDE, "seed": 1}
TRIAL = CALL | {"design": "randomised"}


def _effect():
    return dpe.dp_ate("y ~ t | x + g", people(), **CALL)


def _moments():
    return dpe.dp_moments("y ~ t | x + g", people(), **CALL)


def _plan(**more):
    return dpe.plan("y ~ t | x1", n=400, epsilon=1, bounds=BOUNDS, repeats=1, **more)


MADE = {
    "adjusted": _effect,
    "arms": lambda: dpe.dp_ate("y ~ arm | x", people(), contrasts="pairwise", **CALL),
    "subsets": lambda: dpe.dp_ate("y ~ t | x", people(), by="g + cut(x, [0, 0.3, 1])", **CALL),
    "survival": lambda: dpe.dp_survival("Surv(time, event) ~ t", people(), horizon=50, **TRIAL),
    "quantiles": lambda: dpe.dp_qte("y ~ t", people(), **TRIAL),
    "ordered levels": lambda: dpe.dp_ordinal("level ~ t", people(), **TRIAL),
    "rates": lambda: dpe.dp_rate("event ~ t", people(), offset="time", per=100, **TRIAL),
    "compliers": lambda: dpe.dp_late("y ~ d | x", people(), instrument="z", **CALL),
    "did": lambda: dpe.dp_did("y ~ t", people(), before="before", **CALL),
    "event study": lambda: dpe.dp_did("y ~ t", people(), before=["earlier", "before"], **CALL),
    "moments": _moments,
    "regression": lambda: _moments().regression("y ~ t + x + g"),
    "sensitivity": lambda: _effect().sensitivity(bias=0.05),
    "test": lambda: _effect().test(margin=0.1),
    "tests": lambda: MADE["subsets"]().test(),
    "plan": _plan,
    "plan of a study": lambda: dpe.plan_study(
        "y + I(y > 0.5) ~ t", n=400, epsilon=1, bounds=BOUNDS
    ),
    "comparison": lambda: dpe.compare(_effect(), release("randomised")),
    "audit": lambda: dpe.audit("diff_in_means", epsilon=1, runs=200, seed=1),
    "simulation": lambda: dpe.simulate_study(
        {"means": {"method": "diff_in_means"}}, "confounded", n=200, epsilon=1, repeats=2, seed=1
    ),
}
NAMES = [*OF_RELEASES, *MADE]


@once
def made(name):
    """What has that name."""
    return MADE[name]() if name in MADE else release(name)
