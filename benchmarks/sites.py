"""Several sites combined: how often intervals cover, what a lying one does, how long it takes.

Sites have a true effect of 0.1, or effects that are normal around it. The same generator makes the
records of all: an outcome that is binary or a number, and a treatment by chance or by strata.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from harness import Part, Table, grid, mean, median, percent, standard_error
from scipy.stats import norm

import dpeffects as dpe
from dpeffects.inference.estimate import Estimate, SamplingVariance
from dpeffects.services.sites import SiteRelease, combine
from dpeffects.services.sites.error_distribution import SiteErrors, WeightedSumDistribution
from dpeffects.services.sites.rules import RULES, inflation_ivw, inflation_mvagg, ivw, mvagg

EFFECT = 0.1
BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (0, 1), "a": [0, 1], "b": [0, 1]}
DIFF = ("diff_in_means", "y ~ t", {})
SMOOTH = ("smooth_matching", "y ~ t | a", {"delta": 1e-5})
GLOBAL = ("global_matching", "y ~ t | a", {})


def records(n: int, effect: float, binary: bool, strata: bool, seed: list[int]) -> pd.DataFrame:
    """Records of one site, whose treatment depends on ``a`` in strata."""
    rng = np.random.default_rng([*seed, n, binary])
    x, (a, b) = rng.random((n, 2)), rng.integers(0, 2, (2, n))
    t = rng.random(n) < 1 / (1 + np.exp(0.2 - 0.6 * strata * (a - 0.5)))
    y = 0.2 + 0.15 * x[:, 0] + 0.1 * x[:, 1] + 0.1 * a + 0.05 * b + effect * t
    y = rng.random(n) < y if binary else (y + 0.3 * (rng.random(n) - 0.5)).clip(0, 1)
    frame = pd.DataFrame({"y": np.asarray(y, float), "t": t, "x1": x[:, 0], "x2": x[:, 1]})
    return frame.assign(a=a, b=b)


def released(people, noise, sizes, budgets, spread=0.0, how=DIFF, binary=False):
    """What sites send."""
    (method, formula, options), sent = how, []
    effects = EFFECT + np.random.default_rng([people, 7]).normal(0.0, spread, len(sizes))
    for j, (n, epsilon, effect) in enumerate(zip(sizes, budgets, effects, strict=True)):
        data = records(n, effect, binary, "|" in formula, [people, j])
        asked = {"epsilon": epsilon, "bounds": BOUNDS, "seed": noise + j, **options}
        sent.append(dpe.site_release(formula, data, site=f"site {j}", method=method, **asked))
    return sent


def judged(sites, rules):
    """What each rule makes of releases."""
    rows = []
    for rule in rules:
        fit = combine(sites, rule)
        low, high = fit.conf_int()
        row = {"rule": rule, "covered": low <= EFFECT <= high, "width": high - low}
        row |= {"error": abs(fit.estimate - EFFECT), "used": len(fit.used)}
        row |= {"rejected": fit.heterogeneity.p_value < 0.05}
        rows.append(row | {"named": any("site" in words for words in fit.named)})
    return rows


# --- coverage

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
DESIGNS |= {f"{name}, effects differ little": (*DESIGNS[name], 0.01) for name in [*MANY][:2]}
FIRST = ("ivw", "mvagg", "all", "largest", "random")


def coverage(people: int, noise: int, design: str):
    return judged(released(people, noise, *DESIGNS[design]), FIRST)


UNEVEN, GOOD = (np.full(10, 1000.0), 2.0 ** np.arange(10)), (np.array(SIZES, float), np.ones(3))
EVEN = {
    "uneven": UNEVEN,
    "small ones good": GOOD,
    "thirty equal": (np.full(30, 1000.0), np.ones(30)),
}
CHOSEN = {"mvagg": (mvagg, inflation_mvagg), "ivw": (ivw, inflation_ivw)}


def allowance(people: int, noise: int, rule: str, sites: str, relative: float):
    """Coverage without and with the allowance for chosen weights: exact, errors being normal."""
    (weigh, allowed), (n, variance) = CHOSEN[rule], EVEN[sites]
    scale = relative * variance
    noisy = variance + scale * np.random.default_rng(noise).laplace(size=n.size)
    rows = zip(noisy, scale, 20 * variance, strict=True)
    errors = SiteErrors.of([Estimate(0.0, SamplingVariance(*row)) for row in rows])
    weights = weigh(n, errors.variance)
    found = {"without": np.ones_like(n), "with": allowed(n, errors, weights)}
    for name, factor in found.items():
        half = WeightedSumDistribution(errors, weights, factor).upper_point(0.025)
        found[name] = 1 - 2 * norm.sf(half / np.sqrt(weights**2 @ variance))
    return found


def coverage_page(found: pd.DataFrame, even: pd.DataFrame) -> dict[str, pd.DataFrame]:
    def by_rule(values: pd.Series) -> pd.DataFrame:
        wide = found.assign(shown=values).pivot(index="design", columns="rule", values="shown")
        return wide.loc[found["design"].unique(), list(FIRST)]

    wide, test = by_rule((100 * found["covered"]).round(1)), found[found["rule"] == "mvagg"]
    wide["sites used by mvagg"] = test["used"].round(2).to_numpy()
    wide["Q rejects at 5 %"] = (100 * test["rejected"]).round(1).to_numpy()
    return {
        "Coverage, per cent": wide.reset_index(),
        "Median width": by_rule(found["width"]).reset_index(),
        "Without and with the allowance for chosen weights": even,
    }


# --- one that lies


def lies(sites: list[SiteRelease]) -> dict[str, SiteRelease]:
    """The last site's release, made to say four other things."""
    *others, last = sites
    mean, own, none = combine(others, "ivw"), last.released, SamplingVariance(0.0, 0.0, 0.0)

    def says(value, **more):
        low = min(own.means.control, 1.0 - value)
        means = replace(own.means, treated=low + value, control=low)
        return replace(last, released=replace(own, value=value, means=means, **more))

    sly = says(mean.estimate + 2.5 * mean.std_error, sampling=none)
    sure = says(0.9, sampling=none)
    return {"sure": sure, "huge": replace(sure, n=10**6), "sly": sly, "plain": says(0.9)}


