"""Three arms in one call, against two calls on the arms compared at half of the budget each.

    python benchmarks/three_arms.py            # a few minutes
    python benchmarks/three_arms.py --coverage # a few minutes: how often intervals cover
    python benchmarks/three_arms.py --widths   # half an hour: coverage and half-widths, against
                                               # those that are kept of an earlier version
    python benchmarks/three_arms.py --keep     # keep the half-widths of the version installed:
                                               # those that are kept are of 1a614008, 12 draws
    python benchmarks/three_arms.py --small    # a few seconds; with --widths two minutes

All calls are on the same 6,000 simulated records, so that estimates differ by their noise alone:
"noise" is the standard deviation of the effects of both treatments against none over draws of it.
One call has the rows of all arms and epsilon; two calls have those of two arms and epsilon / 2.
"error" is the mean of the standard errors that they report, which sampling is a part of. The
effects of one call are averages over all records, those of two over the records of the two arms.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from report import save

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


def calls(data: Any, name: str, epsilon: float, seed: int) -> Iterator[pd.DataFrame]:
    """Effects of one call, then of two."""
    method, given = name.split(",")[0], METHODS[name]
    both = dpe.dp_ate(FORMULA, data, method, epsilon=epsilon, seed=seed, **given)
    yield both.tidy(simultaneous=False)
    rows = []
    if "delta" in given:
        given = {**given, "delta": given["delta"] / 2}
    for k, level in enumerate(LEVELS[1:]):
        levels = [LEVELS[0], level]
        bounds = dict.fromkeys(("outcome", "x1", "x2", "x3"), (0, 1)) | {"treatment": levels}
        some = data.frame[data.frame["treatment"].isin(levels)].reset_index(drop=True)
        about = {"bounds": bounds, "epsilon": epsilon / 2, "seed": 10_000 * (k + 1) + seed}
        rows.append(dpe.dp_ate(FORMULA, some, method, **about, **given).tidy())
    yield pd.concat(rows)


def run(n: int, name: str, epsilon: float, seed: int) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = dpe.simulate("three_arms", n=n, seed=1)
        found = calls(data, name, epsilon, seed)
        return [table[["estimate", "std_error"]].to_numpy() for table in found]


def row(n: int, name: str, epsilon: float, runs: int) -> dict[str, Any]:
    made = Parallel(-1)(delayed(run)(n, name, epsilon, seed) for seed in range(runs))
    one, two = np.moveaxis(np.array(made), 1, 0)  # runs, effects, (estimate, error)
    noise = [float(np.sqrt(x[..., 0].var(axis=0, ddof=1).mean())) for x in (one, two)]
    error = [float(np.sqrt((x[..., 1] ** 2).mean())) for x in (one, two)]
    return {
        "method": name,
        "epsilon": epsilon,
        "noise, one call": noise[0],
        "noise, two calls": noise[1],
        "ratio": noise[0] / noise[1],
        "error, one call": error[0],
        "error, two calls": error[1],
        "ratio of errors": error[0] / error[1],
    }


COVERAGE = (
    ("diff_in_means", True, 2000, 1.0),
    ("clipped_contrast", True, 2000, 1.0),
    ("one_step", True, 2000, 1.0),
    ("one_step", False, 1000, 1.0),
    ("one_step", False, 4000, 1.0),
    ("private_ipw", False, 4000, 2.0),
)
TRUTH = np.array([0.1, 0.2, 0.1])


def covers(method: str, trial: bool, n: int, epsilon: float, seed: int) -> list[Any]:
    """Errors of all contrasts of one draw, whether intervals cover, one by one and all at once."""
    frame, given = dpe.simulate("three_arms", n=n, seed=seed).frame, {}
    if trial:
        rng = np.random.default_rng(seed)
        arm = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
        means = frame[["mu0", "mu1", "mu2"]].to_numpy()[np.arange(n), arm]
        frame["treatment"] = np.array(LEVELS)[arm]
        frame["outcome"] = means + rng.uniform(-0.1, 0.1, n)
        given = {"design": "randomised"}
    bounds = dict.fromkeys(("outcome", "x1", "x2", "x3"), (0, 1)) | {"treatment": LEVELS}
    given |= {"bounds": bounds, "epsilon": epsilon, "seed": seed, "contrasts": "pairwise"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = dpe.dp_ate(FORMULA, frame, method, **given)
    each, both = (fit.conf_int(simultaneous=x) for x in (False, True))
    inside = [((x[:, 0] <= TRUTH) & (x[:, 1] >= TRUTH)).tolist() for x in (each, both)]
    return [fit.estimates - TRUTH, inside[0], all(inside[1]), fit.tidy()["std_error"].to_numpy()]


def coverage(runs: int) -> pd.DataFrame:
    rows = []
    for method, trial, n, epsilon in COVERAGE:
        made = Parallel(-1)(delayed(covers)(method, trial, n, epsilon, k) for k in range(runs))
        off, each, both, error = (np.array(x) for x in zip(*made, strict=True))
        rows.append(
            {
                "method": method,
                "design": "trial, arms of 50, 30, 20 %" if trial else "confounded",
                "records": n,
                "epsilon": epsilon,
                "bias": f"{np.abs(off.mean(axis=0)).max():.2g}",
                "root mean square error": f"{np.sqrt((off**2).mean()):.2g}",
                "standard error": f"{np.sqrt((error**2).mean()):.2g}",
                "covers, one": f"{100 * each.mean():.1f} %",
                "covers, all three": f"{100 * both.mean():.0f} %",
            }
        )
    return pd.DataFrame(rows)


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
KEPT = Path(__file__).parent / "results" / "three_arms_widths.json"


def population(name: str, n: int, seed: int) -> tuple[pd.DataFrame, FloatArray]:
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


def widths(name: str, method: str, n: int, epsilon: float, seed: int) -> list[Any]:
    """Errors of all pairs of arms, whether intervals cover, and their half-widths."""
    frame, effects = population(name, n, seed)
    trial, arms = POPULATIONS[name][0], len(effects)
    bounds = dict.fromkeys(("outcome", "x1", "x2", "x3", "x4"), (0, 1))
    given = {"bounds": bounds | {"treatment": list(range(arms))}, "epsilon": epsilon, "seed": seed}
    given |= {"contrasts": "pairwise", **COMPARED[method][1]}
    if trial and not method.startswith(("private", "auto")):
        given["design"] = "randomised"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        formula = "outcome ~ treatment | x1 + x2 + x3 + x4"
        fit = dpe.dp_ate(formula, frame, method.split(",")[0], **given)
    pairs = [(a, b) for b in range(arms) for a in range(b + 1, arms)]
    at = {label: effects[a] - effects[b] for a, b in pairs for label in [f"{a} - {b}"]}
    truth = np.array([at[label] for label in fit.labels])
    low, high = fit.conf_int(simultaneous=False).T
    inside = (low <= truth) & (truth <= high)
    return [fit.estimates - truth, inside, (high - low) / 2.0]


def compare(runs: int, keep: bool) -> pd.DataFrame:
    """Coverage and half-widths of all methods, against those that are kept."""
    kept = json.loads(KEPT.read_text()) if KEPT.exists() and not keep else {}
    rows, found = [], {}
    for name, (trial, _) in POPULATIONS.items():
        for method, (trials_only, _) in COMPARED.items():
            for n, epsilon in SIZES if trial or not trials_only else ():
                calls = (delayed(widths)(name, method, n, epsilon, k) for k in range(runs))
                off, inside, half = map(np.array, zip(*Parallel(-1)(calls), strict=True))
                key = f"{name}; {method}; {n}; {epsilon:g}"
                found[key] = half.mean(axis=1).tolist()
                before = kept.get(key, [math.nan])[:runs]
                same = float(half[: len(before)].mean() / np.mean(before))
                rows.append(
                    {
                        "population": name,
                        "method": method,
                        "records": n,
                        "epsilon": epsilon,
                        "root mean square error": f"{np.sqrt((off**2).mean()):.3g}",
                        "covers": f"{100 * inside.mean():.1f} %",
                        "half-width": f"{half.mean():.4g}",
                        "before": f"{np.mean(before):.4g}",
                        "ratio": round(same, 3),
                    }
                )
    if keep:
        KEPT.write_text(json.dumps(found, indent=1))
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    for flag in ("--coverage", "--widths", "--keep"):
        parser.add_argument(flag, action="store_true")
    asked = parser.parse_args()
    small, covering = asked.small, asked.coverage
    if asked.widths or asked.keep:
        runs = 12 if small else 200
        table = compare(runs, asked.keep)
        title = "More than two arms: coverage of 95 % intervals, and their half-widths"
        mean = f"Half-widths are {table['ratio'].mean():.3f} of those before, on average."
        save("three_arms_widths", title, {f"{runs} draws, all pairs of arms": table}, mean)
        return
    if covering:
        title, runs = "Three arms: how often 95 % intervals cover", 4 if small else 100
        save("three_arms_coverage", title, {f"{runs} draws, all pairs of arms": coverage(runs)})
        return
    n, runs, epsilons = (1000, 4, [1.0]) if small else (6000, 60, [1.0])
    table = pd.DataFrame([row(n, name, e, runs) for name in METHODS for e in epsilons])
    for column in table.columns[2:]:
        table[column] = [f"{x:.3g}" for x in table[column]]
    title = "Three arms in one call, against two calls at half of the budget"
    save("three_arms", title, {f"{n} records, {runs} draws": table})


if __name__ == "__main__":
    main()
