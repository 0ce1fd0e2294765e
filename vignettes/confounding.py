"""
Sensitivity to unmeasured confounding
=====================================

No data can show that every confounder was measured. What can be shown is how strong a missing one
would have to be to change the conclusion. ``fit.sensitivity()`` says so from released numbers, so
it costs no budget. You will learn

- what the E-value, the robustness value and the tipping point mean, and how noise enters them;
- how to state a confounder's strength, and what interval follows;
- on simulated data with a hidden confounder: whether the stated strength repairs the interval.

Seeds make the page the same each time. A seed makes a release not private, because whoever knows it
can subtract the noise: never use one on data that matter.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import dpeffects as dpe

pd.options.display.width = 100

# %%
# A published question
# --------------------
# Mothers who smoke have lighter babies. The formula has age, schooling, marriage, first birth and
# prenatal care. It does not have alcohol.

births = dpe.load_data("birthweight")
formula = "outcome ~ treatment | prenatal_first_trimester + married + mage + first_baby + medu"
fit = dpe.dp_ate(formula, births, epsilon=2, seed=1)
low, high = fit.conf_int()
print(f"effect of smoking: {fit.estimate:.0f} grams (95 % interval {low:.0f} to {high:.0f})")

# %%
# Say what is feared: 20 in 100 more of the smokers drink than of the others, given what was
# measured, and drinking takes 150 grams. Their product, 30 grams, is the bias.

feared = fit.sensitivity(prevalence_difference=0.2, confounder_effect=-150)
print(feared.summary())

# %%
# How to read it
# --------------
# - *Tipping point*: the bias that takes the estimate, or the nearer end of its interval, to zero.
#   It is in grams, so a reader can judge it.
# - *E-value*: the least risk ratio that a confounder must have with both, smoking and low weight,
#   given the measured ones, to make the whole effect (VanderWeele and Ding 2017). For grams it is
#   an approximation by way of a standardised difference.
# - *Robustness value*: the part of what is left of the variance of both, treatment and outcome,
#   that it would have to explain (Cinelli and Hazlett 2020).
# - The interval *under the stated strength*: shifted, with the same noise.
#
# Report the value for the *limit* of the interval, not that for the estimate alone. The private
# estimate carries noise, so its own E-value does too, and by luck it can be large. The limit has
# taken the noise into account: the less budget, the wider the interval, the nearer its end is to
# zero, and the smaller is the E-value that one can claim.

rows = []
for epsilon in (0.3, 1, 4):
    found = [dpe.dp_ate(formula, births, epsilon=epsilon, seed=k).sensitivity() for k in range(20)]
    estimate = [one.e_value(one.estimate) for one in found]
    limit = [one.e_value(one.limit) for one in found]
    quarters = [np.quantile(values, [0.25, 0.5, 0.75]) for values in (estimate, limit)]
    rows.append((epsilon, *(" to ".join(f"{q:.2f}" for q in part[[0, 2]]) for part in quarters)))
columns = ["epsilon", "E-value of the estimate, middle half of 20", "E-value of the limit"]
print(pd.DataFrame(rows, columns=columns).to_string(index=False))

# %%
# The picture: estimate and interval against the bias that a confounder adds, with what was stated
# and the bias at which the interval reaches zero.

ax = feared.plot()
ax.set(xlabel="bias by confounding (grams)", ylabel="effect of smoking (grams)")
plt.show()

# %%
# Where the truth is known
# ------------------------
# A simulated drug lowers blood pressure by 4 (mm Hg). Frail patients are treated less often and do
# worse, and frailty was not recorded. Data like these look perfectly ordinary.

EFFECT, RUNS = -4.0, 20
BOUNDS = {"pressure": (80, 220), "age": (40, 90), "before": (80, 220)}


def patients(n, seed, strength=1.0):
    """Age, blood pressure before and after, a drug, and hidden frailty; and the bias it makes."""
    rng = np.random.default_rng(seed)
    age, before = rng.uniform(40, 90, n), np.clip(rng.normal(150, 15, n), 80, 220)
    frail = rng.random(n) < 0.3
    odds = 0.02 * (age - 65) + 0.02 * (before - 150) - 1.2 * strength * (frail - 0.3)
    drug = (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(int)
    pressure = 40 + 0.65 * before + 0.1 * age + EFFECT * drug + 8 * strength * frail
    pressure = np.clip(pressure + rng.normal(0, 9, n), 80, 220)
    frame = pd.DataFrame({"pressure": pressure, "drug": drug, "age": age, "before": before})
    difference = frail[drug == 1].mean() - frail[drug == 0].mean()
    return dpe.declare(frame, **BOUNDS), (difference, 8 * strength)


sample, (difference, harm) = patients(6_000, seed=1)
one = dpe.dp_ate("pressure ~ drug | age + before", sample, epsilon=1, seed=1)
low, high = one.conf_int()
print(
    f"private estimate {one.estimate:.2f} (95 % interval {low:.2f} to {high:.2f}); truth {EFFECT}"
)
print(f"frail: {difference:+.0%} among the treated; being frail adds {harm:.0f} mm Hg")

# %%
# The interval is short and misses. Suppose a clinician says: "the treated were some 25 in 100 less
# often frail, and frailty adds about 8". Then:

told = one.sensitivity(prevalence_difference=-0.25, confounder_effect=8)
print(told.tidy().T.to_string(header=False))

# %%
# One run proves nothing, so here are 20 data sets for each strength of the confounder, and what
# becomes of the interval when its strength is stated as half, as it is, or as twice what it is.

rows, shown = [], {}
for strength in (0.0, 0.5, 1.0):
    found = []
    for seed in range(RUNS):
        sample, (difference, harm) = patients(6_000, 100 + seed, strength)
        fit = dpe.dp_ate("pressure ~ drug | age + before", sample, epsilon=1, seed=seed)
        bias = difference * harm
        stated = [fit.sensitivity(bias=part * bias) for part in (0.0, 0.5, 1.0, 2.0)]
        intervals = [s.interval(s.stated) for s in stated]
        covers = [i.lower <= EFFECT <= i.upper for i in intervals]
        found.append((fit.estimate - EFFECT, bias, *covers))
    found = np.array(found)
    shown[strength] = found
    means = found[:, :2].mean(axis=0)
    rows.append((strength, *means, *found[:, 2:].sum(axis=0).astype(int)))
columns = ["strength", "error (mm Hg)", "bias", "as it is", "half stated", "right", "twice"]
print(f"Intervals that hold the truth, of {RUNS}:")
print(pd.DataFrame(rows, columns=columns).round(2).to_string(index=False))

# %%
# Without a hidden confounder the interval does what it promises. With one it misses, the more
# surely the more data there are; stating the right strength repairs it, stating half or twice as
# much may not. A sensitivity analysis is as good as what is known about the confounder.

figure, ax = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
for (strength, found), marker in zip(shown.items(), "os^", strict=True):
    ax.plot(found[:, 1], found[:, 0], marker, mfc="none", color="k", ms=5, label=f"{strength:g}")
ends = np.array([min(f[:, 1].min() for f in shown.values()), 0.1])
ax.plot(ends, ends, color="0.6", lw=0.8)
ax.legend(title="strength of the\nhidden confounder", frameon=False, fontsize=9)
ax.set(xlabel="prevalence difference times effect on the outcome (mm Hg)")
ax.set(ylabel="private estimate less truth (mm Hg)")
plt.show()

# %%
# Points near the line: the product of the two numbers is the bias, within noise and sampling error.
#
# What to write
# -------------
# Name the confounder that a critic would name. State two numbers for it and where they are from.
# Give the interval under them, and the E-value of the limit. In a sentence:

e = feared.e_value(feared.limit)
under = feared.interval(feared.stated)
print(
    f"If 20 in 100 more of the smokers drank and drinking took 150 grams, the interval would be\n"
    f"{under.lower:.0f} to {under.upper:.0f} grams. To move the interval to zero, a confounder "
    f"would need a risk\nratio of {e:.2f} with both smoking and weight, beyond the measured ones."
)

# %%
# And what it does not do: an E-value is no test, a large one does not make a confounder unlikely,
# and several small confounders add up.
#
# References
# ----------
# - Cornfield, J. and others (1959). Smoking and lung cancer: recent evidence and a discussion of
#   some questions. *Journal of the National Cancer Institute* 22, 173-203.
#   doi:10.1093/jnci/22.1.173
# - VanderWeele, T. J. and Ding, P. (2017). Sensitivity analysis in observational research:
#   introducing the E-value. *Annals of Internal Medicine* 167, 268-274. doi:10.7326/M16-2607
# - Cinelli, C. and Hazlett, C. (2020). Making sense of sensitivity: extending omitted variable
#   bias. *Journal of the Royal Statistical Society B* 82, 39-67. doi:10.1111/rssb.12348
# - Rosenbaum, P. R. (2002). *Observational Studies*, second edition. Springer.
#   doi:10.1007/978-1-4757-3692-2
