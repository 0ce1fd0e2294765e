"""
Choosing a method and epsilon
=============================

Decide before you look at the data: what protects whom, which method, how much epsilon. All of it
can be done from the formula, the bounds and the number of records. Nothing on this page, until
its last section, touches data.
"""

# %%
# What is there
# -------------
# Each method says which effects it estimates, at which level, and whether its guarantee is proved.

import math

import pandas as pd

import dpeffects as dpe

print(dpe.methods())

# %%
# The level is the first choice. *Sample*: everything in a record is protected. *Label*: only the
# outcome is; covariates and treatment are taken as public, which has to be true of your study. The
# page :doc:`Which method </generated/which_method>` has the errors, coverage and seconds that were
# measured. The default in full; :doc:`reading_default` explains what it does:

print(dpe.methods("auto"))

# %%
# Ask for a plan
# --------------
# ``plan`` rehearses each method on made-up records that fit the formula and the bounds. What the
# rehearsal cannot know is an argument: how much outcomes vary (``outcome_sd``), how many are
# treated (``treated_share``), how much of the outcome covariates explain (``r2``), how strongly
# they drive the treatment (``confounding``). The last two have defaults that real data suggests.

formula = "recovery ~ drug | age + severity + sex"
known = {
    "bounds": {"recovery": (0, 100), "age": (18, 90), "severity": (0, 10), "sex": ["f", "m"]},
    "outcome_sd": 15,
    "treated_share": 0.4,
}
study = dpe.plan(formula, n=20_000, epsilon=1, **known, repeats=4)
print(study)

# %%
# Read it with the design in mind. The half-width is that of the interval, and an interval around a
# biased estimate is of no use. ``diff_in_means`` is always among the narrowest: it ignores the
# covariates. In a trial that is right (``design="randomised"``), in an observational study it is
# not, and the plan has no minimum detectable effect for it. (``clipped_contrast`` ignores them too,
# but allows for what that may do: hence its width.) The notes say what will not adjust, and what
# the default would choose. So compare first what adjusts, then ask what the adjustment costs.

rows = study.tidy().set_index("method")
price = rows["half_width"]["auto"] / rows["half_width"]["diff_in_means"]
print(f"Adjusting by the default makes the interval {price:.2f} times as wide.")

# %%
# How much epsilon
# ----------------
# The same question in two directions. What does more budget buy?

ax = study.plot(epsilons=(0.2, 0.5, 1, 3))

# %%
# Where a curve is flat the noise no longer matters: what is left is sampling error and allowances
# for bias, and more epsilon buys nothing. And the other way round: what does a wanted precision
# cost?

wanted = 0.6
adjusting = dpe.plan(formula, n=20_000, epsilon=1, **known, method="auto", repeats=4)
epsilon = float(adjusting.required(half_width=wanted)["epsilon"].iloc[0])
records = float(adjusting.required(half_width=wanted, of="n")["n"].iloc[0])
print(f"A half-width of {wanted:g} points takes epsilon {epsilon:.2g} with 20,000 records,")
print(f"or {records:,.0f} records with epsilon 1.")

# %%
# What epsilon means to a participant
# -----------------------------------
# Epsilon bounds what anybody can learn about one record, whatever else they know. Somebody who
# thinks it a toss-up whether a record says one thing or another can be right at most this often
# after reading the result:

for epsilon in (0.1, 0.5, 1, 2, 4):
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    print(f"epsilon {epsilon:>3}: a guess between two records is right at most {100 * right:.0f} %")

# %%
# Epsilons of all releases from one dataset add up, so plan for the whole study, and leave
# something for the reviewer's question (:doc:`reading_budget`). A delta, where a method needs one,
# is the probability with which the promise may fail: far below 1 / n.
#
# Does the plan hold?
# -------------------
# Here is a simulated study of the planned size, with covariates that drive both treatment and
# outcome, so we know the true effect and can look at one run of each candidate.

data = dpe.simulate("confounded", n=20_000, seed=3)
truth = float((data["mu1"] - data["mu0"]).mean())
formula = dpe.data_info("confounded").formula
fits = [
    dpe.dp_ate(formula, data, method, epsilon=1, delta=1e-6)
    for method in ("diff_in_means", "auto", "private_ipw")
]
found = pd.concat([fit.tidy() for fit in fits])[["method", "estimate", "conf_low", "conf_high"]]
found["covers the truth"] = (found["conf_low"] <= truth) & (truth <= found["conf_high"])
print(f"The true effect is {truth:.4f}.")
print(found.round(4).to_string(index=False))

# %%
# The difference in means is precise and wrong; those that adjust come near, the default with the
# shortest interval. Where n or epsilon do not carry an adjustment, it does not try, and says so at
# the top of its summary:

small = dpe.dp_ate(formula, data[:1_000], epsilon=0.5)
print(small.warnings)

# %%
# That all holds where the score and the outcome are linear in the terms of the formula and the
# squares and products that the default adds. Where they are not, the right terms matter more than
# the method: :doc:`reading_default` shows four cases.

# %%
# References
# ----------
#
# - Dwork, C. and Roth, A. (2014). The algorithmic foundations of differential privacy.
#   Foundations and Trends in Theoretical Computer Science 9, 211-407. doi:10.1561/0400000042
# - Rosenbaum, P. R. and Rubin, D. B. (1983). The central role of the propensity score in
#   observational studies for causal effects. Biometrika 70, 41-55. doi:10.1093/biomet/70.1.41
