"""
Many sites, one effect: the multi-site paper, figure by figure
==============================================================

Hospitals that may not pool their records can still answer one question together: each releases a
private effect and its variance, and a centre combines them. Koga, Chaudhuri and Page
(*Differentially private multi-site treatment effect estimation*, here "the paper"; an earlier
version has the same figures, 4 and 5 exchanged) propose how. This page repeats its figures 3 to 11
on the same data. You will learn

- how a site makes its release and how a centre combines releases, with an interval;
- which rule to use when sites differ in records and in budget;
- what the smooth sensitivity of matching is, and when it is small;
- which of the paper's findings come back, which do not, and why.

All data here are public, so the noise is seeded and the page is the same each time. A seed makes a
release not private, because whoever knows it can subtract the noise: never use one on data that
matter.

The quick run takes under a minute. ``python vignettes/many_sites.py --full`` has the paper's 100
repeats of every setting and should take three quarters of an hour on one idle core.
"""

import itertools
import math
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import LogLocator

import dpeffects as dpe
from dpeffects.errors import MissingExtraError

FULL = "--full" in sys.argv
ALPHAS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8) if FULL else (1 / 8, 1, 8)
pd.options.display.width = 100

# %%
# The data
# --------
#
# Two randomised trials (IST, STAR) and three studies in which covariates have to be matched (Synth,
# IHDP, Lalonde). STAR and LaLonde's original sample come with ``pip install "dpeffects[data]"``;
# without it the page goes on with the other three.

LEVELS = {"married": [0, 1], "first_born": [0, 1], "worked_during": [0, 1]}
STUDIES = {  # data set, formula, levels to match on, epsilon of the first site
    "IST": ("ist", "stroke_14_days ~ treatment", {}, 1),
    "STAR": ("star", "math ~ treatment", {}, 1),
    "Synth": ("multisite", "outcome ~ treatment | x", {}, 1),
    "IHDP": (
        "ihdp",
        "outcome ~ treatment | C(married) + C(first_born) + C(worked_during)",
        LEVELS,
        5,
    ),
    "Lalonde": (
        "lalonde_original",
        "earnings_1978 ~ treatment | C(age)",
        {"age": list(range(16, 56))},
        5,
    ),
}
PRINTED = {  # section IV-A of the paper: treated, control, total
    "IST": (9705, 9703, 18995),
    "STAR": (2643, 7688, 10331),
    "Synth": (None, None, 10000),
    "IHDP": (139, 608, 747),
    "Lalonde": (297, 425, 722),
}

data = {}
for study, (name, *_) in STUDIES.items():
    try:
        data[study] = dpe.simulate(name, seed=0) if study == "Synth" else dpe.load_data(name)
    except MissingExtraError as error:
        print(f"{study} is left out: {error}")

rows = []
for study, declared in data.items():
    treated = int(declared["treatment"].sum())
    ours = (treated, len(declared) - treated, len(declared))
    rows.append((study, *("" if x is None else x for x in PRINTED[study]), *ours))
columns = ["data", "treated, paper", "control", "n", "treated, here", "control", "n"]
print(pd.DataFrame(rows, columns=columns).to_string(index=False))

# %%
# The paper's n for IST is not the sum of its arms:

frame = data["IST"].frame
arms = sum(PRINTED["IST"][:2])
without = int((frame["stroke_14_days"] == 0).sum())
print(f"The arms of IST add up to {arms}, and {without} patients had no stroke. The paper prints")
print(f"{PRINTED['IST'][2]}: it seems to have counted those.")

# %%
# For STAR the paper has two pupils more; it does not say how it treated missing scores. Ours are
# all pupils with a score in mathematics. Nor does it say which three covariates of IHDP it matched
# on; ours are binary ones: married, first born, worked during the pregnancy.
#
# What a site sends
# -----------------
#
# A site calls ``site_release`` as it would call ``dp_ate``, and sends the result: a small JSON file
# with released numbers only. Here are three hospitals that share the stroke trial, the first with
# most of the patients, each with a budget of its own.

