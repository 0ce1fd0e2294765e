"""
Data as they come: people with several rows, clusters, missing values, weights
==============================================================================

Tables of real studies are rarely one complete row for each person. This page goes through what they
have instead. You will learn

- how to protect whole people where each has several rows, and what that costs;
- how standard errors follow clusters, such as villages or schools;
- what can be done about missing covariates and outcomes, and what each way assumes;
- how survey weights, subsets and treatments with several levels are written;
- how to declare bounds for a table with many columns.

All of these are arguments of :func:`dpeffects.dp_ate` and its kin, for every method that adds up
rows: ``auto``, ``one_step``, ``clipped_contrast``, ``diff_in_means``, ``private_ipw``, and the
learners of :func:`dpeffects.dp_cate`. Data are simulated, so that the truth is known, and seeds
make the page the same each time. A seed makes a release not private: never use one on data that
matter.
"""

import numpy as np
import pandas as pd

import dpeffects as dpe

pd.options.display.width = 100
FORMULA = "outcome ~ treatment | x1 + x2 + x3"


def shown(**fits):
    """Estimates and standard errors side by side."""
    rows = {
        name: {"estimate": fit.estimate, "std. error": fit.std_error, "n": fit.n}
        for name, fit in fits.items()
    }
    print(pd.DataFrame(rows).T.round(4).to_string())


# %%
# People with several rows
# ------------------------
# Here people have from 1 to 8 rows. Without a word, one *row* is protected: whoever knows seven
# rows of a person may learn about the eighth. ``unit="person"`` protects everything of one
# person, in however many rows, and n is the number of people.
visits = dpe.simulate("repeated", n=12_000, seed=1)
call = {"epsilon": 2, "seed": 1}
rows = dpe.dp_ate(FORMULA, visits, **call)
people = dpe.dp_ate(FORMULA, visits, unit="person", **call)
shown(**{"rows protected": rows, "people protected": people})
print(dict(people.sample))
print(f"protected: {people.guarantee.unit}")

# %%
# Each person counts once: the rows of one person share one vote. So nobody moves a sum further
# than with one row, and noise is that of as many records as there are people. The effect is the
# average over people. With ``max_rows=8`` it is the average over rows: a row counts an eighth of
# a person, and those of a person with more than eight rows share what eight have. That has more
# noise, and here it is another number, because people with many rows have larger effects.
each_row = dpe.dp_ate(FORMULA, visits, unit="person", max_rows=8, **call)
frame = visits.frame
truth = frame["mu1"] - frame["mu0"]
by_person = truth.groupby(frame["person"]).mean()
print(f"true mean over people {by_person.mean():.4f}, over rows {truth.mean():.4f}")
shown(**{"each person once": people, "each row": each_row})

# %%
# The standard error follows people, not rows: it comes from squares of sums over each person,
# which are released out of the share "clusters". A ledger that has paid for rows does not pay for
# people: the two are different promises, and it says so.
ledger = dpe.Ledger(epsilon=4)
dpe.dp_ate(FORMULA, visits, unit="person", ledger=ledger, **call)
try:
    dpe.dp_ate(FORMULA, visits, ledger=ledger, **call)
except dpe.DPEffectsError as refusal:
    print(refusal)

# %%
# Clusters
# --------
# Records of one village have something in common. ``cluster="village"`` leaves privacy as it is,
# and takes the standard error from sums over villages. How many there are is usually public; say
# it by ``clusters=``, else it is counted at a price.
villages = dpe.simulate("clustered", n=10_000, seed=2)
alone = dpe.dp_ate(FORMULA, villages, **call)
together = dpe.dp_ate(FORMULA, villages, cluster="village", clusters=100, **call)
shown(**{"as if independent": alone, "by village": together})

# %%
# Missing values
# --------------
# By default missing values are refused, by the name of the column. A covariate can have an
# indicator and a public fill (the middle of its declared range): nothing is learnt from the data
# for it. In a formula ``is_na(x1)`` is that indicator. Records without a value are not adjusted for
# it: where it is a confounder, what it confounds among them stays in the estimate.
rng = np.random.default_rng(3)
gaps = dpe.simulate("confounded", n=6_000, seed=3)
holed = gaps.frame.assign(x1=gaps.frame["x1"].mask(rng.random(6_000) < 0.2))
holed = dpe.declare(holed, gaps.bounds)
try:
    dpe.dp_ate("outcome ~ treatment | x1 + x2", holed, **call)
