"""Studies of treatments that were not randomised: error and coverage of adjusted effects.

Three outcomes, one of them rare, out of one `dp_study`, against one `dp_ate` for each of them with
a third of epsilon, and against inverse probability weighting without privacy. Two populations:
several confounders of moderate strength, and one strong one that is normal within a wide range.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import statsmodels.api as sm
from harness import Part, Table, percent, rms

import dpeffects as dpe

FEWER = 25
OUTCOMES = ("a", "b", "died")
BOUNDS = {
    **{"a": (0.0, 100.0), "b": (-10.0, 30.0), "died": (0, 1), "sex": (0, 1)},
    **{"x1": (0.0, 1.0), "x2": (-3.0, 3.0), "x3": (0, 1)},
}
NOTE = (
    "Error: root mean squared error over the bias of the crude difference, for a, b and died. "
    "Separate: calls of dp_ate with a third of epsilon each, "
    f"{FEWER} runs. Covered: per cent of 95 % intervals of single outcomes, and of families of "
    "three that hold at once; the standard error of 95 % is 2.2 with 100 runs. People and noise "
    "have different seeds."
)


def people(kind: str, n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Records, and the true effects in them."""
    rng = np.random.default_rng([seed, n, 11])
    x1, x2 = rng.uniform(0, 1, n), np.clip(rng.normal(size=n), -3, 3)
    x3, sex = rng.integers(0, 2, n), rng.integers(0, 2, n)
    several = 1.5 * (x1 - 0.5) + 0.5 * x2 + 0.4 * (x3 - 0.5) - 0.3
    t = (rng.random(n) < 1 / (1 + np.exp(-(several if kind == "several" else x2)))).astype(int)
    noise, u = rng.normal(size=(2, n)), rng.random(n)

    def outcomes(t: np.ndarray) -> list[np.ndarray]:
        risk = 0.02 + 0.04 * x1 + 0.02 * (x2 > 0) + 0.02 * t
        a = 50 + 20 * (x1 - 0.5) + 6 * x2 + 3 * t + 12 * noise[0]
        b = 5 + 2 * x2 + 1.5 * x3 + t + 3 * noise[1]
        return [np.clip(a, 0, 100), np.clip(b, -10, 30), (u < risk).astype(int)]

    a, b, died = outcomes(t)
    pairs = zip(outcomes(np.ones(n)), outcomes(np.zeros(n)), strict=True)
    truth = np.array([float((one - other).mean()) for one, other in pairs])
    frame = {"t": t, "a": a, "b": b, "died": died, "x1": x1, "x2": x2, "x3": x3, "sex": sex}
    return pd.DataFrame(frame), truth


def weighted(frame: pd.DataFrame) -> np.ndarray:
    """Inverse probability weighting without privacy."""
    design = sm.add_constant(frame[["x1", "x2", "x3", "sex"]].astype(float))
    e = sm.Logit(frame["t"], design).fit(disp=0).predict(design)
    treated = frame["t"] == 1
    return np.array(
        [
            np.average(frame[y][treated], weights=1 / e[treated])
            - np.average(frame[y][~treated], weights=1 / (1 - e[~treated]))
            for y in OUTCOMES
        ]
    )


def run(seed: int, noise: int, confounders: str, n: int, epsilon: float):
    """Errors of all outcomes, and what holds."""
    formula, asked = "{} ~ t | x1 + x2 + x3 + sex", {"bounds": BOUNDS}
    frame, truth = people(confounders, n, seed)
    fit = dpe.dp_study(
        formula.format(" + ".join(OUTCOMES)), frame, **asked, epsilon=epsilon, seed=noise
    )
    inside = []
    for at_once in (False, True):
        low, high = fit.conf_int(simultaneous=at_once).T
        inside.append((low <= truth) & (truth <= high))
    means = frame.groupby("t")[list(OUTCOMES)].mean()
    errors = {"study": fit.estimates - truth, "weights": weighted(frame) - truth}
    errors["crude"] = (means.loc[1] - means.loc[0]).to_numpy() - truth
    if seed < FEWER:
        third = {**asked, "epsilon": epsilon / 3}
        own = [
            dpe.dp_ate(formula.format(y), frame, **third, seed=noise + j)
            for j, y in enumerate(OUTCOMES, 1)
        ]
        errors["separate"] = np.array([one.estimate for one in own]) - truth
    found = {
        f"{name} {y}": x for name, xs in errors.items() for y, x in zip(OUTCOMES, xs, strict=True)
    }
    found |= {f"covered {y}": x for y, x in zip(OUTCOMES, inside[0], strict=True)}
    return found | {"family": inside[1].all()}


def columns(runs: pd.DataFrame) -> dict[str, object]:
    """Numbers of the three outcomes in one place, errors in those of the crude difference."""

    def each(make) -> str:
        return ", ".join(f"{make(y):.2f}" for y in OUTCOMES)

    def crude(y: str) -> float:
        return abs(runs[f"crude {y}"].mean())

    def error(name: str) -> str:
        return each(lambda y: rms(runs[f"{name} {y}"].dropna()) / crude(y))

    return {
        **{f"error, {name}": error(name) for name in ("study", "separate", "weights")},
        "bias left": each(lambda y: runs[f"study {y}"].mean() / crude(y)),
        "covered": ", ".join(f"{100 * runs[f'covered {y}'].mean():.0f}" for y in OUTCOMES),
        "families covered": percent("family")(runs),
    }


CELLS = [
    {"confounders": kind, "n": n, "epsilon": epsilon}
    for kind in ("several", "one, strong")
    for n, epsilon in ((5_000, 1.0), (5_000, 2.0), (20_000, 1.0))
]
TABLE = Table(
    "Adjusted studies",
    (Part("Error and coverage", CELLS, run, columns, runs=100),),
    NOTE,
    minutes=2,
)