trial = data["IST"].sample(frac=1, random_state=2)
hospitals = {"North": (trial[:9704], 1.0), "South": (trial[9704:16173], 0.5)}
hospitals["East"] = (trial[16173:], 0.1)

stroke = {"formula": "stroke_14_days ~ treatment", "method": "diff_in_means"}
sent = [
    dpe.site_release(data=part, site=name, epsilon=epsilon, seed=seed, **stroke)
    for seed, (name, (part, epsilon)) in enumerate(hospitals.items())
]
print(f"{sent[0]}\n{len(sent[0].to_json())} bytes, {len(sent[0].spends)} charges")

# %%
# The centre combines. ``mvagg`` is the paper's rule: it weighs sites by their records, and leaves
# out those whose noise would do more harm than their records do good.

combined = dpe.combine(sent, rule="mvagg")
print(combined.summary())

# %%

ax = combined.plot()
ax.locator_params(axis="x", nbins=4)

# %%
# The rule in one paragraph. With ``N`` records and variances ``v`` at the sites of a set, the
# weighted mean has the variance ``sum(N**2 * v) / sum(N)**2``, and ``mvagg`` takes the set for
# which that is least. The paper tries all sets and leaves a faster way to future work. There is an
# exact one: the best set is always the first few sites in order of ``N * v``. A check against all
# subsets of ten sites:

ten = [
    dpe.site_release(data=trial[k::10], site=f"site {k}", epsilon=2.0 ** (2 - k), seed=k, **stroke)
    for k in range(10)
]
n = np.array([release.n for release in ten], float)
v = np.array([release.variance for release in ten])
subsets = [np.array(s) for r in range(1, 11) for s in itertools.combinations(range(10), r)]
best = min(subsets, key=lambda s: (n[s] ** 2 * v[s]).sum() / n[s].sum() ** 2)
chosen = np.flatnonzero(dpe.combine(ten, rule="mvagg").weights)
same = "the same" if set(best) == set(chosen) else "another set"
print(f"All {len(subsets)} subsets: {best.tolist()} is best. combine: {same}, {chosen.tolist()}.")

# %%
# Figures 3 to 5: randomised trials
# ---------------------------------
#
# The paper's experiment: the records are dealt out to sites in given proportions (STAR: by the kind
# of school). The first site has the budget epsilon_1, site j of J has ``alpha**((j - 1) / (J -
# 1))`` times that: where alpha is small the later sites are noisy, where it is large they are
# precise. The error of the combined effect is measured against the estimate from all records
# without noise, for Synth against the true effect, in units of the outcome's range.

RULES = ("mvagg", "all", "largest", "ivw")
SEEDS = itertools.count(1)  # equal seeds would give equal noise, which does not average out


def target(study):
    """Return the effect without noise, or the true effect."""
    _, formula, levels, _ = STUDIES[study]
    method = "diff_in_means" if study in ("IST", "STAR") else "smooth_matching"
    known = 0.5 if study == "Synth" else None
    return known or dpe.reference(formula, data[study], method, bounds=levels).estimate


def dealt(study, split, seed):
    """Return the records with a column that says which site they are at, and the sites."""
    whole = dpe.simulate("multisite", seed=seed) if study == "Synth" else data[study]
    if split == "schools":
        kinds = whole["site"].value_counts().index.tolist()
        return whole, kinds
    parts = np.array([int(part) for part in split.split(":")])
    ends = np.round(parts.cumsum() / parts.sum() * len(whole)).astype(int)
    names = [f"site {j + 1}" for j in range(len(parts))]
    site = np.repeat(names, np.diff(ends, prepend=0))
    order = np.random.default_rng(seed).permutation(len(whole))
    return dpe.Declared(whole.frame.iloc[order].assign(site=site), whole.bounds), names


