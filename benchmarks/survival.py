"""Survival from a noisy life table: accuracy, coverage, hazard ratios, time at ten million rows.

    python benchmarks/survival.py               # half an hour on one core
    python benchmarks/survival.py --small       # a quick look, nothing saved
    python benchmarks/survival.py --only time   # or accuracy, coverage, band, ratios

Times are Weibull, treatment is randomised. The error of the difference in restricted means is that
against the truth, over that of Kaplan-Meier curves of the exact times of the same people. Coverage
is that of 95 % intervals by `dp_survival`. Times are medians of runs that take turns with a plain
group-by of the same cells by the same engine. Parts go on where they stopped; delete their csv
files to make them anew.
"""

from __future__ import annotations

import itertools
import math
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
from report import RESULTS, save
from statsmodels.duration.api import PHReg

import dpeffects as dpe

FORMULA = "Surv(time, event) ~ treatment"
SMALL = "--small" in sys.argv
ONLY = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
RUNS = int(sys.argv[sys.argv.index("--runs") + 1]) if "--runs" in sys.argv else 400
TERMS = ("risk_difference", "risk_ratio", "rmst_difference", "rmst_ratio", "hazard_ratio")
PLAIN = {"prognosis": 0.0, "randomised": True, "horizon": 1.0, "censoring": 0.5}


def asked(epsilon: float, seed: int | None = None) -> dict[str, object]:
    """A call; its noise has a seed far from that of the people, whose draws it must not follow."""
    noise = None if seed is None else 1_000_000 + seed
    return {"horizon": 1.0, "bins": 10, "epsilon": epsilon, "design": "randomised", "seed": noise}


def kaplan_meier_mean(frame: pd.DataFrame) -> float:
    """Restricted mean by the exact times."""
    frame = frame.sort_values("time")
    factors = 1.0 - frame["event"].to_numpy() / np.arange(len(frame), 0, -1)
    curve = np.concatenate([[1.0], np.cumprod(factors)])
    return float(curve @ np.diff(np.concatenate([[0.0], frame["time"], [1.0]])))


def accuracy(runs: int) -> pd.DataFrame:
    """Error of the difference in restricted means, against that without privacy."""
    rows = []
    cases = [(0.3, 1.2), (0.5, 1.0), (0.5, 0.7), (0.5, 1.5), (0.8, 1.0)]
    for n, (risk, shape) in itertools.product((2_000, 5_000), cases):
        errors = []
        for seed in range(runs):
            given = {**PLAIN, "risk": risk, "shape": shape}
            made = dpe.simulate("survival", n, seed, **given)
            frame = made.frame
            truth = (frame["mu1"] - frame["mu0"]).mean()
            arms = [kaplan_meier_mean(frame[frame["treatment"] == arm]) for arm in (1, 0)]
            fit = dpe.dp_survival(FORMULA, made, **asked(1.0, seed))
            lost = fit.life.shares(np.ones(1), lost=True).values[:, 0]
            errors.append((lost[1] - lost[0] - truth, arms[0] - arms[1] - truth))
        private, plain = np.sqrt(np.square(errors).mean(axis=0))
        row = {"n": n, "risk": risk, "shape": shape, "non-private": plain, "private": private}
        rows.append(row | {"ratio": private / plain, "bar": 1.10 if n == 2_000 else 1.06})
    return pd.DataFrame(rows).round(4)


def truths(frame: pd.DataFrame, ratio: float) -> dict[str, float]:
    mean = frame[["mu1", "mu0", "risk1", "risk0"]].mean()
    return {
        "risk_difference": mean["risk1"] - mean["risk0"],
        "risk_ratio": mean["risk1"] / mean["risk0"],
        "rmst_difference": mean["mu1"] - mean["mu0"],
        "rmst_ratio": mean["mu1"] / mean["mu0"],
        "hazard_ratio": ratio,
    }


def covered(n: int, epsilon: float, risk: float, treated: float, seeds: range) -> dict[str, object]:
    """Coverage of 95 % intervals in one setting, in per cent."""
    ratio = 0.6 if treated == 0.5 else 1.0
    given = {**PLAIN, "risk": risk, "treated": treated, "hazard_ratio": ratio, "shape": 1.0}
    hits, open_ends, runs = dict.fromkeys(TERMS, 0), 0, len(seeds)
    for seed in seeds:
        made = dpe.simulate("survival", n, seed, **given)
        fit = dpe.dp_survival(FORMULA, made, **asked(epsilon, seed))
        known = truths(made.frame, ratio)
        ends = {term.name: tuple(term.conf_int()) for term in fit.terms() if term.name in TERMS}
        for term in TERMS:
            hits[term] += bool(ends[term][0] <= known[term] <= ends[term][1])
        open_ends += math.isinf(ends["hazard_ratio"][1]) or ends["hazard_ratio"][0] == 0.0
    about = {"n": n, "epsilon": epsilon, "risk": risk, "treated": treated}
    shares = {term.replace("_", " "): round(100 * count / runs, 1) for term, count in hits.items()}
    return about | shares | {"hazard ratio open": round(100 * open_ends / runs, 1)}


def within_band(fit: dpe.SurvivalEffects, hazard: float, ratio: float) -> bool:
    """Whether both true curves are within the joint band everywhere."""
    curves = fit.curves()
    true = np.exp(-hazard * np.where(curves["arm"] == "treated", ratio, 1.0) * curves["time"])
    low, high = curves["conf_low"] <= true + 1e-12, curves["conf_high"] >= true - 1e-12
    return bool((low & high).all())