LIARS = {f"{name} of 300": (300,) * n for name, n in (("three sites", 3), ("five sites", 5))}
LIARS |= {"twenty sites of 300": (300,) * 20, "five sites of 500 to 8,000": FIVE}


def liars(people: int, noise: int, sites: str):
    """All rules, without a liar, with effects that differ, and with each lie."""
    given = (LIARS[sites], (1.0,) * len(LIARS[sites]))
    honest = released(people, noise, *given, binary=True)
    sent = {"no liar": honest, "effects differ": released(people, noise, *given, 0.05, binary=True)}
    sent |= {name: [*honest[:-1], lie] for name, lie in lies(honest).items()}
    return [{"said": said, **row} for said, made in sent.items() for row in judged(made, RULES)]


def liars_page(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    honest, lied = [], []
    for (name, rule), own in rows.groupby(["sites", "rule"], sort=False):
        by, about = own.set_index("said"), {"sites": name, "rule": rule}
        told = by.drop(["no liar", "effects differ"])
        worst, named = told.loc[told["covered"].idxmin()], 100 * by["named"].round(3)
        none = by.loc["no liar"]
        row = {"coverage, %": round(100 * none["covered"], 1), "mean error": f"{none['error']:.3f}"}
        row |= {"mean width": f"{none['width']:.3f}", "a site is named, %": named["no liar"]}
        honest.append(about | row | {"named where effects differ, %": named["effects differ"]})
        row = {"least coverage, %": round(100 * worst["covered"], 1), "by the lie": worst.name}
        row |= {"largest mean error": f"{told['error'].max():.3f}"}
        row |= {"named: sure, huge, plain, %": named[["sure", "huge", "plain"]].min()}
        lied.append(about | row | {"named: sly, %": named["sly"]})
    return {"Nobody lies": pd.DataFrame(honest), "One site lies": pd.DataFrame(lied)}


# --- many


def scaled(value, times: float):
    """All numbers of a release a little larger, so that no two sites send the same."""
    if is_dataclass(value):
        own = {x.name: scaled(getattr(value, x.name), times) for x in fields(value) if x.init}
        return replace(value, **own)
    if isinstance(value, tuple):
        return tuple(scaled(x, times) for x in value)
    return value * times if isinstance(value, float) else value


def many(people: int, noise: int, method: str, sites: int):
    """Seconds to read and check the files of all sites, and to combine them."""
    data = records(5000, EFFECT, False, False, [0])
    formula = "y ~ t" if method == "diff_in_means" else "y ~ t | x1"
    asked = {"method": method, "epsilon": 1, "bounds": BOUNDS, "seed": 1}
    sent = dpe.site_release(formula, data, site="first", **asked)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{j}.json" for j in range(sites)]
        for j, path in enumerate(paths):
            own = scaled(sent.released, 1.0 + 1e-3 * (j + 1) / sites)
            path.write_text(replace(sent, site=f"site {j}", n=5000 + j, released=own).to_json())
        times = [time.process_time()]
        read = [SiteRelease.from_json(path.read_text()) for path in paths]
        times.append(time.process_time())
        for rule in ("ivw", "random"):
            combine(read, rule).conf_int()
            times.append(time.process_time())
        combine(paths, "ivw").conf_int()
        times.append(time.process_time())
    names = ("reading", "combining, ivw", "combining, random", "files, in all")
    found = dict(zip(names, np.diff(times).round(3), strict=True))
    return {"bytes": len(sent.to_json())} | found


COLUMNS = {"covered": mean("covered", 6), "width": median("width"), "used": mean("used", 6)}
COLUMNS |= {"rejected": mean("rejected", 6)}
EVEN_CELLS = grid(rule=CHOSEN, sites=EVEN, relative=(0.15, 0.25, 0.35, 0.5))
CHANCES = {"without, %": percent("without"), "with, %": percent("with")}
TABLES = {
    "sites_coverage": Table(
        "Coverage of 95 % intervals of sites combined",
        (
            Part(
                "Designs",
                grid(design=DESIGNS),
                coverage,
                COLUMNS,
                runs=300,
                by=("rule",),
                csv="sites_coverage",
                chunk=20,
            ),
            Part("Allowance", EVEN_CELLS, allowance, CHANCES, runs=125, chunk=25),
        ),
        f"The standard error of a coverage of 95 % in 300 runs is {standard_error(300)} points. "
        'rule="random" averages over how far effects may differ, so it covers too much where they '
        "do not. Where they do, it alone is for their mean: the other rules' intervals are for a "
        "weighted mean of these sites' effects, and the coverage of 0.1 is not theirs to keep. "
        "The last table is for normal errors without noise, where the allowance matters most, by "
        "the noise scale of a released variance relative to it; sites are ten of equal size with "
        "variances 1, 2, 4, ... (uneven), three of 500, 2,000 and 8,000 records and equal "
        "variances (small ones good), or thirty equal ones.",
        page=coverage_page,
        minutes=1.5,
    ),
    "sites_liars": Table(
        "One lying site of three, five and twenty",
        (Part("", grid(sites=LIARS), liars, runs=300, by=("rule", "said"), csv="sites_liars"),),
        f"The standard error of a coverage of 95 % in 300 runs is {standard_error(300)} points. "
        "Outcomes are 0 or 1, and epsilon is 1 at every site. The last site may say 0.9 with no "
        "sampling error (sure), the same with a million records (huge), something that is two and "
        "a half standard errors from the others with no sampling error (sly), or 0.9 with its own "
        "errors (plain); shown is the lie with the least coverage. Where effects differ they are "
        "normal around 0.1 with a standard deviation of 0.05.",
        page=liars_page,
        minutes=1.5,
    ),
    "sites_speed": Table(
        "Combining many sites",
        (Part("", grid(method=("diff_in_means", "auto"), sites=(1000, 100_000)), many),),
        "Seconds of processor time: to read and check the files of all sites; to combine what was "
        "read, with the interval; and for all of it in one call, as a centre waits. The bar is "
        "20 s for 100,000 releases of the default.",
        alone=True,
        minutes=3,
    ),
}
