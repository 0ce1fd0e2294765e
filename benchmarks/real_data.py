"""How often intervals cover where rows have something in common, are weighted, or are missing.

Data are simulated (`dpe.simulate`), or made here where nobody built the methods for them. Every
run has other data and other noise; methods and epsilons share the data. A call without the argument
that the data need stands beside each: it is there to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from harness import Cell, Part, Row, Table
from scipy.stats import t as student

import dpeffects as dpe
from dpeffects.errors import DPEffectsError
from dpeffects.inference.estimate import Unavailable
from dpeffects.inference.intervals import interval, p_value

WIDTHS = 30
"""Runs of a cell whose intervals are made to the end, for their width."""
TRIAL = {"diff_in_means", "clipped_contrast"}
"""Methods that do not adjust: they get the data of a trial."""
NAMES = ("part", "data", "size", "method", "call", "epsilon", "runs")

# --- data -----------------------------------------------------------------------------------------

Data = tuple[pd.DataFrame, dict[str, Any]]


def _simulated(name: str, **options: Any) -> Callable[[int, int, bool], Data]:
    """A simulator of the package; ``size`` is the number of rows, or of villages."""

    def draw(seed: int, size: int, randomised: bool) -> Data:
        more = {"clusters": size, **options} if name == "clustered" else options
        n = 40 * size if name == "clustered" else size
        made = dpe.simulate(name, n, seed, randomised=randomised, **more)
        return made.frame, dict(made.bounds)

    return draw


def _villages(
    sizes: Callable[[np.random.Generator, int], Any], outcome: str, treated: float = 0.5
) -> Callable[[int, int, bool], Data]:
    """Villages of other sizes and outcomes, treated as a whole; the effect is that of the truth."""

    def draw(seed: int, size: int, randomised: bool) -> Data:
        rng = np.random.default_rng(90_000 + seed)
        rows = np.maximum(sizes(rng, size), 1).astype(int)
        village = np.repeat(np.arange(size), rows)
        arm = np.zeros(size, int)
        arm[rng.permutation(size)[: max(round(treated * size), 2)]] = 1
        treatment, x = arm[village], rng.random((len(village), 3))
        shared, own = rng.normal(size=size)[village], rng.normal(size=len(village))
        both = np.sqrt(0.2) * shared + np.sqrt(0.8) * own
        if outcome == "costs":
            y, top = np.clip(np.exp(1.0 + both), 0.0, 60.0), 60.0
        elif outcome == "rare":
            risk = 0.03 * np.exp(0.6 * shared - 0.18)
            y, top = (rng.random(len(village)) < risk).astype(float), 1.0
        else:
            y, top = np.clip(5.0 + both + x[:, 0], 0.0, 10.0), 10.0
        frame = pd.DataFrame({"treatment": treatment, "outcome": y, "village": village})
        frame = frame.assign(x1=x[:, 0], x2=x[:, 1], x3=x[:, 2])
        bounds = {"treatment": [0, 1], "outcome": (0, top) if outcome != "rare" else [0, 1]}
        return frame, bounds | dict.fromkeys(("x1", "x2", "x3"), (0, 1))

    return draw


def _one_with_many(seed: int, size: int, randomised: bool) -> Data:
    """People with several rows, and one of them with 5,000 more."""
    made = dpe.simulate("repeated", size, seed, randomised=randomised)
    frame = made.frame
    more = frame.iloc[[0]].loc[np.zeros(5000, int)]
    jitter = np.random.default_rng(seed).uniform(-0.1, 0.1, 5000)
    more = more.assign(outcome=np.clip(more["outcome"] + jitter, 0.0, 1.0))
    return pd.concat([frame, more], ignore_index=True), dict(made.bounds)


def _gaps(seed: int, size: int, randomised: bool) -> Data:
    """A fifth of x1 is missing; who decided on treatment knew no more of it than is on file."""
    rng = np.random.default_rng(70_000 + seed)
    x = rng.random((size, 3))
    known = np.where(rng.random(size) < 0.2, np.nan, x[:, 0])
    seen = np.where(np.isnan(known), 0.5, known)
    logit = 0.0 if randomised else 3.0 * (seen + x[:, 1] - 1.0)
    treatment = (rng.random(size) < 1.0 / (1.0 + np.exp(-logit))).astype(int)
    y = 0.3 + 0.2 * seen + 0.1 * x[:, 1] + 0.1 * treatment + rng.uniform(-0.2, 0.2, size)
    frame = pd.DataFrame({"treatment": treatment, "outcome": y, "x1": known})
    bounds = {"treatment": [0, 1], **dict.fromkeys(("outcome", "x1", "x2", "x3"), (0, 1))}
    return frame.assign(x2=x[:, 1], x3=x[:, 2]), bounds


def _another_study(seed: int, size: int, randomised: bool) -> Data:
    """Scores of patients, a fifth of them missing; nothing was tuned on these."""
    rng = np.random.default_rng(50_000 + seed)
    age, severity = rng.normal(50, 12, size).clip(20, 80), rng.gamma(2, 1.5, size).clip(0, 10)
    income, z = rng.lognormal(0, 0.6, size).clip(0, 6), (age - 50) / 12
    logit = np.zeros(size) if randomised else 0.6 * z + 0.25 * (severity - 3)
    treatment = (rng.random(size) < 1.0 / (1.0 + np.exp(-logit))).astype(int)
    effect = 3 + 1.5 * (severity - severity.mean()) + z - z.mean()
    y = 40 - 2 * severity + 3 * z + 2 * income + effect * treatment + rng.normal(0, 6, size)
    absent = 1.0 / (1.0 + np.exp(2.0 - 0.5 * (severity - 3) + 0.6 * z - 0.8 * treatment))
    outcome = np.where(rng.random(size) < absent, np.nan, y.clip(0, 80))
    frame = pd.DataFrame({"treatment": treatment, "outcome": outcome})
    bounds = {"treatment": [0, 1], "outcome": (0, 80), "x1": (20, 80), "x2": (0, 10), "x3": (0, 6)}
    return frame.assign(x1=age, x2=severity, x3=income), bounds


def _equal(rng: np.random.Generator, size: int) -> Any:
    return rng.poisson(30, size)


def _one_to_500(rng: np.random.Generator, size: int) -> Any:
    return np.exp(rng.uniform(0.0, np.log(500.0), size))


DATA: dict[str, Callable[[int, int, bool], Data]] = {
    "villages, people treated": _simulated("clustered"),
    "villages treated": _simulated("clustered", assigned="village"),
    "people with 1 to 8 rows": _simulated("repeated"),
    "survey": _simulated("survey"),
    "records": _simulated("clustered", icc=0.0),
    "outcomes missing at random": _simulated("missing_outcomes"),
    "another study": _another_study,
    "covariate with gaps": _gaps,
    "skewed costs": _villages(_equal, "costs"),
    "rare outcome": _villages(_equal, "rare"),
    "one village in eight treated": _villages(_equal, "normal", 1 / 8),
    "villages of 1 to 500": _villages(_one_to_500, "normal"),
    "one person with 5,000 rows": _one_with_many,
}

# --- calls ----------------------------------------------------------------------------------------

VILLAGE, PERSON = {"cluster": "village"}, {"unit": "person"}
CALLS: dict[str, tuple[dict[str, Any], float]] = {
    "rows": ({}, 0.1),
    "cluster": (VILLAGE, 0.1),
    "cluster, clusters": (VILLAGE | {"clusters": 0}, 0.1),
    "unit": (PERSON, 0.1),
    "unit, max_rows=8": (PERSON | {"max_rows": 8}, 0.2 * (0.5 + 7 / 3) / 4.5),
    "all rows": ({}, 0.2 * (0.5 + 7 / 3) / 4.5),
    "weights": ({"weights": "weight"}, 0.1),
    "subset of 30 %": ({"subset": "x1 >= 0.7"}, 0.17),
    "subset of 5 %": ({"subset": "x1 >= 0.95"}, 0.195),
    "weight": ({"missing": "weight"}, 0.1),
    "complete": ({"missing": "complete"}, 0.1),
    "weight, effect 3": ({"missing": "weight"}, 3.0),
    "complete, effect 3": ({"missing": "complete"}, 3.0),
    "indicator": ({"missing": "indicator"}, 0.1),
    "rows, no effect": ({}, 0.0),
    "cluster, no effect": (VILLAGE, 0.0),
    "cluster, clusters, no effect": (VILLAGE | {"clusters": 0}, 0.0),
}
"""Arguments, and the effect that is to be covered; ``clusters`` 0 stands for how many there are."""
ADDITIVE = ("diff_in_means", "clipped_contrast", "one_step", "private_ipw")


def cell(*values: Any) -> Cell:
    return dict(zip(NAMES, values, strict=True))


def clusters() -> Iterator[Cell]:
    """Clusters, declared and not, beside the call that knows nothing of them."""
    for data in ("villages, people treated", "villages treated"):
        for size, runs in ((40, 120), (100, 100), (300, 240)):
            for method in (*ADDITIVE, "auto"):
                made = cell("clusters", data, size, method, "cluster, clusters", 4.0, runs)
                if method != "auto" or size == 100:
                    yield from (made | {"epsilon": x} for x in (1.0, 4.0))
                    yield made | {"call": "rows", "runs": 40}
                if method in ("clipped_contrast", "one_step"):
                    for epsilon in (1.0, 4.0):
                        yield made | {"call": "cluster", "epsilon": epsilon}


def units() -> Iterator[Cell]:
    """People with several rows: every person counts once, or every row."""
    for method in ADDITIVE:
        for call in ("unit", "unit, max_rows=8"):
            for epsilon in (1.0, 4.0):
                yield cell("units", "people with 1 to 8 rows", 6000, method, call, epsilon, 100)
        yield cell("units", "people with 1 to 8 rows", 6000, method, "all rows", 4.0, 40)


def weights() -> Iterator[Cell]:
    """Weights that go with the effect, and subsets."""
    for method in ADDITIVE:
        for epsilon in (1.0, 4.0):
            yield cell("weights", "survey", 4000, method, "weights", epsilon, 100)
        yield cell("weights", "survey", 4000, method, "rows", 4.0, 40)
    for call in ("subset of 30 %", "subset of 5 %"):
        for method in ADDITIVE:
            for epsilon in (1.0, 4.0):
                yield cell("subsets", "records", 300, method, call, epsilon, 80)


def missing() -> Iterator[Cell]:
    """Outcomes that are missing at random, and a covariate with gaps."""
    for method in ADDITIVE:
        made = cell("missing", "outcomes missing at random", 6000, method, "weight", 4.0, 100)
        yield from (made | {"epsilon": x} for x in (1.0, 4.0))
        yield made | {"call": "complete", "runs": 40}
        made = made | {"data": "another study", "size": 8000, "call": "weight, effect 3"}
        yield from (made | {"epsilon": x} for x in (1.0, 4.0))
        yield made | {"call": "complete, effect 3", "runs": 40}
    for method in ("one_step", "private_ipw"):
        for epsilon in (1.0, 4.0):
            yield cell("missing", "covariate with gaps", 4000, method, "indicator", epsilon, 80)


def others() -> Iterator[Cell]:
    """Populations that nobody built this for."""
    names = ("skewed costs", "rare outcome", "one village in eight treated", "villages of 1 to 500")
    for data in names:
        for method in ("clipped_contrast", "one_step"):
            made = cell("others", data, 100, method, "cluster, clusters, no effect", 4.0, 80)
            yield from (made | {"epsilon": x} for x in (1.0, 4.0))
            yield made | {"call": "cluster, no effect"}
            yield made | {"call": "rows, no effect", "runs": 40}
    for method in ("clipped_contrast", "one_step"):
        made = cell("others", "one person with 5,000 rows", 6000, method, "unit", 4.0, 80)
        yield made
        yield made | {"call": "all rows", "runs": 40}


PARTS = {f.__name__: f for f in (clusters, units, weights, missing, others)}

# --- runs -----------------------------------------------------------------------------------------


@lru_cache(maxsize=400)
def sample(data: str, size: int, seed: int, randomised: bool) -> Data:
    return DATA[data](seed, size, randomised)


def run(people: int, noise: int, **cell: Any) -> Row:
    """An interval holds the truth where the truth would not be rejected."""
    (given, truth), method, call = CALLS[cell["call"]], cell["method"], cell["call"]
    trial = method in TRIAL
    given = given | ({"clusters": cell["size"]} if "clusters" in given else {})
    given |= {"design": "randomised"} if trial else {}
    adjusted = not trial or call in ("weight", "weight, effect 3")
    formula = "outcome ~ treatment" + (" | x1 + x2 + x3" if adjusted else "")
    data, bounds = sample(cell["data"], cell["size"], people, trial)
    about = {"epsilon": cell["epsilon"], "bounds": bounds, "seed": noise, **given}
    try:
        estimate = dpe.dp_ate(formula, data, method, **about).released
    except DPEffectsError as error:
        return {"refused": 1.0, "said": str(error).partition(":")[0][:60]}
    p = p_value(replace(estimate, identification=""), truth)
    if isinstance(p, Unavailable):
        return {"refused": 1.0, "said": ""}
    low, high = interval(estimate, 0.95) if people < WIDTHS else (np.nan, np.nan)
    lines = [x for x in estimate.warning_lines if not x.startswith(("NOT ADJ", "ASSOC"))]
    return {
        "refused": 0.0,
        "cover": float(p >= 0.05),
        "half_width": (high - low) / 2.0,
        "bias": estimate.point - truth,
        "total": estimate.sampling.value + estimate.noise_variance + estimate.bias_variance,
        "warned": float(bool(lines)),
        "said": lines[0].partition(":")[0][:60] if lines else "",
    }


MEANS = ("cover", "half_width", "bias", "warned", "total")


def summary(runs: pd.DataFrame) -> Row:
    """Shares of the runs, and means over them.

    ``error`` is the standard deviation of the estimates, ``reported`` the root of the mean of their
    reported variances.
    """
    means, said = runs.reindex(columns=MEANS).mean(), runs["said"][runs["said"] != ""]
    return {
        "refused": runs["refused"].mean(),
        **{name: means[name] for name in MEANS[:3]},
        "error": runs.reindex(columns=MEANS)["bias"].std(ddof=0),
        "reported": np.sqrt(max(means["total"], 0.0)),
        "warned": means["warned"],
        "said": said.mode().iloc[0] if len(said) else "",
    }


# --- the page -------------------------------------------------------------------------------------

LEAD = """\
Nominal 95 % intervals, coverage in %; *half-width* is the mean, *error* the standard deviation of
the estimates, *reported* what the standard errors say it is (the root of their mean square);
*warnings* is the share of runs with a line of stars above the estimate. Methods that do not adjust
(`diff_in_means`, `clipped_contrast`) get a trial, the others a confounded study; covariates say who
has an outcome in both. In villages, size is their number, and there are 40 people in each on
average; elsewhere it is the number of rows.

