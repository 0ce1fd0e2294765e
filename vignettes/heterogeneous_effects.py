"""
Heterogeneous effects: DP-CATE, figure by figure
================================================

Who benefits, and by how much? A conditional average treatment effect (CATE) is a function of the
covariates. *Differentially private learners for heterogeneous treatment effects* (Schröder,
Melnychuk and Feuerriegel, here "the paper") releases it in two ways: as a whole *function* that may
be asked anything, or as *finitely many* values. This page repeats its figures 3 to 5, 9, 10, 14 and
15. You will learn

- how to release an effect function, draw it and save it;
- how its error depends on the budget, the learner and the number of covariates;
- why the paper's finite release is not private for flexible learners, and what is.

Its figures 6 and 7 need patients' records that may not be passed on (MIMIC-III, TCGA), and are not
repeated.

All data here are simulated, so the noise is seeded and the page is the same each time. A seed makes
a release not private, because whoever knows it can subtract the noise: never use one on data that
matter.

The quick run takes about a minute, with one repeat. ``python vignettes/heterogeneous_effects.py
--full`` has 20 repeats (the paper does not say how many it had) and the finite release on data set
2; it should take ten minutes on one idle core. Forests have 10 trees in both, for speed; the paper
has scikit-learn's default, 100.
"""

import math
import sys
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import LogLocator
from scipy.special import log_ndtr

import dpeffects as dpe

FULL = "--full" in sys.argv
REPEATS = 20 if FULL else 1
EPSILONS = (0.5, 1.0, 5.0, 10.0)
ALMOST_INFINITE = 1e6  # a budget with negligible noise: the learner without privacy
BUDGET = {"delta": 1e-5, "seed": 1}
pd.options.display.width = 100

# %%
# The data
# --------
#
# Both of the paper's simulations are in the package (its section H.1). In data set 1 the effect
# depends on one of two covariates, in data set 2 on two of thirty. 2,700 records train, 300 are the
# queries. The error is the PEHE: the root mean squared difference from the true effect.

DATA = {"data set 1": ("cate_1", 2), "data set 2": ("cate_2", 30)}


def study(name, seed=1):
    """Return formula, training records, queries and the true effects there."""
    simulator, columns = DATA[name]
    sample = dpe.simulate(simulator, n=3000, seed=seed)
    test = sample.frame.iloc[2700:]
    formula = "outcome ~ treatment | " + " + ".join(f"x{j + 1}" for j in range(columns))
    return formula, sample[:2700], test, (test["mu1"] - test["mu0"]).to_numpy()


formula, train, test, truth = study("data set 1")
print(f"Effects from {truth.min():.1f} to {truth.max():.1f}; a constant scores {truth.std():.2f}.")

# %%
# A function (figures 4 and 10)
# -----------------------------
#
# One call fits propensities, outcome model and effect, all privately, and releases a function.

fit = dpe.dp_cate(formula, train, "r_learner", release="function", epsilon=1, **BUDGET)
print(fit.summary())

# %%
# Ask it anything, any number of times. The answers cost nothing more, and the same question gets
# the same answer, also after the function was saved and read again.

print(fit.effect({"x1": [0.1, 0.5, 0.9], "x2": [0.5, 0.5, 0.5]}))
print(f"PEHE {dpe.pehe(fit.effect(test), truth):.2f}")

# %%
# Figure 4 shows such functions for growing budgets, figure 10 the same for the DR-learner. The
# thick lines are the package's default, with noise in the objective of the regression, and its
# band; the dotted lines have the paper's noise, a Gaussian process of the same size everywhere
# (``noise="kernel"``, at the scale that is proved: the printed one is too small for wide kernels).

LEARNERS = {"R-learner": "r_learner", "DR-learner": "dr_learner"}
fits = {
    (learner, epsilon, noise): dpe.dp_cate(
        formula, train, method, epsilon=epsilon, noise=noise, **BUDGET
    )
    for learner, method in LEARNERS.items()
    for epsilon in (*EPSILONS[:3], ALMOST_INFINITE)
    for noise in ("objective", "kernel")
}

grid = np.linspace(0, 1, 101)
effect = np.exp(2 * grid) + 3 * np.sin(4 * grid)
figure, axes = plt.subplots(2, 4, figsize=(10, 4.6), layout="constrained", sharex=True, sharey=True)
for row, learner in zip(axes, LEARNERS, strict=True):
    for ax, epsilon in zip(row, (*EPSILONS[:3], ALMOST_INFINITE), strict=True):
        curve = fits[learner, epsilon, "objective"].curve("x1")
        ax.fill_between(curve["x1"], curve["conf_low"], curve["conf_high"], color="0.85")
        ax.plot(curve["x1"], curve["effect"], color="black", linewidth=2, label="default")
        other = fits[learner, epsilon, "kernel"].curve("x1")
        ax.plot(other["x1"], other["effect"], color="#bb5566", linestyle=":", label="paper's noise")
        ax.plot(grid, effect, color="#004488", linestyle="--", linewidth=1, label="true effect")
        shown = "no noise" if epsilon == ALMOST_INFINITE else f"epsilon {epsilon:g}"
        ax.set_title(f"{learner}, {shown}", fontsize="medium", loc="left")
