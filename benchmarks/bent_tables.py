"""Tables and studies where covariates bend, or have ranges that are too wide: error and coverage.

    python benchmarks/bent_tables.py            # some minutes
    python benchmarks/bent_tables.py --small    # a quick look, nothing saved

Populations are those of `populations.py` with seeds below 1,000. For life tables the log hazard is
.8 times the standardised control outcome, and treatment takes .4 off it; a third of the records are
censored at random times before 1. Each cell has the restricted mean difference (`dp_survival`) or
the difference of medians (`dp_qte`), with the public rule and with lines only.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from populations import STREAM, population
from report import save

import dpeffects as dpe

SMALL = "--small" in sys.argv
RUNS = 2 if SMALL else 6
LARGE = 300_000
BENT, STRAIGHT = (8, 29, 38, 167), (36, 54, 57, 51)
CELLS = (
    *(("restricted mean", seed, 20_000, 1.0) for seed in BENT),
    *(("restricted mean", seed, 10_000, wide) for wide in (1.0, 5.0) for seed in STRAIGHT),
    *(("median", seed, 20_000, 1.0) for seed in (8, 29)),
)
NOTE = (
    "Ranges: how many times too wide those of the covariates are. Unadjusted: the difference "
    "without adjustment less the truth. Half-width: of 95 % intervals, on average. Medians are in "
    "units of the outcome's standard deviation."
)


def log_hazard(seed: int, x: np.ndarray) -> np.ndarray:
    middle, spread = scale(seed)
    return 0.8 * np.clip((population(seed).control(x) - middle) / spread, -3, 3) - 0.7


@cache
def scale(seed: int) -> tuple[float, float]:
    x, *_ = population(seed).records(LARGE, np.random.default_rng([STREAM, seed, 6]))
    control = population(seed).control(x)
    return float(control.mean()), float(control.std())


def lived(rate: np.ndarray) -> np.ndarray:
    return -np.expm1(-rate) / rate


@cache
def truth(kind: str, seed: int) -> tuple[float, float, float]:
    """The truth, the difference without adjustment, and the unit of both."""
    rng = np.random.default_rng([STREAM, seed, 7])
    x, odds, both, _ = population(seed).records(LARGE, rng)
    if kind == "median":
        t = rng.random(LARGE) < odds
        one, zero = np.median(both, axis=0)[::-1]
        return one - zero, np.median(both[t, 1]) - np.median(both[~t, 0]), both[:, 0].std()
    hazard = log_hazard(seed, x)
    one, zero = lived(np.exp(hazard - 0.4)), lived(np.exp(hazard))
    crude = np.average(one, weights=odds) - np.average(zero, weights=1 - odds)
    return float((one - zero).mean()), float(crude), 1.0


def call(kind: str, seed: int, n: int, wide: float, run: int, flexible: int | None) -> Any:
    """An estimate, the ends of its interval, and what was added."""
    drawn = population(seed).tight() if wide == 1.0 else population(seed).tight().generous(wide)
    rng = np.random.default_rng([STREAM, seed, n, run])
    given = {"bounds": drawn.bounds, "epsilon": 1.0, "seed": run, "flexible": flexible}
    if kind == "median":
        fit: Any = dpe.dp_qte(drawn.formula, drawn.draw(n, rng)[0], quantiles=0.5, **given)
        row = fit.tidy().iloc[0]
    else:
        x, odds, _, _ = drawn.records(n, rng)
        t = rng.random(n) < odds
        time = rng.exponential(size=n) / np.exp(log_hazard(seed, x) - 0.4 * t)
        end = np.where(rng.random(n) < 1 / 3, rng.random(n), 2.0)
        frame = pd.DataFrame(dict(zip(drawn.names, x.T, strict=True)))
        own = {"t": t.astype(int), "time": np.minimum(time, end)}
        frame = frame.assign(**own, died=(time <= end).astype(int))
        given["bounds"] = {name: drawn.bounds[name] for name in drawn.names}
        formula = f"Surv(time, died) ~ t | {' + '.join(drawn.names)}"
        fit = dpe.dp_survival(formula, frame, horizon=1.0, bins=10, **given)
        row = fit.tidy().set_index("term").loc["rmst_difference"]
    found = row["estimate"], row["conf_low"], row["conf_high"]
    return found, fit.details.get("terms added", "nothing"), "No interactions" in fit.warnings


def cell(kind: str, seed: int, n: int, wide: float) -> list[dict[str, Any]]:
    right, crude, unit = truth(kind, seed)
    rows = []
    for flexible in (None, 0):
        runs = [call(kind, seed, n, wide, run, flexible) for run in range(RUNS)]
        value, low, high = np.array([found for found, _, _ in runs], float).T
        off = (value - right) / unit
        rows.append(
            {
                "of": kind,
                "population": f"{seed}, {population(seed).description.split(';')[0]}",
                "n": n,
                "ranges": wide,
                "added": runs[0][1],
                "unadjusted": f"{(crude - right) / unit:.3f}",
                "bias": f"{off.mean():.3f}",
                "error": f"{np.sqrt((off**2).mean()):.3f}",
                "half-width": f"{np.mean(high - low) / 2 / unit:.3f}",
                "covered": f"{100 * np.mean((low <= right) & (right <= high)):.0f} %",
                "told": f"{100 * np.mean([said for _, _, said in runs]):.0f} %",
            }
        )
    return rows


def main() -> None:
    warnings.simplefilter("ignore")
    cells = CELLS[::6] if SMALL else CELLS
    table = pd.DataFrame([row for each in cells for row in cell(*each)])
    print(table.to_string(index=False))
    if not SMALL:
        asked = ["git", "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        tables = {f"{RUNS} runs, commit {commit}": table}
        save("bent_tables", "Tables where covariates bend", tables, NOTE)


if __name__ == "__main__":
    main()
