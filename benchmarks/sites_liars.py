"""What one lying site does to a combination of three, five or twenty, and what honesty costs.

Sites have a 0/1 outcome and a true effect of 0.1; noise is seeded. The last site may lie: it says
0.9 with no sampling error ("sure"), the same with a million records ("huge"), something that is
two and a half standard errors from the others with no sampling error ("sly"), or 0.9 with its own
errors ("plain"). The worst of the four is shown for each rule: the one with the least coverage.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from harness import Part, Table

import dpeffects as dpe
from dpeffects.inference.estimate import SamplingVariance
from dpeffects.services.sites import combine
from dpeffects.services.sites.rules import RULES

EFFECT, BOUNDS = 0.1, {"y": (0, 1)}
UNEQUAL = (500, 1000, 2000, 4000, 8000)
SIZES = {
    "three sites of 300": (300,) * 3,
    "five sites of 300": (300,) * 5,
    "twenty sites of 300": (300,) * 20,
    "five sites of 500 to 8,000": UNEQUAL,
}
NONE = SamplingVariance(0.0, 0.0, 0.0)


def release(n: int, people: int, noise: int, j: int, shift: float = 0.0):
    """One site's release."""
    rng, t = np.random.default_rng([people, j]), np.arange(n) % 2
    data = pd.DataFrame({"t": t, "y": (rng.random(n) < 0.3 + (EFFECT + shift) * t).astype(float)})
    asked = {"method": "diff_in_means", "epsilon": 1, "bounds": BOUNDS, "seed": noise + j}
    return dpe.site_release("y ~ t", data, site=f"site {j}", **asked)


def lies(sites):
    """The last site's release, made to say four other things."""
    *others, last = sites
    mean = combine(others, "ivw")
    own = last.released

    def says(value, **more):
        low = min(own.means.control, 1.0 - value)
        means = replace(own.means, treated=low + value, control=low)
        return replace(own, value=value, means=means, **more)

    return {
        "sure": replace(last, released=says(0.9, sampling=NONE)),
        "huge": replace(last, n=10**6, released=says(0.9, sampling=NONE)),
        "sly": replace(last, released=says(mean.estimate + 2.5 * mean.std_error, sampling=NONE)),
        "plain": replace(last, released=says(0.9)),
    }


def run(people: int, noise: int, sites: str):
    """All rules, without a liar, with effects that differ, and with each lie."""
    sizes, rows = SIZES[sites], []
    shifts = np.random.default_rng([people, 7]).normal(0.0, 0.05, len(sizes))
    honest = [release(n, people, noise, j) for j, n in enumerate(sizes)]
    given = {"no liar": honest}
    given["effects differ"] = [release(n, people, noise, j, shifts[j]) for j, n in enumerate(sizes)]
    given |= {name: [*honest[:-1], lie] for name, lie in lies(honest).items()}
    for said, sent in given.items():
        for rule in RULES:
            fit = combine(sent, rule)
            low, high = fit.conf_int()
            found = {"covered": low <= EFFECT <= high, "error": abs(fit.estimate - EFFECT)}
            found |= {"width": high - low, "named": any("site" in words for words in fit.named)}
            rows.append({"rule": rule, "said": said} | found)
    return rows


def page(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    honest, lied = [], []
    for (name, rule), own in rows.groupby(["sites", "rule"], sort=False):
        by = own.set_index("said")
        none, differ = by.loc["no liar"], by.loc["effects differ"]
        about = {"sites": name, "rule": rule}
        honest.append(
            about
            | {
                "coverage, %": round(100 * none["covered"], 1),
                "mean error": f"{none['error']:.3f}",
                "mean width": f"{none['width']:.3f}",
                "a site is named, %": round(100 * none["named"], 1),
                "named where effects differ, %": round(100 * differ["named"], 1),
            }
        )
        told = by.drop(["no liar", "effects differ"])
        worst = told.loc[told["covered"].idxmin()]
        lied.append(
            about
            | {
                "least coverage, %": round(100 * worst["covered"], 1),
                "by the lie": worst.name,
                "largest mean error": f"{told['error'].max():.3f}",
                "named: sure, huge, plain, %": round(100 * told.drop("sly")["named"].min(), 1),
                "named: sly, %": round(100 * told.loc["sly", "named"], 1),
            }
        )
    return {"Nobody lies": pd.DataFrame(honest), "One site lies": pd.DataFrame(lied)}


TABLE = Table(
    "One lying site of three, five and twenty",
    (
        Part(
            "",
            [{"sites": name} for name in SIZES],
            run,
            runs=300,
            by=("rule", "said"),
            csv="sites_liars",
        ),
    ),
    "The standard error of a coverage of 95 % is 1.3 points in 300 runs and 2.8 in 60. "
    "Epsilon is 1 at every site. Where effects differ they are normal around 0.1 with a "
    "standard deviation of 0.05.",
    page=page,
    minutes=3,
)
