"""Populations where log odds, outcomes or effects bend: coverage, width and error of the default.

Populations are those of `populations.py`: some with a name, and some that nothing was tuned on.
Noise is the same at every epsilon and for ranges of any width.

The package is compared with what one could do without privacy but for one draw, on the same samples
(the first `PEERS` of them): augmented inverse probability weighting, cross-fitted in two folds,
once with linear and logistic models and once with scikit-learn's boosting, scores in [.02, .98].
Its terms are clipped to their median plus or minus c, and their mean has Laplace noise of scale
2 c / (n epsilon). Of four quantiles of the distance from the median (`KEPT`), c is that with the
least of squared bias plus variance of the noise at epsilon 1, as the sample has it. Its error is
the root of the mean square of what the mean is off by, plus the variance of that noise; the better
of both counts in a cell.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from default import rises
from harness import Part, Row, Table, grid, rms
from populations import KINDS, PINNED, STUDIES, Population, find

import dpeffects as dpe
from dpeffects.inference.estimate import Unavailable

EFFECTS = {"ATE": dpe.dp_ate, "ATT": dpe.dp_att, "ATC": dpe.dp_atc}
TIMES = 5.0
"""How many times too wide generous ranges are."""
PEERS = 4
"""Runs of a cell with what the package is compared with."""
SCORES, KEPT = (0.02, 0.98), (0.99, 0.995, 0.999, 0.9999)
"""Scores and shares of terms within the clip in what the package is compared with."""


@lru_cache(maxsize=8)
def sample(name: str, n: int, run: int) -> tuple[Population, pd.DataFrame, dict[str, float]]:
    """A population, n of its records and the true effects; names alike up to a comma share them."""
    population = find(name)
    rng = np.random.default_rng([crc32(name.split(",")[0].encode()), n, run])
    return population, *population.draw(n, rng)


def run(people: int, noise: int, **cell: Any) -> Row:
    """Of the package, and of what one could do without privacy but for one draw."""
    name, n, estimand = cell["population"], cell["n"], cell["estimand"]
    population, data, truths = sample(name, n, people)
    if cell["ranges"] != "declared":
        tight = population.tight()
        population = tight if cell["ranges"] == "tight" else population.generous(TIMES)
    given = {"epsilon": cell["epsilon"], "delta": cell["delta"], "bounds": population.bounds}
    fit = EFFECTS[estimand](population.formula, data, **given, seed=noise)
    interval, truth = fit.conf_int(0.95), truths[estimand]
    low, high = (np.nan, np.nan) if isinstance(interval, Unavailable) else interval
    found = {"error": fit.estimate - truth, "low": low - truth, "high": high - truth}
    found["std_error"] = fit.std_error if isinstance(fit.std_error, float) else np.nan
    found["cautioned"] = bool(fit.estimate_warnings)
    with_peers = people < PEERS and cell["ranges"] == "declared"
    return {"epsilon": cell["epsilon"], **found} | (
        without_privacy(name, n, estimand, people) if with_peers else {}
    )


# Without privacy but for one draw


def models(boosted: bool) -> tuple[Any, Any]:
    """One of treatment and one of outcomes."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if boosted:
        settings = {"max_iter": 60, "random_state": 1}
        return HistGradientBoostingClassifier(**settings), HistGradientBoostingRegressor(**settings)
    return make_pipeline(StandardScaler(), LogisticRegression(C=1e4)), LinearRegression()


def terms(x: np.ndarray, t: np.ndarray, y: np.ndarray, estimand: str, boosted: bool) -> np.ndarray:
    """Of augmented inverse probability weighting, each fold by models of the other."""
    fold, (e, none, some) = np.arange(len(t)) % 2, np.zeros((3, len(t)))
    for held in (0, 1):
        there, here = fold != held, fold == held
        score, outcome = models(boosted)
        e[here] = score.fit(x[there], t[there]).predict_proba(x[here])[:, 1]
        for arm, mean in ((0, none), (1, some)):
            rows = there & (t == arm)
            mean[here] = outcome.fit(x[rows], y[rows]).predict(x[here])
    e = np.clip(e, *SCORES)
    treated, control = t * (y - some), (1 - t) * (y - none)
    if estimand == "ATT":
        return (t * (y - none) - control * e / (1 - e)) / t.mean()
    if estimand == "ATC":
        return ((1 - t) * (some - y) + treated * (1 - e) / e) / (1 - t.mean())
    return some - none + treated / e - control / (1 - e)


@lru_cache(maxsize=8)
def without_privacy(name: str, n: int, estimand: str, people: int) -> dict[str, float]:
    """What both are off by, and the scale of the draw of each at epsilon 1."""
    population, data, truths = sample(name, n, people)
    t, y = data["t"].to_numpy(), data["y"].to_numpy(float)
    x, found = data[population.names].to_numpy(float), {}
    for label, boosted in (("linear", False), ("boosted", True)):
        psi = terms(x, t, y, estimand, boosted)
        middle, choices = np.median(psi), []
        for clip in np.quantile(np.abs(psi - middle), KEPT):
            mean, draw = np.clip(psi, middle - clip, middle + clip).mean(), 2 * clip / n
            choices.append(((mean - psi.mean()) ** 2 + 2 * draw**2, mean, draw))
        _, mean, draw = min(choices)
        found |= {label: float(mean - truths[estimand]), f"{label}_draw": float(draw)}
    return found


# Tables


def geometric(values: pd.Series) -> float:
    return float(np.exp(np.log(values.dropna()).mean()))


