"""The default on populations that bend, and on those that do not (`benchmarks/populations.py`).

    python benchmarks/bent.py                                     # twelve seeds for tuning
    python benchmarks/bent.py --seeds 0:40 --n 10000 40000 --epsilon 1 --runs 40 --only bent
    python benchmarks/bent.py --seeds 0:12 --named                # and populations with a name
    python benchmarks/bent.py --more-epsilon                      # epsilon .5, 1, 2, 4
    python benchmarks/bent.py --generous                          # ranges five times too wide
    python benchmarks/bent.py --table                             # the page of the runs on file

Every run is kept in a file when it is finished, so that a command can resume. People are those of
the population, n and the run; noise has seeds of its own, the same at every epsilon. `--name` is
that of the files, and `--again` forgets the runs of the package in them.

The package is compared with what one could do without privacy but for one draw, on the same samples
(the first `--peers` of them): augmented inverse probability weighting, cross-fitted in two folds,
once with linear and logistic models and once with scikit-learn's boosting, scores in [.02, .98].
Its terms are clipped to their median plus or minus c, and their mean has Laplace noise of scale
2 c / (n epsilon). Of four quantiles of the distance from the median (`KEPT`), c is that with the
least of squared bias plus variance of the noise at epsilon 1, as the sample has it. Its error is
the root of the mean square of what the mean is off by, plus the variance of that noise; the better
of both counts in a cell.
"""

from __future__ import annotations

import argparse
import subprocess
import warnings
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pandas as pd
from cells import keep, on_file
from default import rises
from populations import FIRST_TEST_SEED, KINDS, PINNED, STUDIES, Population, find
from report import RESULTS, save

import dpeffects as dpe
from dpeffects.inference.estimate import Unavailable

EFFECTS = {"ATE": dpe.dp_ate, "ATT": dpe.dp_att, "ATC": dpe.dp_atc}
TIMES = 5.0
"""How many times too wide generous ranges are."""
SCORES, KEPT = (0.02, 0.98), (0.99, 0.995, 0.999, 0.9999)
"""Scores and shares of terms within the clip in what the package is compared with."""


class Run(NamedTuple):
    """``ranges``: as the population "declared" them, "tight" or "generous"."""

    population: str
    n: int
    epsilon: float
    delta: float
    estimand: str
    ranges: str
    run: int


class Found(NamedTuple):
    error: float
    low: float
    high: float
    std_error: float
    warnings: str
    commit: str


class Peer(NamedTuple):
    population: str
    n: int
    estimand: str
    run: int


class Without(NamedTuple):
    """What both are off by, and the scale of the draw of each at epsilon 1."""

    linear: float
    boosted: float
    linear_draw: float
    boosted_draw: float


@cache
def commit() -> str:
    """The last one that changed the package."""
    line = ["git", "log", "-1", "--format=%h", "--", "dpeffects"]
    root = Path(__file__).parents[1]
    return subprocess.run(
        line, cwd=root, capture_output=True, text=True, check=False
    ).stdout.strip()


@lru_cache(maxsize=8)
def sample(name: str, n: int, run: int) -> tuple[Population, pd.DataFrame, dict[str, float]]:
    """A population, n of its records and the true effects; names alike up to a comma share them."""
    population = find(name)
    rng = np.random.default_rng([crc32(name.split(",")[0].encode()), n, run])
    return population, *population.draw(n, rng)


def measure(cell: Run) -> Found:
    population, data, truths = sample(cell.population, cell.n, cell.run)
    if cell.ranges != "declared":
        population = population.tight() if cell.ranges == "tight" else population.generous(TIMES)
    fit = EFFECTS[cell.estimand](
        population.formula,
        data,
        epsilon=cell.epsilon,
        delta=cell.delta,
        bounds=population.bounds,
        seed=crc32(f"noise {cell.population} {cell.n} {cell.run}".encode()),
    )
    interval, truth = fit.conf_int(0.95), truths[cell.estimand]
    low, high = (np.nan, np.nan) if isinstance(interval, Unavailable) else interval
    error = fit.std_error if isinstance(fit.std_error, float) else np.nan
    said = fit.estimate_warnings.split(":")[0][:80]
    return Found(fit.estimate - truth, low - truth, high - truth, error, said, commit())


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


def without_privacy(cell: Peer) -> Without:
    population, data, truths = sample(cell.population, cell.n, cell.run)
    x, t, y = (
        data[population.names].to_numpy(float),
        data["t"].to_numpy(),
        data["y"].to_numpy(float),
    )
    found = []
    for boosted in (False, True):
        psi = terms(x, t, y, cell.estimand, boosted)
        middle, choices = np.median(psi), []
        for clip in np.quantile(np.abs(psi - middle), KEPT):
            mean, draw = np.clip(psi, middle - clip, middle + clip).mean(), 2 * clip / cell.n
            choices.append(((mean - psi.mean()) ** 2 + 2 * draw**2, mean, draw))
        _, mean, draw = min(choices)
        found.append((float(mean - truths[cell.estimand]), float(draw)))
    (linear, draw), (boost, boost_draw) = found
    return Without(linear, boost, draw, boost_draw)


# Tables


def root(values: Any) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def geometric(values: pd.Series) -> float:
    return float(np.exp(np.log(values.dropna()).mean()))