def band(runs: int) -> pd.DataFrame:
    """How often the joint band holds for both curves everywhere."""
    rows = []
    for n, epsilon, risk, treated in itertools.product(
        (2_000,), (1.0, 4.0), (0.02, 0.3), (0.1, 0.5)
    ):
        given = {**PLAIN, "risk": risk, "treated": treated, "hazard_ratio": 0.6, "shape": 1.0}
        hits = 0
        for seed in range(runs):
            made = dpe.simulate("survival", n, seed, **given)
            fit = dpe.dp_survival(FORMULA, made, **asked(epsilon, seed))
            hits += within_band(fit, -math.log1p(-risk), 0.6)
        row = {"n": n, "epsilon": epsilon, "risk": risk, "treated": treated}
        rows.append(row | {"both curves": round(100 * hits / runs, 1)})
    return pd.DataFrame(rows)


def coverage(runs: int) -> pd.DataFrame:
    path = RESULTS / "survival_coverage.csv"
    rows = pd.read_csv(path).to_dict("records") if path.exists() and not SMALL else []
    done = {(r["n"], r["epsilon"], r["risk"], r["treated"]) for r in rows}
    grid = itertools.product((2_000, 20_000), (0.5, 1.0, 4.0), (0.02, 0.3), (0.1, 0.5))
    for k, case in enumerate(grid):
        if case not in done:
            rows.append(covered(*case, range(10_000 * k, 10_000 * k + runs)))
            print(rows[-1], flush=True)
            if not SMALL:
                pd.DataFrame(rows).to_csv(path, index=False)
    return pd.DataFrame(rows)


def ratios() -> pd.DataFrame:
    """Hazard ratios at a large epsilon, against Cox regression of the exact times."""
    rows = []
    cases = [
        ("plain", {}),
        ("90 % leave early", {"censoring": 0.9}),
        ("10 % treated", {"treated": 0.1}),
        ("risk of 5 %", {"risk": 0.05}),
        ("risk of 80 %", {"risk": 0.8}),
        ("falling hazard", {"shape": 0.7}),
        ("rising hazard", {"shape": 2.0}),
    ]
    for (name, more), ratio in itertools.product(cases, (0.3, 0.6, 1.0, 1.7, 3.0)):
        given = {**PLAIN, "risk": 0.4, "shape": 1.0, **more, "hazard_ratio": ratio}
        made = dpe.simulate("survival", 20_000, 1, **given)
        frame = made.frame
        cox = PHReg(frame["time"], frame["treatment"], status=frame["event"]).fit()
        other = math.exp(cox.params[0])
        found = dpe.dp_survival(FORMULA, made, **asked(1e5)).life.hazard_ratio()[0]
        rows.append(
            {"data": name, "true": ratio, "Cox": other, "off, %": 100 * (found / other - 1)}
        )
    wide = pd.DataFrame(rows).pivot(index="data", columns="true", values="off, %")
    return wide.loc[[name for name, _ in cases]].round(2).reset_index()


def timing(rows: int, repeats: int) -> pd.DataFrame:
    """A call on DuckDB, against a group-by of the same cells."""
    import duckdb

    path = Path(tempfile.gettempdir()) / f"dpeffects-survival-{rows}.parquet"
    if not path.exists():
        duckdb.sql(
            "COPY (SELECT (random() < 0.5)::INT AS treatment, least(-ln(random()), 1.0) AS time, "
            f"(random() < 0.7)::INT AS event FROM range({rows})) TO '{path}'"
        )
    query = (
        "SELECT treatment, CASE WHEN time >= 1 AND event = 0 THEN 20 ELSE "
        f"2 * floor(time * 10) + event END AS cell, count(*) FROM '{path}' GROUP BY ALL"
    )
    ours, plain = [], []
    dpe.dp_survival(FORMULA, duckdb.sql(f"FROM '{path}' LIMIT 1000"), **asked(1.0))
    for _ in range(repeats):
        start = time.perf_counter()
        duckdb.sql(query).fetchall()
        middle = time.perf_counter()
        dpe.dp_survival(FORMULA, duckdb.sql(f"FROM '{path}'"), **asked(1.0))
        plain.append(middle - start)
        ours.append(time.perf_counter() - middle)
    row = {"rows": rows, "group-by, s": median(plain), "dp_survival, s": median(ours)}
    return pd.DataFrame([row | {"ratio": row["dp_survival, s"] / row["group-by, s"]}]).round(2)


PARTS = {
    "accuracy": lambda: accuracy(20 if SMALL else RUNS),
    "coverage": lambda: coverage(4 if SMALL else RUNS),
    "band": lambda: band(4 if SMALL else RUNS // 2),
    "ratios": ratios,
    "time": lambda: timing(100_000 if SMALL else 10_000_000, 2 if SMALL else 5),
}
TITLES = {
    "accuracy": "Root mean squared error of the difference in restricted means, epsilon 1, 10 bins",
    "coverage": "Coverage of 95 % intervals, per cent, and how often a ratio has no limit",
    "band": "Coverage of the joint band of both curves, per cent (half as many runs)",
    "ratios": "Hazard ratio of 10 bins at a large epsilon, per cent off that of Cox regression",
    "time": "Ten million rows in a Parquet file, DuckDB",
}


def main() -> None:
    warnings.simplefilter("ignore")
    tables = {}
    for name, make in PARTS.items():
        if SMALL and ONLY in ("", name):
            print(make().to_string())
        if SMALL:
            continue
        path = RESULTS / f"survival_{name}.csv"
        if ONLY in ("", name) and (name == "coverage" or not path.exists() or ONLY):
            make().to_csv(path, index=False)
        if path.exists():
            tables[TITLES[name]] = pd.read_csv(path)
    if not SMALL:
        save("survival", f"Survival from a noisy life table ({RUNS} runs a setting)", tables)


if __name__ == "__main__":
    main()