axes[0, 0].legend(frameon=False, fontsize="small")
figure.supxlabel("x1 (x2 at its median)", fontsize="medium")
figure.supylabel("effect", fontsize="medium")

# %%
# As in the paper, functions come closer to the one without noise as the budget grows. (All have the
# same seed, so the same noise at another scale.)
#
# The error of functions by budget (figure 5)
# -------------------------------------------
#
# Beside this run we show one with 20 repeats that is kept with the package
# (``benchmarks/results/cate.csv``, made by ``benchmarks/cate.py``, other seeds).

kept = pd.read_csv(Path(dpe.__file__).parents[1] / "benchmarks/results/cate.csv")


def pehe(name, method, epsilon, seed, **options):
    """Return the error of one released function."""
    formula, train, test, truth = study(name, seed)
    ask = {"epsilon": epsilon, "delta": 1e-5, "seed": seed, **options}
    return dpe.pehe(dpe.dp_cate(formula, train, method, **ask).effect(test), truth)


rows = []
for name in DATA:
    for learner, method in LEARNERS.items():
        for epsilon in (1.0, 5.0, ALMOST_INFINITE):
            errors = [pehe(name, method, epsilon, 100 + k) for k in range(REPEATS)]
            rows.append((name, f"{learner}, function", epsilon, np.mean(errors)))
run = pd.DataFrame(rows, columns=["data", "case", "epsilon", "here"])
both = run.merge(kept, on=["data", "case", "epsilon"])
both["on file"] = [f"{p:.2f} (sd {s:.2f})" for p, s in both[["pehe", "sd"]].to_numpy()]
both["epsilon"] = both["epsilon"].replace(ALMOST_INFINITE, np.inf)
columns = ["data", "case", "epsilon", "here", "on file"]
constants = ", ".join(f"{np.std(study(name)[3]):.2f} ({name})" for name in DATA)
print(f"PEHE; {REPEATS} repeat(s) here, 20 on file. A constant: {constants}.")
print(both[columns].to_string(index=False, float_format="{:.2f}".format))

# %%
# With 30 covariates 2,700 records do not carry much: at epsilon 1 the function is hardly better
# than a constant, and the package shrinks it towards one. The paper's figure 5 centres its curves
# at the error without privacy, which hides that level.
#
# Finitely many values (figures 3 and 9)
# --------------------------------------
#
# The paper's other release takes any learner, fits it without noise, and adds noise to its answers
# at given points. The size of the noise follows from an influence function. It is in the package to
# compare, behind an explicit opt-in, because it promises what it does not keep, as we shall see.
# The networks and forests come from scikit-learn (``pip install "dpeffects[cate]"``).

try:
    from sklearn.ensemble import RandomForestRegressor

    STAGES = {
        "forest": RandomForestRegressor(10, random_state=0),
        "network": "neural_net",
    }
except ImportError:
    STAGES = {}
    print("scikit-learn is not installed: figures 3, 9, 14 and 15 are left out.")


def finite(formula, train, at, method, stage, epsilon=ALMOST_INFINITE):
    """Return the paper's finite release."""
    return dpe.dp_cate(
        formula,
        train,
        method,
        release="points",
        at=at,
        epsilon=epsilon,
        second_stage=STAGES[stage],
        accept_asymptotic=True,
        **BUDGET,
    )


if STAGES:
    one = finite(formula, train, test, "r_learner", "network", epsilon=1)
    print(textwrap.fill(one.guarantee.sentence(), 90))

# %%
# The answers before the noise do not depend on epsilon, and the noise is proportional to 1 /
# epsilon. So one fit with a huge budget gives all budgets: its answers, and its noise scaled up.


def answers(name, learner, stage, seed=1):
    """Return the learner's answers, the noise at epsilon = 1, and the true effects."""
    formula, train, test, truth = study(name, seed)
    fit = finite(formula, train, test, LEARNERS[learner], stage)
    return fit.estimates, fit.tidy()["noise_sd"].iloc[0] * ALMOST_INFINITE, truth


known = {(a, b): answers("data set 1", a, b) for a in LEARNERS for b in STAGES}
if STAGES:
    asked = one.tidy()["noise_sd"].iloc[0]
    print(
        f"Noise at epsilon 1: {asked:.4f} asked for, {known['R-learner', 'network'][1]:.4f} scaled"
    )

