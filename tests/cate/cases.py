"""Calls of dp_cate on small made-up data."""

from __future__ import annotations

import dpeffects as dpe
from tests.calls import RELEASES
from tests.neighbours import frame

BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (-1, 1), "g": ["a", "b", "c"]}
FORMULA = "y ~ t | x1 + x2 + g"
PATHS = {name: RELEASES[name] for name in RELEASES if name != "the paper's choices"}
LEARNERS = ["r_learner", "dr_learner"]


def run(method="r_learner", path="function", data=None, formula=FORMULA, **more):
    more = {"epsilon": 1.0, "delta": 1e-5, "bounds": BOUNDS, "seed": 1, **PATHS[path], **more}
    return dpe.dp_cate(formula, frame() if data is None else data, method, **more)
