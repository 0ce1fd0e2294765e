"""Coverage of nominal 95 % intervals for two to ten sites combined, by simulation.

Three sites of unequal size (500, 2,000 and 8,000 records, or 400, 800 and 1,600), two of 2,000 and
8,000, five and ten, with unequal or equal budgets, by chance or by strata: a true effect of
0.1 everywhere, or effects that differ between sites (normal around 0.1 with standard deviation 0.01
or 0.05), for which rule="random" is meant. Noise is seeded.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from harness import Part, Table, grid, mean, median, standard_error
from scipy.stats import norm

import dpeffects as dpe
from dpeffects.inference.estimate import Estimate, SamplingVariance
from dpeffects.services.sites import SiteRelease, combine
from dpeffects.services.sites.error_distribution import SiteErrors, WeightedSumDistribution
from dpeffects.services.sites.rules import inflation_ivw, inflation_mvagg, ivw, mvagg

RULES = ("ivw", "mvagg", "all", "largest", "random")
SIZES, SMALL, TWO = (500, 2000, 8000), (400, 800, 1600), (2000, 8000)
FIVE = (500, 1000, 2000, 4000, 8000)
MORE, EQUAL, LESS, LITTLE = (0.3, 1.0, 2.0), (1.0, 1.0, 1.0), (2.0, 1.0, 0.3), (0.5, 0.4, 0.3)
DIFF = ("randomised", "diff_in_means", "y ~ t", {})
SMOOTH = ("strata", "smooth_matching", "y ~ t | a", {"delta": 1e-5})
GLOBAL = ("strata", "global_matching", "y ~ t | a", {})
DESIGNS = {
    "diff_in_means, larger sites spend more": (DIFF, False, SIZES, MORE, 0.0),
    "the same, binary outcome": (DIFF, True, SIZES, MORE, 0.0),
    "diff_in_means, equal budgets": (DIFF, False, SIZES, EQUAL, 0.0),
    "diff_in_means, larger sites spend less": (DIFF, False, SIZES, LESS, 0.0),
    "diff_in_means, small sites, small budgets": (DIFF, False, SMALL, LITTLE, 0.0),
    "the same, binary outcome, small sites": (DIFF, True, SMALL, LITTLE, 0.0),
    "smooth_matching, larger sites spend more": (SMOOTH, True, SIZES, MORE, 0.0),
    "smooth_matching, equal budgets": (SMOOTH, False, SIZES, EQUAL, 0.0),
    "global_matching, larger sites spend more": (GLOBAL, False, SIZES, MORE, 0.0),
    "two sites": (DIFF, False, TWO, EQUAL[:2], 0.0),
    "five sites": (DIFF, False, FIVE, EQUAL[:1] * 5, 0.0),
    "ten sites": (DIFF, False, FIVE * 2, EQUAL[:1] * 10, 0.0),
    "two sites, effects differ little": (DIFF, False, TWO, EQUAL[:2], 0.01),
    "three sites, effects differ little": (DIFF, False, SIZES, EQUAL, 0.01),
    "five sites, effects differ little": (DIFF, False, FIVE, EQUAL[:1] * 5, 0.01),
    "two sites, effects differ": (DIFF, False, TWO, EQUAL[:2], 0.05),
    "three sites, effects differ": (DIFF, False, SIZES, EQUAL, 0.05),
    "five sites, effects differ": (DIFF, False, FIVE, EQUAL[:1] * 5, 0.05),
    "ten sites, effects differ": (DIFF, False, FIVE * 2, EQUAL[:1] * 10, 0.05),
}
EVEN = (
    ("mvagg, uneven", mvagg, inflation_mvagg, np.full(10, 1000.0), 2.0 ** np.arange(10)),
    (
        "mvagg, small ones good",
        mvagg,
        inflation_mvagg,
        np.array([500.0, 2000.0, 8000.0]),
        np.ones(3),
    ),
    ("mvagg, thirty equal", mvagg, inflation_mvagg, np.full(30, 1000.0), np.ones(30)),
    ("ivw, uneven", ivw, inflation_ivw, np.full(10, 1000.0), 2.0 ** np.arange(10)),
    ("ivw, small ones good", ivw, inflation_ivw, np.array([500.0, 2000.0, 8000.0]), np.ones(3)),
    ("ivw, thirty equal", ivw, inflation_ivw, np.full(30, 1000.0), np.ones(30)),
)
"""Rule, allowance for chosen weights, records and sampling variances."""
BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (0, 1), "a": [0, 1], "b": [0, 1]}


def sample(strata: bool, binary: bool, n: int, seed: list[int]) -> pd.DataFrame:
    """Records of one site, whose treatment depends on ``a`` in strata."""
    rng = np.random.default_rng([*seed, n, binary])
    x = rng.random((n, 2))
    a, b = rng.integers(0, 2, (2, n))
    t = rng.random(n) < 1 / (1 + np.exp(0.2 - 0.6 * strata * (a - 0.5)))
    mean = 0.2 + 0.15 * x[:, 0] + 0.1 * x[:, 1] + 0.1 * a + 0.05 * b + 0.1 * t
    y = rng.random(n) < mean if binary else mean + 0.3 * (rng.random(n) - 0.5)
    frame = pd.DataFrame({"y": np.asarray(y, float), "t": t, "x1": x[:, 0], "x2": x[:, 1]})
    return frame.assign(a=a, b=b)


def run(people: int, noise: int, design: str):
    """All rules on the releases of the same sites."""
    (kind, method, formula, options), binary, sizes, budgets, spread = DESIGNS[design]
    shifts = np.random.default_rng([people, 7]).normal(0.0, spread, len(sizes))
    sites = []
    for j, (n, epsilon, shift) in enumerate(zip(sizes, budgets, shifts, strict=True)):
        data = sample(kind == "strata", binary, n, [people, j])
        if shift:
            data["y"] = (data["y"] + shift * data["t"]).clip(0, 1)
        asked = {"epsilon": epsilon, "bounds": BOUNDS, "seed": noise + j, **options}
        fit = dpe.dp_ate(formula, data, method, **asked)
        sites.append(SiteRelease.from_result(fit, f"site {j}"))
    rows = []
    for rule in RULES:
        fit = combine(sites, rule)
        low, high = fit.conf_int()
        found = {"covered": low <= 0.1 <= high, "width": high - low, "used": len(fit.used)}
        rows.append({"rule": rule, **found, "rejected": fit.heterogeneity.p_value < 0.05})
    return rows


def allowance(people: int, noise: int, sites: str, relative: float):
    """Coverage without and with the allowance for chosen weights, errors being normal."""
    cell = next(x[1:] for x in EVEN if x[0] == sites)
    without, within = pair(np.random.default_rng(noise), *cell, relative)
    return {"without": without, "with": within}


def pair(rng, rule, allowed, n, variance, relative) -> list[float]:
    """Coverage, given one draw of the released variances: exact, the errors being normal."""
    scale = relative * variance
    noisy = variance + scale * rng.laplace(size=n.size)
    rows = zip(noisy, scale, 20 * variance, strict=True)
    errors = SiteErrors.of([Estimate(0.0, SamplingVariance(*row)) for row in rows])
    weights = rule(n, errors.variance)
    sd = np.sqrt(weights**2 @ variance)
    factors = np.ones_like(n), allowed(n, errors, weights)
    halves = [
        WeightedSumDistribution(errors, weights, factor).upper_point(0.025) for factor in factors
    ]
    return [1 - 2 * norm.sf(half / sd) for half in halves]


def page(found: pd.DataFrame, even: pd.DataFrame) -> dict[str, pd.DataFrame]:
    order = list(dict.fromkeys(found["design"]))

    def by_rule(values: pd.Series) -> pd.DataFrame:
        wide = found.assign(shown=values).pivot(index="design", columns="rule", values="shown")
        return wide.loc[order, list(RULES)]

    wide = by_rule((100 * found["covered"]).round(1))
    test = found[found["rule"] == "mvagg"].set_index("design").loc[order]
    wide["sites used by mvagg"] = test["used"].round(2)
    wide["Q rejects at 5 %"] = (100 * test["rejected"]).round(1)
    shown = [
        f"{100 * a:.1f}, {100 * b:.1f}" for a, b in zip(even["without"], even["with"], strict=True)
    ]
    allowed = even.assign(shown=shown, head=[f"s / v = {x}" for x in even["relative"]])
    allowed = allowed.pivot(index="sites", columns="head", values="shown")
    return {
        "Coverage, per cent": wide.reset_index(),
        "Median width": by_rule(found["width"].map("{:.3g}".format)).reset_index(),
        "Without and with the allowance for chosen weights": allowed.reset_index(),
    }


COLUMNS = {"covered": mean("covered", 6), "width": median("width", 6), "used": mean("used", 6)}
COLUMNS |= {"rejected": mean("rejected", 6)}
EVEN_CELLS = grid(sites=[x[0] for x in EVEN], relative=(0.15, 0.25, 0.35, 0.5))
TABLE = Table(
    "Coverage of 95 % intervals of sites combined",
    (
        Part(
            "Designs",
            [{"design": x} for x in DESIGNS],
            run,
            COLUMNS,
            runs=500,
            by=("rule",),
            csv="sites_coverage",
            chunk=20,
        ),
        Part(
            "Allowance", EVEN_CELLS, allowance, runs=125, csv="sites_coverage_allowance", chunk=25
        ),
    ),
    f"The standard error of a coverage of 95 % in 500 runs is {standard_error(500)} points. "
    'rule="random" averages over how far effects may differ, so it covers too much where they '
    "do not. Where they do, it alone is for their mean: the other rules' intervals are for a "
    "weighted mean of these sites' effects, and the coverage of 0.1 is not theirs to keep. "
    "The last table is for normal errors without noise, where the allowance matters most, at "
    "several ratios of the noise scale s of a released variance to the variance v; sites are "
    "ten of equal size with variances 1, 2, 4, ... (uneven), three of 500, 2,000 and 8,000 "
    "records and equal variances (small ones good), or thirty equal ones.",
    page=page,
    minutes=5,
)