def errors(study, method, split, alpha, repeats):
    """Return the mean absolute error of each rule, one row a rule."""
    _, formula, levels, epsilon = STUDIES[study]
    low, high = data[study].bounds[formula.split(" ~ ")[0]]
    found = []
    for seed in itertools.islice(SEEDS, repeats):
        records, sites = dealt(study, split, seed)
        last = len(sites) - 1
        several = dpe.dp_multisite(
            formula,
            records,
            site="site",
            epsilon={name: epsilon * alpha ** (j / last) for j, name in enumerate(sites)},
            delta=1e-5 if method == "smooth_matching" else 0,
            method=method,
            bounds=levels,
            rule="all",
            seed=seed,
        )
        estimates = [dpe.combine(several.releases, rule).estimate for rule in RULES]
        found.append(np.abs(np.array(estimates) - TRUTH[study]) / (high - low))
    means = zip(RULES, np.mean(found, axis=0), strict=True)
    cell = {"data": study, "method": method, "sites": split, "alpha": alpha, "repeats": repeats}
    return [cell | {"rule": r, "error": e} for r, e in means]


SPLITS = ("1:1", "1:1:1", "3:2:1", "9:9:2", "18:1:1")
TRUTH = {study: target(study) for study in data}
run = []
for study, split in [*(("IST", split) for split in SPLITS), ("STAR", "schools")]:
    for alpha in ALPHAS if study in data else ():
        run += errors(study, "diff_in_means", split, alpha, 100 if FULL else 10)

# %%
# Beside this run we show one of all settings with 100 repeats that is kept with the package
# (``benchmarks/results/sites.csv``, made by ``benchmarks/sites.py``, other seeds): lines are that
# run, markers are this one.

kept = pd.read_csv(Path(dpe.__file__).parents[1] / "benchmarks/results/sites.csv")
STYLES = {
    "mvagg": ("black", "-", "o"),
    "ivw": ("#004488", (0, (5, 2)), "^"),
    "all": ("#bb5566", (0, (1, 1.5)), "s"),
    "largest": ("#ddaa33", (0, (5, 1.5, 1, 1.5)), "D"),
}


def panel(ax, study, method, split):
    """Draw one of the paper's panels: error by alpha, a line a rule."""
    where = {"data": study, "method": method, "sites": split}
    for rule, (color, line, marker) in STYLES.items():
        for frame, style in ((kept, {"linestyle": line}), (pd.DataFrame(run), {"marker": marker})):
            part = frame[(frame[list(where)] == pd.Series(where)).all(axis=1)]
            part = part[part["rule"] == rule]
            shown = {"linestyle": "none", "markerfacecolor": "none", "markersize": 6, **style}
            ax.plot(part["alpha"], part["error"], color=color, **shown)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set_xticks([1 / 8, 1 / 2, 2, 8], ["1/8", "1/2", "2", "8"])
    ax.minorticks_off()
    ax.set_title(f"{study}, {split}", fontsize="medium", loc="left")


def legend(figure):
    """Put one legend for all panels above them."""
    handles = [
        plt.Line2D([], [], color=c, linestyle=line, marker=m, markerfacecolor="none", label=rule)
        for rule, (c, line, m) in STYLES.items()
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False)
    figure.supxlabel("alpha: budget of the last site by that of the first", fontsize="medium")
    figure.supylabel("mean absolute error", fontsize="medium")


figure, axes = plt.subplots(2, 3, figsize=(9, 5), layout="constrained", sharey=True)
for ax, split in zip(axes.flat, (*SPLITS, "schools"), strict=True):
    panel(ax, "STAR" if split == "schools" else "IST", "diff_in_means", split)
legend(figure)

# %%
# As in the paper, errors fall as the later sites' budgets grow. ``all`` suffers where some sites
# are noisy (left), ``largest`` wastes good sites (right), and ``mvagg`` and ``ivw`` follow the
# better of the two. What the paper says, and what comes out here, of the 100 repeats on file ("near
# the best": within 5 % of the least error of the four rules):


