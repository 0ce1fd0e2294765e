"""How often intervals of associations cover the association, where nothing is adjusted for.

    python benchmarks/associations.py

Survival of n = 5,000 records whose treatment depends on how ill they are, epsilon = 1. What is to
be covered is the difference between the arms of the population, not the effect.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from report import save

import dpeffects as dpe

RUNS, N, HORIZON = 60, 5000, 60.0
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


def main() -> None:
    """Call on many samples."""
    large = people(1_000_000, 10**6)
    arms = [large[large["t"] == arm] for arm in (1, 0)]
    risks = [float((arm["time"] <= HORIZON).mean()) for arm in arms]
    means = [float(np.minimum(arm["time"], HORIZON).mean()) for arm in arms]
    truth = {"risk_difference": risks[0] - risks[1], "rmst_difference": means[0] - means[1]}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in truth}
    for seed in range(RUNS):
        call = {"horizon": HORIZON, "epsilon": 1.0, "seed": seed}
        fit = dpe.dp_survival("Surv(time, event) ~ t", people(N, seed), **call)
        ends = zip(fit.tidy()["term"], fit.conf_int(), fit.effect_conf_int(), strict=True)
        for term, own, effect in ends:
            if term in truth:
                inside = own[0] <= truth[term] <= own[1]
                widths = {"width": own[1] - own[0], "width for the effect": effect[1] - effect[0]}
                found[term].append({"covered": float(inside), **widths})
    rows = [
        {"term": name, "association": truth[name]} | pd.DataFrame(rows).mean().to_dict()
        for name, rows in found.items()
    ]
    table = pd.DataFrame(rows).round(3)
    save("associations", "Intervals of associations", {"": table}, NOTE)


if __name__ == "__main__":
    main()
