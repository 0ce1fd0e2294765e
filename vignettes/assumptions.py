"""
Assumptions, and which effect to ask for
========================================

Before a method there are two decisions: over whom the effect is to be averaged, and what has to be
true for the number to be that effect. Privacy does not change either, and adds three things of its
own. You will learn

- what ATE, ATT and ATC are, which call asks for which, and when they differ;
- what each assumption means, what breaks when it fails, and whether the result can tell;
- what the row *Assumes* of a summary says;
- what privacy adds: declared bounds, a public n, noise in the models.

Data are simulated, so that the truth is known, and seeds make the page the same each time. A seed
makes a release not private: never use one on data that matter.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import dpeffects as dpe

pd.options.display.width = 100
BOUNDS = {"y": (0, 100), "age": (20, 80), "severity": (0, 10), "frailty": (0, 10)}
FORMULA = "y ~ t | age + severity"


def patients(n, seed, *, frail=0.0, steep=1.0, bend=0.0, lot=False):
    """A score of recovery in [0, 100], a drug, age and severity of a disease.

    The drug helps by 4 points at severity 0 and by 16 at severity 10, and is given to the severe.
    ``frail``: how strongly a third covariate drives both, ``steep``: how strongly severity drives
    who is treated, ``bend``: a curve of age in both, ``lot``: treatment by lot.
    """
    rng = np.random.default_rng(seed)
    age, severity = rng.uniform(20, 80, n), rng.uniform(0, 10, n)
    frailty = np.clip(rng.normal(5, 2, n), 0, 10)
    curve = bend * (((age - 50) / 30) ** 2 - 1 / 3)
    odds = 0.4 * steep * (severity - 5) + 0.01 * (age - 50) + 0.5 * frail * (frailty - 5) + curve
    t = (rng.random(n) < (0.5 if lot else 1 / (1 + np.exp(-odds)))).astype(int)
    effect = 4 + 1.2 * severity
    y = 55 - 3 * severity - 0.2 * (age - 50) - 3 * frail * (frailty - 5) - 10 * curve + effect * t
    y = np.clip(y + rng.normal(0, 8, n), 0, 100)
    frame = pd.DataFrame({"y": y, "t": t, "age": age, "severity": severity, "frailty": frailty})
    return dpe.declare(frame.assign(effect=effect), **BOUNDS)


# %%
# Whose effect?
# -------------
# Three averages of the same individual effects. The drug helps the severe most and is given to the
# severe, so the treated gain most from it.
#
# ====== ===================================== ====================================================
# name   average over                          the question behind it
# ====== ===================================== ====================================================
# ATE    everybody                             all or nobody: should it be given to all?
# ATT    those who were treated                has it helped those who got it? should it be stopped?
# ATC    those who were not                    should it be extended to those who did not get it?
# ====== ===================================== ====================================================
#
# A fourth one, the average where either treatment is usual (overlap weights; Li, Morgan and
# Zaslavsky 2018), is the easiest to estimate and the hardest to name a population for. The default
# begins with it, because it needs the least noise, and then moves to the average that was asked
# for; the price of that move is the line *effect along the score* of the standard error.

data = patients(20_000, seed=1)
rows = []
for name, call, who in (
    ("ATE", dpe.dp_ate, slice(None)),
    ("ATT", dpe.dp_att, data["t"] == 1),
    ("ATC", dpe.dp_atc, data["t"] == 0),
):
    fit = call(FORMULA, data, epsilon=2, seed=1)
    low, high = fit.conf_int()
    rows.append((name, data.frame["effect"][who].mean(), fit.estimate, low, high))
columns = ["estimand", "truth (points)", "private estimate", "2.5 %", "97.5 %"]
print(pd.DataFrame(rows, columns=columns).round(2).to_string(index=False))

# %%
# Not every method has every estimand. A method's record says so, and a call for one that it does
# not have is refused before anything is charged.

print(dpe.methods()[["method", "estimands", "levels", "covariates"]].to_string(index=False))

# %%
# What the summary says
# ---------------------
# The row *Assumes* is above the estimate, because the number is worth what this sentence is worth.
# It depends on the method, on whether anything was adjusted for, and on what the call declared.

calls = {
    "adjusted": dpe.dp_ate(FORMULA, data, epsilon=2, seed=1),
    "declared a trial": dpe.dp_ate("y ~ t", data, epsilon=2, design="randomised", seed=1),
    "weighting": dpe.dp_ate(FORMULA, data, "private_ipw", epsilon=2, seed=1),
    "nothing adjusted for": dpe.dp_ate("y ~ t", data, epsilon=2, seed=1),
}
for name, fit in calls.items():
    lines = fit.summary().as_text(400).splitlines()
    said = [line for line in lines if line.startswith(("Assumes", "***")) and "seeded" not in line]
    print(f"{name}: {' '.join(' '.join(said).split()) or 'nothing'}\n")

# %%
# One assumption at a time
# ------------------------
# *No unmeasured confounding*: treated and untreated records with the same covariates do not differ
# otherwise. *Positivity*: everybody might have been in either arm. *Right model*: the models are
# linear in the terms of the formula, squares and products that are added to them. *Consistency and
# no interference*: there is one version of the treatment, and my outcome does not depend on yours.
# Here is what happens when one fails, 20 data sets of 5,000 records each, epsilon 2. Consistency
# has no row: data that break it look like any others.

RUNS = 20
STORIES = {
    "all of it holds": ({}, FORMULA, {}),
    "trial, declared": ({"lot": True}, FORMULA, {"design": "randomised"}),
    "trial declared, but none": ({}, FORMULA, {"design": "randomised"}),
    "confounder missing": ({"frail": 1.0}, FORMULA, {}),
    "the same, measured": ({"frail": 1.0}, FORMULA + " + frailty", {}),
    "hardly any overlap": ({"steep": 4.0}, FORMULA, {}),
    "curve in age": ({"bend": 1.5}, FORMULA, {}),
    "the same, + I(age**2)": ({"bend": 1.5}, FORMULA + " + I(age**2)", {}),
    "the same, + I((age - 50)**2)": ({"bend": 1.5}, FORMULA + " + I((age - 50)**2)", {}),
}
rows, points = [], {}
for story, (how, formula, more) in STORIES.items():
    found = []
    for seed in range(RUNS):
        sample = patients(5_000, 100 + seed, **how)
        fit = dpe.dp_ate(formula, sample, epsilon=2, seed=seed, **more)
        low, high = fit.conf_int()
        truth = sample.frame["effect"].mean()
        found.append(
            (fit.estimate - truth, (high - low) / 2, low <= truth <= high, bool(fit.warnings))
        )
    error, half, covers, warned = np.array(found).T
    points[story] = error
    se = error.std(ddof=1) / np.sqrt(RUNS)
    rows.append((story, error.mean(), se, half.mean(), int(covers.sum()), int(warned.sum())))
columns = ["", "error (points)", "se", "half-width", f"covers, of {RUNS}", "warning_lines"]
print(pd.DataFrame(rows, columns=columns).round(2).to_string(index=False))

# %%
# Read the last two columns together. A missing confounder and a trial that was none give narrow
# intervals around the wrong number, and nothing in the data can tell. :doc:`confounding` says what
# can be done: state how strong a missing confounder would have to be. Poor overlap widens the
# interval, but not enough, since where there is one arm only a model fills in for the other; look
# before (:doc:`overlap_balance`). A curve that the formula lacks moves the estimate; a released
# check finds strong ones only (:doc:`reading_default`). Centre a square: age and its square rise
# together, and noise cannot tell the two apart.

figure, ax = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
for k, error in enumerate(points.values()):
    ax.plot(
        error, np.full(RUNS, k) + np.linspace(-0.2, 0.2, RUNS), "o", ms=3, mfc="none", color="0.4"
    )
    ax.plot(error.mean(), k, "k|", ms=18, mew=2)
ax.axvline(0, color="0.6", lw=0.8)
ax.set_yticks(range(len(points)), list(points))
ax.invert_yaxis()
ax.set(xlabel="private estimate less true effect (points of the score)")
ax.set_title(f"{RUNS} data sets each; the bar is their mean", fontsize=10)
plt.show()

# %%
# A trial, or not
# ---------------
# In a trial the first assumption holds by design, and positivity too. ``design="randomised"`` says
# so; it is a promise of the analyst, no data can confirm it, and the summary repeats that "the call
# said so". It buys a shorter interval, since nothing is allowed for confounding. Drop-out after the
# lot was drawn brings confounding back: a trial with missing outcomes is only nearly one.
#
# What privacy adds
# -----------------
# *Declared bounds.* A range is part of the assumptions: what lies outside is clipped to it. A range
# from the variable's meaning costs some noise; one that is too narrow moves the answer, silently.

for low, high in ((0, 100), (20, 80), (40, 60)):
    declared = dpe.declare(data.frame, **{**BOUNDS, "y": (low, high)})
    fit = dpe.dp_ate(FORMULA, declared, epsilon=2, seed=1)
    print(f"y declared in [{low}, {high}]: {fit.estimate:5.2f} (std. error {fit.std_error:.2f})")
print(f"truth: {data.frame['effect'].mean():.2f}")

# %%
# *n is public.* If the number of records is itself a secret (how many patients of a small clinic
# have a rare disease), this guarantee does not hide it.
#
# *Noise in the models.* A noisy model adjusts less than an exact one. What noise is expected to
# leave of the confounding is taken off, and the interval has a line for what may remain
# (:doc:`reading_default` explains all lines).

print(calls["adjusted"].summary().as_text(90).split("Standard error\n")[1].split("\n\n")[0])

# %%
# What cannot be checked
# ----------------------
# - that no confounder is missing: only argued, and its absence weighed (:doc:`confounding`);
# - that the treatment was randomised, if you were not there;
# - consistency and no interference: from how the treatment was given;
# - that bounds were declared without a look at the data;
# - that nobody asked the same data elsewhere, outside the ledger.
#
# What can, at a price in epsilon: overlap, balance of what was measured, curves. Write the five
# into the paper; the row *Assumes* is where a reader will look for them.
#
# References
# ----------
# - Rosenbaum, P. R. and Rubin, D. B. (1983). The central role of the propensity score in
#   observational studies for causal effects. *Biometrika* 70, 41-55. doi:10.1093/biomet/70.1.41
# - Imbens, G. W. (2004). Nonparametric estimation of average treatment effects under exogeneity.
#   *Review of Economics and Statistics* 86, 4-29. doi:10.1162/003465304323023651
# - Hernán, M. A. and Robins, J. M. (2016). Using big data to emulate a target trial when a
#   randomized trial is not available. *American Journal of Epidemiology* 183, 758-764.
#   doi:10.1093/aje/kwv254
# - Li, F., Morgan, K. L. and Zaslavsky, A. M. (2018). Balancing covariates via propensity score
#   weighting. *JASA* 113, 390-400. doi:10.1080/01621459.2016.1260466
# - Greifer, N. and Stuart, E. A. (2021). Choosing the causal estimand for propensity score analysis
#   of observational studies. doi:10.48550/arXiv.2106.10577
