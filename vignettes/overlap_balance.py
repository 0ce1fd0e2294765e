"""
Overlap and balance under privacy
=================================

Before an effect is estimated, two things are worth a look: whether the arms overlap (is there
anybody in one arm to compare the other with?) and whether they are balanced (how different are
they?). Neither needs outcomes, so looking does not tempt. But under privacy looking costs budget,
and what is seen is noisy. You will learn

- what ``dp_balance`` releases, what it costs, and when it refuses;
- how to read a standardised difference that carries noise;
- what balance looks like after weighting, and in data that hardly overlap;
- what to do when it looks bad.

The data are public, so that the answers without noise can be shown beside; seeds make the page the
same each time. A seed makes a release not private: never use one on data that matter.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import dpeffects as dpe

pd.options.display.width = 100
births = dpe.load_data("birthweight")
formula = "outcome ~ treatment | prenatal_first_trimester + married + mage + first_baby + medu"

# %%
# One call
# --------
# Mothers who smoke and mothers who do not: 4,642 births, epsilon 1. The outcome in the formula is
# not looked at.

balance = dpe.dp_balance(formula, births, epsilon=1, seed=1)
print(balance.tidy().round(3).to_string(index=False))
print(f"\nscores beyond 0.1 and 0.9: {balance.scores_outside[0]:.0%} of the records")
balance.plot()
plt.show()

# %%
# A love plot. A standardised difference is the difference of the means of the arms over the root of
# their average variance; beyond 0.1 it counts as imbalance. Whiskers are privacy noise, not
# sampling error, and a hollow mark may be nothing but noise. Married women smoke less, and so do
# those with more schooling: this has to be adjusted for.
#
# How noisy numbers should be read
# --------------------------------
# Here are the differences without noise beside what was released. That is possible because the data
# are public; with yours only the first two columns exist.

frame, rows = births.frame, []
treated = frame["treatment"] == 1
for name, difference, sd in zip(balance.terms, balance.smd, balance.noise_sd, strict=True):
    one, zero = frame.loc[treated, name], frame.loc[~treated, name]
    exact = (one.mean() - zero.mean()) / np.sqrt((one.var() + zero.var()) / 2)
    rows.append((name, difference, sd, exact, (difference - exact) / sd))
columns = ["covariate", "released", "noise sd", "without noise", "off by, in noise sds"]
print(pd.DataFrame(rows, columns=columns).round(3).to_string(index=False))

# %%
# So: call a covariate balanced only if the size of its difference *plus* two noise sds is below
# 0.1, imbalanced only if the size *less* two noise sds is above 0.1. What lies between is not known
# at this price. A balance table under privacy never proves balance: "not distinguished from
# balance" is the most that it can say. And never drop a covariate because its difference came out
# small: with noise that is a coin toss. Choose covariates by what is known of the subject.
#
# Overlap
# -------
# A private propensity model scores every record, and a histogram of the scores is released for each
# arm. Noise in a bin (the thin lines) does not depend on how many records are in it, so that bins
# with few show hardly more than noise.

balance.plot("overlap")
plt.show()

# %%
# What it costs
# -------------
# Noise in a difference falls with n times epsilon, and grows with the number of covariates. What is
# worth releasing is decided from public numbers: at a low price the model, the histogram and the
# weighted differences are left out, and their share goes to the plain differences. Where even those
# would be noise, the call is refused and nothing is charged.

data = dpe.simulate("confounded", n=20_000, seed=1)
text = dpe.data_info("confounded").formula
rows = []
for n in (500, 2_000, 20_000):
    for epsilon in (0.1, 0.3, 1.0):
        try:
            found = dpe.dp_balance(text, data[:n], epsilon=epsilon, seed=1)
        except dpe.DPEffectsError:
            rows.append((n, epsilon, "refused", "", ""))
            continue
        noise = np.nanmean(np.asarray(found.noise_sd, dtype=float))
        overlap, weighted = found.options["overlap"], found.options["adjusted"]
        rows.append(
            (n, epsilon, f"{noise:.3f}", "yes" if overlap else "no", "yes" if weighted else "no")
        )
columns = ["n", "epsilon", "noise sd of a difference", "overlap", "after weighting"]
print(pd.DataFrame(rows, columns=columns).to_string(index=False))

# %%
# The refusal says what would do:

try:
    dpe.dp_balance(text, data[:500], epsilon=0.1)
except dpe.DPEffectsError as error:
    print(error)

# %%
# After weighting
# ---------------
# ``adjusted=True`` adds the differences after weighting by the inverse of the private propensities,
# where that is not chosen anyway. Ten covariates, six of which drive treatment, 20,000 records,
# epsilon 2:

weighted = dpe.dp_balance(text, data, epsilon=2, adjusted=True, seed=1)
weighted.plot()
plt.show()
before, after = (np.abs(np.asarray(x, dtype=float)) for x in (weighted.smd, weighted.smd_adjusted))
print(f"largest difference {before.max():.2f} before, {after.max():.2f} after weighting")
print(f"(noise sd {np.mean(weighted.noise_sd):.3f} and {np.mean(weighted.noise_sd_adjusted):.3f})")

# %%
# This is balance by a propensity model that was fitted for this look. ``dp_ate`` fits its own, and
# the default corrects an outcome model too, so what is left here is an upper limit of sorts, not a
# diagnosis of the estimate to come.
#
# When it is bad
# --------------
# The 185 men of a job training programme against 15,992 men of a survey, the classic case of arms
# that hardly meet. The trial that the 185 are from says that training raised earnings by 1,794
# dollars; the plain difference here is -8,498.

survey = dpe.load_data("lalonde_cps")
story = dpe.data_info("lalonde_cps").formula
look = dpe.dp_balance(story, survey, epsilon=2, overlap=True, estimand="ATT", seed=1)
fig, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
look.plot(ax=axes[0])
look.plot("overlap", ax=axes[1])
plt.show()
print(f"scores beyond 0.1 and 0.9: {look.scores_outside[0]:.0%} of the records")

# %%
# Nearly all of the survey has scores close to 0: nobody like them was trained. What can be done:
#
# 1. *Ask another question.* The effect on the treated needs untreated men who resemble the treated,
#    not the reverse. ``dp_att`` has the right weights; ``dp_ate`` would have to guess what training
#    does for men who would never have entered it.
# 2. *Restrict the population, by a rule from outside the data*: here the programme's own rule of
#    entry, men with low earnings before. A rule found by looking at the data is not free.
# 3. *Better terms*: what separates the arms may be a curve or a threshold (``cut``, ``bs``).
# 4. *Say so.* Where the arms do not meet no method helps, private or not.

RULE = 6_000  # dollars in both years before: a rule of entry, not a result
frame = survey.frame
poor = frame[(frame["earnings_1974"] <= RULE) & (frame["earnings_1975"] <= RULE)]
restricted = dpe.declare(poor.reset_index(drop=True), **{**survey.bounds})
calls = {
    "ATE, everybody": (dpe.dp_ate, survey),
    "ATT, everybody": (dpe.dp_att, survey),
    "ATT, low earnings": (dpe.dp_att, restricted),
}
rows = []
for name, (call, records) in calls.items():
    found, said = [], 0
    for seed in range(20):
        fit = call(story, records, epsilon=2, seed=seed)
        found.append((fit.estimate, *fit.conf_int()))
        said += bool(fit.warnings)
    value, low, high = np.array(found).T
    quarters = np.quantile(value, [0.25, 0.5, 0.75])
    covers = int(((low <= 1_794) & (high >= 1_794)).sum())
    exact = dpe.reference(story, records, estimand=name[:3]).estimate
    rows.append((name, len(records), *quarters, np.median(high - low) / 2, covers, said, exact))
columns = ["20 releases, epsilon 2", "n", "25 %", "median", "75 %", "half-width", "hold 1,794"]
columns += ["warning_lines", "without privacy"]
print("Dollars; the trial says 1,794.")
print(pd.DataFrame(rows, columns=columns).round(0).to_string(index=False))

# %%
# On everybody most releases carry a warning (the log odds of treatment bend), and intervals of some
# 20,000 dollars to either side: an honest way of saying nothing. After restricting, intervals are a
# fifth of that and still wider than the effect, since 185 treated men stay few; and a few more of
# them miss the trial's answer than should, because the models hold only where the arms meet. The
# best use of this table is to stop at the picture above it: with 97 % of the scores at one end, an
# estimate should not be bought at this price. (The number of records after a restriction is public
# in this package, so a rule that singles out a person should not be used.)
#
# The order of things
# -------------------
# 1. Decide covariates, estimand and population from the subject.
# 2. Look once, with ``dp_balance``, for a fixed part of the budget (a fifth is plenty).
# 3. If the arms do not overlap, change the question by a rule from outside, and write that down.
# 4. Estimate. Do not look again until it suits: every look is charged, and the ledger shows all.
#
# References
# ----------
# - Austin, P. C. (2009). Balance diagnostics for comparing the distribution of baseline covariates
#   between treatment groups in propensity-score matched samples. *Statistics in Medicine* 28,
#   3083-3107. doi:10.1002/sim.3697
# - Stuart, E. A. (2010). Matching methods for causal inference: a review and a look forward.
#   *Statistical Science* 25, 1-21. doi:10.1214/09-STS313
# - Crump, R. K., Hotz, V. J., Imbens, G. W. and Mitnik, O. A. (2009). Dealing with limited overlap
#   in estimation of average treatment effects. *Biometrika* 96, 187-199. doi:10.1093/biomet/asn055
# - Dehejia, R. H. and Wahba, S. (1999). Causal effects in nonexperimental studies. *JASA* 94,
#   1053-1062. doi:10.1080/01621459.1999.10473858
