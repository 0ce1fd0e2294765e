"""
What people report: risks, ratios, tests, quantiles, rates
==========================================================

A difference in means is rarely all that a paper reports. This page goes through the numbers that
readers ask for. Most of them are computed from what a call has released anyway, and cost nothing
more; the others are one call each. You will learn

- how to read risks, ratios, odds and numbers needed to treat off a result;
- how to test one side, non-inferiority and equivalence, and how an exact randomisation test of a
  trial works under privacy;
- how to compare quantiles of skewed costs, ordered outcomes, and rates per person-year;
- how to plan for any of these.

Survival has :doc:`a page of its own <survival>`. The trial below is public and the other data are
simulated, and seeds make the page the same each time. A seed makes a release not private: never use
one on data that matter.
"""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

import dpeffects as dpe

pd.options.display.width = 100
SHOWN = ["term", "estimate", "conf_low", "conf_high", "p_value"]

# %%
# Means and risks
# ---------------
# The International Stroke Trial gave aspirin by lot to half of 19,408 patients. The outcome is
# another stroke within two weeks. ``fit.means`` has both risks, with intervals; where a method
# adjusts for covariates they are adjusted too.
stroke = dpe.load_data("ist")
fit = dpe.dp_ate("stroke_14_days ~ treatment", stroke, epsilon=1, design="randomised", seed=1)
print(fit.means.round(5).to_string(index=False))

# %%
# Ratios, odds, numbers needed to treat
# -------------------------------------
# The same two means on other scales. A ratio has no symmetric error, and noise makes that worse
# where the control risk is small; its interval is made of all ratios that a test does not reject,
# with the noise in the test. Where the control mean may be zero the interval ends in infinity,
# and the sentence says so.
for scale in ("ratio", "odds", "lift", "nnt"):
    print(fit.effect(scale))

# %%
# A ratio needs an outcome that cannot be negative, odds and the number needed to treat one of 0 and
# 1; both by declaration, because the data may not tell. Other outcomes are refused:
births = dpe.load_data("birthweight")
smoking = dpe.dp_ate("outcome ~ treatment | mage + medu + married", births, epsilon=1, seed=1)
print(smoking.effect("ratio"))
try:
    smoking.effect("odds")
except dpe.DPEffectsError as error:
    print(error)

# %%
# Tests
# -----
# ``fit.test()`` has the distribution of the interval, so test and interval always agree. One-sided:
print(fit.test(alternative="less").summary())

# %%
# *Non-inferiority*: are babies of smokers at most 400 grams lighter? *Equivalence*, by two tests of
# one side each: is the change in the risk of a stroke below 2 in 100, up or down? What is shown
# is said in words, what is not too, and so is the smallest margin that would have been shown.
print(smoking.test(alternative="greater", margin=400).conclusion)
print(fit.test(margin=0.02).conclusion)
narrow = fit.test(equivalence=(-0.005, 0.005))
print(narrow.conclusion)

# %%
# A randomisation test
# --------------------
# Fisher's test of a trial asks whether treatment changes *anybody's* outcome. It assumes nothing
# but the assignment of treatment, whose distribution is known, and here that of the noise
# too. So the p-value is exact for every number of records and every epsilon. It is a call of its
# own, for outcomes of 0 and 1, and it takes how treatment was assigned: a chance for each
# (``treated_share=``), or a number of treated records (``treated=``).
exact = dpe.dp_randomisation_test(
    "stroke_14_days ~ treatment", stroke, treated_share=0.5, epsilon=0.5, seed=1
)
print(exact.summary())

# %%
# Quantiles of skewed outcomes
# ----------------------------
# Costs have a few very large values, and their mean follows these. Here a programme leaves most
# people's costs as they are and halves the largest ones. One noisy table by arm is released: what
# are the differences at the median and at the top? The declared range may be wide, a part of
# epsilon finds out where the records are.
rng = np.random.default_rng(1)
treated = rng.integers(0, 2, 10_000)
cost = np.exp(rng.normal(7.5, 1.2, 10_000))
cost = np.where(treated == 1, np.minimum(cost, 4_000 + (cost - 4_000) / 2), cost)
bills = pd.DataFrame({"programme": treated, "cost": cost})
costs = dpe.dp_qte(
    "cost ~ programme",
    bills,
    quantiles=[0.1, 0.5, 0.9],
    bounds={"cost": (0, 1_000_000)},
    epsilon=1,
    design="randomised",
    seed=1,
)
print(costs.tidy(simultaneous=True)[SHOWN[:-1]].round(0).to_string(index=False))
without = bills.groupby("programme")["cost"].quantile([0.1, 0.5, 0.9]).unstack()
print("without privacy:", (without.loc[1] - without.loc[0]).round(0).to_dict())

