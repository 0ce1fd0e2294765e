"""
The default, line by line
=========================

``dp_ate`` without a method chooses one. This page says how it chooses, what it needs to be told,
what each line of its standard error means, and what no interval can know. You will learn

- what ``design=`` and ``on_unadjusted=`` are for;
- how to read the standard error, and when an estimate is an association only;
- what a delta buys;
- what an unmeasured confounder would do, and what curves, steps and interactions need.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import dpeffects as dpe

pd.options.display.width = 100

# %%
# What it chooses
# ---------------
# Smoking in pregnancy and birth weight: 4,642 births, five covariates.

births = dpe.load_data("birthweight")
formula = "outcome ~ treatment | prenatal_first_trimester + married + mage + first_baby + medu"
smoking = dpe.dp_ate(formula, births, epsilon=1)
print(smoking.summary())

# %%
# There are three ways, and a note at the end of every summary says which was taken:
#
# - ``regression`` adjusts by least squares in each arm, squares and products among their columns.
#   There is no noise in them: what they say is hidden by *one* draw at the end. It takes several
#   hundred records of the smaller arm, times epsilon, for each column.
# - ``one_step`` adjusts. It releases the means, spreads and products of the columns, makes two
#   linear models of them, one for the outcome and one for the log odds of treatment, and corrects
#   what they say by *one* sum over all records, of what the outcome model leaves unexplained.
# - ``clipped_contrast`` compares the two arms, and adjusts for nothing.
#
# The choice is made before anything is released, from numbers that are public: n, epsilon, delta,
# the design, and the number and types of the covariates. So it costs nothing and tells nothing. The
# note says how much wider the intervals of the others would be, and where a delta would help. Where
# covariates and treatment are public, and only outcomes are to be protected, say
# ``level="label"``: then adjusting is free, and is always done.
#
# Tell it about a trial
# ---------------------
# That treatment was drawn by lot cannot be learnt from the data, so it is for you to say:
# ``design="randomised"``. Then there is nothing to adjust for, the interval allows for no
# confounding, and covariates do something else: what they explain of the outcome is no longer
# random, and the interval gets shorter. A simulated trial of a drug against high blood pressure, in
# which the drug lowers it by 4:


def trial(n, seed):
    """Blood pressure before and after, age, and a drug by lot."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(40, 90, n)
    before = np.clip(rng.normal(140 + 0.5 * (age - 65), 15), 80, 240)
    drug = rng.integers(0, 2, n)
    after = np.clip(30 + 0.75 * before + 0.1 * age - 4 * drug + rng.normal(0, 10, n), 80, 240)
    frame = pd.DataFrame({"after": after, "drug": drug, "before": before, "age": age})
    return dpe.declare(frame, after=(80, 240), before=(80, 240), age=(40, 90))


patients = trial(20_000, seed=1)
fits = {
    "diff_in_means": dpe.dp_ate("after ~ drug", patients, "diff_in_means", epsilon=1),
    "no covariates": dpe.dp_ate("after ~ drug", patients, epsilon=1, design="randomised"),
    "before + age": dpe.dp_ate(
        "after ~ drug | before + age", patients, epsilon=1, design="randomised"
    ),
}
print(dpe.compare(*fits.values(), names=list(fits), stat="conf_int"))

# %%
# Where the width comes from
# --------------------------
# The table "Standard error" above has one line for each thing that the interval allows for. The
# variances add up; lines that do not apply are left out.
#
# ======================================== =========================================================
# line                                     what it is
# ======================================== =========================================================
# sampling error                           other people could have been in the study; it is there
#                                          without privacy too
# privacy noise, final sum                 noise in the one sum that corrects the models
# share treated and means                  noise in what was released first: how many are treated,
#                                          and the mean outcome of both arms
# models                                   noise in the moments moves the two models, and they move
#                                          the estimate
# confounding left by noise in the models  noisy models balance the arms imperfectly. What is to be
#                                          expected of that was subtracted; this is what may remain
# clipped outcomes                         outcomes far from what is expected are cut, so that no
#                                          record needs much noise to hide, and so are products of
#                                          weights and residuals; what is cut off one arm may not be
#                                          cut off the other
# confounding by curves                    the models are straight lines in their columns. An
#                                          allowance for slight bends, and more where the released
#                                          check for curves (below) finds one
# effect along the score                   where noise forbids weights of the average asked for, the
#                                          sum counts those most who might have been in either arm.
#                                          How the effect changes with the chance of treatment is
#                                          estimated, to give that average; this is the noise of it
# effects that vary                        what chance leaves unknown of it
# imbalance left by the weights            at label level only: public weights balance the arms
#                                          nearly, not wholly
# confounding, a guess                     of associations, in ``effect_conf_int()`` only: how
#                                          far off unadjusted differences tend to be
# ======================================== =========================================================
#
# The first line shrinks with more records, those of noise with more epsilon or more records. Those
# marked as a possible bias are allowances: what helps against them are more epsilon for the models,
# fewer covariates, or better terms.
#
# An association is not an effect
# -------------------------------
# Where n, epsilon and the covariates do not carry an adjustment, and nobody declared a trial, what
# comes out is called an association, from the title to ``report()``, and has no p-value. Its
# interval is that of the association; ``effect_conf_int()`` allows for confounding of the usual
# size, and is wide.

