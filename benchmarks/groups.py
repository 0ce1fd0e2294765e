"""Effects by group, and few treated records: error and coverage, on populations of several kinds.

Seeds are those of nothing else in the package.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from harness import Table, grid, median, percent, root
from known_truth import SE, Asked, design, logit, of, part, sigmoid

import dpeffects as dpe

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "trial": ("survey", {"randomised": True}),
    "linear": ("survey", {}),
    "few treated": ("rates", {"treated": 0.1}),
    "binary": ("binary", {}),
    "unequal groups": ("survey", {}),
    "confounded": ("confounded", {}),
    "curved": ("", {}),
}


def curved(n: int, seed: int) -> Any:
    """The score and the outcome follow a square that the formula lacks."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 3))
    t = rng.random(n) < sigmoid(6 * (x[:, 0] - 0.5) ** 2 - 1.0 + x[:, 1])
    mu0 = 0.2 + 0.8 * (x[:, 0] - 0.5) ** 2 + 0.1 * x[:, 1]
    mu1 = mu0 + 0.2 * x[:, 0]
    frame = pd.DataFrame({"treatment": t * 1, "outcome": rng.normal(np.where(t, mu1, mu0), 0.08)})
    frame = frame.assign(x1=x[:, 0], x2=x[:, 1], x3=x[:, 2], mu0=mu0, mu1=mu1)
    bounds = {"outcome": (-0.5, 1.5), **dict.fromkeys(("x1", "x2", "x3", "mu0", "mu1"), (0, 1))}
    return dpe.declare(frame, bounds | {"treatment": [0, 1]})


def groups(people: int, population: str, n: int, method: str = "one_step") -> Asked:
    """Four groups by x1; every group counts once."""
    (kind, more), seed = KINDS[population], 50_000 + people
    made = dpe.simulate(kind, n, seed, **more) if kind else curved(n, seed)
    ends = [0, 0.03, 0.15, 0.4, 1] if population == "unequal groups" else [0, 0.25, 0.5, 0.75, 1]
    group = pd.cut(made.frame["x1"], ends, include_lowest=True, labels=range(4))
    truth = (made.frame["mu1"] - made.frame["mu0"]).groupby(group, observed=False).mean()
    terms = [f"x1 {'[' if k == 0 else '('}{a}, {b}]" for k, (a, b) in enumerate(pairwise(ends))]
    return Asked(
        "dp_cate",
        f"{'events' if kind == 'rates' else 'outcome'} ~ treatment | "
        + " + ".join(x for x in made.frame if x[0] == "x"),
        made,
        dict(zip(terms, truth, strict=True)),
        {"release": "groups", "by": f"cut(x1, {ends})", "method": method}
        | design(population == "trial"),
        {},
    )


def better(found: pd.DataFrame) -> str:
    wide = found.query("epsilon == 1").pivot(index=["population", "n"], columns="method")["error"]
    less = (wide["one_step"] < wide["dr_learner"]).sum() if len(wide.columns) == 2 else 0
    return (
        f"{SE} Four groups in each run. At epsilon 1 `one_step` has less error than `dr_learner` in "
        f"{less} of {len(wide)} settings. *Few treated* are 10 %, *unequal groups* 3, 12, 25 and "
        "60 % of the range of x1; *curved*: score and outcome follow a square that is not modelled."
    )


CELLS = [
    {"population": kind, "n": n, "epsilon": epsilon, "method": method}
    for method, n, epsilon in (
        *(("one_step", n, epsilon) for n, epsilon in ((2_000, 1.0), (10_000, 1.0), (10_000, 4.0))),
        *(("dr_learner", n, 1.0) for n in (2_000, 10_000)),
    )
    for kind in KINDS
]
GROUPS = {
    "error": root("error"),
    "covers %": percent("covered"),
    "with an interval %": lambda runs: round(100.0 * runs["covered"].notna().mean(), 1),
}

# --- few treated records --------------------------------------------------------------------------

EFFECTS = {
    "large": "an effect of 0.4",
    "skewed": "log-normal outcomes, 2.5 times as high when treated",
    "some": "an effect of 0.6 on a fifth of the records",
}


def rare(people: int, effect: str, n: int, treated: float, design: str) -> Asked:
    """Two covariates, and an effect by its kind, in outcomes in [0, 1]."""
    rng = np.random.default_rng(70_000 + people)
    x = rng.uniform(size=(n, 2))
    odds = (design == "observational") * (1.5 * (x[:, 0] - 0.5) - 0.1)
    t = rng.random(n) < sigmoid(logit(treated) + odds)
    control = 0.3 + 0.1 * x[:, 0] + rng.normal(0, 0.05, n)
    if effect == "skewed":
        control = 0.04 * np.exp(0.3 * x[:, 0] + rng.normal(0, 0.6, n))
    some = 0.6 * (rng.random(n) < 0.2)
    more = {"large": 0.4, "some": some, "skewed": 1.5 * control}[effect]
    y0, y1 = np.clip(control, 0, 1), np.clip(control + more, 0, 1)
    frame = pd.DataFrame(x, columns=["x1", "x2"]).assign(y=np.where(t, y1, y0), t=t.astype(int))
    options = {"bounds": dict.fromkeys(("y", "x1", "x2"), (0, 1)), "design": design}
    truth = {"t": float((y1 - y0).mean())}
    return Asked("dp_ate", "y ~ t | x1 + x2", frame, truth, options, {}, also=cautioned)


def cautioned(fit: Any) -> dict[str, bool]:
    return {"caution": "Small arm" in fit.warnings}


RARE = {
    "error": of("t", root("error")),
    "covers %": of("t", percent("covered")),
    "width": of("t", median("width")),
    "caution %": of("caution", percent("covered", 0)),
}
ARMS = {"treated": (0.01, 0.1), "design": ("randomised", "observational")}
TABLES = {
    "groups": Table("Effects by group", (part("", groups, CELLS, GROUPS),), better, minutes=5),
    "rare_arms": Table(
        "Few treated records",
        (part("", rare, grid(effect=EFFECTS, n=(4_000, 50_000), **ARMS), RARE),),
        f"{SE} Two covariates, outcomes in [0, 1], epsilon 1. "
        + "; ".join(f"*{k}*: {v}" for k, v in EFFECTS.items())
        + ". *caution*: how often the summary said Small arm.",
        minutes=3,
    ),
}