# %%
# Figures 3 (R-learner) and 9 (DR-learner): the answers at the 300 queries.


def answers_by_budget():
    """Draw the answers of all learners, one row each."""
    rng = np.random.default_rng(1)
    figure, axes = plt.subplots(
        len(known), 3, figsize=(9, 8), layout="constrained", sharex=True, sharey=True
    )
    for row, ((learner, stage), (values, sd, _)) in zip(axes, known.items(), strict=True):
        for ax, epsilon in zip(row, EPSILONS[:3], strict=True):
            released = values + sd / epsilon * rng.normal(size=values.size)
            ax.plot(test["x1"], released, ".", color="0.6", markersize=4, label="released")
            ax.plot(test["x1"], values, ".", color="black", markersize=2, label="before the noise")
            ax.plot(grid, effect, color="#004488", linestyle="--", linewidth=1, label="true")
            ax.set_title(f"{learner}, {stage}, epsilon {epsilon:g}", fontsize="medium", loc="left")
    axes[0, 0].legend(frameon=False, fontsize="small", loc="lower right")
    figure.supxlabel("x1", fontsize="medium")
    figure.supylabel("effect", fontsize="medium")


if known:
    answers_by_budget()

# %%
# As in the paper the values settle down as the budget grows, alike for both base learners. Figure 9
# is another matter: for the DR-learner the paper reports noise that is "extremely enlarged".

rows = [(stage, *(known[learner, stage][1] for learner in LEARNERS)) for stage in STAGES]
noise = pd.DataFrame(rows, columns=["second stage", *LEARNERS]).assign(
    ratio=lambda frame: frame["DR-learner"] / frame["R-learner"]
)
print("Noise sd at epsilon 1")
print(noise.to_string(index=False, float_format="{:.2f}".format))

# %%
# Not here. The DR-learner divides by the propensity times its complement. In data set 1 as the
# paper describes it, propensities lie between 0.5 and 0.8, so there is nothing to blow up. The
# largest influence is looked for over all covariates, and a fitted propensity near 0 or 1 anywhere
# makes it as large as one likes; the package keeps propensities within [0.01, 0.99], and the paper
# does not say what it does.
#
# Errors of finitely many values (figures 5, 14 and 15)
# -----------------------------------------------------
#
# Independent noise adds its variance to the mean squared error, so no further runs are needed: the
# PEHE at epsilon is the root of (PEHE without noise)\ :sup:`2` + (noise sd / epsilon)\ :sup:`2`.
# For data set 2 the search for the largest influence in 30 dimensions takes minutes for each fit;
# the quick page reads it from ``benchmarks/results/cate_finite.csv``, which ``--full`` writes.

FINITE = Path(dpe.__file__).parents[1] / "benchmarks/results/cate_finite.csv"
rows = [
    ("data set 1", learner, stage, 1, dpe.pehe(values, truth), sd)
    for (learner, stage), (values, sd, truth) in known.items()
]
if FULL:
    for seed in (1, 2, 3):
        for stage in STAGES:
            values, sd, truth = answers("data set 2", "R-learner", stage, seed)
            rows.append(("data set 2", "R-learner", stage, seed, dpe.pehe(values, truth), sd))
columns = ["data", "learner", "stage", "seed", "plain", "noise_sd"]
found = pd.DataFrame(rows, columns=columns)
if FULL:
    found[found["data"] == "data set 2"].to_csv(FINITE, index=False)
else:
    found = pd.concat([found, pd.read_csv(FINITE)])
found = found.astype({"plain": float, "noise_sd": float})
found = found.groupby(["data", "learner", "stage"], as_index=False)[["plain", "noise_sd"]].mean()


def at_budget(row, epsilon):
    """Return the PEHE of a finite release."""
    return np.sqrt(row["plain"] ** 2 + (row["noise_sd"] / epsilon) ** 2)


budgets = np.geomspace(0.1, 10, 41)
COLOURS = {"R-learner": "black", "DR-learner": "#bb5566"}
LINES = {"forest": "--", "network": ":"}
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for ax, name in zip(axes, DATA, strict=True):
    for learner, colour in COLOURS.items():
        exact = kept[(kept["data"] == name) & (kept["case"] == f"{learner}, function")]
        exact = exact[exact["epsilon"] <= 10]
        ax.plot(exact["epsilon"], exact["pehe"], color=colour, label=f"function, {learner}")
        for _, row in found[(found["data"] == name) & (found["learner"] == learner)].iterrows():
            label = f"{row['stage']}, {learner} (claimed)"
            line = LINES[row["stage"]]
            ax.plot(budgets, at_budget(row, budgets), color=colour, linestyle=line, label=label)
    spread = float(np.std(study(name)[3]))
    ax.axhline(spread, color="0.6", linewidth=0.8)
    ax.text(10, spread, "a constant", ha="right", va="bottom", fontsize="small", color="0.4")
    ax.loglog()
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    ax.set_title(name, fontsize="medium", loc="left")
    ax.set_xlabel("epsilon")
    ax.legend(frameon=False, fontsize="small")