wide = kept.pivot(index=["data", "method", "sites", "alpha"], columns="rule", values="error")
near = wide.le(1.05 * wide.min(axis=1), axis=0)  # within 5 % of the best


def findings(*rows):
    """Print what the paper says beside what is found here."""
    table = pd.DataFrame(rows, columns=["figure", "paper", "here"])
    print(table.to_string(index=False))


def ratio(study, split, alpha, one, other):
    """Return the error of one rule as a multiple of that of another."""
    cell = wide.loc[(study, "diff_in_means", split, alpha)]
    return cell[one] / cell[other]


ist, star = near.xs("IST"), near.xs("STAR")
two = ist.xs("1:1", level="sites")["mvagg"].sum()
either = ist[["mvagg", "ivw"]].any(axis=1)
gain = [f"{s} {ratio('IST', s, 8, 'largest', 'mvagg'):.1f}x" for s in SPLITS[1:]]
harm = [f"{s} {ratio('IST', s, 1 / 8, 'all', 'mvagg'):.1f}x" for s in SPLITS[1:]]
findings(
    (3, "mvagg generally best", f"near the best at {two} of 7 alphas"),
    (
        3,
        "ivw worse at small alpha",
        f"{ratio('IST', '1:1', 1 / 8, 'ivw', 'mvagg'):.2f}x mvagg at 1/8",
    ),
    (4, "mvagg, ivw beat the others mostly", f"near the best in {either.sum()} of {len(ist)}"),
    (4, "gain on largest most at 1:1:1", ", ".join(gain) + " (alpha 8)"),
    (4, "gain on all most at 18:1:1", ", ".join(harm) + " (alpha 1/8)"),
    (
        5,
        "mvagg best for large alpha",
        f"near the best at {star.query('alpha > 1')['mvagg'].sum()} of 3",
    ),
    (
        5,
        "ivw better for alpha < 1",
        f"mvagg {ratio('STAR', 'schools', 1 / 8, 'mvagg', 'ivw'):.1f}x ivw",
    ),
)

# %%
# Three differences. In figure 3 ``ivw`` does not lose to ``mvagg`` here. The paper suspects that a
# noisy variance gave a noisy site too much weight. In this package a variance never counts for less
# than the part that the noise adds, which is public; that may be the reason, but we did not take it
# apart. In figure 4 at 1:1:1 "the largest" is, by the rounding of n / 3, the second site in ours;
# in the paper it is the first. And the paper explains the gain on ``all`` at 18:1:1 by a large
# first site with a small budget; by its own formula the first site has the *largest* budget where
# alpha is below 1, and it is the small sites that spoil the average.
#
# Figures 6 and 7: the smooth sensitivity of matching
# ---------------------------------------------------
#
# In an observational study records are matched within strata of equal covariates. One record can
# matter much: when it is the only control of its stratum, every treated record there is compared
# with it. Noise for the worst data set there could be (*global* sensitivity) is as large as the
# outcome's range. The paper looks at the data in hand and at those a few records away: its *smooth*
# sensitivity is the largest local sensitivity, discounted by exp(-beta k) for data sets k records
# away. This is Theorem 1 of the paper in a few lines, for outcomes in [0, 1]:


def printed(frame, beta):
    """Return the smooth sensitivity of equation (1) of the paper."""
    counts = frame.groupby(["x", "treatment"]).size().unstack(fill_value=0)
    large, small, n = counts.max(axis=1), counts.min(axis=1), len(frame)
    best = 0.0
    for k in range(n):
        if 4 * (1 + n) / n * math.exp(-k * beta) < best:  # no later k can reach it
            break
        far = np.where(k < small, np.ceil((large + k + 1) / (small - k).clip(lower=1)), large + k)
        best = max(best, math.exp(-k * beta) * 4 / n * (1 + far.max()))
    return best


# %%
# ``smooth_matching`` releases it too, with noise on its logarithm. To see it (nearly) without noise
# we give that release 99 % of a huge budget, and the estimate the remaining (1, 1e-5), which are
# the paper's. ``paper_constants=True`` is the paper's bound, the default a smaller one.


