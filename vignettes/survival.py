"""
Survival: curves, restricted means, hazard ratios
=================================================

Times to an event, some of them censored, compared between two arms. One noisy life table is
released; curves, risks, restricted mean survival times, the hazard ratio and the log-rank test are
computed from it, at any time up to the horizon, and cost nothing more. You will learn

- what to decide before the data are opened: the horizon and the intervals of the table;
- how to read the summary and the picture of a trial;
- how an observational study is adjusted, and what its result rests on;
- how hospitals add their tables, and how to plan a study.

Data are simulated, so that the truth is known, and seeds make the page the same each time. A seed
makes a release not private: never use one on data that matter.
"""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from statsmodels.duration.hazard_regression import PHReg
from statsmodels.duration.survfunc import SurvfuncRight

import dpeffects as dpe

pd.options.display.width = 100
SHOWN = ["term", "estimate", "conf_low", "conf_high", "p_value"]

# %%
# What to decide beforehand
# -------------------------
# A life table needs two public numbers, and both belong in the protocol. The *horizon* is the time
# until which people are compared, in the unit of the time column: times beyond it count as "still
# there". The *bins* are the intervals of the table, by default twelve equally long ones; lists of
# ends, such as ``bins=[0, 30, 90, 180, 365]``, work too. Times and events need no bounds.
#
# A record is in exactly one cell of the table: arm, interval, and event or censored. So the noise
# in each count is the same however many intervals there are. More intervals follow the curve more
# closely, and each sum over many of them has a little more noise.
#
# A trial
# -------
# 5,000 people, half of them treated, followed for up to 360 days; some leave early.
# ``Surv(time, event)`` is written as in R. The event is a column of 0 and 1, or a condition: where
# a status is coded 1 for censored and 2 for dead, write ``Surv(time, status == 2)``.
trial = dpe.simulate("survival", n=5_000, seed=1, randomised=True)
fit = dpe.dp_survival(
    "Surv(time, event) ~ treatment", trial, horizon=360, epsilon=1, design="randomised", seed=1
)
print(fit.summary())

# %%
# - ``rmst`` is the restricted mean survival time: the days that people live, on average, of the
#   first 360. Its difference is an effect in days, and needs no assumption about hazards.
# - ``risk`` is the probability of the event by the horizon, as Kaplan and Meier estimate it.
# - ``hazard_ratio`` takes the ratio of the hazards as the same all the time; where the table shows
#   that it is not, a note says so.
# - ``logrank`` is the test statistic, about standard normal where treatment changes nothing.
#
# The data are made up, so the answers without privacy and the truth can stand beside. Standard
# errors are mostly those that any analysis has.
frame = trial.frame
arms = {1: "treated", 0: "control"}
model = PHReg(frame["time"], frame[["treatment"]], status=frame["event"], ties="efron").fit()
truth = frame["mu1"].mean() - frame["mu0"].mean()
found = fit.tidy().set_index("term")
print(f"restricted mean: {found.estimate['rmst_difference']:.1f} days more, in truth {truth:.1f}")
print(
    f"hazard ratio: {found.estimate['hazard_ratio']:.3f} (standard error "
    f"{found.std_error['hazard_ratio']:.3f}), Cox model without privacy "
    f"{np.exp(model.params[0]):.3f} ({np.exp(model.params[0]) * model.bse[0]:.3f})"
)

# %%
# Other times cost nothing
# ------------------------
# The result keeps the released table. Whatever else is asked of it is arithmetic with released
# numbers: no budget, no data.
print(fit.risk(at=[90, 180])[["time", *SHOWN]].round(4).to_string(index=False))
print(fit.rmst(horizon=180)[SHOWN].round(3).to_string(index=False))
print(fit.median()[["term", "estimate", "conf_low", "conf_high"]].to_string(index=False))

# %%
# The picture
# -----------
# Both curves with a band that holds for all of both curves at once, and the people at risk, which
# are noisy. The dotted steps are the curves without privacy, by statsmodels; they are here because
# these data are nobody's.
axes = fit.plot()
for arm in arms:
    rows = frame[frame["treatment"] == arm]
    exact = SurvfuncRight(rows["time"], rows["event"])
    axes.step(exact.surv_times, exact.surv_prob, where="post", color="black", ls=":", lw=0.9)
plt.show()