def summary(runs: pd.DataFrame) -> Row:
    """A row of the runs of a cell."""
    error, half = rms(runs["error"]), float(((runs["high"] - runs["low"]) / 2).median())
    better, least, peer_runs = "", np.nan, 0
    if "linear" in runs:
        peers, epsilon = runs[runs["linear"].notna()], runs["epsilon"].iloc[0]
        errors = {
            name: np.hypot(rms(peers[name]), np.sqrt(2) * rms(peers[f"{name}_draw"]) / epsilon)
            for name in ("linear", "boosted")
        }
        better = min(errors, key=lambda name: errors[name])
        least, peer_runs = errors[better], len(peers)
    return {
        "coverage": 100 * float(((runs["low"] <= 0) & (runs["high"] >= 0)).mean()),
        "half-width": half,
        "rmse": error,
        "bias": float(runs["error"].mean()),
        "half / 1.96 rmse": half / 1.96 / error,
        "cautioned": 100 * float(runs["cautioned"].mean()),
        "worst / se": float((runs["error"].abs() / runs["std_error"]).max()),
        "better": better,
        "its runs": peer_runs,
        "rmse / better": error / least,
        "half / 1.96 better": half / 1.96 / least,
    }


def pooled(cells: pd.DataFrame) -> pd.DataFrame:
    """By where populations are from, kind and n times epsilon; geometric means of ratios."""
    ratios = ["half / 1.96 rmse", "rmse / better", "half / 1.96 better"]
    source = cells["population"].str.startswith("seed").map({True: "drawn", False: "named"})
    size = cells["n"] * cells["epsilon"]
    keys = [source.rename("populations"), cells["kind"], size.rename("n epsilon"), cells["delta"]]
    rows = []
    for key, part in cells.groupby([*keys, cells["estimand"]]):
        told = (part["coverage"] >= 85) | (part["cautioned"] >= 90)
        rows.append(
            {
                **dict(
                    zip(["populations", "kind", "n epsilon", "delta", "estimand"], key, strict=True)
                ),
                "cells": len(part),
                "runs": part["runs"].sum(),
                "coverage": np.average(part["coverage"], weights=part["runs"]),
                "least": part["coverage"].min(),
                "below 85 and not told": int((~told).sum()),
                "cautioned": np.average(part["cautioned"], weights=part["runs"]),
                "worst / se": part["worst / se"].max(),
                **{name: geometric(part[name]) for name in ratios},
            }
        )
    made = pd.DataFrame(rows)
    return made.sort_values("kind", key=lambda k: k.map(KINDS.index), kind="stable")


def generous(cells: pd.DataFrame) -> pd.DataFrame:
    """Half-widths with ranges that are too wide over those with tight ones."""
    by = ["kind", "population", "n", "epsilon", "delta", "estimand"]
    made = cells.pivot(index=by, columns="ranges", values=["half-width", "rmse", "coverage"])
    made.columns = [f"{value}, {ranges}" for value, ranges in made.columns]
    made["ratio"] = made["half-width, generous"] / made["half-width, tight"]
    return made.reset_index()


def page(*made: pd.DataFrame) -> dict[str, pd.DataFrame]:
    held, named, growing, wide = (about(rows) for rows in made)
    shown = {"Pooled": pooled(pd.concat([held, named]))} if len(held) + len(named) else {}
    shown |= {"Held out": held, "Named": named}
    heights = growing.rename(columns={"half-width": "half_width"})
    shown["More epsilon: largest ratio to a half-width at a smaller epsilon"] = rises(heights)
    if wide["ranges"].nunique() > 1:
        found = generous(wide)
        title = f"Ranges {TIMES:g} times too wide: geometric mean {geometric(found['ratio']):.2f}"
        shown[title] = found
    names = dict.fromkeys(x for rows in made for x in rows["population"])
    said = [(k, find(k).kind, find(k).description) for k in names]
    shown["Populations"] = pd.DataFrame(said, columns=["population", "kind", "description"])
    for table in shown.values():
        for column in table.select_dtypes(float):
            table[column] = [float(f"{value:.3g}") for value in table[column]]
    return shown


def about(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with the kind of their population first, in the order of the kinds."""
    rows = rows.copy()
    rows.insert(0, "kind", [find(x).kind for x in rows["population"]])
    return rows.sort_values("kind", key=lambda kind: kind.map(KINDS.index), kind="stable")


def cells(names, n, epsilon=(1.0,), ranges=("declared",), runs=16):
    own = {"delta": [0.0], "estimand": ["ATE"], "ranges": ranges, "runs": [runs]}
    return grid(population=names, n=n, epsilon=epsilon, **own)


HELD_OUT, TUNED = ([f"seed {k}" for k in seeds] for seeds in (range(1144, 1168), range(6)))
NAMED, BOTH = [*PINNED, *STUDIES], (10_000, 40_000)
ALIKE = ("epsilon", "ranges", "delta")
TABLE = Table(
    "Populations that bend",
    tuple(
        Part(title, some, run, summary, runs=16, alike=ALIKE, chunk=2, csv=csv)
        for title, csv, some in (
            ("Held out", "bent_held_out", cells(HELD_OUT, BOTH)),
            ("Named", "bent", cells(NAMED, BOTH)),
            (
                "More epsilon",
                "bent_epsilon",
                cells([*TUNED[:4], *NAMED], [20_000], epsilon=(0.5, 1.0, 2.0, 4.0), runs=9),
            ),
            (
                "Generous ranges",
                "bent_generous",
                cells(TUNED, [20_000], ranges=("tight", "generous"), runs=9),
            ),
        )
    ),
    lead="Coverage of the population's effect and warnings in the first lines of a summary in %, "
    "nominal 95 %; medians of half-widths. Nothing was tuned on populations that are held out. "
    '"Better" is the better of linear and boosted estimates without privacy but for one draw '
    "of noise; ratios in pooled rows are geometric means.",
    page=page,
    minutes=12,
)