def released(records):
    """Return the smooth sensitivity that the package works with, by the paper's constants."""
    fit = dpe.dp_ate(
        "outcome ~ treatment | x",
        records,
        "smooth_matching",
        epsilon=100,
        delta=1e-3,
        shares={"estimate": 0.01, "smooth sensitivity": 0.99},
        variance=False,
        weights="round_robin",
        paper_constants=True,
        seed=1,
    )
    return fit.details["smooth sensitivity, as released"]


def noise(records, **options):
    """Return the standard deviation of the noise at epsilon = 1, delta = 1e-5."""
    ask = {"epsilon": 1, "delta": 1e-5, "variance": False, "seed": 1}
    fit = dpe.dp_ate("outcome ~ treatment | x", records, "smooth_matching", **ask, **options)
    return math.sqrt(fit.glance()["noise_variance"].iloc[0])


BETA = 1 / (2 * math.log(2 / 1e-5))
PAPER = {"weights": "round_robin", "paper_constants": True}
GRID = [(n, 0.0) for n in (1_000, 3_000, 10_000, 30_000, 100_000)]
GRID += [(10_000, a) for a in (0.5, 1.0, 2.0, 4.0)]
rows = []
for n, imbalance in GRID:
    records = dpe.simulate("multisite", n=n, imbalance=imbalance, seed=1)
    sensitivities = printed(records.frame, BETA), released(records)
    rows.append((n, imbalance, *sensitivities, noise(records, **PAPER), noise(records)))
columns = ["n", "a", "by hand", "package", "noise sd, paper", "noise sd, default"]
smooth = pd.DataFrame(rows, columns=columns)
print(smooth.to_string(index=False, float_format="{:.3g}".format))

# %%
# The two agree; at n = 1,000 the package has a little more, because the printed bound forgets one
# match at k = min(T, C) and is not smooth there. Figure 6 shows the sensitivity falling with n,
# figure 7 rising with the imbalance a of the arms within strata (100 strata, as in the paper).

balanced, tilted = smooth[smooth["a"] == 0], smooth[smooth["n"] == 10_000]
figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained", sharey=True)
axes[0].loglog(balanced["n"], balanced["by hand"], "ko-", label="smooth, a = 0")
axes[0].loglog(balanced["n"], 12 / balanced["n"], "k:", label="12 / n, its least value")
axes[0].axhline(1, color="0.5", linestyle="--", label="global")
axes[0].set_xlabel("records")
axes[0].set_ylabel("smooth sensitivity")
axes[0].legend(frameon=False, fontsize="small", loc="lower left")
axes[1].semilogy(tilted["a"], tilted["by hand"], "ko-")
axes[1].axhline(1, color="0.5", linestyle="--")
axes[1].set_xlabel("imbalance a, n = 10,000")

# %%

slope = np.polyfit(np.log(balanced["n"]), np.log(balanced["by hand"]), 1)[0]
first, last = balanced["by hand"].iloc[[0, -1]] * balanced["n"].iloc[[0, -1]]
less = (smooth["noise sd, paper"] / smooth["noise sd, default"]).agg(["min", "max"])
findings(
    (6, "about 1 / n for balanced data", f"n^{slope:.1f}; times n: {first:.0f} to {last:.0f}"),
    (7, "grows with imbalance", "yes" if tilted["by hand"].is_monotonic_increasing else "no"),
    (7, "below the global one, about 1", f"at most {smooth['by hand'].max():.2g}"),
)
print(f"The default has {less['min']:.1f} to {less['max']:.1f} times less noise than the paper's.")