except dpe.DPEffectsError as refusal:
    print(refusal)
filled = dpe.dp_ate("outcome ~ treatment | x1 + x2", holed, missing={"x1": "indicator"}, **call)
shown(**{"with an indicator": filled})

# %%
# A fifth of the outcomes of this study is missing, more often where effects are large. "complete"
# leaves these records out: they count as nothing, n stays what it is, and how many are left is
# released. The effect is then that of people who answer. "weight" lets people who answer stand
# for those who do not, by a released model of who answers. It assumes that outcomes are missing
# *at random*: given covariates and treatment, whether one is there says nothing about what it is.
study = dpe.simulate("missing_outcomes", n=20_000, seed=4)
effect = (study.frame["mu1"] - study.frame["mu0"]).mean()
complete = dpe.dp_ate(FORMULA, study, missing="complete", **call)
weighted = dpe.dp_ate(FORMULA, study, missing={"outcome": "weight"}, **call)
print(f"true effect {effect:.4f}")
shown(complete=complete, weighted=weighted)

# %%
# Survey weights
# --------------
# Weights go from 0 to an upper bound that is declared; a record with the largest weight counts 1.
# The effect is that in the weighted population, the standard error that of weighted sums.
survey = dpe.simulate("survey", n=10_000, seed=5)
population = np.average(survey.frame["mu1"] - survey.frame["mu0"], weights=survey.frame["weight"])
asked = dpe.dp_ate(FORMULA, survey, **call)
in_population = dpe.dp_ate(FORMULA, survey, weights="weight", **call)
print(f"true effect in the population {population:.4f}")
shown(**{"people asked": asked, "population": in_population})

# %%
# Subsets
# -------
# Taking rows out beforehand would make their number public. ``subset=`` leaves n as it is:
# records outside count as nothing, and how many are inside is released.
inside = dpe.dp_ate(FORMULA, survey, subset="x1 > 0.5 & x3 <= 0.9", **call)
shown(**{"x1 > 0.5 & x3 <= 0.9": inside})
print(dict(inside.sample))

# %%
# Treatments
# ----------
# A treatment has two values, or several declared levels: then each is compared with the first, in
# one call, with simultaneous intervals. A dose is cut into levels in the formula.
arms = dpe.simulate("three_arms", n=9_000, seed=6)
dose = dict(zip(arms.bounds["treatment"], (0.0, 1.0, 4.0), strict=True))
doses = arms.frame.assign(dose=arms.frame["treatment"].map(dose))
bounds = {"outcome": arms.bounds["outcome"], "x1": (0, 1), "x2": (0, 1), "dose": (0, 5)}
some = dpe.dp_ate("outcome ~ I(dose > 0) | x1 + x2", doses, bounds=bounds, **call)
shown(**{"any dose": some})
levels = dpe.dp_ate("outcome ~ cut(dose, [0, 0.5, 2, 5]) | x1 + x2", doses, bounds=bounds, **call)
print(
    levels.tidy()[["term", "estimate", "std_error", "conf_low", "conf_high"]].round(4).to_string()
)

# %%
# Many columns
# ------------
# A codebook declares them all: a TOML or CSV file, or a frame, such as this one; patterns stand
# for several columns, ``.`` for all that are declared.
wide = visits.frame.assign(**{f"q{k}_hx": rng.integers(0, 2, len(frame)) for k in range(1, 6)})
codebook = {"outcome": (0, 1), "x1": (0, 1), "x2": (0, 1), "*_hx": range(2)}
fit = dpe.dp_ate("outcome ~ treatment | .", wide, bounds=codebook, unit="person", **call)
print(fit.formula)

# %%
# Where to go on
# --------------
# :doc:`choosing_bounds` has more on declarations, :doc:`assumptions` on what an effect assumes,
# and :doc:`reading_budget` on where the budget goes.
