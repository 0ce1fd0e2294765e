"""
Quick start
===========

One line to a private treatment effect. ``make demo`` runs this file; every run draws fresh noise,
so the numbers differ from run to run.
"""

# %%
# A trial
# -------
# In the International Stroke Trial half of 19,408 patients were given aspirin, by lot. Does it
# prevent another stroke within two weeks? The formula says what depends on what, outcome before
# treatment; epsilon is the whole price of the call. That treatment was drawn by lot is public
# knowledge about the study, so the call may say it.

import dpeffects as dpe

stroke = dpe.load_data("ist")
trial = dpe.dp_ate("stroke_14_days ~ treatment", stroke, epsilon=1, design="randomised")
print("A trial: does aspirin prevent another stroke?\n")
print(trial.summary("short"))

# %%
# Of 1,000 patients about nine are spared a stroke. For comparison, what the curator would have
# found without privacy. It is not private, and says so:

print("\nThe same without privacy:\n")
print(dpe.reference("stroke_14_days ~ treatment", stroke))

# %%
# A study that is not a trial
# ---------------------------
# How much less do the babies of mothers who smoke weigh? Nobody drew lots here, so other things
# that differ between the mothers have to be adjusted for: they come after the bar. The data are
# 4,642 births, with bounds that follow from what the variables mean.

births = dpe.load_data("birthweight")
formula = "outcome ~ treatment | prenatal_first_trimester + married + mage + first_baby + medu"
smoking = dpe.dp_ate(formula, births, epsilon=1)
print("\n\nNot a trial: how much less do the babies of mothers who smoke weigh, in grams?\n")
print(smoking.summary("short"))

# %%
# Read it from the top. A line between asterisks, if there is one, is what nobody should overlook.
# The guarantee says what is protected. Again what the curator would have found, and what comes out
# when nothing is adjusted for:

adjusted = dpe.reference(formula, births)
crude = dpe.reference("outcome ~ treatment", births, "diff_in_means")
low, high = smoking.conf_int(0.95)
print(f"\nprivate, epsilon 1         {smoking.estimate:6.0f} grams ({low:.0f} to {high:.0f})")
for name, found in (("not private", adjusted), ("not private, not adjusted", crude)):
    low, high = found.estimate - 1.96 * found.std_error, found.estimate + 1.96 * found.std_error
    print(f"{name:<26} {found.estimate:6.0f} grams ({low:.0f} to {high:.0f})")

# %%
# Everything
# ----------
# The whole summary goes on where the short one ends. The standard error has a line for everything
# that the interval allows for: the people who were drawn, the noise that protects them, and biases
# that may be left (:doc:`reading_default` explains each). The budget lists every number that was
# released, its price, and its proof.

print("\n\nEverything about it, by print(smoking.summary()):\n")
print(smoking.summary())

# %%
# Another method
# --------------
# A method is chosen by its name. This is PrivATE's matching on propensity scores, for the same
# births and the same epsilon, where outcomes alone are private (the label level):

matched = dpe.dp_ate(formula, births, method="private_psm", level="label", epsilon=1)
print("\n\nThe same question by another method, side by side:\n")
print(dpe.compare(smoking, matched, names=["default", "private_psm"], stat="conf_int"))

# %%
# Matching adjusts as the default does. It protects less: covariates and treatment of everybody are
# public, and so is who is matched to whom. Without ``level="label"`` they are protected too: then
# groups of a released propensity score are matched. The algorithm as the paper prints it hides the
# score and the treatment of every single record, which costs far more than a few sums over all
# records. It is ``as_printed=True``; :doc:`private_matching` has the whole comparison.

# %%
# Results hold released numbers only: print them, bind the frames of several (``smoking.tidy()``),
# or export them (``smoking.to_json()``, ``smoking.report("record.html")``).

print("\nGo on: `dpeffects vignette` lists more of this, `dpeffects demo` is a whole study")
print("in a shell, and `make docs` makes the pages.")

# %%
# Where to go on: :doc:`choosing_bounds` for data of your own, :doc:`reading_default` for what the
# default does and assumes, :doc:`choosing_method` for method and epsilon, :doc:`reading_budget` for
# what was paid, and :doc:`study` for all of it in order.

# %%
# References
# ----------
#
# - International Stroke Trial Collaborative Group (1997). The International Stroke Trial (IST).
#   Lancet 349, 1569-1581. doi:10.1016/S0140-6736(97)04011-7
# - Cattaneo, M. D. (2010). Efficient semiparametric estimation of multi-valued treatment
#   effects under ignorability. Journal of Econometrics 155, 138-154 (the birth weights).
#   doi:10.1016/j.jeconom.2009.09.023
# - Yuan, Q. and others (2026). PrivATE: Differentially private average treatment effect
#   estimation for observational data. Network and Distributed System Security Symposium.
#   doi:10.48550/arXiv.2512.14557
