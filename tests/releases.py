"""One release of every kind, for tests of what is shown of them."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression

import dpeffects as dpe
from dpeffects.estimators import proved
from tests.once import once

BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (-1, 1), "g": ["a", "b"]}
EFFECTS = {"ATE": dpe.dp_ate, "ATT": dpe.dp_att, "ATC": dpe.dp_atc}


def frame(n=80, seed=0):
    rng = np.random.default_rng(seed)
    x1, x2 = rng.random(n), rng.uniform(-1, 1, n)
    t = rng.random(n) < 0.3 + 0.4 * x1
    y = np.clip(0.3 * x1 + 0.2 * t + 0.4 * rng.random(n), 0, 1)
    return pd.DataFrame({"y": y, "t": t, "x1": x1, "x2": x2, "g": rng.choice(list("ab"), n)})


CALL = {"epsilon": 2.0, "bounds": BOUNDS}
PATHS = {
    f"{name}-{level}-{estimand}": (name, level, estimand)
    for name, spec in proved().items()
    for level in spec.levels
    for estimand in spec.estimands
}
SPECIAL = {
    "seeded": {"seed": 1},
    "randomised": {"design": "randomised"},
    "without variance": {"variance": False},
    "bounds found": {"bounds": {}, "epsilon": 8.0, "data": frame(1200)},
    "bounds of the data": {"bounds": "from_data"},
}
AVERAGES = [*PATHS, *SPECIAL]
CATE = {
    "function": {},
    "function without variance": {"variance": False},
    "points": {"release": "points", "at": {"x1": [0.2, 0.8], "x2": [0.0, 0.5]}},
    "groups": {"release": "groups", "by": "g", "method": "dr_learner"},
    "claimed": {
        "release": "points",
        "at": {"x1": [0.2, 0.8], "x2": [0.0, 0.5]},
        "second_stage": LinearRegression(),
        "accept_asymptotic": True,
    },
}
SITES = {
    "sites": ("all", {}),
    "random": ("random", {}),
    "seeded site": ("all", {"seed": 3}),
    "blind site": ("all", {"variance": False}),
}
STUDIES = {
    "study": {},
    "study of three arms": {"formula": "y + I(y > 0.5) ~ h | x1 + x2", "contrasts": "pairwise"},
    "study without baseline": {"formula": "y ~ t", "subgroups": (), "design": "observational"},
}
NAMES = [*AVERAGES, *CATE, *SITES, *STUDIES, "study of sites"]
"""All effects; the balance of the arms is beside them."""


@once
def release(name):
    """The release of that name; every method at every level is among them."""
    if name in PATHS:
        return _average(*PATHS[name])
    if name in SPECIAL:
        more = {"data": frame(), **CALL, **SPECIAL[name]}
        return dpe.dp_ate("y ~ t", method="diff_in_means", **more)
    if name in CATE:
        return dpe.dp_cate("y ~ t | x1 + x2", frame(), delta=1e-5, **CALL, **CATE[name])
    if name == "balance":
        return dpe.dp_balance("y ~ t | x1 + g", frame(200), overlap=True, **CALL)
    if name == "randomisation test":
        return dpe.dp_randomisation_test("I(y > 0.5) ~ t", frame(200), treated_share=0.4, **CALL)
    if name in STUDIES:
        return _study(**STUDIES[name])
    if name == "study of sites":
        return _study_of_sites()
    return _combined(*SITES[name])


def _study(formula="y + I(y > 0.5) ~ t | x1 + g", subgroups=("g", "cut(x1, [0, 0.5, 1])"), **more):
    data = frame(400)
    data["h"] = np.array(["none", "low", "high"])[np.arange(400) % 3]
    bounds = BOUNDS | {"h": ["none", "low", "high"]}
    call = {"design": "randomised", "epsilon": 2.0, "bounds": bounds, **more}
    return dpe.dp_study(formula, data, subgroups=subgroups, **call)


def _study_of_sites():
    asked = dpe.Protocol(
        "y + I(y > 0.5) ~ t | x1 + g",
        epsilon=2,
        subgroups=["g"],
        design="randomised",
        bounds=BOUNDS,
    )
    sites = enumerate(["North", "South"])
    sent = [dpe.study_release(asked, frame(400, seed), site=site) for seed, site in sites]
    return dpe.combine_studies(sent, protocol=asked)


def _average(name, level, estimand):
    spec = proved()[name]
    formula = "y ~ t | g" if spec.needs_strata else "y ~ t | x1 + x2"
    delta = 1e-5 if spec.needs_delta else 0.0
    return EFFECTS[estimand](formula, frame(), name, level=level, delta=delta, **CALL)


def _combined(rule, third):
    sent = [
        dpe.site_release(
            "y ~ t",
            frame(400, i),
            site=site,
            method="diff_in_means",
            bounds=BOUNDS,
            epsilon=i,
            **(third if site == "West" else {}),
        )
        for i, site in enumerate(["North", "South", "West"], start=1)
        if third or site != "West"
    ]
    return dpe.combine(sent, rule)


def half_unit(error):
    """The most that rounding to two digits of a standard error moves a number."""
    return 0.5000001 * 10.0 ** (math.floor(math.log10(float(f"{error:.1e}"))) - 1)


def everything():
    """All of them, by name."""
    return {name: release(name) for name in NAMES}