Calls: *rows* knows nothing of clusters, weights or missing values, and is there to fail;
*cluster, clusters* declares how many there are, *cluster* has them counted privately; *unit* counts
every person once; *unit, max_rows=8* and *all rows* count every row; *complete* leaves out records
without an outcome, and is biased here; *another study* has data that nothing was tuned on. The last
table has the same without privacy: data are shared between methods and epsilons, so that chance
repeats itself. A coverage of 95 is uncertain by 1.4 points with 240 runs, by 2.4 with 80."""


def page(found: pd.DataFrame) -> dict[str, pd.DataFrame]:
    tables = {"In short": short(found)}
    for part, rows in found.groupby("part", sort=False):
        shown = rows.drop(columns=["part"]).assign(
            cover=(100 * rows["cover"]).round(1),
            refused=(100 * rows["refused"]).round(0),
            warned=(100 * rows["warned"]).round(0),
        )
        for column in ("half_width", "bias", "error", "reported"):
            shown[column] = [f"{x:.3g}" for x in shown[column]]
        heads = {"cover": "coverage", "half_width": "half-width", "warned": "warning_lines"}
        tables[part.capitalize()] = shown.rename(columns=heads).fillna("")
    tables["Differences in means without privacy, on the same data"] = peers(found)
    return tables


GROUPS = {"cluster": "village", "unit": "person"}


def peers(found: pd.DataFrame) -> pd.DataFrame:
    """Coverage of differences in means without privacy, on the same data, with the same arguments.

    What is not 95 there is chance, or what robust variances cannot do on these data.
    """
    kept = found[(found["method"] == "clipped_contrast") & ~found["call"].str.match("weight(,|$)")]
    columns, rows = ["data", "size", "call"], []
    for data, size, call in dict.fromkeys(kept[columns].itertuples(index=False, name=None)):
        if call.startswith("cluster, clusters"):
            continue
        runs = int(found[(found["data"] == data) & (found["size"] == size)]["runs"].max())
        (given, truth), held = CALLS[call], []
        for seed in range(runs):
            frame, _ = sample(data, size, seed, True)
            frame = frame.query(given["subset"]) if "subset" in given else frame
            held.append(plain(frame[frame["outcome"].notna()], given, truth))
        rows.append({**dict(zip(columns, (data, size, call), strict=True)), "runs": runs})
        rows[-1]["coverage"] = round(100 * float(np.mean(held)), 1)
    return pd.DataFrame(rows)


def plain(frame: pd.DataFrame, given: dict[str, Any], truth: float) -> bool:
    """Whether the interval of a difference in means by squares of sums holds the truth."""
    y, t = frame["outcome"].to_numpy(), frame["treatment"].to_numpy() == 1
    column = next((given[k] for k in GROUPS if k in given), None)
    group = np.arange(len(y)) if column is None else pd.factorize(frame[column])[0]
    weight = frame[given["weights"]].to_numpy() if "weights" in given else np.ones(len(y))
    if "unit" in given:
        weight = 1.0 / np.maximum(np.bincount(group)[group], given.get("max_rows", 1))
    means = [np.average(y[arm], weights=weight[arm]) for arm in (t, ~t)]
    parts = [
        weight * arm * (y - mean) / weight[arm].sum()
        for arm, mean in zip((t, ~t), means, strict=True)
    ]
    sums = np.bincount(group, parts[0] - parts[1])
    error = np.sqrt(np.sum(sums**2) * len(sums) / (len(sums) - 1.0))
    return bool(abs(means[0] - means[1] - truth) < student.ppf(0.975, len(sums) - 2) * error)


def short(found: pd.DataFrame) -> pd.DataFrame:
    """Pooled coverage by part, data and call."""
    rows = []
    for (part, data, call), cells in found.groupby(["part", "data", "call"], sort=False):
        runs, cover = cells["runs"], 100 * cells["cover"]
        rows.append(
            {
                "part": part,
                "data": data,
                "call": call,
                "cells": len(cells),
                "coverage": round(float(np.average(cover, weights=runs)), 1),
                "least": round(cover.min(), 1),
                "most": round(cover.max(), 1),
                "half-width": f"{cells['half_width'].mean():.3g}",
            }
        )
    return pd.DataFrame(rows)


CELLS = [cell for part in PARTS.values() for cell in part()]
TABLE = Table(
    "Clusters, units, weights, subsets, missing values",
    (Part("", CELLS, run, summary, runs=100, csv="real_data"),),
    lead=LEAD,
    page=page,
    minutes=7,
)
