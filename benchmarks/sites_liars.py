"""What one lying site does to a combination of three, five or twenty, and what honesty costs.

    python benchmarks/sites_liars.py            # 300 runs of what is not on file yet
    python benchmarks/sites_liars.py 100        # so many runs

Sites have a 0/1 outcome and a true effect of 0.1; noise is seeded. The last site may lie: it says
0.9 with no sampling error ("sure"), the same with a million records ("huge"), something that is
two and a half standard errors from the others with no sampling error ("sly"), or 0.9 with its own
errors ("plain"). The worst of the four is shown for each rule: the one with the least coverage.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
from report import RESULTS, save

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


def release(n: int, seed: int, j: int, shift: float = 0.0):
    """One site's release."""
    rng, t = np.random.default_rng([seed, j]), np.arange(n) % 2
    data = pd.DataFrame({"t": t, "y": (rng.random(n) < 0.3 + (EFFECT + shift) * t).astype(float)})
    asked = {"method": "diff_in_means", "epsilon": 1, "bounds": BOUNDS, "seed": 100 * seed + j}
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


def row(fit) -> dict[str, float]:
    low, high = fit.conf_int()
    return {
        "covered": low <= EFFECT <= high,
        "error": abs(fit.estimate - EFFECT),
        "width": high - low,
        "named": any("site" in words for words in fit.named),
    }


def measured(sizes, runs: int) -> pd.DataFrame:
    """All rules, without a liar, with effects that differ, and with each lie."""
    rows = []
    for run in range(runs):
        shifts = np.random.default_rng([run, 7]).normal(0.0, 0.05, len(sizes))
        honest = [release(n, run, j) for j, n in enumerate(sizes)]
        given = {"no liar": honest}
        given["effects differ"] = [release(n, run, j, shifts[j]) for j, n in enumerate(sizes)]
        given |= {name: [*honest[:-1], lie] for name, lie in lies(honest).items()}
        for said, sent in given.items():
            rows += [{"rule": rule, "said": said} | row(combine(sent, rule)) for rule in RULES]
    return pd.DataFrame(rows).groupby(["rule", "said"], sort=False).mean().reset_index()


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    path = RESULTS / "sites_liars.csv"
    known = set(pd.read_csv(path)["sites"]) if path.exists() else set()
    for name, sizes in SIZES.items():
        if name not in known:
            found = measured(sizes, runs).assign(sites=name, runs=runs)
            found.to_csv(path, mode="a", header=not path.exists(), index=False)
    honest, lied = [], []
    order = {name: i for i, name in enumerate(SIZES)}
    everything = pd.read_csv(path).sort_values("sites", key=lambda x: x.map(order), kind="stable")
    for (name, rule), own in everything.groupby(["sites", "rule"], sort=False):
        by = own.set_index("said")
        none, differ = by.loc["no liar"], by.loc["effects differ"]
        about = {"sites": name, "rule": rule, "runs": none["runs"]}
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
    notes = (
        "The standard error of a coverage of 95 % is 1.3 points in 300 runs and 2.8 in 60. "
        "Epsilon is 1 at every site. Where effects differ they are normal around 0.1 with a "
        "standard deviation of 0.05."
    )
    tables = {"Nobody lies": pd.DataFrame(honest), "One site lies": pd.DataFrame(lied)}
    save("sites_liars", "One lying site of three, five and twenty", tables, notes)


if __name__ == "__main__":
    main()