data = dpe.simulate("confounded", n=2_000, seed=3)
text = dpe.data_info("confounded").formula
small = dpe.dp_ate(text, data[:1_000], epsilon=0.2)
print(small.warnings)
print(small.notes[-1])

# %%
# If an association is of no use to you, refuse it. The refusal comes from public numbers, before
# anything is charged:

try:
    dpe.dp_ate(text, data[:1_000], epsilon=0.2, on_unadjusted="error")
except dpe.DPEffectsError as error:
    print(error)

# %%
# What a delta buys
# -----------------
# A delta, far below 1 / n, allows Gaussian noise, which hides many numbers at once more cheaply.
# Models rest on the products of all pairs of columns, so the more covariates, the more it buys.
# Twenty samples each, with ten covariates that confound strongly; the true effect is 0.1:

rows = []
for n, epsilon in ((2_000, 0.5), (5_000, 1)):
    for delta in (0, 1e-6):
        fits = [
            dpe.dp_ate(
                text, dpe.simulate("confounded", n=n, seed=k), epsilon=epsilon, delta=delta, seed=k
            )
            for k in range(20)
        ]
        low, high = np.array([tuple(fit.conf_int()) for fit in fits]).T
        error = np.median([abs(fit.estimate - 0.1) for fit in fits])
        covers = ((low <= 0.1) & (high >= 0.1)).sum()
        rows.append((n, epsilon, f"{delta:g}", error, np.median(high - low) / 2, covers))
columns = ["n", "epsilon", "delta", "median error", "half-width", "covers, of 20"]
print(pd.DataFrame(rows, columns=columns).round(4).to_string(index=False))

# %%
# Few records for many strong confounders are also where the default is weakest: with noise in both
# models at once, what they say about the strength of the confounding is itself uncertain, and
# intervals can be too short. A delta, more records, or fewer covariates help.
#
# What no interval can know
# -------------------------
# Every adjusted result says what it assumes: that no confounder is missing from the formula, and
# that the models are linear in its terms and the columns added. The first is about the world.
# ``sensitivity()`` says how strong a missing confounder would have to be. It is computed from
# released numbers and costs nothing. Mothers who smoke may also drink more often: say a confounder
# that 20 in 100 more of them have, and that takes 150 grams.

missing = smoking.sensitivity(prevalence_difference=0.2, confounder_effect=-150)
print(missing.summary())

# %%
ax = missing.plot()

# %%
# Terms that bend
# ---------------
# The second assumption is about columns, and here the default helps itself: where n and epsilon
# carry them it adds squares of the columns, then products of two. The summary says how many
# (*terms added*), and its first line what was left out: No interactions, or Linear terms only.
# ``flexible=0`` says that the formula has all that it takes.
#
# Here are four populations of 10,000 in which one shape drives both, who is treated and how they
# fare; the true effect is 0.05. Lines cannot follow any of these shapes, squares and products two
# of them. The formula can say them all: a square by ``I(x1**2)``, any smooth curve by a spline
# ``bs()``, an interaction by ``x1 * x2``, a threshold by ``cut()``. They are terms like others, at
# the price of the noise of a few columns. The data are made up, so the noise may be seeded, and the
# table is the same each time.

