"""Effects among compliers, and differences in differences: what privacy costs, and coverage."""

from __future__ import annotations

from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from harness import Table, grid, median
from known_truth import OPEN, SE, WORTH, Asked, design, logit, part, sigmoid

# --- effects among compliers ----------------------------------------------------------------------


def instrument(kind: str, how: str, compliers: float, n: int, seed: int) -> pd.DataFrame:
    """Records; ``how`` the covariates matter: "none", "prognostic", "confounded".

    Who always or never takes the treatment has other outcomes than compliers, by a cause that no
    column has.
    """
    rng = np.random.default_rng(seed)
    x, (cause, own, rank) = rng.uniform(-1.0, 1.0, (n, 2)), rng.normal(size=(3, n))
    z = rng.random(n) < sigmoid((how == "confounded") * (x[:, 0] - 0.7 * x[:, 1]))
    index, rank = 0.6 * cause + 0.8 * own, 0.6 * cause + 0.8 * rank
    low, high = (NormalDist().inv_cdf(0.5 + side * compliers / 2.0) for side in (-1, 1))
    if how != "none":
        index = (index + x @ np.array([0.9, 0.6])) / np.sqrt(1.39)
    shape = 0.1 * np.exp(0.9 * index) if kind == "skewed" else 0.42 + 0.17 * index
    y0, y1 = (np.clip(shape + 0.15 * arm, 0.0, 1.0) for arm in (0, 1))
    if kind == "binary":
        y0, y1 = y0 > 0.5, y1 > 0.5
    d = np.where(rank < low, 0, np.where(rank < high, z, 1))
    effect = np.where((low <= rank) & (rank < high), y1 * 1.0 - y0, np.nan)
    made = {"y": np.where(d == 1, y1, y0) * 1.0, "d": d, "z": z.astype(int), "effect": effect}
    return pd.DataFrame(made).assign(x1=x[:, 0], x2=x[:, 1])


@cache
def truth_of(*kind: Any) -> float:
    return float(instrument(*kind, 300_000, 10**6)["effect"].mean())


def late(people: int, outcome: str, covariates: str, compliers: float, n: int) -> Asked:
    """Beside two-stage least squares with the same covariates."""
    frame = instrument(outcome, covariates, compliers, n, people)
    x = ["x1", "x2"] if covariates != "none" else []
    columns = np.column_stack([np.ones(n), frame[x]])
    own = frame["z"] - columns @ np.linalg.lstsq(columns, frame["z"], rcond=None)[0]
    options = {"bounds": {"y": (0, 1), "x1": (-1, 1), "x2": (-1, 1)}, "instrument": "z"}
    return Asked(
        "dp_late",
        f"y ~ d | {' + '.join(x)}" if x else "y ~ d",
        frame,
        {"late": truth_of(outcome, covariates, compliers)},
        options | design(covariates != "confounded"),
        {"late": float((own @ frame["y"]) / (own @ frame["d"]))},
    )


LOT = {"outcome": ["normal"], "covariates": ["none"], "compliers": [0.1], "n": [5_000]}
LATE = {
    "Randomised instrument": {"outcome": ["normal", "binary", "skewed"], "compliers": [0.4, 0.1]},
    "With two covariates": {
        **{"covariates": ["prognostic", "confounded"], "compliers": [0.4]},
        "n": [5_000, 20_000],
    },
    "By epsilon": {"epsilon": [0.2, 4.0]},
    "Hardly any compliers": {"compliers": [0.03]},
}

# --- difference in differences --------------------------------------------------------------------

GAIN = 2.0


def did(people: int, units: int, treated: float, rho: float, outcome: str) -> Asked:
    """Long data in a random order; outcomes of a unit are correlated, and levels of arms differ.

    With covariates trends are parallel for the same covariates only. Beside least squares.
    """
    rng, adjusted = np.random.default_rng(10_000 + people), outcome == "with covariates"
    x, same, rows = rng.random((2, units)), rng.normal(size=units), []
    t = rng.random(units) < sigmoid(logit(treated) + adjusted * (2.0 * x[0] - 1.0))
    for year in (0, 1):
        error = np.sqrt(rho) * same + np.sqrt(1.0 - rho) * rng.normal(size=units)
        error = np.exp(error) - np.exp(0.5) if outcome == "skewed" else 2.0 * error
        y = 40.0 + 5.0 * t + 3.0 * error + year * (3.0 + adjusted * 8.0 * x[0] + GAIN * t)
        frame = {"id": np.arange(units), "year": year, "y": y, "t": t, "x1": x[0], "x2": x[1]}
        rows.append(pd.DataFrame(frame))
    long = pd.concat(rows).sample(frac=1.0, random_state=people, ignore_index=True)
    columns = np.column_stack([np.ones(units), t, *(x if adjusted else ())])
    change = (rows[1]["y"] - rows[0]["y"]).to_numpy()
    plain = {"t": float(np.linalg.lstsq(columns, change, rcond=None)[0][1])}
    options = {"time": "year", "unit": "id", "periods": [0, 1]}
    options |= {"bounds": {"y": (0, 100), "x1": (0, 1), "x2": (0, 1)}}
    return Asked("dp_did", f"y ~ t{' | x1 + x2' * adjusted}", long, {"t": GAIN}, options, plain)


PANEL = {"units": [10_000], "treated": (0.5, 0.05), "rho": [0.8], "outcome": ["normal"]}
DID = {
    "Parallel trends": {"units": (2_000, 10_000), "outcome": ("normal", "skewed")},
    "By epsilon": {"treated": [0.5], "rho": [0.2], "epsilon": (0.5, 4.0)},
    "Parallel trends for the same covariates": {"outcome": ["with covariates"], "rho": [0.5]},
}
TABLES = {
    "late": Table(
        "Effects among compliers",
        tuple(part(title, late, grid(**LOT | cells), OPEN) for title, cells in LATE.items()),
        f"{SE} With an instrument that is confounded the intervals allow for curves in its score "
        "that the formula does not have, as those of `dp_ate` do, and cover more often where there "
        "are none. Errors with covariates that no adjustment pays for are those of the unadjusted "
        "ratio. Without privacy: two-stage least squares.",
        minutes=3,
    ),
    "did": Table(
        "Difference in differences: coverage of 95 % intervals",
        tuple(
            part(title, did, grid(**PANEL | cells), WORTH | {"width": median("width")})
            for title, cells in DID.items()
        ),
        f"{SE} Two rows for each unit, both of them protected; skewed outcomes are log-normal. "
        "Without privacy: least squares on the changes.",
        minutes=1.5,
    ),
}
