"""How often intervals cover, by design: trials, confounded studies with right and wrong models.

Populations are those of `tests/populations.py`. Every exact method is run at its defaults; in a
trial, methods that have the option are told so by ``design="randomised"``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from averages import commonest, compared, geometric, into_guide, over_peer
from harness import Cell, Part, Row, Table
from scipy.stats import binom

from dpeffects.estimators import proved
from tests.populations import POPULATIONS, STRATA, TRIALS, WRONG, Population, drawn

CHANCE = 0.01
"""A cell below 90 % may be chance where as few of its runs hold this often by chance."""
LEVELS, PEERS = (0.8, 0.95, 0.99), 2
"""Levels of intervals, and runs of a cell that are also made without privacy."""
SLOW = ("model_folds", "sample_aggregate")
MATCHING = ("smooth_matching", "global_matching")
UNADJUSTED = ("clipped_contrast", "diff_in_means")
SIZES = ((300, 1.0), (300, 4.0), (2000, 0.5), (2000, 1.0), (2000, 4.0), (20_000, 0.1))
SIZES += ((20_000, 1.0),)
"""Records and epsilon."""
TRIAL = ("trial", "trial with a binary outcome", "trial with skewed costs")
RIGHT = ("three confounders", "ten covariates", "rare outcome", "few treated", "skewed costs")
OTHER = ("binary and continuous", "varying effects", "sines", "square", "thresholds", "product")
NULL = ("trial, no effect", "three confounders, no effect")
STRATIFIED = tuple(population.name for population in STRATA)
STUDIES, RANDOMISED = "studies drawn at random", "trials drawn at random"
"""Names that stand for another population in every run."""
IN_TRIALS = {name for p in TRIALS for name in (p.name, p.null.name)} | {RANDOMISED}
CURVES = {name for p in (*WRONG[:8:2], STRATA[-1]) for name in (p.name, p.null.name)}
DESIGNS = (
    "trial",
    "confounded, models right",
    "confounded, models wrong",
    "confounded, not adjusted",
)


def design(row: Row) -> str:
    """What kind of study a cell is: one of `DESIGNS`."""
    if row["population"] in IN_TRIALS:
        return DESIGNS[0]
    hardly = row["warned"] > 0.5 and row["said"].startswith(("Weak adjustment", "NOT ADJUSTED"))
    if hardly or row["associated"] > 0.5 or row["method"] in UNADJUSTED:
        return DESIGNS[3]
    return DESIGNS[2 if row["population"] in CURVES else 1]


def cell(part: str, population: str, n: int, method: str, runs: int, **other: Any) -> Cell:
    made = {"part": part, "population": population, "n": n, "method": method, "level": "sample"}
    delta = 1e-6 if method == "smooth_matching" else 0.0
    return made | {"estimand": "ATE", "epsilon": 1.0, "delta": delta, "runs": runs} | other


def populations(method: str) -> tuple[str, ...]:
    if method in MATCHING:
        return (*STRATIFIED, f"{STRATIFIED[0]}, no effect")
    if method in SLOW:
        return (*TRIAL[:1], *RIGHT[:1], "square")
    if method in UNADJUSTED:
        return (*TRIAL, *RIGHT[:1], *NULL[:1])
    more = (*OTHER[4:], STUDIES, RANDOMISED) if method == "auto" else ()
    return (*TRIAL, *RIGHT, *OTHER[:4], *NULL, *more)


def cells() -> Iterator[Cell]:
    """Whole records; the other level and estimands; a delta."""
    for method, spec in proved().items():
        quick = method in (*UNADJUSTED, *MATCHING)
        sizes, runs = SIZES[: 5 if method in SLOW else 7], 60 if quick or method in SLOW else 20
        for name in populations(method):
            yield from (cell("grid", name, n, method, runs, epsilon=e) for n, e in sizes)
        if "label" in spec.levels:
            for name in TRIAL[:2] if method in UNADJUSTED else (*TRIAL[:2], *RIGHT[:1], "square"):
                for n, epsilon in ((300, 4.0), (2000, 0.5)):
                    own = {"level": "label", "epsilon": epsilon, "delta": 0.0}
                    yield cell("others", name, n, method, 40, **own)
        if "ATT" in spec.estimands and method not in (*UNADJUSTED, *SLOW):
            for estimand in ("ATT", "ATC"):
                own = {"estimand": estimand, "epsilon": 4.0, "delta": 0.0}
                yield cell("others", "varying effects", 2000, method, 40, **own)
    for name in (TRIAL[0], *RIGHT[:2]):
        yield cell("others", name, 2000, "auto", 40, delta=1e-6)


@lru_cache(maxsize=100)
def sample(name: str, n: int, people: int) -> tuple[Population, pd.DataFrame]:
    made = name in (STUDIES, RANDOMISED)
    population = drawn(people, name == RANDOMISED) if made else POPULATIONS[name]
    return population, population.sample(n, people)


def run(people: int, seed: int, **cell: Any) -> Row:
    """One call on one sample."""
    name, method, estimand = cell["population"], cell["method"], cell["estimand"]
    population, data = sample(name, cell["n"], people)
    spec, truth = proved()[method], population.truth[estimand]
    given = {x: cell[x] for x in ("epsilon", "delta", "level")} | {"bounds": population.declared}
    if name in IN_TRIALS and "design" in {field.name for field in fields(spec.options)}:
        given |= {"design": "randomised"}
    formula = population.formula if spec.uses_covariates else "y ~ t"
    given |= {"levels": LEVELS, "peer": people < PEERS}
    found = compared(formula, data, method, truth, estimand, seed=seed, **given)
    if truth == 0.0 and "cover95" in found:
        found["rejected"] = float(not found["cover95"] and not found["associated"])
    return found


COLUMNS = ("warned", "associated", "absent", "cover95", "error", "half_width")


def summed(runs: pd.DataFrame) -> Row:
    """Shares of the runs, and of those with an interval; means and medians over them.

    ``refused``: an error before anything was charged; ``absent``: no interval; ``warned``: with a
    warning above the estimate, most often ``said``; ``silent``: what covers at 95 % of those
    without one; ``rejected``: p below 0.05 where there is no effect; ``width``: the half-width over
    that without privacy; ``assumes``: what the summary says above the estimate.
    """
    runs = runs.reindex(columns=[*dict.fromkeys([*runs, *COLUMNS, "rejected", "assumes"])])
    made, there = runs[runs["refused"] == 0], runs[runs["cover95"].notna()]
    row = {
        "refused": runs["refused"].mean(),
        "absent": made["absent"].mean() if len(there) else 1.0,
        **{x: there[x].mean() for x in there if x.startswith("cover")},
        "warned": made["warned"].mean(),
        "silent": there["cover95"][there["warned"] == 0].mean(),
        "associated": made["associated"].mean(),
        "rejected": there["rejected"].mean(),
        "half_width": there["half_width"].median(),
        "width": over_peer(there),
        "bias": there["error"].mean(),
        "spread": there["error"].std(),
        "said": commonest(runs["said"]),
        "assumes": max(runs["assumes"].dropna(), default="", key=len),
    }
    return row | {"design": design(runs.attrs | row)}


# Tables

WHY = ("warning", "assumption", "chance", "silent")
"""What says that a cell covers too rarely."""


def read(table: pd.DataFrame) -> pd.DataFrame:
    """Cells with what is derived from them: counted runs, and why a cell is below 90 %."""
    made = table.fillna({"said": "", "assumes": ""})
    made["counted"] = (made["runs"] * (1 - made["refused"]) * (1 - made["absent"])).fillna(0)
    held = (made["counted"] * made["cover95"]).round()
    made["chance"] = binom.cdf(held, made["counted"].round(), 0.95)
    broken = made["assumes"].str.contains("linear|models|stratum") & (made["design"] == DESIGNS[2])
    broken |= made["assumes"].str.contains("randomised") & (made["design"] == DESIGNS[3])
    told = (made["warned"] > 0.9) | (made["silent"] >= 0.9)
    why = np.select([told, broken, made["chance"] > CHANCE], WHY[:3], WHY[3])
    made["why"] = np.where(made["cover95"] < 0.9, why, "")
    made["method"] += np.where(made["level"] == "label", ", label", "")
    return made


def pooled(table: pd.DataFrame, column: str) -> float:
    kept = table[table[column].notna() & (table["counted"] > 0)]
    return float(np.average(kept[column], weights=kept["counted"])) if len(kept) else np.nan


def percent(value: float) -> str:
    return "" if np.isnan(value) else f"{100 * value:.1f}"


def in_short(made: pd.DataFrame) -> pd.DataFrame:
    """One row for each method: coverage by design, cells below 90 % and what says so."""
    rows = []
    for name, found in made[made["counted"] > 0].groupby("method"):
        row = {"method": f"`{name.partition(',')[0]}`{''.join(name.partition(',')[1:])}"}
        for kind in DESIGNS:
            here = found[found["design"] == kind]
            row[kind] = " / ".join(percent(pooled(here, f"cover{100 * x:g}")) for x in LEVELS)
            row[kind] = row[kind] if len(here) else "-"
        row |= {"cells": len(found), "below 90 %": int((found["why"] != "").sum())}
        rows.append(row | {why: int((found["why"] == why).sum()) for why in WHY})
    return pd.DataFrame(rows)


def by(made: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """One row for each design and others of its columns."""
    rows = []
    made = made[made["counted"] > 0]
    for key, shown in made.groupby(["design", *columns], sort=False):
        least = shown.loc[shown["cover95"].idxmin()]
        said = f"{least['population']}, n {least['n']:,}, eps {least['epsilon']:g}"
        rows.append(
            {
                **dict(zip(["design", *columns], key, strict=True)),
                "runs": int(shown["counted"].sum()),
                **{f"{100 * x:g} %": percent(pooled(shown, f"cover{100 * x:g}")) for x in LEVELS},
                "width over that without privacy": round(geometric(shown["width"]), 2),
                "least cell": f"{percent(least['cover95'])} ({said})",
                "type I error": percent(pooled(shown, "rejected")),
            }
        )
    made = pd.DataFrame(rows)
    return made.sort_values("design", key=lambda x: x.map(DESIGNS.index), kind="stable")


def misses(made: pd.DataFrame) -> pd.DataFrame:
    """Every cell below 90 %, silent ones first."""
    low = made[made["why"] != ""].copy()
    low["off"] = (low["bias"].abs() / low["spread"]).round(1)
    low["covers"] = low["cover95"].map(percent)
    low = low.sort_values("why", key=lambda x: x.map(WHY[::-1].index), kind="stable")
    heads = {"covers": "covers, %", "off": "bias over sd", "said": "first line"}
    shown = ["design", "method", "population", "n", "epsilon", "estimand", "covers", "why", "off"]
    return low[[*shown, "said"]].rename(columns=heads)


def page(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    made = read(table)
    default = made[made["method"] == "auto"].sort_values(["n", "epsilon"])
    return {
        "In short": in_short(made),
        "By design": by(made, "method"),
        "The default by records and epsilon": by(default, "n", "epsilon"),
        "Cells below 90 %": misses(made),
    }


def after(tables: dict[str, pd.DataFrame], table: pd.DataFrame) -> None:
    """Put the short table into the guide."""
    short, kept = tables["In short"], ["method", *DESIGNS, "cells", "below 90 %", "silent"]
    shown = short[~short["method"].str.contains(",")][kept]
    into_guide("coverage", shown.to_markdown(index=False))


LEAD = """\
A cell is a method on a population of `tests/populations.py`, with n records and an epsilon. Those
with a name were seen while the methods were written; those "drawn at random" were not, and are
others in every run. Methods that fit models in blocks have at most 2,000 records here.
Tables have shares in %: of nominal 80, 95 and 99 % intervals that hold the true effect, pooled
over the runs of all cells. Methods run at their defaults; in trials those that have the option
are told so by `design="randomised"`. The designs:

- **trial**: treatment by a coin; covariates predict the outcome, or nothing;
- **confounded, models right**: log odds of treatment and outcomes are linear in the terms of the
  formula; effects may vary;
- **confounded, models wrong**: treatment and outcome follow the same sine, step, product or
  square where the formula has lines, or strata are too coarse;
- **confounded, not adjusted**: the method compares the arms, or most runs say that they
  could hardly adjust.

A cell below 90 % is counted once, by what says so: a *warning*, in the lines with stars above the
estimate; an *assumption*, where the line "Assumes" above the estimate names what does not hold in
this design; *chance*, where as few hold with probability above 1 % if 95 % do; *silent*, if none
of it is so. Methods and epsilons share samples, so that chance repeats itself. "Type I error" is
the share of intervals without the value 0 where there is no effect; an association has none.
Widths are half-widths of 95 % intervals over those of the same call without privacy
(`dpe.reference`), geometric means.

Coverage above the nominal has two reasons. Where the released variance carries noise as large as
itself, an interval that holds for every variance the release leaves plausible is too wide for the
smallest (`dpeffects.inference.intervals.interval`). And methods that adjust allow for confounding
that noise in their models may hide."""
CELLS = [*cells()]
SMALL = [*{x["method"]: x for x in CELLS if x["n"] == 300 and x["part"] == "grid"}.values()]
TABLE = Table(
    "How often intervals cover",
    (Part("", CELLS, run, summed, runs=20, small=SMALL, csv="coverage"),),
    lead=LEAD,
    page=page,
    after=after,
    minutes=15,
)