# %%
# It falls *faster* than 1 / n as long as strata have fewer records than the discount needs to work
# (a few times 1 / beta, some hundred at epsilon = 1); once they have, it is at 12 / n. Read that as
# advice: cut covariates so coarsely that both arms of every stratum have hundreds of records. The
# default's noise is less because outcomes are centred, strata compare means, and the two uses of
# the budget within the release are accounted together.
#
# Figures 8 to 11: observational studies
# --------------------------------------
#
# The same experiment with matching at each site; upper rows by global sensitivity, lower rows by
# smooth sensitivity. The first column is figure 8, the others are figures 9 (Synth), 10 (IHDP) and
# 11 (Lalonde).

MATCHING = ("global_matching", "smooth_matching")
for study, method, split in itertools.product(("Synth", "IHDP", "Lalonde"), MATCHING, SPLITS):
    for alpha in ALPHAS if study in data else ():
        run += errors(study, method, split, alpha, 100 if FULL else 2)


def figure_of(study):
    """Draw all panels of one study."""
    figure, axes = plt.subplots(
        2, 5, figsize=(11, 4.6), layout="constrained", sharex=True, sharey="row"
    )
    for row, method in zip(axes, MATCHING, strict=True):
        for ax, split in zip(row, SPLITS, strict=True):
            panel(ax, study, method, split)
        row[0].set_ylabel(method)
    legend(figure)


figure_of("Synth")

# %%

figure_of("IHDP")

# %%

figure_of("Lalonde")

# %%
# Do the few repeats of this page agree with the hundred on file? A mean of two errors scatters, but
# by a known amount:

both = pd.DataFrame(run).merge(kept, on=["data", "method", "sites", "alpha", "rule"])
spread = both["sd"] * np.sqrt(1 / both["repeats_x"] + 1 / both["repeats_y"])
close = ((both["error_x"] - both["error_y"]).abs() < 3 * spread).mean()
print(
    f"{100 * close:.0f} % of {len(both)} means are within three standard errors of those on file."
)

# %%
# And the paper's findings:

matched = near.drop(["IST", "STAR"])
by_global, by_smooth = (wide.xs(method, level="method") for method in MATCHING)
good = by_smooth[["mvagg", "ivw"]].max(axis=1)


def often(rule, where):
    """Return in how many settings a rule is near the best."""
    return f"{rule} near the best in {100 * matched.query(where)[rule].mean():.0f} %"


either = matched[["mvagg", "ivw"]].any(axis=1).mean()
small, equal = "alpha < 1", "alpha == 1"
findings(
    (
        "8-11",
        "mvagg, ivw beat the others",
        f"one near the best in {100 * either:.0f} % of settings",
    ),
    ("8-11", "mvagg best for small alpha", f"{often('mvagg', small)}, {often('ivw', small)}"),
    ("8-11", "ivw best for alpha near 1", f"{often('ivw', equal)}, {often('mvagg', equal)}"),
    ("8-11", "global: errors of 1 and more", f"up to {by_global.max().max():.1f}"),
    ("8-11", "smooth, mvagg or ivw: below 1", f"at most {good.max():.2f}"),
    ("8-11", "and 0.1 or less, large alpha", f"at most {good.xs(8, level='alpha').max():.3f} at 8"),
)

# %%
# What to take home
# -----------------
#
# - ``ivw`` is the default of ``combine``. With the variances of this package it is hardly ever
#   worse than ``mvagg``, and often better where good sites are small: ``mvagg`` can take a site or
#   leave it, but its weights are the records. Both need the variance that a release brings along.
# - Both rules assume that all sites have the same effect, as the paper does. The summary tests that
#   (Cochran's Q); where it fails, ``rule="random"`` estimates the mean of the sites' effects.
# - Weights that are chosen by noisy variances make a combination look more precise than it is. The
#   intervals of ``combine`` allow for it; the paper gives none.
# - For matching, few and large strata matter more than anything else.
#
# The paper shows its errors as curves and prints no numbers, so this page compares trends. At the
# same epsilon ours should be lower: sites spend their budget by the shares of this package, not in
# equal parts, and the noise is less for the reasons above. ``shares=`` and ``paper_constants=True``
# bring the paper's choices back.