EFFECT = 0.05
SPLINE = "bs(x1, knots=[-0.5, 0, 0.5], lower_bound=-1, upper_bound=1)"
SHAPES = {
    "square": (lambda a, b: a**2, "x1 + I(x1**2) + x2"),
    "wave": (lambda a, b: np.sin(4 * a), f"{SPLINE} + x2"),
    "interaction": (lambda a, b: a * b, "x1 * x2"),
    "threshold": (lambda a, b: 1.0 * (a > 0.3), "cut(x1, [-1, 0.3, 1]) + x2"),
}
BOUNDS = {"y": (0, 1), "x1": (-1, 1), "x2": (-1, 1)}


def population(shape, seed, n=10_000):
    """A standardised shape of two covariates drives both treatment and outcome."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-1, 1, (2, n))
    value = SHAPES[shape][0](a, b)
    value = (value - value.mean()) / value.std()
    t = (rng.random(n) < 1 / (1 + np.exp(-value))).astype(int)
    y = 0.5 + EFFECT * t + 0.08 * value + 0.05 * b + rng.uniform(-0.1, 0.1, n)
    return pd.DataFrame({"y": y, "t": t, "x1": a, "x2": b})


SEEDS = range(1, 11)
rows = []
for shape, (_, terms) in SHAPES.items():
    asked = {
        "lines": ("x1 + x2", {"flexible": 0}),
        "default": ("x1 + x2", {}),
        "right terms": (terms, {}),
    }
    for name, (right, more) in asked.items():
        for seed in SEEDS:
            sample = population(shape, seed)
            fit = dpe.dp_ate(
                f"y ~ t | {right}", sample, epsilon=1, bounds=BOUNDS, seed=seed, **more
            )
            rows.append((shape, name, fit.estimate, *fit.conf_int()))
found = pd.DataFrame(rows, columns=["shape", "columns", "estimate", "low", "high"])
found["covers"] = found["low"].le(EFFECT) & found["high"].ge(EFFECT)
groups = found.groupby(["shape", "columns"], sort=False)
table = groups[["estimate", "low", "high"]].mean().join(groups["covers"].sum())
print(f"True effect {EFFECT}. Means of {len(SEEDS)} samples at epsilon 1; how many cover:")
print(table.round(3).to_string())

# %%
# In a picture: with lines the intervals are in the wrong place; with the right terms they hold the
# truth, and for squares and interactions the default needs no help.

figure, axes = plt.subplots(1, len(SHAPES), figsize=(10, 3.2), sharey=True, layout="constrained")
for ax, (shape, part) in zip(axes, found.groupby("shape", sort=False), strict=True):
    for k, (_, rows) in enumerate(part.groupby("columns", sort=False)):
        at = k + np.linspace(-0.2, 0.2, len(rows))
        ax.vlines(at, rows["low"], rows["high"], color=f"C{k}", lw=2)
        ax.plot(at, rows["estimate"], "osD"[k], color=f"C{k}", ms=4)
    ax.axhline(EFFECT, color="0.4", ls="--", lw=1)
    ax.set(title=shape, xticks=[0, 1, 2], xlim=(-0.5, 2.5))
    ax.set_xticklabels(["lines", "default", "terms"])
axes[0].set_ylabel("effect, 95 % interval")
plt.show()

# %%
# Waves and thresholds are neither squares nor products, and nothing warns of them here: with so
# many records the default is ``regression``, which does not look for what its columns lack. A check
# of ``one_step`` does: does treatment depend on a square, a step or a product beyond the columns?
# What it finds is in the interval, and what surely bends is named at the top of the summary. So
# where you know that a covariate has a turning point or a threshold, put it in the formula; where
# you do not know, splines for the strongest numeric covariates are a cheap insurance.

# %%
# References
# ----------
#
# - Robins, J. M., Rotnitzky, A. and Zhao, L. P. (1994). Estimation of regression coefficients
#   when some regressors are not always observed. Journal of the American Statistical
#   Association 89, 846-866. doi:10.1080/01621459.1994.10476818
# - Rosenbaum, P. R. and Rubin, D. B. (1983). The central role of the propensity score in
#   observational studies for causal effects. Biometrika 70, 41-55. doi:10.1093/biomet/70.1.41
# - Dwork, C., McSherry, F., Nissim, K. and Smith, A. (2006). Calibrating noise to sensitivity
#   in private data analysis. Theory of Cryptography, 265-284. doi:10.1007/11681878_14
