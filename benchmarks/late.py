"""Effects among compliers: what privacy costs, and how often intervals cover, weak or strong.

    python benchmarks/late.py            # some ten minutes on two cores
    python benchmarks/late.py --small    # a quick look, nothing saved

Who always or never takes the treatment has other outcomes than compliers, by a cause that no column
has. Errors are root mean squares; those without privacy are two-stage least squares on the same
people, with the same covariates. An effect is covered where the test of it is not rejected.
"""

from __future__ import annotations

import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from statistics import NormalDist

import numpy as np
import pandas as pd
from report import save

import dpeffects as dpe
from dpeffects.progress import bar

SMALL = "--small" in sys.argv
RUNS = 20 if SMALL else 120
BOUNDS = {"y": (0, 1), "x1": (-1, 1), "x2": (-1, 1)}
NOTE = (
    "The standard error of a coverage of 95 % is 2. With "
    "an instrument that is confounded the intervals allow for curves in its score that the formula "
    "does not have, as those of `dp_ate` do, and cover more often where there are none. Errors "
    "with covariates that no adjustment pays for are those of the unadjusted ratio."
)
EFFECT = 0.15
_NORMAL = NormalDist()


def people(kind: str, n: int, compliers: float, seed: int, how: str) -> pd.DataFrame:
    """Records of one study; ``how`` the covariates matter: "none", "prognostic", "confounded"."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, (n, 2))
    odds = np.exp(x @ np.array([1.0, -0.7])) if how == "confounded" else np.ones(n)
    z = (rng.random(n) < odds / (1.0 + odds)).astype(int)
    cause, own = rng.normal(size=(2, n))
    rank = 0.6 * cause + 0.8 * rng.normal(size=n)
    ends = [_NORMAL.inv_cdf(0.5 + side * compliers / 2.0) for side in (-1, 1)]
    d = np.where(rank < ends[0], 0, np.where(rank < ends[1], z, 1))
    index = 0.6 * cause + 0.8 * own
    if how != "none":
        index = (index + x @ np.array([0.9, 0.6])) / np.sqrt(1.39)
    y0, y1 = (outcome(kind, index, treated) for treated in (0, 1))
    made = {"y": np.where(d == 1, y1, y0), "d": d, "z": z, "x1": x[:, 0], "x2": x[:, 1]}
    complies = (ends[0] <= rank) & (rank < ends[1])
    return pd.DataFrame(made | {"effect": np.where(complies, y1 - y0, np.nan)})


def outcome(kind: str, index: np.ndarray, treated: int) -> np.ndarray:
    """Outcomes with or without treatment."""
    if kind == "normal":
        return np.clip(0.42 + 0.17 * index + EFFECT * treated, 0.0, 1.0)
    if kind == "skewed":
        return np.clip(0.1 * np.exp(0.9 * index) + EFFECT * treated, 0.0, 1.0)
    return (index + 2.7 * EFFECT * treated > 0.4).astype(int)


def plain(frame: pd.DataFrame, adjusted: bool) -> float:
    """Two-stage least squares."""
    z, y, d = (frame[name].to_numpy(float) for name in "zyd")
    x = np.ones((len(frame), 1))
    if adjusted:
        x = np.column_stack([x, frame[["x1", "x2"]]])
    own = z - x @ np.linalg.lstsq(x, z, rcond=None)[0]
    return float((own @ y) / (own @ d))


def setting(kind: str, n: int, compliers: float, epsilon: float, how: str) -> dict:
    """Errors and coverage in one population."""
    adjusted = how != "none"
    truth = float(people(kind, 300_000, compliers, 10**6, how)["effect"].mean())
    right = " | x1 + x2" if adjusted else ""
    design = "observational" if how == "confounded" else "randomised"
    found = []
    for seed in range(RUNS):
        frame = people(kind, n, compliers, seed, how)
        fit = dpe.dp_late(
            f"y ~ d{right}",
            frame,
            instrument="z",
            epsilon=epsilon,
            bounds=BOUNDS,
            design=design,
            seed=seed + 10**7,
        )
        p = fit.arm_table.p_value(truth)
        errors = fit.estimate - truth, plain(frame, adjusted) - truth
        found.append([*errors, p > 0.05, fit.arm_table.weak])
    each = np.array(found, float)
    error, without = np.sqrt((each[:, :2] ** 2).mean(axis=0))
    return {
        "outcome": kind,
        "covariates": how,
        "compliers": f"{100 * compliers:.0f} %",
        "n": n,
        "epsilon": epsilon,
        "error": round(float(error), 4),
        "without privacy": round(float(without), 4),
        "ratio": round(float(error / without), 2),
        "covered": round(100.0 * float(each[:, 2].mean()), 1),
        "called weak": f"{100 * each[:, 3].mean():.0f} %",
    }


def main() -> None:
    warnings.simplefilter("ignore")
    kinds, sizes, shares = ("normal", "binary", "skewed"), (5_000, 20_000), (0.4, 0.1)
    plans = {
        "Randomised instrument": [
            (kind, n, share, 1.0, "none") for kind in kinds for n in sizes for share in shares
        ],
        "With two covariates": [
            ("normal", n, share, 1.0, how)
            for how in ("prognostic", "confounded")
            for n in sizes
            for share in shares
        ],
        "By epsilon": [
            ("normal", 5_000, share, epsilon, "none")
            for share in shares
            for epsilon in (0.2, 0.5, 2.0)
        ],
        "Hardly any compliers": [("normal", 5_000, share, 1.0, "none") for share in (0.03, 0.01)],
    }
    tables = {}
    for name, cases in plans.items():
        with ProcessPoolExecutor(2) as pool:
            each = [pool.submit(setting, *case) for case in cases]
            tables[name] = pd.DataFrame([found.result() for found in bar(each, name)])
        if SMALL:
            print(tables[name].to_string())
    if not SMALL:
        save("late", f"Effects among compliers, {RUNS} runs each", tables, NOTE)


if __name__ == "__main__":
    main()
