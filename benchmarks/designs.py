"""Instruments, differences in differences, effects by group, few treated: what privacy costs."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from harness import grid, median, percent, root
from known_truth import LOT, SE, WORTH, Asked, covariates, part, table
from scipy.special import expit, logit

import dpeffects as dpe

# --- effects among compliers ----------------------------------------------------------------------


def instrument(kind: str, how: str, compliers: float, n: int, seed: int) -> pd.DataFrame:
    """Records; ``how`` the covariates matter: "none", "prognostic", "confounded".

    Who always or never takes the treatment has other outcomes than compliers, by a cause that no
    column has.
    """
    rng = np.random.default_rng(seed)
    x, (cause, own, rank) = rng.uniform(-1.0, 1.0, (n, 2)), rng.normal(size=(3, n))
    z = rng.random(n) < expit((how == "confounded") * (x[:, 0] - 0.7 * x[:, 1]))
    index, rank = 0.6 * cause + 0.8 * own, 0.6 * cause + 0.8 * rank
    low, high = (NormalDist().inv_cdf(0.5 + side * compliers / 2.0) for side in (-1, 1))
    if how != "none":
        index = (index + x @ np.array([0.9, 0.6])) / np.sqrt(1.39)
    shape = 0.1 * np.exp(0.9 * index) if kind == "skewed" else 0.42 + 0.17 * index
    y0, y1 = (np.clip(shape + 0.15 * arm, 0.0, 1.0) for arm in (0, 1))
    d = np.where(rank < low, 0, np.where(rank < high, z, 1))
    effect = np.where((low <= rank) & (rank < high), y1 - y0, np.nan)
    made = {"y": np.where(d == 1, y1, y0), "d": d, "z": z * 1, "effect": effect}
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
    options |= LOT if covariates != "confounded" else {}
    truth = {"late": truth_of(outcome, covariates, compliers)}
    plain = {"late": float((own @ frame["y"]) / (own @ frame["d"]))}
    return Asked("dp_late", f"y ~ d{' | x1 + x2' * bool(x)}", frame, truth, options, plain)


SIMPLE = {"outcome": ["normal"], "covariates": ["none"], "compliers": [0.4], "n": [5_000]}
LATE = {
    "Randomised instrument": {"outcome": ["normal", "skewed"], "compliers": [0.4, 0.1]},
    "With two covariates": {"covariates": ["prognostic", "confounded"], "n": [5_000, 20_000]},
    "By epsilon": {"epsilon": [0.2, 4.0], "compliers": [0.1]},
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
    t = rng.random(units) < expit(logit(treated) + adjusted * (2.0 * x[0] - 1.0))
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

# --- effects by group ----------------------------------------------------------------------------

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "trial": ("survey", {"randomised": True}),
    "linear": ("survey", {}),
    "binary": ("binary", {}),
    "confounded": ("confounded", {}),
    "curved": ("survey", {}),
}


def groups(people: int, population: str, n: int, method: str = "one_step") -> Asked:
    """Four groups by x1; every group counts once."""
    (kind, more), seed = KINDS[population], 50_000 + people
    made, x = dpe.simulate(kind, n, seed, **more), "I(x1 ** 4) + I(x2 ** 4) + x3"
    ends = [0, 0.25, 0.5, 0.75, 1]
    group = pd.cut(made.frame["x1"], ends, include_lowest=True, labels=range(4))
    truth = (made.frame["mu1"] - made.frame["mu0"]).groupby(group, observed=False).mean()
    terms = [f"x1 {'[' if k == 0 else '('}{a}, {b}]" for k, (a, b) in enumerate(pairwise(ends))]
    x = x if population == "curved" else covariates(made)
    formula = f"outcome ~ treatment | {x}"
    options = {"release": "groups", "by": f"cut(x1, {ends})", "method": method}
    options |= LOT if population == "trial" else {}
    return Asked("dp_cate", formula, made, dict(zip(terms, truth, strict=True)), options, {})


def better(found: pd.DataFrame) -> str:
    wide = found.query("epsilon == 1").pivot(index=["population", "n"], columns="method")["error"]
    less = (wide["one_step"] < wide["dr_learner"]).sum() if len(wide.columns) == 2 else 0
    return (
        f"{SE} Four groups in each run. At epsilon 1 `one_step` has less error than `dr_learner` "
        f"in {less} of {len(wide)} settings. In *curved* the models are wrong."
    )


CELLS = grid(population=KINDS, n=(2_000, 10_000), epsilon=[1.0], method=("one_step", "dr_learner"))
CELLS += grid(population=KINDS, n=[10_000], epsilon=[4.0], method=["one_step"])
GROUPS = {"error": root("error"), "covers %": percent("covered")}
GROUPS |= {"with an interval %": lambda runs: round(100.0 * runs["covered"].notna().mean(), 1)}

# --- few treated records, and few with an effect --------------------------------------------------

REACHED = {"large": (0.4, 1.0), "tenth": (0.6, 0.1), "fiftieth": (0.6, 0.02)}
"""Effects, and the part of the records that have them."""


def rare(
    people: int, effect: str, n: int, treated: float, design: str, method: str = "auto"
) -> Asked:
    """Two covariates, and an effect by its kind, in outcomes in [0, 1]."""
    rng = np.random.default_rng(70_000 + people)
    x = rng.uniform(size=(n, 2))
    odds = (design == "observational") * (1.5 * (x[:, 0] - 0.5) - 0.1)
    t = rng.random(n) < expit(logit(treated) + odds)
    control = 0.3 + 0.1 * x[:, 0] + rng.normal(0, 0.05, n)
    size, part = REACHED[effect]
    more = size * (rng.random(n) < part)
    y0, y1 = np.clip(control, 0, 1), np.clip(control + more, 0, 1)
    frame = pd.DataFrame(x, columns=["x1", "x2"]).assign(y=np.where(t, y1, y0), t=t.astype(int))
    options = {"bounds": dict.fromkeys(("y", "x1", "x2"), (0, 1)), "design": design}
    truth, formula = {"t": float((y1 - y0).mean())}, f"y ~ t{' | x1 + x2' * (method == 'auto')}"
    return Asked("dp_ate", formula, frame, truth, options | {"method": method}, {})


RARE = {"error": root("error"), "covers %": percent("covered"), "width": median("width")}
SIZES: dict[str, Any] = {"n": (4_000, 50_000)}
BOTH = {"method": ["auto"], "design": ("randomised", "observational")}
ARMS = grid(effect=["large"], treated=(0.01, 0.1), **SIZES, **BOTH)
ARMS += grid(effect=("tenth", "fiftieth"), treated=(0.1, 0.5), **SIZES, **BOTH)
ARMS += [x | {"method": "diff_in_means"} for x in ARMS if x["design"] == "randomised"]
TABLES = {
    "late": table(
        "Effects among compliers",
        f"{SE} With an instrument that is confounded intervals allow for curves in its score that "
        "the formula does not have. Without privacy: two-stage least squares.",
        2.5,
        *(part(title, late, grid(**SIMPLE | cells), WORTH) for title, cells in LATE.items()),
    ),
    "did": table(
        "Difference in differences: coverage of 95 % intervals",
        f"{SE} Two rows for each unit, both of them protected; skewed outcomes are log-normal. "
        "Without privacy: least squares on the changes.",
        1.5,
        *(part(title, did, grid(**PANEL | cells), WORTH) for title, cells in DID.items()),
    ),
    "groups": table("Effects by group", better, 3, part("", groups, CELLS, GROUPS)),
    "rare_arms": table(
        "Few treated records, and few with an effect",
        f"{SE} Two covariates, outcomes in [0, 1]. *large*: an effect of 0.4 on all; *tenth* and "
        "*fiftieth*: one of 0.6 on such a part of them, whatever their covariates. "
        "The default winsorises residuals; what that takes off is estimated by arm and sign, and "
        "added back as far as it is known. A difference in means cuts nothing off.",
        3.5,
        part("", rare, ARMS, RARE),
    ),
}
