"""How often intervals of associations cover the association, where nothing is adjusted for.

Survival of n = 5,000 records whose treatment depends on how ill they are, epsilon = 1. What is to
be covered is the difference between the arms of the population, not the effect.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
from harness import Part, Table, mean, percent

import dpeffects as dpe

N, HORIZON = 5000, 60.0
NOTE = "The standard error of a coverage of 95 % in 60 runs is 2.8."


def people(n: int, seed: int) -> pd.DataFrame:
    """Records whose risk and whose treatment go together."""
    rng = np.random.default_rng(seed)
    ill = rng.random(n)
    treated = rng.random(n) < 0.2 + 0.6 * ill
    time = rng.exponential(40.0 + 40.0 * ill + 20.0 * treated)
    last = np.minimum(time, HORIZON + 1.0)
    return pd.DataFrame(
        {"t": treated.astype(int), "time": last, "event": (time <= HORIZON).astype(int)}
    )


@cache
def truths() -> dict[str, float]:
    large = people(1_000_000, 10**6)
    arms = [large[large["t"] == arm] for arm in (1, 0)]
    risks = [float((arm["time"] <= HORIZON).mean()) for arm in arms]
    means = [float(np.minimum(arm["time"], HORIZON).mean()) for arm in arms]
    return {"risk_difference": risks[0] - risks[1], "rmst_difference": means[0] - means[1]}


def run(seed: int, noise: int, term: str):
    call, truth = {"horizon": HORIZON, "epsilon": 1.0, "seed": noise}, truths()[term]
    fit = dpe.dp_survival("Surv(time, event) ~ t", people(N, seed), **call)
    k = fit.tidy()["term"].tolist().index(term)
    own, effect = fit.conf_int()[k], fit.effect_conf_int()[k]
    widths = {"width": own[1] - own[0], "width for the effect": effect[1] - effect[0]}
    return {"association": truth, "covered": own[0] <= truth <= own[1], **widths}


TERMS = [{"term": name} for name in ("risk_difference", "rmst_difference")]
COLUMNS = {"association": mean("association"), "covered": percent("covered")}
COLUMNS |= {name: mean(name) for name in ("width", "width for the effect")}
TABLE = Table(
    "Intervals of associations",
    (Part("", TERMS, run, COLUMNS, runs=60, alike=("term",)),),
    NOTE,
    minutes=1,
)
