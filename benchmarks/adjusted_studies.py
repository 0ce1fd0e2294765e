"""Studies of treatments that were not randomised: error and coverage of adjusted effects.

    python benchmarks/adjusted_studies.py            # 10 minutes on two cores
    python benchmarks/adjusted_studies.py --small    # a quick look, nothing saved

Three outcomes, one of them rare, out of one `dp_study`, against one `dp_ate` for each of them with
a third of epsilon, and against inverse probability weighting without privacy. Two populations:
several confounders of moderate strength, and one strong one that is normal within a wide range.
"""

from __future__ import annotations

import sys
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pandas as pd
import statsmodels.api as sm
from report import save

import dpeffects as dpe

SMALL = "--small" in sys.argv
RUNS = 6 if SMALL else 100
FEWER = 3 if SMALL else 25
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


def setting(kind: str, n: int, epsilon: float) -> dict:
    """Errors and coverage in one population."""
    warnings.simplefilter("ignore")
    formula, asked = "a + b + died ~ t | x1 + x2 + x3 + sex", {"bounds": BOUNDS}
    errors: dict[str, list] = {"study": [], "separate": [], "weights": [], "crude": []}
    single, family = [], []
    for run in range(RUNS):
        frame, truth = people(kind, n, run)
        fit = dpe.dp_study(formula, frame, **asked, epsilon=epsilon, seed=50_000 + run)
        errors["study"].append(fit.estimates - truth)
        for hits, at_once in ((single, False), (family, True)):
            low, high = fit.conf_int(simultaneous=at_once).T
            hits.append((low <= truth) & (truth <= high))
        errors["weights"].append(weighted(frame) - truth)
        means = frame.groupby("t")[list(OUTCOMES)].mean()
        errors["crude"].append((means.loc[1] - means.loc[0]).to_numpy() - truth)
        if run < FEWER:
            own = [
                dpe.dp_ate(
                    f"{y} ~ t | x1 + x2 + x3 + sex",
                    frame,
                    **asked,
                    epsilon=epsilon / 3,
                    seed=90_000 + 3 * run + j,
                ).estimate
                for j, y in enumerate(OUTCOMES)
            ]
            errors["separate"].append(np.array(own) - truth)
    crude = np.abs(np.mean(errors.pop("crude"), axis=0))
    sizes = {name: np.sqrt(np.mean(np.square(x), axis=0)) / crude for name, x in errors.items()}
    left = np.mean(errors["study"], axis=0) / crude
    return {
        "confounders": kind,
        "n": n,
        "epsilon": epsilon,
        **{f"error, {name}": ", ".join(f"{x:.2f}" for x in size) for name, size in sizes.items()},
        "bias left": ", ".join(f"{x:.2f}" for x in left),
        "covered": ", ".join(f"{100 * x:.0f}" for x in np.mean(single, axis=0)),
        "families covered": round(100 * float(np.all(family, axis=1).mean()), 1),
    }


def main() -> None:
    """Run all settings, two at a time."""
    cells = [
        (kind, n, epsilon)
        for kind in ("several", "one, strong")
        for n, epsilon in ((5_000, 1.0), (5_000, 2.0), (20_000, 1.0))
    ]
    with ProcessPoolExecutor(2) as pool:
        rows = list(pool.map(setting, *zip(*cells, strict=True)))
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    if not SMALL:
        save("adjusted_studies", "Adjusted studies", {"Error and coverage": table}, NOTE)


if __name__ == "__main__":
    main()
