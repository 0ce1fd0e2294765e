"""
Auditing: an attacker at work
=============================

A guarantee is a proof, and proofs and programs have mistakes. An *audit* tries to find them from
the outside: it runs a release many times on two data sets that differ in one record, and looks for
an event that gives away which of the two it was. If the event is more than exp(epsilon) times as
likely on one as on the other, the promise is broken, whatever the proof says. You will learn

- how to audit a method of the package, and how to read the outcome;
- how to audit a function of your own, with its noise or with the package's;
- how mistakes look: noise that is halved, budgets that are not added up, an asymptotic claim;
- how many runs it takes, and what an audit cannot tell.

Audits here have a seed, so that the page is the same each time; in an audit that hides nothing, as
its data sets are made up. Real releases must never have one.

The quick run takes under a minute. ``python vignettes/auditing.py --full`` has 20,000 runs for each
audit and should take about ten minutes on one idle core.
"""

import math
import sys
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import beta

import dpeffects as dpe

FULL = "--full" in sys.argv
RUNS = 20_000 if FULL else 2_000
pd.options.display.width = 100

# %%
# A method of the package
# -----------------------
#
# The package brings a library of nasty neighbours: an outcome that goes from one end to the other,
# the only treated record that leaves its arm, values far beyond the bounds. One call tries a few
# runs on each, and gives the rest to the pair that promises most.

found = dpe.audit("diff_in_means", epsilon=1, runs=RUNS, seed=1)
print(found.summary())

# %%
# How to read it. The verdict is a *lower* bound on the true epsilon, from counts:


def say(text):
    """Print a sentence in lines of ordinary length."""
    print(textwrap.fill(" ".join(text.split()), 90))


(own, other), (trials, _) = found.hits, found.trials
say(
    f"""The event happened in {100 * own / trials:.1f} % of {trials} runs on one data set and in
    {100 * other / trials:.1f} % on the other, {own / other:.2f} times as often: the logarithm is
    {math.log(own / other):.2f}. Allowing for chance, with {100 * found.conf_level:g} % confidence,
    the true epsilon is at least {found.lower:.2f}, and the promise was {found.epsilon:g}."""
)

# %%
# The event was chosen on other runs than those that were counted, so it is not the luckiest of
# many. The bound stays below epsilon for three reasons: no pair may attain all sensitivities of a
# method at once, the event is only one of many, and runs are few.
#
# *Losses* are sharper than counts. The audit knows the noise of this package, so it can say how
# much likelier each single release was on its own data set than on the neighbour. Where delta is 0
# no run may lose more than epsilon:

print(f"Largest loss in {found.runs} runs: {found.largest_loss:.6f}")
worst = found.tidy().nlargest(5, "largest_loss")
print(worst[["name", "about", "runs", "largest_loss"]].to_string(index=False))

# %%
# A function of your own
# ----------------------
#
# Anything that ends in a release can be audited: a function ``run(data, seed)`` that passes
# ``seed`` on to calls of this package and returns what it shows. It takes neighbours of your own.
# Make them small, so that one record matters, and extreme, so that it matters as much as it can:

small = pd.DataFrame({"score": [1.0, -1.0] * 6, "treated": [True] * 6 + [False] * 6})
changed = small.copy()
changed.loc[0, "score"] = -1.0
pairs = [(small, changed)]

# %%
# Here is a trial with a published assignment (``arms="public"``) that looks at its effect twice.
# Its author promises epsilon = 1 for both looks together, but gives each of them 1.


def effect(data, epsilon, seed):
    """Return one private effect."""
    return dpe.dp_ate(
        "score ~ treated",
        data,
        "diff_in_means",
        epsilon=epsilon,
        bounds={"score": (-1, 1)},
        arms="public",
        variance=False,
        seed=seed,
    ).estimate


def spends_twice(data, seed):
    """Show two effects; budgets add up, so this is epsilon = 2."""
    return effect(data, 1, seed), effect(data, 1, seed)


def splits_budget(data, seed):
    """Show two effects, each for half of the budget."""
    return effect(data, 0.5, seed), effect(data, 0.5, seed)


