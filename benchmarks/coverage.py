"""How often intervals cover, by design: trials, confounded studies with right and wrong models.

Populations are those of `tests/populations.py`. Every exact method is run at its defaults; in a
trial, methods that have the option are told so by ``design="randomised"``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from harness import Cell, Part, Row, Table
from scipy.stats import binom

import dpeffects as dpe
from dpeffects.errors import DPEffectsError
from dpeffects.estimators import proved
from dpeffects.inference.estimate import Estimate, Unavailable
from dpeffects.inference.intervals import interval, p_value
from tests.populations import POPULATIONS, STRATA, TRIALS, WRONG

STANDING = ("NOT ADJUSTED: an effect only where",)
"""Cautions that a method has on every result: they say what it assumes, not that it is broken."""
WIDTHS = 20
"""Runs of a cell whose intervals are made to the end, for their width."""
CHANCE = 0.01
"""A cell below 90 % may be chance where as few of its runs hold this often by chance."""
LEVELS = (0.8, 0.95, 0.99)
EPSILONS = (0.1, 0.5, 1.0, 4.0)
SLOW = ("model_folds", "sample_aggregate")
MATCHING = ("smooth_matching", "global_matching")
UNADJUSTED = ("clipped_contrast", "diff_in_means")
RUNS = {300: 120, 1000: 60, 2000: 60, 5000: 40, 20_000: 20}
FEWER = {300: 80, 2000: 40, 20_000: 16}
FEWEST = {300: 60, 2000: 24, 20_000: 8}

TRIAL = ("trial", "trial with a binary outcome", "trial with skewed costs")
CORE = (
    "three confounders",
    "ten covariates",
    "rare outcome",
    "few treated",
    "skewed costs",
    "correlated confounders",
    "binary and continuous",
    "most treated, nothing to find",
    "varying effects",
    "varying effects on few treated",
    "sines",
    "square",
)
MORE = (
    "common binary outcome",
    "patients in natural units",
    "thresholds",
    "product",
    "product, with x1:x2",
    "square, with I(x1**2)",
)
FEW = ("trial", "three confounders", "few treated", "rare outcome", "square")
NULL = tuple(f"{name}, no effect" for name in ("trial", "three confounders", "few treated"))
STRATIFIED = tuple(population.name for population in STRATA)
IN_TRIALS = {name for p in TRIALS for name in (p.name, p.null.name)}
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


def populations(method: str) -> tuple[str, ...]:
    if method in MATCHING:
        return STRATIFIED
    if method in SLOW:
        return FEW
    if method in UNADJUSTED:
        return (*(p.name for p in TRIALS), *CORE[:4])
    return (*(p.name for p in TRIALS), *CORE, *MORE) if method == "auto" else (*TRIAL, *CORE)


def cell(part: str, population: str, n: int, method: str, runs: int, **other: Any) -> Cell:
    made = {"part": part, "population": population, "n": n, "method": method, "level": "sample"}
    delta = 1e-6 if method == "smooth_matching" else 0.0
    return made | {"estimand": "ATE", "epsilon": 1.0, "delta": delta, "runs": runs} | other


def grid() -> Iterator[Cell]:
    """Every exact method on whole records."""
    for method in proved():
        quick = method in ("auto", *UNADJUSTED, *MATCHING)
        runs = RUNS if quick else FEWEST if method in SLOW else FEWER
        for name in (*populations(method), *nulls(method)):
            for n in (300, 2000, 20_000):
                for epsilon in EPSILONS if name not in NULL else EPSILONS[1::2]:
                    if n < 20_000 or name not in NULL:
                        yield cell("grid", name, n, method, runs[n], epsilon=epsilon)


def nulls(method: str) -> tuple[str, ...]:
    if method in MATCHING:
        return tuple(f"{name}, no effect" for name in STRATIFIED[:2])
    return NULL[:1] if method in UNADJUSTED else NULL[:2] if method in SLOW else NULL


def others() -> Iterator[Cell]:
    """Other levels, estimands and sizes, and a delta, on some populations."""
    for method, spec in proved().items():
        if "label" in spec.levels:
            for name in TRIAL if method in UNADJUSTED else (*TRIAL[:2], *FEW[1:]):
                for n, runs in ((300, 40), (2000, 30)):
                    for epsilon in (0.5, 4.0):
                        own = {"level": "label", "epsilon": epsilon, "delta": 0.0}
                        yield cell("others", name, n, method, runs, **own)
        if "ATT" in spec.estimands and method not in (*UNADJUSTED, *SLOW):
            for name in ("varying effects", "varying effects on few treated"):
                for estimand in ("ATT", "ATC"):
                    own = {"estimand": estimand, "epsilon": 4.0, "delta": 0.0}
                    yield cell("others", name, 2000, method, RUNS[2000], **own)
    for name in (*TRIAL[:2], *CORE[:4]):
        for epsilon in EPSILONS:
            for n, delta in ((1000, 0.0), (5000, 0.0), (2000, 1e-6)):
                runs = RUNS[1000 if n == 1000 else 5000]
                yield cell("others", name, n, "auto", runs, epsilon=epsilon, delta=delta)


def noise() -> Iterator[Cell]:
    """One sample, other noise every time."""
    for method in proved():
        names = STRATIFIED if method in MATCHING else (TRIAL[0], *CORE[:4], "binary and continuous")
        names = TRIAL if method in UNADJUSTED else FEW[:3] if method in SLOW else names
        for name in names:
            for epsilon in (0.5, 4.0):
                runs = 40 if method in SLOW else 120
                yield cell("noise", name, 2000, method, runs, epsilon=epsilon)
    yield from (x | {"part": "noise", "runs": 60} for x in groups() if x["n"] == 2000)


def groups() -> Iterator[Cell]:
    """Effects by group: every group of every run counts once."""
    for method in ("dr_learner", "r_learner"):
        for name in (TRIAL[0], "three confounders", "varying effects", CORE[9]):
            for n, runs in ((2000, 60), (20_000, 20)):
                for epsilon in (1.0, 4.0):
                    own = {"estimand": "CATE", "epsilon": epsilon}
                    yield cell("groups", name, n, method, runs, **own)


CELLS = [*grid(), *others(), *noise(), *groups()]
SMALL = list({x["method"]: x for x in grid() if x["n"] == 300 and x["epsilon"] == 4.0}.values())
"""One cell for every method."""


@lru_cache(maxsize=100)
def sample(name: str, n: int, people: int) -> pd.DataFrame:
    return POPULATIONS[name].sample(n, people)


def run(people: int, seed: int, **cell: Any) -> Row | list[Row]:
    """One row, or one for each group; a call that is refused says why."""
    method, again = cell["method"], cell["part"] == "noise"
    population = POPULATIONS[cell["population"]]
    data = sample(cell["population"], cell["n"], 0 if again else people)
    given = {"epsilon": cell["epsilon"], "bounds": population.declared, "seed": seed}
    if cell["estimand"] == "CATE":
        low, high = population.bounds["x1"]
        given |= {"release": "groups", "by": f"cut(x1, [{low}, 0, {high}])"}
        fit = dpe.dp_cate(population.formula, data, method, **given)
        caution = getattr(fit, "warnings", "")
        pairs = list(zip(fit.effects, truths(cell["population"]), strict=True))[: 1 if again else 2]
        return [of_estimate(one, caution, truth, True, again) for one, truth in pairs]
    spec, effect = proved()[method], EFFECTS[cell["estimand"]]
    if "design" in {field.name for field in fields(spec.options)}:
        given |= {"design": "randomised"} if cell["population"] in IN_TRIALS else {}
    formula = population.formula if spec.uses_covariates else "y ~ t"
    given |= {"delta": cell["delta"], "level": cell["level"]}
    try:
        fit = effect(formula, data, method, **given)
    except DPEffectsError as error:
        return {"refused": 1.0, "said": words(str(error))}
    caution = "; ".join(x for x in fit.released.warning_lines if not x.startswith(STANDING))
    truth = population.truth[cell["estimand"]]
    found = of_estimate(fit.released, caution, truth, people < WIDTHS, again)
    return found | {"assumes": assumed(fit) if people == 0 else ""}


EFFECTS = {"ATE": dpe.dp_ate, "ATT": dpe.dp_att, "ATC": dpe.dp_atc}


def words(caution: str) -> str:
    """The beginning of a caution, without the numbers of one run."""
    return caution.split("; ")[0].split(":")[0][:90]


def assumed(fit: dpe.Result) -> str:
    """What the summary says above the estimate that it assumes."""
    above = str(fit.summary()).partition("\n\n")[0]
    found = re.search(r"^Assumes +(.*?)(?=^\S|\Z)", above, re.MULTILINE | re.DOTALL)
    standing = [words(x) for x in fit.released.warning_lines if x.startswith(STANDING)]
    return "; ".join([*standing, *([" ".join(found[1].split())] if found else [])]) or "-"


def of_estimate(
    estimate: Estimate, caution: str, truth: float, width: bool, again: bool
) -> dict[str, Any]:
    """A row of one run. An interval holds the truth where the truth would not be rejected.

    Noise is that of the released value, before it is cut to what an effect can be.
    """
    p = p_value(replace(estimate, identification=""), truth)
    found = {"refused": 0.0, "said": words(caution), "warned": float(bool(caution))}
    found |= {"associated": float(estimate.associated), "absent": float(isinstance(p, Unavailable))}
    if isinstance(p, Unavailable):
        return found
    low, high = interval(estimate, 0.95) if width else (np.nan, np.nan)
    assert not width or (low <= truth <= high) == (p >= 0.05)
    rejected = float(p < 0.05 and not estimate.associated) if truth == 0.0 else np.nan
    holds = {f"cover{100 * level:g}": float(p >= 1.0 - level) for level in LEVELS}
    return found | {
        **holds,
        "half_width": (high - low) / 2,
        "rejected": rejected,
        "error": (estimate.value if again else estimate.point) - truth,
        "variance": estimate.noise_variance,
    }


@lru_cache
def truths(name: str) -> list[float]:
    """Average effects of the two groups, by a million records."""
    population = POPULATIONS[name]
    columns = population.covariates(np.random.default_rng(0), 1_000_000)
    effect = np.broadcast_to(population.effect(columns), 1_000_000)
    return [float(effect[columns["x1"] <= 0].mean()), float(effect[columns["x1"] > 0].mean())]


COLUMNS = (
    "warned",
    "associated",
    "absent",
    "cover95",
    "error",
    "variance",
    "half_width",
    "rejected",
)


def summed(runs: pd.DataFrame) -> Row:
    """Shares of the runs, and of those with an interval; means and medians over them.

    ``refused``: an error before anything was charged; ``absent``: no interval; ``warned``: with a
    caution above the estimate, most often ``said``; ``silent``: what covers at 95 % of those
    without one; ``rejected``: p below 0.05 where there is no effect; ``assumes``: what the summary
    says above the estimate.
    """
    runs = runs.reindex(columns=[*dict.fromkeys([*runs.columns, *COLUMNS, "assumes"])])
    made, there = runs[runs["refused"] == 0], runs[runs["cover95"].notna()]
    said = runs["said"][runs["said"] != ""]
    few = len(there) < 2
    shares = {x: np.nan if few else there[x].mean() for x in there if x.startswith("cover")}
    row = {
        "refused": runs["refused"].mean(),
        "absent": 1.0 if few else made["absent"].mean(),
        **shares,
        "warned": made["warned"].mean(),
        "silent": np.nan if few else there["cover95"][there["warned"] == 0].mean(),
        "associated": made["associated"].mean(),
        "rejected": there["rejected"].mean(),
        "half_width": there["half_width"].median(),
        "bias": there["error"].mean(),
        "spread": there["error"].std(),
        "noise": np.sqrt(there["variance"].median()),
        "said": said.mode().iloc[0] if len(said) else "",
        "assumes": max(runs["assumes"].dropna(), default="", key=len),
    }
    return row | {"design": design(runs.attrs | row)}


# Tables


def read(table: pd.DataFrame) -> pd.DataFrame:
    """Cells with what is derived from them: design, counted runs, and whether a miss is silent."""
    made = table.fillna({"said": "", "assumes": ""})
    made["design"] = [design(row) for row in made.to_dict("records")]
    made["counted"] = (made["runs"] * (1 - made["refused"]) * (1 - made["absent"])).fillna(0)
    made["low"] = made["cover95"] < 0.9
    held = (made["counted"] * made["cover95"]).round()
    made["chance"] = binom.cdf(held, made["counted"].round(), 0.95)
    unsaid = made["low"] & (made["warned"] <= 0.9) & (made["silent"] < 0.9)
    broken = made["assumes"].str.contains("linear|models|stratum") & (made["design"] == DESIGNS[2])
    broken |= made["assumes"].str.contains("randomised") & (made["design"] == DESIGNS[3])
    made["assumed"] = unsaid & broken
    made["perhaps"] = unsaid & ~broken & (made["chance"] > CHANCE)
    made["quiet"] = unsaid & ~broken & (made["chance"] <= CHANCE)
    made["name"] = [
        f"{row.method if row.level == 'sample' else f'{row.method}, label'}"
        for row in made.itertuples()
    ]
    return made


def pooled(table: pd.DataFrame, column: str, weight: str = "counted") -> float:
    kept = table[table[column].notna()]
    total = kept[weight].sum()
    return float((kept[column] * kept[weight]).sum() / total) if total else np.nan


def percent(value: float) -> str:
    return "" if np.isnan(value) else f"{100 * value:.1f}"


def counts(made: pd.DataFrame) -> dict[str, int]:
    """Cells, those below 90 %, and how many of them have each reason."""
    said = made["low"] & ~made["assumed"] & ~made["perhaps"] & ~made["quiet"]
    return {
        "cells": len(made),
        "below 90 %": int(made["low"].sum()),
        "warnings": int(said.sum()),
        "assumption": int(made["assumed"].sum()),
        "chance": int(made["perhaps"].sum()),
        "silent": int(made["quiet"].sum()),
    }


def in_short(made: pd.DataFrame) -> pd.DataFrame:
    """One row for each method: coverage at the three levels, by design."""
    rows = []
    for name, found in made[made["counted"] > 0].groupby("name"):
        row = {"method": f"`{name.partition(',')[0]}`{''.join(name.partition(',')[1:])}"}
        for kind in DESIGNS:
            here = found[found["design"] == kind]
            row[kind] = " / ".join(percent(pooled(here, f"cover{100 * x:g}")) for x in LEVELS)
            row[kind] = row[kind] if len(here) else "-"
        rows.append({**row, **counts(found)})
    return pd.DataFrame(rows)


def by_design(made: pd.DataFrame) -> pd.DataFrame:
    """One row for each design and method."""
    rows = []
    made = made.assign(unwarned=made["counted"] * (1 - made["warned"]))
    made = made[made["counted"] > 0].sort_values(
        ["design", "name"], key=lambda x: x.map(DESIGNS.index) if x.name == "design" else x
    )
    for (kind, name), shown in made.groupby(["design", "name"], sort=False):
        least = shown.loc[shown["cover95"].idxmin()]
        rows.append(
            {
                "design": kind,
                "method": name,
                "runs": int(shown["counted"].sum()),
                **{f"{100 * x:g} %": percent(pooled(shown, f"cover{100 * x:g}")) for x in LEVELS},
                "95 %, no caution": percent(pooled(shown, "silent", "unwarned")),
                "least cell": f"{percent(least['cover95'])} ({named(least)})",
                **counts(shown),
                "type I error": percent(pooled(shown, "rejected")),
            }
        )
    return pd.DataFrame(rows)


def named(row: pd.Series) -> str:
    estimand = "" if row["estimand"] in ("ATE", "CATE") else f", {row['estimand']}"
    return f"{row['population']}, n {row['n']:,}, eps {row['epsilon']:g}{estimand}"


def of_noise(made: pd.DataFrame) -> pd.DataFrame:
    """Reported over real standard deviation of the noise, by method."""
    rows = []
    made = made[made["spread"] > 0].assign(ratio=made["noise"] / made["spread"])
    for name, found in made.groupby("name", sort=False):
        far = found.loc[(np.log(found["ratio"])).abs().idxmax()]
        rows.append(
            {
                "method": name,
                "cells": len(found),
                "reruns": int(found["runs"].max()),
                "least": round(found["ratio"].min(), 2),
                "median": round(found["ratio"].median(), 2),
                "largest": round(found["ratio"].max(), 2),
                "farthest from 1": f"{far['ratio']:.2f} ({named(far)})",
            }
        )
    return pd.DataFrame(rows)


def misses(made: pd.DataFrame) -> pd.DataFrame:
    """Every cell below 90 %, one line for a method and a population; silent ones first."""
    rows = []
    for (name, population), low in made[made["low"]].groupby(["name", "population"]):
        worst = low.loc[low["chance"].idxmin()]
        cells = [
            f"{row.n:,} / {row.epsilon:g}{'' if row.estimand == 'ATE' else f' {row.estimand}'}: "
            f"{percent(row.cover95)}"
            for row in low.sort_values(["n", "epsilon"]).itertuples()
        ]
        said = f"{worst['said']} ({worst['warned']:.0%})" if worst["warned"] else "none"
        rows.append(
            {
                "design": worst["design"],
                "method": name,
                "population": population,
                "n / epsilon: covers, %": "; ".join(cells),
                "silent": int(low["quiet"].sum()),
                "first line": said,
                "why": reason(worst),
            }
        )
    rows.sort(key=lambda row: (-row["silent"], DESIGNS.index(row["design"]), row["method"]))
    return pd.DataFrame(rows)


def reason(row: pd.Series) -> str:
    """Why a cell is below 90 %, in words."""
    off = f"off by {row['bias']:.2g} on average, {abs(row['bias']) / row['spread']:.1f} sd"
    if row["chance"] > CHANCE:
        return f"chance would give as few in {row['chance']:.0%} of such cells"
    if row["design"] == DESIGNS[3]:
        return f"nothing, or hardly anything, is adjusted for: {off}"
    if row["population"] in CURVES:
        return f"the score is no line in the terms of the formula: {off}"
    if abs(row["bias"]) > 0.5 * row["spread"]:
        return off
    return f"too short: half-width {row['half_width']:.2g}, 1.96 sd {1.96 * row['spread']:.2g}"


def page(cells: pd.DataFrame) -> dict[str, pd.DataFrame]:
    made = read(cells)
    average = made[made["part"].isin(["grid", "others"])]
    return {
        "In short": in_short(average),
        "By design": by_design(average),
        "Effects by group": by_design(made[made["part"] == "groups"]),
        "Reported over real standard deviation of the noise": of_noise(
            made[made["part"] == "noise"]
        ),
        "Cells below 90 %": misses(made[made["part"] != "noise"]),
    }


def into_guide(tables: dict[str, pd.DataFrame], cells: pd.DataFrame) -> None:
    """Put the short table between its marks in the guide."""
    path = Path(__file__).parents[1] / "docs" / "guide" / "accuracy.md"
    before, _, rest = path.read_text(encoding="utf-8").partition("<!-- coverage -->\n")
    short, kept = tables["In short"], ["method", *DESIGNS, "cells", "below 90 %", "silent"]
    table = short[~short["method"].str.contains(",")][kept].to_markdown(index=False)
    after = rest.partition("<!-- end -->")[2]
    made = f"{before}<!-- coverage -->\n{table}\n<!-- end -->{after}"
    path.write_text(made, encoding="utf-8")


LEAD = """\
A cell is a method on a population of `tests/populations.py`, with n records and an epsilon.
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

A cell below 90 % is counted once, by what says so: a *caution*, in the lines with stars above the
estimate; an *assumption*, where the line "Assumes" above the estimate names what does not hold in
this design; *chance*, where as few hold with probability above 1 % if 95 % do; *silent*, if none
of it is so. Methods and epsilons share samples, so that chance repeats itself. "No caution" are
runs without a line of stars. "Type I error" is the share of p-values below 0.05 where there is no
effect; an association has none.

Coverage above the nominal has two reasons. Where the released variance carries noise as large as
itself, an interval that holds for every variance the release leaves plausible is too wide for the
smallest (`dpeffects.inference.intervals.interval`). And methods that adjust allow for confounding
that noise in their models may hide.

Noise is that of the released value on one sample, before it is cut to what an effect can be; the
reported one is the median over reruns. Reruns also deal the records to other blocks and folds, and
flip other treatments in `private_psm`: that is in the sampling error of these methods, so their
reported noise is less than what reruns show. That of models depends on how strong confounding is,
which is hardly known where models are mostly noise."""


TABLE = Table(
    "How often intervals cover",
    (Part("", CELLS, run, summed, runs=60, small=SMALL, csv="coverage"),),
    lead=LEAD,
    page=page,
    after=into_guide,
    minutes=16,
)
