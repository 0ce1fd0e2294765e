"""
A study from plan to published record
=====================================

The whole way, in the order in which it should be walked: a plan that touches no data, a budget that
the board approves, a look at balance, the estimate that was promised, the text for the paper,
the record for the board, and an audit. The question: how much less do the babies of mothers who
smoke weigh? The data are 4,642 births in Pennsylvania.
"""

# %%
# 1. What is known before the data
# --------------------------------
# Bounds come from what the variables mean: births are registered from 500 grams on, and more than
# 5,000 is extreme; ages and years of schooling have natural limits.

import tempfile
from pathlib import Path

import dpeffects as dpe
from dpeffects import plots

folder = Path(tempfile.mkdtemp())
births = dpe.load_data("birthweight")
formula = "outcome ~ treatment | prenatal_first_trimester + married + mage + first_baby + medu"
bounds = {
    "outcome": (500, 5_000),
    "prenatal_first_trimester": range(2),
    "married": range(2),
    "mage": (12, 50),
    "first_baby": range(2),
    "medu": (0, 17),
}

# %%
# 2. Plan
# -------
# About a fifth of mothers smoked at the time, and birth weights spread by some 550 grams, of which
# what is known of mothers explains little: all from the literature. Which method finds a difference
# of 200 grams, and at what price?

plan = dpe.plan(
    formula,
    n=4_642,
    epsilon=3,
    bounds=bounds,
    treated_share=0.2,
    r2=0.05,
    outcome_mean=3_400,
    outcome_sd=550,
    repeats=4,
)
shown = plan.tidy()[["method", "noise_sd", "half_width", "mde"]]
print(shown.round(0).to_string(index=False))

# %%
# A difference in means would be precise, but who smokes is not random. Of what adjusts, the default
# (``auto``) has the shortest interval, and was nearest where the truth is known
# (:doc:`/generated/which_method`). We settle for it at epsilon 3, with one unit for balance and one
# for the crude difference: five in all. The same from a terminal::
#
#     dpeffects plan "outcome ~ treatment | mage + medu" --n 4642 --epsilon 3 --bounds bounds.toml
#
# 3. The budget
# -------------
# The board approves a total. From here on every call charges this file, and none can pass it.

ledger = folder / "births.db"
dpe.create_ledger(ledger, "births", epsilon=5)
charged = {"ledger": ledger, "dataset": "births"}

# %%
# 4. Balance
# ----------
# How do smokers and non-smokers differ? Out of its own part of the budget. Whiskers are noise, a
# hollow mark may be nothing but noise, and "n/a" is a covariate whose spread drowned in it.

balance = dpe.dp_balance(formula, births, epsilon=1, **charged)
ax = balance.plot()

# %%
# 5. The estimates
# ----------------
# What was planned, and nothing else. The crude difference is there to show what adjusting does.

crude = dpe.dp_ate("outcome ~ treatment", births, "diff_in_means", epsilon=1, **charged)
adjusted = dpe.dp_ate(formula, births, epsilon=3, on_unadjusted="error", **charged)
print(adjusted.summary())

# %%
# ``on_unadjusted="error"`` keeps the board's promise: had n and epsilon not carried an adjustment,
# the call would have been refused, and nothing charged.

# %%
# From a terminal::
#
#     dpeffects bounds-template births.csv > bounds.toml      # names and types; fill in the ranges
#     dpeffects ate "outcome ~ treatment | mage + medu" births.csv --epsilon 3 \
#         --bounds bounds.toml --ledger births.db --dataset births
#
# Side by side, as in a paper's table:

print(dpe.compare(crude, adjusted, names=["crude", "adjusted"]))

# %%
# Where the width of each interval comes from:

ax = plots.estimate(crude, adjusted, names=["crude", "adjusted"])

# %%
# What if a confounder is missing? Mothers who smoke may also drink more often: say 20 in 100 more
# of them, and that it takes 150 grams. This is computed from what was released, and costs nothing
# (:doc:`reading_default` has more).

print(adjusted.sensitivity(prevalence_difference=0.2, confounder_effect=-150).tidy().round(0).T)

# %%
# The budget is gone. A further question would be refused before the data is read:

try:
    dpe.dp_att(formula, births, epsilon=1, **charged)
except dpe.DPEffectsError as error:
    print(error)

# %%
# 6. The text and the record
# --------------------------
# ``report()`` writes the paragraph for the paper.

print(adjusted.report())

# %%
# ``report("record.html")`` writes the release record for the board, with a JSON twin beside it. All
# in it is public. :doc:`What a board should look for </review_board>` is on a page of its own.

adjusted.report(folder / "record.html")
for path in sorted(folder.glob("record*")):
    print(f"{path.name}: {path.stat().st_size:,} bytes")

# %%
# The ledger has the other half of the story: everything that was released from these data,
# published or not.

book = dpe.open_ledger(ledger, "births")
charges = book.to_frame().groupby("method", sort=False)["epsilon"].sum()
print(charges.round(3).to_string())
print(book.verify().partition(": ")[2].partition(";")[0])

# %%
# 7. An audit
# -----------
# A promise can be tested. ``audit`` runs the method many times on neighbouring datasets and bounds
# its true epsilon from below; the bound must not exceed the promise. A short one here; the
# vignette on auditing has more.

found = dpe.audit("diff_in_means", epsilon=1, runs=2_000, seed=1)
verdict = "the promise is broken" if found.violated else "nothing contradicts the promise"
print(f"promised epsilon 1, shown at least {found.lower:.2f}: {verdict}")

# %%
# References
# ----------
#
# - Almond, D., Chay, K. Y. and Lee, D. S. (2005). The costs of low birth weight. Quarterly
#   Journal of Economics 120, 1031-1083. doi:10.1093/qje/120.3.1031
# - Cattaneo, M. D. (2010). Efficient semiparametric estimation of multi-valued treatment
#   effects under ignorability. Journal of Econometrics 155, 138-154 (the birth weights).
#   doi:10.1016/j.jeconom.2009.09.023
# - Rosenbaum, P. R. and Rubin, D. B. (1983). The central role of the propensity score in
#   observational studies for causal effects. Biometrika 70, 41-55. doi:10.1093/biomet/70.1.41