rows = []
for function in (splits_budget, spends_twice):
    result = dpe.audit(function, epsilon=1, pairs=pairs, runs=RUNS // 3, seed=1)
    verdict = "VIOLATED" if result.violated else "consistent"
    rows.append((function.__name__, result.lower, result.largest_loss, verdict))
columns = ["function", "epsilon at least", "largest loss", "verdict"]
print(pd.DataFrame(rows, columns=columns).to_string(index=False, float_format="{:.2f}".format))

# %%
# A planted mistake: half the noise
# ---------------------------------
#
# The next function draws its own noise. Scores lie in [-1, 1], and its author reasons that one
# record adds at most 1 to the sum, so Laplace noise of scale 1 / epsilon will do. But a *replaced*
# record can go from -1 to 1, which is 2: the noise is half of what it should be.
#
# The audit cannot see inside noise that is not the package's. ``watch="returned"`` tells it to look
# at what comes out and nothing else.

rng = np.random.default_rng(7)


def total(data, sensitivity):
    """Return the sum of the scores with Laplace noise for epsilon = 1."""
    return data["score"].to_numpy().clip(-1, 1).sum() + rng.laplace(scale=sensitivity)


def half_the_noise(data, seed):
    """Take the largest score for the sensitivity."""
    return total(data, sensitivity=1)


def right_noise(data, seed):
    """Take the largest change for the sensitivity."""
    return total(data, sensitivity=2)


outside = {"epsilon": 1, "pairs": pairs, "watch": "returned", "seed": 1}
audits = {
    function.__name__: dpe.audit(function, runs=RUNS, **outside)
    for function in (right_noise, half_the_noise)
}
for name, result in audits.items():
    print(f"{name}: {result.verdict}")

# %%
# What the attacker sees: the outputs on both data sets, and how often an output above a threshold
# comes from either. The ratio must stay below exp(1), the dashed line. With half the noise it does
# not.

figure, axes = plt.subplots(2, 2, figsize=(8, 4.6), layout="constrained", sharex=True, sharey="row")
for column, function in zip(axes.T, (right_noise, half_the_noise), strict=True):
    one, two = (np.array([function(part, None) for _ in range(RUNS)]) for part in pairs[0])
    bins = np.linspace(-9, 7, 65)
    column[0].hist(one, bins, color="black", histtype="step", label="data set")
    column[0].hist(two, bins, color="#bb5566", histtype="step", linestyle="--", label="neighbour")
    cuts = np.linspace(-6, 2, 81)
    above = [(values[:, None] > cuts).mean(axis=0) for values in (one, two)]
    column[1].plot(cuts, above[0] / above[1], color="black")
    column[1].axhline(math.e, color="0.5", linestyle="--")
    column[0].set_title(function.__name__, fontsize="medium", loc="left")
    column[1].set_xlabel("output, or threshold")
axes[0, 0].set_ylabel("runs")
axes[0, 0].legend(frameon=False, fontsize="small")
axes[1, 0].set_ylabel("ratio of chances above")

# %%
# An asymptotic claim
# -------------------
#
# The finite release of conditional effects (:doc:`heterogeneous_effects`) promises (1, 1e-5) by an
# argument for very large n. We give it 900 records and a forest, and let one outcome move. The
# learner repeats itself on the same data, so we fit it once for each data set, with a huge budget,
# and draw the noise that it asks for at epsilon = 1 anew in each run.

HUGE = 1e6
sample = dpe.simulate("cate_1", n=900, seed=3)
record = int(np.flatnonzero(sample["treatment"] == 0)[0])
low, high = sample.bounds["outcome"]
moved = sample.frame.copy()
moved.loc[record, "outcome"] = low if moved["outcome"][record] > (low + high) / 2 else high
known = {}


def fitted(data):
    """Return the answer at the record's covariates and the noise at epsilon = 1."""
    key = data["outcome"].sum()
    if key not in known:
        from sklearn.ensemble import RandomForestRegressor

        fit = dpe.dp_cate(
            "outcome ~ treatment | x1 + x2",
            dpe.declare(data, sample.bounds),
            release="points",
            at=sample.frame.loc[[record], ["x1", "x2"]].to_dict("list"),
            epsilon=HUGE,
            delta=1e-5,
            second_stage=RandomForestRegressor(100 if FULL else 20, random_state=0),
            accept_asymptotic=True,
            seed=1,
        )
        known[key] = fit.estimates[0], fit.tidy()["noise_sd"].iloc[0] * HUGE
    return known[key]


def finite_release(data, seed):
    """Return the answer with the noise of the claim."""
    answer, sd = fitted(data)
    return answer + sd * rng.normal()


try:
    claim = dpe.audit(
        finite_release,
        epsilon=1,
        delta=1e-5,
        pairs=[(sample.frame, moved)],
        watch="returned",
        runs=RUNS,
        seed=1,
    )
except ImportError:
    print('This needs scikit-learn: pip install "dpeffects[cate]"')
else:
    print(claim.verdict)
    (answer, sd), (elsewhere, _) = known.values()
    say(
        f"""One outcome moves the answer from {answer:.2f} to {elsewhere:.2f}; the noise has a
        standard deviation of {sd:.2f}."""
    )

# %%
# The bound says "at least", and for a mechanism this bad it says how many runs there were, not how
# bad it is: an event that never happens on one side in n runs still has a chance of up to about 4 /
# n.
#
# How many runs?
# --------------
#
# Take the best case: noise that is exactly right, and an event with the chance 1/2 on one data set
# and exp(-epsilon) / 2 on the other. The curve is what such counts show, by Clopper and Pearson's
# limits; the markers are audits of ``right_noise``. Three eighths of the runs count the event on
# either side: a quarter of them choose it.


def shown(runs, epsilon, confidence=0.95):
    """Return the lower bound on epsilon from the expected counts."""
    n, tail = 0.375 * runs, (1 - confidence) / 2
    one, two = n / 2, n * math.exp(-epsilon) / 2
    return math.log(beta.ppf(tail, one, n - one + 1) / beta.ppf(1 - tail, two + 1, n - two))


grid = np.geomspace(200, 1e6, 41)
tried = [250, 1_000, 4_000, *([16_000, 64_000] if FULL else [])]
lower = [dpe.audit(right_noise, runs=runs, **outside).lower for runs in tried]
figure, ax = plt.subplots(figsize=(5.6, 3.4), layout="constrained")
for epsilon, line in ((0.1, ":"), (0.5, "--"), (1, "-"), (2, "-.")):
    share = [max(shown(runs, epsilon), 0) / epsilon for runs in grid]
    ax.plot(grid, share, color="black", linestyle=line, label=f"epsilon {epsilon:g}")
ax.plot(tried, lower, "o", color="#bb5566", label="audits, epsilon 1")
ax.axhline(1, color="0.6", linewidth=0.8)
ax.set_xscale("log")
ax.set_xlabel("runs")
ax.set_ylabel("share of epsilon shown")
ax.legend(frameon=False, fontsize="small")

# %%

for epsilon in (0.1, 0.5, 1, 2):
    enough = next(
        runs for runs in np.geomspace(200, 1e8, 400) if shown(runs, epsilon) > 0.9 * epsilon
    )
    print(f"epsilon {epsilon:g}: {enough:>10,.0f} runs show 90 % of it at best")

# %%
# Small epsilons are hard to audit: two data sets that look alike take many runs to tell apart.
# Mistakes are easier to find than their absence, as half the noise was here.
#
# All methods
# -----------
#
# ``make evidence TABLE=audit`` audits every kind of release with 5,000 runs on each side and more.
# Where its table is on file, this is the bound at epsilon = 1:

path = Path(dpe.__file__).parents[1] / "benchmarks/results/audit.csv"
if path.exists():
    table = pd.read_csv(path).query("epsilon == 1").sort_values("lower", ascending=False)
    table = table[["case", "runs", "lower", "largest", "worst"]]
    print(table.to_string(index=False, float_format="{:.2f}".format))
else:
    print("It is not on file here: run make evidence TABLE=audit")

# %%
# What an audit cannot tell
# -------------------------
#
# - A low bound proves nothing. It speaks for the neighbours that were tried; a worse pair may
#   exist. The proofs are in ``dpeffects/privacy/PROOFS.md``, the tests attack each of them.
# - It watches what comes out, not how long it took, what it printed to a log, or that it failed.
#   ``SECURITY.md`` lists what is not protected.
# - By default noise comes from a fast generator with a seed; ``noise="secure"`` audits the
#   package's own sampler.
# - Neighbours must be real ones: the same columns and records, one record changed, and at label
#   level its outcome only.
#
# If an audit of this package ever says ``VIOLATED`` where the guarantee is exact, please report it
# as ``SECURITY.md`` says, with the pair that shows it.

# %%
# References
# ----------
#
# - Ding, Z., Wang, Y., Wang, G., Zhang, D. and Kifer, D. (2018). Detecting violations of
#   differential privacy. ACM Conference on Computer and Communications Security, 475-489.
#   doi:10.1145/3243734.3243818
# - Jagielski, M., Ullman, J. and Oprea, A. (2020). Auditing differentially private machine
#   learning: how private is private SGD? Advances in Neural Information Processing Systems 33.
#   doi:10.48550/arXiv.2006.07709
# - Clopper, C. J. and Pearson, E. S. (1934). The use of confidence or fiducial limits
#   illustrated in the case of the binomial. Biometrika 26, 404-413. doi:10.1093/biomet/26.4.404
# - Schröder, M., Melnychuk, V. and Feuerriegel, S. (2025). Differentially private learners for
#   heterogeneous treatment effects. International Conference on Learning Representations.
#   doi:10.48550/arXiv.2503.03486