axes[0].set_ylabel("PEHE")

# %%
# Errors fall with the budget and settle at those without privacy, as in figures 5 and 14. Figure 15
# is about small budgets, as a percentage of the error without privacy:

small = found[found["data"] == "data set 1"][["learner", "stage", "plain", "noise_sd"]]
table = small.assign(
    **{f"eps {e:g}, %": 100 * at_budget(small, e) / small["plain"] for e in (0.1, 0.15, 0.2)}
)
print(table.to_string(index=False, float_format="{:.2f}".format))

# %%
# The smaller the error without privacy, the larger the percentage, so that a good learner looks
# worse than a bad one. What the percentage hides is whether the release is of use at all:

constant = float(np.std(study("data set 1")[3]))
for _, row in small.iterrows():
    needed = row["noise_sd"] / math.sqrt(constant**2 - row["plain"] ** 2)
    print(f"{row['learner']}, {row['stage']}: better than a constant from epsilon {needed:.2f} on")

# %%
# A claim that one record can break
# ---------------------------------
#
# The finite release looks good in the figure, because its noise is small. Too small: it is sized by
# the *average* pull of a record when n is very large. A flexible learner may follow single records.
# Take one control, move its outcome to the other end of the declared range, and ask both fits for
# the effect at that record's covariates.

low, high = train.bounds["outcome"]
record = int(np.flatnonzero(train["treatment"] == 0)[0])
moved = train.frame.copy()
moved.loc[record, "outcome"] = low if moved["outcome"][record] > (low + high) / 2 else high
neighbours = {"as it is": train, "one outcome moved": dpe.declare(moved, train.bounds)}
at = train.frame.loc[[record], ["x1", "x2"]].to_dict("list")

if STAGES:
    rows = []
    for stage in STAGES:
        pair = [finite(formula, part, at, "r_learner", stage) for part in neighbours.values()]
        one, other = (fit.estimates[0] for fit in pair)
        sd = max(fit.tidy()["noise_sd"].iloc[0] for fit in pair) * ALMOST_INFINITE
        # guess by the nearer answer: right with chance p, wrong with chance q on the neighbour
        log_p, log_q = (log_ndtr(sign * abs(one - other) / (2 * sd)) for sign in (1, -1))
        bound = math.log(max(math.exp(log_p) - 1e-5, 1e-300)) - log_q
        rows.append((stage, one, other, sd, abs(one - other) / sd, bound))
    columns = ["second stage", *neighbours, "noise sd", "moved by, sd", "epsilon at least"]
    print("Claimed: epsilon = 1, delta = 1e-5")
    print(pd.DataFrame(rows, columns=columns).to_string(index=False, float_format="{:.2f}".format))

# %%
# The last column is what an attacker who guesses by the nearer of the two answers can show. The
# forest gives the record away. The network does not give away this one, which proves nothing about
# others: nothing in its training bounds what one record can do. The vignette :doc:`auditing` has
# more on such attacks. So the dashed and dotted lines in the figure are not to be compared with the
# solid ones: these have a proof at every n, and private nuisances.
#
# What to use
# -----------
#
# - A function (above) for effects that vary smoothly. With three or more covariates the kernel is
#   additive; write interactions as terms.
#   It does not follow steps: what is sharper than ``fit.bandwidths`` is smoothed out.
# - Effects by group, where a few groups are what you want to know, by the DR-learner (the R-learner
#   gives overlap-weighted effects, and says so). Intervals hold for the effect, and with
#   ``simultaneous=True`` for all groups at once:

cuts = [0, 0.25, 0.5, 1]
groups = dpe.dp_cate(
    formula, train, release="groups", by=f"cut(x1, {cuts})", epsilon=1, delta=1e-5, seed=1
)
table = groups.tidy(simultaneous=True)[["term", "estimate", "conf_low", "conf_high"]]
inside = pd.cut(train["x1"], cuts, include_lowest=True)
table["true"] = (train["mu1"] - train["mu0"]).groupby(inside, observed=True).mean().to_numpy()
print(table.to_string(index=False, float_format="{:.2f}".format))

# %%
# - ``method="sample_aggregate"`` for forests and networks with a proof: fitted in disjoint blocks,
#   averaged, noise by the declared range of the effect. It takes many records to be of use; its
#   errors for 300 points are in ``benchmarks/results/cate.md``.
