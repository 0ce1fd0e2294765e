"""Three arms in one call, against two calls on the arms compared at half of the budget each.

In the first table all calls are on the same 6,000 simulated records, so that estimates differ by
their noise alone: "noise" is the standard deviation of the effects of both treatments against none
over draws of it. One call has the rows of all arms and epsilon; two calls have those of two arms
and epsilon / 2. "error" is the mean of the standard errors that they report, which sampling is a
part of. The effects of one call are averages over all records, those of two over the records of
the two arms. The others have how often intervals cover, in the last one on populations that nothing
was built on: trials with uneven arms and confounded records, with arms whose outcomes vary alike or
not at all alike ("unlike": standard deviations of .03, .25 and .08).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from harness import Part, Table, grid, mean, percent, rms

import dpeffects as dpe
from dpeffects.arrays import FloatArray

METHODS: dict[str, dict[str, Any]] = {
    "auto": {},
    "auto, delta = 1e-6": {"delta": 1e-6},
    "auto, label": {"level": "label"},
    "clipped_contrast": {},
    "diff_in_means": {},
    "one_step": {},
    "one_step, label": {"level": "label"},
    "private_ipw": {},
    "private_ipw, label": {"level": "label"},
    "private_psm, label": {"level": "label"},
}
LEVELS = ["none", "low", "high"]
FORMULA = "outcome ~ treatment | x1 + x2 + x3"


@cache
def records(n: int) -> dpe.DeclaredFrame:
    return dpe.simulate("three_arms", n=n, seed=1)


def run(people: int, noise: int, method: str, epsilon: float):
    """Effects and errors of one call, then of two."""
    data, given, name = records(6000), METHODS[method], method.split(",")[0]
    both = dpe.dp_ate(FORMULA, data, name, epsilon=epsilon, seed=noise, **given)
    halves, rows = given | ({"delta": given["delta"] / 2} if "delta" in given else {}), []
    for k, level in enumerate(LEVELS[1:], 1):
        levels = [LEVELS[0], level]
        bounds = dict.fromkeys(("outcome", "x1", "x2", "x3"), (0, 1)) | {"treatment": levels}
        some = data.frame[data.frame["treatment"].isin(levels)].reset_index(drop=True)
        about = {"bounds": bounds, "epsilon": epsilon / 2, "seed": noise + k}
        rows.append(dpe.dp_ate(FORMULA, some, name, **about, **halves).tidy())
    found = {}
    for calls, table in (("one", both.tidy(simultaneous=False)), ("two", pd.concat(rows))):
        pairs = zip(LEVELS[1:], table["estimate"], table["std_error"], strict=True)
        for level, value, error in pairs:
            found |= {f"{calls}, {level}": value, f"error, {calls}, {level}": error}
    return found


def compared(runs: pd.DataFrame) -> dict[str, str]:
    noise, error = {}, {}
    for calls in ("one", "two"):
        noise[calls] = np.sqrt(np.mean([runs[f"{calls}, {x}"].var() for x in LEVELS[1:]]))
        error[calls] = rms(runs[[f"error, {calls}, {x}" for x in LEVELS[1:]]])
    shown = {
        "noise, one call": noise["one"],
        "noise, two calls": noise["two"],
        "ratio": noise["one"] / noise["two"],
        "error, one call": error["one"],
        "error, two calls": error["two"],
        "ratio of errors": error["one"] / error["two"],
    }
    return {name: f"{x:.3g}" for name, x in shown.items()}


COVERAGE = (
    ("diff_in_means", True, 2000, 1.0),
    ("clipped_contrast", True, 2000, 1.0),
    ("one_step", True, 2000, 1.0),
    ("one_step", False, 1000, 1.0),
    ("one_step", False, 4000, 1.0),
    ("private_ipw", False, 4000, 2.0),
)
TRUTH = np.array([0.1, 0.2, 0.1])


def covers(people: int, noise: int, method: str, trial: bool, records: int, epsilon: float):
    """All contrasts of one draw: errors, whether intervals cover, one by one and all at once."""
    frame, given = dpe.simulate("three_arms", n=records, seed=people).frame, {}
    if trial:
        rng = np.random.default_rng(people)
        arm = rng.choice(3, size=records, p=[0.5, 0.3, 0.2])
        means = frame[["mu0", "mu1", "mu2"]].to_numpy()[np.arange(records), arm]
        frame["treatment"] = np.array(LEVELS)[arm]
        frame["outcome"] = means + rng.uniform(-0.1, 0.1, records)
        given = {"design": "randomised"}
    bounds = dict.fromkeys(("outcome", "x1", "x2", "x3"), (0, 1)) | {"treatment": LEVELS}
    given |= {"bounds": bounds, "epsilon": epsilon, "seed": noise, "contrasts": "pairwise"}
    return contrasts(dpe.dp_ate(FORMULA, frame, method, **given), TRUTH)


def contrasts(fit: Any, truth: np.ndarray) -> list[dict[str, float]]:
    inside = []
    for at_once in (False, True):
        low, high = fit.conf_int(simultaneous=at_once).T
        inside.append((low <= truth) & (truth <= high))
    low, high = fit.conf_int(simultaneous=False).T
    columns = {
        "error": fit.estimates - truth,
        "covers": inside[0],
        "all": inside[1].all(),
        "half": (high - low) / 2.0,
        "std_error": fit.tidy()["std_error"].to_numpy(float),
        "of": fit.labels,
    }
    return pd.DataFrame(columns).to_dict("records")


POPULATIONS: dict[str, tuple[bool, tuple[float, ...]]] = {
    "trial, 50 30 20 %": (True, (0.5, 0.3, 0.2)),
    "trial, 40 30 20 10 %": (True, (0.4, 0.3, 0.2, 0.1)),
    "confounded, 50 30 20 %": (False, (0.5, 0.3, 0.2)),
    "confounded, 40 30 20 10 %": (False, (0.4, 0.3, 0.2, 0.1)),
}
"""Whether arms are assigned by chance, and about how large they are."""
COMPARED: dict[str, tuple[bool, dict[str, Any]]] = {
    "one_step": (False, {}),
    "one_step, delta = 1e-6": (False, {"delta": 1e-6}),
    "private_ipw": (False, {}),
    "private_ipw, label": (False, {"level": "label"}),
    "private_psm, label": (False, {"level": "label"}),
    "clipped_contrast": (True, {}),
    "clipped_contrast, label": (True, {"level": "label"}),
    "diff_in_means": (True, {}),
}
"""Whether a method is for trials alone, and its arguments."""
SIZES = ((1500, 2.0), (6000, 1.0))


def drawn_skewed(name: str, n: int, seed: int) -> tuple[pd.DataFrame, FloatArray]:
    """Skewed and correlated covariates, effects that vary, and errors that grow with the outcome.

    Also the effects of all arms against the first.
    """
    trial, shares = POPULATIONS[name]
    rng, arms = np.random.default_rng(50_000 + seed), len(shares)
    common = rng.beta(2.0, 3.0, n)
    x = 0.6 * rng.beta(1.5, 2.5, (n, 4)) + 0.4 * common[:, None]
    z = x - 0.375 * 0.6 - 0.4 * 0.4
    slopes = slopes_of_arms(arms) * (0.0 if trial else 1.0)
    logits = np.log(shares) + z @ slopes.T
    arm = np.argmax(logits + rng.gumbel(size=(n, arms)), axis=1)
    mean = 0.3 + z @ np.array([0.4, 0.3, -0.2, 0.1])
    effects = 0.06 * np.arange(arms)
    mean = mean + effects[arm] * (1.0 + 0.8 * z[:, 0])
    outcome = np.clip(mean + rng.normal(0.0, 0.06 + 0.1 * x[:, 1]), 0.0, 1.0)
    frame = pd.DataFrame({f"x{j + 1}": x[:, j] for j in range(4)})
    return frame.assign(outcome=outcome, treatment=arm), effects


def slopes_of_arms(arms: int) -> FloatArray:
    """Slopes of the log odds of the arms, the same in all studies."""
    return np.random.default_rng(7).normal(0.0, 2.0, (6, 4))[:arms]


def widths(people: int, noise: int, population: str, method: str, records: int, epsilon: float):
    """All pairs of arms."""
    frame, effects = drawn_skewed(population, records, people)
    trial, arms = POPULATIONS[population][0], len(effects)
    bounds = dict.fromkeys(("outcome", "x1", "x2", "x3", "x4"), (0, 1))
    given = {"bounds": bounds | {"treatment": list(range(arms))}, "epsilon": epsilon}
    given |= {"seed": noise, "contrasts": "pairwise", **COMPARED[method][1]}
    if trial and not method.startswith(("private", "auto")):
        given["design"] = "randomised"
    formula = "outcome ~ treatment | x1 + x2 + x3 + x4"
    fit = dpe.dp_ate(formula, frame, method.split(",")[0], **given)
    pairs = [(a, b) for b in range(arms) for a in range(b + 1, arms)]
    at = {f"{a} - {b}": effects[a] - effects[b] for a, b in pairs}
    return contrasts(fit, np.array([at[label] for label in fit.labels]))


EFFECTS = np.array([0.0, 0.08, -0.05, 0.03])
UNLIKE = np.array([0.03, 0.25, 0.08, 0.15])
TRIALS = {"trial, uneven": [0.7, 0.2, 0.1], "trial, unlike": [0.34, 0.33, 0.33]}
TRIALS |= {"trial, four arms": [0.4, 0.3, 0.2, 0.1]}
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


def held_out(people: int, noise: int, population: str, method: str, records: int, epsilon: float):
    """Contrasts with the first arm; a delta of 10^-6 at 5,000 records."""
    data, bounds = drawn(population, records, people)
    trial, delta = population in TRIALS, 1e-6 if records == 5000 else 0.0
    given = {"epsilon": epsilon, "delta": delta, "bounds": bounds, "seed": noise}
    given |= {"design": "randomised"} if trial else {}
    fit = dpe.dp_ate("y ~ arm" if trial else "y ~ arm | x1 + x2", data, method, **given)
    return contrasts(fit, EFFECTS[1 : len(bounds["arm"])])


def bias(runs: pd.DataFrame) -> float:
    return round(runs.groupby("of")["error"].mean().abs().max(), 4)


def error(runs: pd.DataFrame) -> float:
    return float(f"{rms(runs['error']):.3g}")


HOLDS = {
    "root mean square error": error,
    "covers": percent("covers"),
    "half-width": mean("half", 4),
}
ALL = {
    "bias": bias,
    "root mean square error": error,
    "standard error": lambda runs: float(f"{rms(runs['std_error']):.2g}"),
    "covers, one": percent("covers"),
    "covers, all three": percent("all"),
}
NAMES = ("method", "trial", "records", "epsilon")
PAIRS = [
    {"population": name, "method": method, "records": n, "epsilon": epsilon}
    for name, (trial, _) in POPULATIONS.items()
    for method, (trials_only, _) in COMPARED.items()
    for n, epsilon in (SIZES if trial or not trials_only else ())
]
HELD_OUT = [
    {"population": name, "method": method, "records": n, "epsilon": epsilon}
    for names, methods in ((TRIALS, ("clipped_contrast",)), (OTHERS, ("one_step", "private_ipw")))
    for name in names
    for method in methods
    for n, epsilon in ((3000, 1.0), (12_000, 2.0), (5000, 1.0))
]
TABLE = Table(
    "More than two arms",
    (
        Part(
            "One call, against two at half of the budget",
            grid(method=METHODS, epsilon=[1.0]),
            run,
            compared,
            runs=60,
        ),
        Part(
            "Three arms: how often 95 % intervals cover, all pairs",
            [dict(zip(NAMES, cell, strict=True)) for cell in COVERAGE],
            covers,
            ALL,
            runs=100,
        ),
        Part("Skewed and correlated covariates, all pairs", PAIRS, widths, HOLDS, runs=60),
        Part("Populations that nothing was built on", HELD_OUT, held_out, HOLDS, runs=60),
    ),
    minutes=6,
)
