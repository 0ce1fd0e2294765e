"""Calls of dp_cate on small made-up data."""

from __future__ import annotations

import numpy as np
import pandas as pd

import dpeffects as dpe

BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (-1, 1), "g": ["a", "b", "c"]}
FORMULA = "y ~ t | x1 + x2 + g"
AT = {"x1": [0.1, 0.9, 0.5], "x2": [-1.0, 0.0, 1.0], "g": ["a", "b", "c"]}
PATHS = {
    "function": {},
    "kernel noise": {"noise": "kernel"},
    "linear": {"second_stage": "linear"},
    "linear, kernel noise": {"second_stage": "linear", "noise": "kernel"},
    "joint kernel": {"kernel": "gaussian"},
    "trial": {"design": "randomised"},
    "points": {"release": "points", "at": AT},
    "points, linear": {"release": "points", "at": AT, "second_stage": "linear"},
    "groups": {"release": "groups", "by": "g + cut(x1, [0, 0.5, 1])"},
}
LEARNERS = ["r_learner", "dr_learner"]


def frame(n=60, seed=0):
    rng = np.random.default_rng(seed)
    x1, x2 = rng.random(n), rng.uniform(-1, 1, n)
    t = rng.random(n) < 0.3 + 0.4 * x1
    y = np.clip(0.3 * x1 + 0.2 * t + 0.4 * rng.random(n), 0, 1)
    return pd.DataFrame({"y": y, "t": t, "x1": x1, "x2": x2, "g": rng.choice(list("abc"), n)})


def run(method="r_learner", path="function", data=None, formula=FORMULA, **more):
    more = {"epsilon": 1.0, "delta": 1e-5, "bounds": BOUNDS, "seed": 1, **PATHS[path], **more}
    return dpe.dp_cate(formula, frame() if data is None else data, method, **more)