# %%
# ``simultaneous=True`` makes intervals that hold for all three quantiles at once. An effect at a
# quantile compares two distributions; it is not the effect on the people who are there. Other
# quantiles can be asked of the result for nothing, and the picture shows both distributions with a
# joint band.
print(costs.quantiles([0.25, 0.75]).set_index("quantile").T.round(0).to_string())
axes = costs.plot()
axes.set_xscale("log")
axes.set_xlim(100, 100_000)
plt.show()

# %%
# Ordered outcomes
# ----------------
# Levels that have an order but no distances, such as grades of pain: declare them as a list from
# the lowest to the highest. Differences are those of cumulative shares ("at least mild");
# ``probability_higher`` is the probability that a treated person is at a higher level than an
# untreated one, as in the test of Mann and Whitney; the odds ratio is that of proportional odds.
LEVELS = ["none", "mild", "moderate", "severe"]
latent = rng.normal(0.0, 1.0, 4_000) - 0.4 * (drug := rng.integers(0, 2, 4_000))
pain = pd.DataFrame(
    {"drug": drug, "pain": [LEVELS[i] for i in np.searchsorted([-0.5, 0.3, 1.1], latent)]}
)
grades = dpe.dp_ordinal(
    "pain ~ drug", pain, bounds={"pain": LEVELS}, epsilon=1, design="randomised", seed=1
)
print(grades.tidy()[SHOWN].round(4).to_string(index=False))

# %%
# Rates per person-year
# ---------------------
# Counts of events in unequal times. ``offset`` is the column of times; the largest count and the
# longest time of a record must be declared, because the noise hides the whole of it. Covariates
# after the bar are adjusted for by weights. The variance is that of single records, so that counts
# may vary more than a Poisson distribution has it.
followed = dpe.simulate("rates", n=20_000, seed=1)
rates = dpe.dp_rate(
    "events ~ treatment | x1 + x2 + x3", followed, offset="years", per=1_000, epsilon=2, seed=1
)
print(rates.tidy()[SHOWN].round(3).to_string(index=False))
truth = followed.frame["mu1"].sum() / followed.frame["mu0"].sum()
print(f"rate ratio in truth: {truth:.3f}")

# %%
# Planning
# --------
# ``dpe.plan`` plans a difference; for everything else ``dpe.rehearse`` runs your call on studies
# that you make up, and says what to expect. Half of a trial's patients get a drug that lowers a
# risk of 6 % to 4 %. What will the risk ratio look like, at epsilon 0.5?


def planned(seed, n):
    """The risk ratio of a study that is made up."""
    rng = np.random.default_rng(seed)
    t = rng.integers(0, 2, n)
    y = (rng.random(n) < np.where(t == 1, 0.04, 0.06)).astype(int)
    made_up = dpe.declare(pd.DataFrame({"y": y, "t": t}), y=(0, 1))
    one = dpe.dp_ate("y ~ t", made_up, epsilon=0.5, design="randomised", seed=seed)
    return one.tidy(scale="ratio")


for n in (2_000, 8_000):
    plan = dpe.rehearse(lambda seed, n=n: planned(seed, n), runs=20).tidy()
    print(f"n = {n}: half-width {plan['half_width'][0]:.2f}, power {plan['power'][0]:.0%}")

# %%
# An infinite half-width: in most of the small studies the interval of the ratio does not end,
# because noise leaves open whether the control risk is zero. The difference has an interval there.
#
# Side by side
# ------------
# ``dpe.compare`` puts results in one table, on any of the scales; ``report()`` writes the paragraph
# for a paper.
cheap = dpe.dp_ate("stroke_14_days ~ treatment", stroke, epsilon=0.2, design="randomised", seed=2)
print(dpe.compare(fit, cheap, scale="ratio", stat="conf_int"))
print(rates.report())

# %%
# References
# ----------
# - Fieller, E. C. (1954). Some problems in interval estimation. *Journal of the Royal Statistical
#   Society B* 16, 175-185. doi:10.1111/j.2517-6161.1954.tb00159.x
# - Schuirmann, D. J. (1987). A comparison of the two one-sided tests procedure and the power
#   approach for assessing the equivalence of average bioavailability. *Journal of Pharmacokinetics
#   and Biopharmaceutics* 15, 657-680. doi:10.1007/BF01068419
# - Berger, R. L. and Boos, D. D. (1994). P values maximized over a confidence set for the nuisance
#   parameter. *Journal of the American Statistical Association* 89, 1012-1016.
#   doi:10.1080/01621459.1994.10476836
# - Firpo, S. (2007). Efficient semiparametric estimation of quantile treatment effects.
#   *Econometrica* 75, 259-276. doi:10.1111/j.1468-0262.2007.00738.x
# - Altman, D. G. (1998). Confidence intervals for the number needed to treat. *BMJ* 317, 1309-1312.
#   doi:10.1136/bmj.317.7168.1309