def by_cell(runs: pd.DataFrame, peers: pd.DataFrame) -> pd.DataFrame:
    """One row a cell."""
    by = ["population", "n", "epsilon", "delta", "estimand", "ranges"]
    others = dict(list(peers.groupby(["population", "n", "estimand"])))
    rows = []
    for key, part in runs.groupby(by, sort=False):
        cell = dict(zip(by, key, strict=True))
        rmse, half = root(part["error"]), float(((part["high"] - part["low"]) / 2).median())
        without, better, peer_runs = np.nan, "", 0
        if (other := others.get((cell["population"], cell["n"], cell["estimand"]))) is not None:
            errors = {
                name: np.hypot(root(other[name]), np.sqrt(2) * root(other[draw]) / cell["epsilon"])
                for name, draw in (("linear", "linear_draw"), ("boosted", "boosted_draw"))
            }
            better = min(errors, key=lambda name: errors[name])
            without, peer_runs = errors[better], len(other)
        rows.append(
            {
                "kind": find(cell["population"]).kind,
                **cell,
                "runs": len(part),
                "coverage": 100 * float(((part["low"] <= 0) & (part["high"] >= 0)).mean()),
                "half-width": half,
                "rmse": rmse,
                "bias": float(part["error"].mean()),
                "half / 1.96 rmse": half / 1.96 / rmse,
                "cautioned": 100 * float((part["warnings"].fillna("") != "").mean()),
                "worst / se": float((part["error"].abs() / part["std_error"]).max()),
                "better": better,
                "its runs": peer_runs,
                "rmse / better": rmse / without,
                "half / 1.96 better": half / 1.96 / without,
            }
        )
    return pd.DataFrame(rows)


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


def page(name: str, runs: pd.DataFrame, peers: pd.DataFrame) -> None:
    cells = by_cell(runs, peers)
    declared = cells[cells["ranges"] == "declared"].drop(columns="ranges")
    shown = {}
    if len(declared):
        order = declared["kind"].map(KINDS.index)
        shown["Pooled"] = pooled(declared)
        shown["Cells"] = declared.iloc[np.argsort(order, kind="stable")]
    if declared["epsilon"].nunique() > 2:
        shown["More epsilon: largest ratio to a half-width at a smaller epsilon"] = rises(
            declared.rename(columns={"half-width": "half_width"})
        )
    if (cells["ranges"] == "generous").any():
        found = generous(cells[cells["ranges"] != "declared"])
        title = f"Ranges {TIMES:g} times too wide: geometric mean {geometric(found['ratio']):.2f}"
        shown[title] = found
    said = pd.DataFrame(
        [(k, find(k).kind, find(k).description) for k in dict.fromkeys(runs["population"])],
        columns=["population", "kind", "description"],
    )
    for table in shown.values():
        for column in table.select_dtypes(float):
            table[column] = [float(f"{value:.3g}") for value in table[column]]
    lead = (
        f"Commits: {', '.join(map(str, dict.fromkeys(runs['commit'])))}. Coverage of the "
        "population's effect and warnings in the first lines of a summary in %, nominal 95 %; "
        f"medians of half-widths. Seeds from {FIRST_TEST_SEED} on were not tuned on. "
        '"Better" is the better of linear and boosted estimates without privacy but for one draw '
        "of noise; ratios in pooled rows are geometric means."
    )
    save(name, "Populations that bend", {**shown, "Populations": said}, lead=lead)


def cells(asked: argparse.Namespace) -> Iterator[Run]:
    """Those on the same samples next to each other."""
    names = [f"seed {seed}" for seed in range(*map(int, asked.seeds.split(":")))]
    names += [*PINNED, *STUDIES] if asked.named else []
    epsilons = (0.5, 1.0, 2.0, 4.0) if asked.more_epsilon else asked.epsilon
    for name in names:
        if asked.only and find(name).kind not in asked.only:
            continue
        for n in asked.n:
            for run in range(asked.runs):
                for epsilon in epsilons:
                    for ranges in ("tight", "generous") if asked.generous else ("declared",):
                        yield Run(name, n, epsilon, asked.delta, asked.estimand, ranges, run)


def main() -> None:
    asks = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asks.add_argument("--seeds", default="0:12", help="from:to")
    asks.add_argument("--named", action="store_true", help="populations with a name, too")
    asks.add_argument("--n", type=int, nargs="+", default=[10_000, 40_000])
    asks.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    asks.add_argument("--delta", type=float, default=0.0)
    asks.add_argument("--runs", type=int, default=12)
    asks.add_argument("--peers", type=int, help="runs of them; all by default")
    asks.add_argument("--only", nargs="+", choices=KINDS)
    asks.add_argument("--estimand", choices=EFFECTS, default="ATE")
    asks.add_argument("--workers", type=int, default=2)
    asks.add_argument("--name", default="bent", help="of the files in benchmarks/results")
    for flag in ("--more-epsilon", "--generous", "--again", "--table"):
        asks.add_argument(flag, action="store_true")
    asked = asks.parse_args()
    runs, peers = RESULTS / f"{asked.name}.csv", RESULTS / "bent_peers.csv"
    if asked.again:
        runs.unlink(missing_ok=True)
    if not asked.table:
        wanted = list(cells(asked))
        keep(runs, wanted, measure, asked.workers)
        most = asked.runs if asked.peers is None else asked.peers
        few = [cell for cell in wanted if cell.run < most and cell.ranges == "declared"]
        others = [Peer(cell.population, cell.n, cell.estimand, cell.run) for cell in few]
        keep(peers, others, without_privacy, asked.workers)
    page(asked.name, on_file(runs), on_file(peers, *Peer._fields, *Without._fields))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main()
