"""More than two arms: one call against two at half of the budget each, and coverage."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from harness import Part, Table, grid, mean, percent, rms, root, rounded

import dpeffects as dpe

METHODS: dict[str, dict[str, Any]] = {
    "auto": {},
    "auto, delta = 1e-6": {"delta": 1e-6},
    "auto, label": {"level": "label"},
    "clipped_contrast": {},
    "diff_in_means": {},
    "one_step": {},
    "private_ipw": {},
    "private_psm, label": {"level": "label"},
}
"""What is called, and with which arguments."""
LEVELS = ["none", "low", "high"]
FORMULA = "outcome ~ treatment | x1 + x2 + x3"


@cache
def records() -> dpe.DeclaredFrame:
    return dpe.simulate("three_arms", n=6000, seed=1)


def calls(people: int, noise: int, method: str, epsilon: float):
    """Effects and errors of one call, then of two."""
    data, given, name = records(), METHODS[method], method.split(",")[0]
    both = dpe.dp_ate(FORMULA, data, name, epsilon=epsilon, seed=noise, **given)
    halves, rows = given | ({"delta": given["delta"] / 2} if "delta" in given else {}), []
    for k, level in enumerate(LEVELS[1:], 1):
        levels = [LEVELS[0], level]
        bounds = dict.fromkeys(("outcome", "x1", "x2", "x3"), (0, 1)) | {"treatment": levels}
        some = data.frame[data.frame["treatment"].isin(levels)].reset_index(drop=True)
        about = {"bounds": bounds, "epsilon": epsilon / 2, "seed": noise + k}
        rows.append(dpe.dp_ate(FORMULA, some, name, **about, **halves).tidy())
    tables = {"one": both.tidy(simultaneous=False), "two": pd.concat(rows)}
    return {
        f"{kind}, {name}, {k}": value
        for name, table in tables.items()
        for kind in ("estimate", "std_error")
        for k, value in enumerate(table[kind])
    }


def against_two(runs: pd.DataFrame) -> dict[str, float]:
    found = {}
    for shown, kind, size in (
        ("noise", "estimate", lambda x: np.sqrt(x.var().mean())),
        ("error", "std_error", rms),
    ):
        one, two = (size(runs.filter(like=f"{kind}, {name}")) for name in ("one", "two"))
        found |= {f"{shown}, one call": one, f"{shown}, two calls": two}
        found["ratio" if shown == "noise" else "ratio of errors"] = one / two
    return {name: rounded(x) for name, x in found.items()}


EFFECTS = np.array([0.0, 0.08, -0.05, 0.03])
UNLIKE = np.array([0.03, 0.25, 0.08, 0.15])
"""Standard deviations of outcomes in arms that vary in different ways."""
TRIALS = {
    "trial, uneven": [0.7, 0.2, 0.1],
    "trial, unlike": [0.34, 0.33, 0.33],
    "trial, four arms": [0.4, 0.3, 0.2, 0.1],
}
OTHERS = {"confounded": 3, "confounded, unlike": 3, "confounded, four arms": 4}
ARMS = np.array(list("abcd"))


def drawn(kind: str, n: int, seed: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Records of a population that nothing was built on, and the bounds of their columns."""
    rng = np.random.default_rng(7_000_000 + seed)
    x1, x2 = rng.random(n), rng.uniform(-1.0, 1.0, n)
    if kind in TRIALS:
        chances = np.tile(TRIALS[kind], (n, 1))
    else:
        odds = [0.0 * x1, 1.2 * (x1 - 0.5) + 0.5 * x2, -1.0 * (x1 - 0.5) - 1.0 + 0.3 * x2]
        odds = np.exp(np.stack([*odds, 0.8 * x2 - 0.5][: OTHERS[kind]], axis=1))
        chances = odds / odds.sum(axis=1, keepdims=True)
    arms = chances.shape[1]
    arm = np.minimum((rng.random(n)[:, None] > chances.cumsum(axis=1)).sum(axis=1), arms - 1)
    unlike = "unlike" in kind
    noise = (UNLIKE[arm] if unlike else 0.12) * rng.normal(size=n)
    y = 0.35 + 0.15 * x1 + 0.05 * x2 + EFFECTS[arm] + noise
    ends = (-0.5, 1.5) if unlike else (0, 1)
    data = pd.DataFrame({"y": np.clip(y, *ends), "arm": ARMS[arm], "x1": x1, "x2": x2})
    return data, {"y": ends, "arm": ARMS[:arms].tolist(), "x1": (0, 1), "x2": (-1, 1)}


def covers(people: int, noise: int, population: str, method: str, records: int, epsilon: float):
    """All pairs of arms: errors, and whether intervals cover, one by one and all at once."""
    data, bounds = drawn(population, records, people)
    trial, arms = population in TRIALS, len(bounds["arm"])
    given = METHODS[method] | ({"design": "randomised"} if trial else {})
    given |= {"epsilon": epsilon, "bounds": bounds, "seed": noise, "contrasts": "pairwise"}
    formula = "y ~ arm" if trial else "y ~ arm | x1 + x2"
    fit = dpe.dp_ate(formula, data, method.split(",")[0], **given)
    pairs = [(a, b) for b in range(arms) for a in range(b + 1, arms)]
    truth = {f"{ARMS[a]} - {ARMS[b]}": EFFECTS[a] - EFFECTS[b] for a, b in pairs}
    right = np.array([truth[label] for label in fit.labels])
    one, every = (fit.conf_int(simultaneous=x).T for x in (False, True))
    columns = {
        "error": fit.estimates - right,
        "covers": (one[0] <= right) & (right <= one[1]),
        "all": ((every[0] <= right) & (right <= every[1])).all(),
        "half": (one[1] - one[0]) / 2.0,
        "std_error": fit.tidy()["std_error"].to_numpy(float),
    }
    return pd.DataFrame(columns).to_dict("records")


HOLDS = {
    "root mean square error": root("error"),
    "standard error": root("std_error"),
    "half-width": mean("half"),
    "covers, one": percent("covers"),
    "covers, all pairs": percent("all"),
}
TRIED = ("clipped_contrast", "diff_in_means")
ADJUSTED = ("auto", "auto, delta = 1e-6", "one_step", "private_ipw", "private_psm, label")
CELLS = [
    cell | {"records": n, "epsilon": epsilon}
    for names, methods in ((TRIALS, TRIED), (OTHERS, ADJUSTED))
    for cell in grid(population=names, method=methods)
    for n, epsilon in ((3000, 1.0), (12_000, 2.0))
]
TABLE = Table(
    "More than two arms",
    (
        Part(
            "One call, against two at half of the budget",
            grid(method=[x for x in METHODS if x not in ADJUSTED[1:3]], epsilon=[1.0]),
            calls,
            against_two,
            runs=300,
        ),
        Part("How often 95 % intervals cover, all pairs", CELLS, covers, HOLDS, runs=60),
    ),
    "In the first table all calls are on the same 6,000 simulated records: estimates differ "
    'by their noise alone: "noise" is the standard deviation of the effects of both treatments '
    "against none over draws of it. One call has the rows of all arms and epsilon, two calls have "
    'those of two arms and epsilon / 2. "error" is the mean of the standard errors that they '
    "report, which sampling is a part of. Populations of the second table are trials with uneven "
    "arms and confounded records, with arms whose outcomes vary alike or not at all alike "
    '("unlike": standard deviations of .03, .25 and .08); nothing was built on them.',
    minutes=3.5,
)
