"""Several sites combined: how often intervals cover, what a lying one does, how long it takes."""

from __future__ import annotations

import time
from dataclasses import replace

import pandas as pd
from harness import SE_300, Part, Table, grid, mean, median, percent

import dpeffects as dpe
from dpeffects.services.sites import SiteRelease, combine
from dpeffects.services.sites.rules import RULES
from tests.sites import simulated
from tests.sites.simulated import BOUNDS, DIFF, judged, lies, released

SMOOTH = ("smooth_matching", "y ~ t | a", {"delta": 1e-5})
GLOBAL = ("global_matching", "y ~ t | a", {})
SIZES, SMALL, FIVE = (500, 2000, 8000), (400, 800, 1600), (500, 1000, 2000, 4000, 8000)
DESIGNS = {
    "diff_in_means, larger sites spend more": (SIZES, (0.3, 1.0, 2.0)),
    "diff_in_means, larger sites spend less": (SIZES, (2.0, 1.0, 0.3)),
    "diff_in_means, small sites, small budgets": (SMALL, (0.5, 0.4, 0.3)),
    "the same, binary outcome": (SMALL, (0.5, 0.4, 0.3), 0.0, DIFF, True),
    "smooth_matching, larger sites spend more": (SIZES, (0.3, 1.0, 2.0), 0.0, SMOOTH, True),
    "global_matching, larger sites spend more": (SIZES, (0.3, 1.0, 2.0), 0.0, GLOBAL),
}
MANY = {"two sites": (2000, 8000), "three sites": SIZES, "five sites": FIVE, "ten sites": FIVE * 2}
DESIGNS |= {name: (sizes, (1.0,) * len(sizes)) for name, sizes in MANY.items()}
DESIGNS |= {f"{name}, effects differ": (*DESIGNS[name], 0.05) for name in MANY}
FIRST = ("ivw", "mvagg", "all", "largest", "random")
LIARS = {f"{name} of 300": (300,) * n for name, n in (("three sites", 3), ("five sites", 5))}
LIARS |= {"twenty sites of 300": (300,) * 20, "five sites of 500 to 8,000": FIVE}


def coverage(people: int, noise: int, design: str):
    return judged(released(people, noise, *DESIGNS[design]), FIRST)


def liars(people: int, noise: int, sites: str):
    """All rules, without a liar, with effects that differ, and with each lie."""
    given = (LIARS[sites], (1.0,) * len(LIARS[sites]))
    honest = released(people, noise, *given, binary=True)
    sent = {"no liar": honest, "effects differ": released(people, noise, *given, 0.05, binary=True)}
    sent |= {name: [*honest[:-1], lie] for name, lie in lies(honest).items()}
    return [{"said": said, **row} for said, made in sent.items() for row in judged(made, RULES)]


def many(people: int, noise: int, method: str, sites: int):
    """Processor time to read and check what all sites sent, and to combine it."""
    asked = {"method": method, "epsilon": 1, "bounds": BOUNDS, "seed": 1}
    formula = "y ~ t" if method == "diff_in_means" else "y ~ t | x1"
    sent, texts = dpe.site_release(formula, simulated.records(5000), site="first", **asked), []
    for j in range(sites):
        own = simulated.scaled(sent.released, 1.0 + 1e-3 * (j + 1) / sites)
        texts.append(replace(sent, site=f"site {j}", n=5000 + j, released=own).to_json())
    start = time.process_time()
    read = [SiteRelease.from_json(text) for text in texts]
    between = time.process_time()
    combine(read, "ivw").conf_int()
    times = {"reading": between - start, "all": time.process_time() - start}
    return {"bytes": len(texts[0])} | {f"{x}, s": round(time, 2) for x, time in times.items()}


def wide(index: list[str], columns: str, **titles: str):
    """A page with a table for each number, with a column for each rule, or for what was said."""

    def page(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
        how = {"index": index, "columns": columns, "sort": False}
        made = {titles[x]: rows.pivot_table(values=x, **how).reset_index() for x in titles}
        return {title: table.rename_axis(None, axis=1) for title, table in made.items()}

    return page


PERCENT = {x: percent(x) for x in ("covered", "rejected", "named")}
COLUMNS = PERCENT | {"width": median("width"), "error": mean("error", 2), "used": mean("used")}
SHOWN = {"covered": "Coverage, per cent", "error": "Mean error", "width": "Median width"}
LYING = [{"sites": x, "runs": runs} for x, runs in zip(LIARS, (300, 300, 100, 100), strict=True)]
SENT = (("diff_in_means", 1000), ("auto", 1000), ("auto", 100_000))
TABLES = {
    "sites_coverage": Table(
        "Coverage of 95 % intervals of sites combined",
        (
            Part(
                *("", grid(design=DESIGNS), coverage, COLUMNS, 300),
                by=("rule",),
                csv="sites_coverage",
            ),
        ),
        f"The standard error of a coverage of 95 % in 300 runs is {SE_300} points. "
        'rule="random" averages over how far effects may differ, so it covers too much where they '
        "do not. Where they do, it alone is for their mean: the other rules' intervals are for a "
        "weighted mean of these sites' effects, and the coverage of 0.1 is not theirs to keep. "
        "Q is the test of equal effects, at 5 %.",
        page=wide(
            ["design"],
            "rule",
            covered="Coverage, per cent",
            width="Median width",
            used="Sites that are used",
            rejected="Q rejects, per cent",
        ),
        minutes=2,
    ),
    "sites_liars": Table(
        "One lying site of three, five and twenty",
        (Part("", LYING, liars, COLUMNS, by=("rule", "said"), csv="sites_liars"),),
        f"The standard error of a coverage of 95 % is {SE_300} points in 300 runs. "
        "Outcomes are 0 or 1, and epsilon is 1 at every site. The last site may say 0.9 with no "
        "sampling error (sure), the same with a million records (huge), something that is two and "
        "a half standard errors from the others with no sampling error (sly), or 0.9 with its own "
        "errors (plain). Where effects differ they are normal around 0.1 with a standard deviation "
        "of 0.05.",
        page=wide(["sites", "rule"], "said", named="A site is named, per cent", **SHOWN),
        minutes=1.5,
    ),
    "sites_speed": Table(
        "Combining many sites",
        (
            Part(
                *("", [{"method": x, "sites": n} for x, n in SENT], many),
                small=grid(method=["auto"], sites=[100]),
            ),
        ),
        "Seconds of processor time: to read and check what all sites sent, and with combining it, "
        "with the interval. The bar is 20 s for 100,000 releases of the default.",
        alone=True,
        minutes=1.5,
    ),
}