# %%
# An observational study
# ----------------------
# Where treatment was not assigned by lot, confounders stand after the bar, with their bounds. A
# private model of who is treated, out of a share of the budget, gives weights, and the table
# counts weights instead of people: its curves are those of everybody treated and of everybody
# untreated. ``estimand="ATT"`` compares the treated only.
study = dpe.simulate("survival", n=20_000, seed=2)
call = {"horizon": 360, "epsilon": 2, "seed": 2}
adjusted = dpe.dp_survival("Surv(time, event) ~ treatment | x1 + x2 + x3", study, **call)
crude = dpe.dp_survival("Surv(time, event) ~ treatment", study, **call)
rows = {}
for name, one in {"adjusted": adjusted, "not adjusted": crude}.items():
    row = one.tidy().set_index("term").loc["rmst_difference"]
    rows[name] = row[["estimate", "std_error", "conf_low", "conf_high"]]
print(pd.DataFrame(rows).T.astype(float).round(1).to_string())
print(f"truth: {(study.frame['mu1'] - study.frame['mu0']).mean():.1f} days")
print(crude.warnings)

# %%
# Those who were treated were the sicker ones here, so that the crude comparison is wrong; it calls
# itself an association, and has no p-value. What an adjusted result rests on stands in its summary
# under *Assumes*: no confounder is missing, and censoring does not depend on what would have
# happened. Intervals allow for the confounding that a noisy model of treatment leaves.
#
# Hospitals add their tables
# --------------------------
# Each hospital makes the same call on its own records and sends the result, which holds released
# numbers only. Adding the tables costs nothing, and whatever a table gives, the sum gives with the
# precision of all records. Within each hospital both arms count for all of its people, so that
# hospitals may differ in outcomes and in how many are treated.
north, south = (
    dpe.dp_survival(
        "Surv(time, event) ~ treatment",
        dpe.simulate("survival", n=n, seed=seed, randomised=True),
        horizon=360,
        epsilon=1,
        design="randomised",
        seed=seed,
    )
    for n, seed in ((3_000, 3), (6_000, 4))
)
received = dpe.SurvivalEffects.from_json(south.to_json())  # what the other hospital sent
both = dpe.combine_tables({"North": north, "South": received})
for name, one in {"North": north, "South": received, "both": both}.items():
    row = one.tidy().set_index("term").loc["rmst_difference"]
    low, high = row["conf_low"], row["conf_high"]
    print(f"{name:<6} n = {one.n:5}  {row['estimate']:5.1f} days ({low:.1f} to {high:.1f})")

# %%
# In a shell the same is ``dpeffects survival ... --out north.json`` at each hospital, and then
# ``dpeffects combine-tables north.json south.json``.
#
# Planning
# --------
# ``dpe.rehearse`` runs a call on studies that a function makes up, as you expect yours to be, and
# says what to expect of every number. No data is touched. How many people does a trial need that is
# to find such an effect at epsilon 0.5?


def planned(seed, n):
    """The call of the protocol, on a study that is made up."""
    made_up = dpe.simulate("survival", n=n, seed=seed, randomised=True)
    asked = {"horizon": 360, "epsilon": 0.5, "design": "randomised", "seed": seed}
    return dpe.dp_survival("Surv(time, event) ~ treatment", made_up, **asked)


for n in (1_000, 4_000):
    plan = dpe.rehearse(lambda seed, n=n: planned(seed, n), runs=20).tidy().set_index("term")
    row = plan.loc["rmst_difference"]
    print(f"n = {n:5}: half-width {row['half_width']:.1f} days, power {row['power']:.0%}")

# %%
# What to write
# -------------
# ``report()`` writes the paragraph for the methods and results sections; ``summary().as_latex()``
# and ``as_html()`` give the tables.
print(fit.report())

# %%
# What this cannot do
# -------------------
# - Two arms, one kind of event. Competing risks would need a cell for each cause.
# - Small studies: the 137 men of the Veterans' Administration trial (``dpe.load_data("veteran")``,
#   with ``pip install "dpeffects[data]"``) are too few for curves at epsilon 1. Where too few are
#   at risk for the noise, the first lines of the summary say from when on.
# - Within an interval of the table hazards are taken as constant. Choose short intervals where
#   many events come early.
#
# References
# ----------
# - Kaplan, E. L. and Meier, P. (1958). Nonparametric estimation from incomplete observations.
#   *Journal of the American Statistical Association* 53, 457-481.
#   doi:10.1080/01621459.1958.10501452
# - Royston, P. and Parmar, M. K. B. (2013). Restricted mean survival time: an alternative to the
#   hazard ratio for the design and analysis of randomized trials with a time-to-event outcome.
#   *BMC Medical Research Methodology* 13, 152. doi:10.1186/1471-2288-13-152
# - Cole, S. R. and Hernan, M. A. (2004). Adjusted survival curves with inverse probability weights.
#   *Computer Methods and Programs in Biomedicine* 75, 45-49. doi:10.1016/j.cmpb.2003.10.004
