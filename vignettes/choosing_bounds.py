"""
Choosing bounds
===============

A private method has to know what a value *could* be: noise must hide the largest change that any
record could make. So every column has a range or a list of levels. They come from what the
variables mean, never from the data. This vignette shows what bounds cost when they are wide, what
they cost when they are narrow, and what happens when you give none.
"""

# %%
# Data for this page: a made-up survey of incomes, so that we may look at what a curator must not
# publish, the plain difference in means.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import dpeffects as dpe

rng = np.random.default_rng(7)
n = 8_000
training = rng.integers(0, 2, n).astype(bool)
income = np.round(rng.lognormal(10.2, 0.6, n)) + 2_000 * training
people = pd.DataFrame(
    {
        "income": income,
        "training": training,
        "age": rng.integers(18, 66, n),
        "region": rng.choice(["north", "south", "islands"], n),
    }
)
target = people["income"][training].mean() - people["income"][~training].mean()
print(f"Without privacy the difference in means is {target:,.0f}.")

# %%
# Tuples are ranges, lists are levels
# -----------------------------------
# A numeric column has ``(lower, upper)``. A categorical one has its levels, the first of which is
# the reference. Levels that nobody in the data has are fine: say what could be there. A bool
# column, like the treatment here, needs nothing.

fit = dpe.dp_ate(
    "income ~ training | age + region",
    people,
    epsilon=1,
    bounds={"income": (0, 150_000), "age": (18, 66), "region": ["north", "south", "islands"]},
)
print(fit.tidy().T.to_string(header=False))

# %%
# Write them once and attach them to the data; every call then knows them.

survey = dpe.declare(
    people, income=(0, 150_000), age=(18, 66), region=["north", "south", "islands"]
)
print(survey.bounds["income"], survey.bounds["region"])

# %%
# Wide or narrow
# --------------
# Values beyond the bounds are clipped to them. Narrow bounds cut off real incomes and bias the
# effect; wide bounds let everything through and pay for it with noise. Each line below is the
# average of 40 releases. They have a seed, so they are for this page only.


def releases(upper: float, epsilon: float, runs: int = 40) -> pd.Series:
    """Return how an upper bound works out: its bias, its noise and its error."""
    fits = [
        dpe.dp_ate(
            "income ~ training",
            people,
            "diff_in_means",
            epsilon=epsilon,
            bounds={"income": (0, upper)},
            variance=False,
            seed=run,
        )
        for run in range(runs)
    ]
    found = np.array([fit.estimate for fit in fits])
    return pd.Series(
        {
            "upper bound": upper,
            "clipped, %": 100 * np.mean(people["income"] > upper),
            "mean estimate": found.mean(),
            "noise sd": np.sqrt(fits[0].noise_variance),
            "typical error": np.sqrt(np.mean((found - target) ** 2)),
        }
    )


uppers = [30_000, 60_000, 100_000, 200_000, 500_000, 2_000_000]
table = pd.DataFrame([releases(upper, epsilon=0.5) for upper in uppers])
print(table.round(1).to_string(index=False))

# %%
# Noise grows with the range. The best bound cuts off a little:

best = table.loc[table["typical error"].idxmin()]
print(
    f"The least error has the upper bound {best['upper bound']:,.0f}, which clips "
    f"{best['clipped, %']:.1f} % of the incomes."
)

# %%
# You cannot make this table for your own data without spending budget on it, and choosing the
# bound that makes the result look best is no longer private. Use what is known from elsewhere: the
# range of a scale, a legal limit, what the instrument can measure, and for money the 99.9th
# percentile of a published table, rounded up. When in doubt be rather a little too narrow than ten
# times too wide, and report the bound: the effect is then that on the clipped outcome, and the call
# warns where a mean is at an end of its range. If you really know nothing, leave the bounds out.

figure, ax = plt.subplots(figsize=(6, 3.6))
ax.plot(table["upper bound"], abs(table["mean estimate"] - target), "k--", label="bias (clipping)")
ax.plot(table["upper bound"], table["noise sd"], "k:", label="privacy noise")
ax.plot(table["upper bound"], table["typical error"], "k-", marker="o", label="typical error")
ax.set(xscale="log", yscale="log", xlabel="declared upper bound of income", ylabel="dollars")
ax.legend(frameon=False)
figure.tight_layout()

# %%
# Transform what has a long tail
# ------------------------------
# A logarithm is bounded by the logarithms of the bounds, and effects are then relative. The
# bounds are those of the column; those of the term follow.

logged = dpe.dp_ate(
    "log(income) ~ training",
    people,
    "diff_in_means",
    epsilon=0.5,
    bounds={"income": (1_000, 500_000)},
)
low, high = logged.conf_int()
print(f"Training changes log income by {logged.estimate:.3f} ({low:.3f} to {high:.3f}).")

# %%
# No bounds: they are found privately
# -----------------------------------
# Numeric columns without bounds are bounded out of the budget, by noisy counts in powers of two.
# It costs a third of epsilon, the range found is coarse, and the summary shows both. With fewer
# records sizes are counted in steps of two, four or eight, and the first lines say Coarse ranges.
# Levels are never guessed: a list of who is in the data is itself a release.

found = dpe.dp_ate("income ~ training", people, "diff_in_means", epsilon=1)
for name, bound, source in found.bounds:
    print(f"{name}: {bound} ({source})")
print(found.charges_frame()[["label", "share", "epsilon"]].to_string(index=False))

# %%
# With very few records, or a small epsilon, no count stands out from the noise. The call then
# stops before it spends anything, and prints what to fill in.

try:
    dpe.dp_ate("income ~ training", people.head(60), "diff_in_means", epsilon=0.5)
except dpe.DPEffectsError as error:
    print(error)

# %%
# What is refused, and what is void
# ---------------------------------
# ``bounds="from_data"`` reads minimum and maximum off the records. It is there for teaching and for
# tests. One person's income is then in the result, so the guarantee is void, and every print and
# every export says so.

void = dpe.dp_ate("income ~ training", people, "diff_in_means", epsilon=1, bounds="from_data")
print(void.guarantee.status)
print(str(void.summary()).splitlines()[2])

# %%
# Categories of a pandas column are learnt from the data too, by ``pandas.qcut`` or a plain
# ``astype("category")``, ordered or not, and so they are refused. Declare levels, or cut in the
# formula, where the limits are yours:

cut = dpe.dp_ate("income ~ training | cut(age, [18, 30, 45, 66]) + region", survey, epsilon=1)
print(f"{cut.method}, n = {cut.n}: {cut.estimate:,.0f}")

# %%
# In a terminal, ``dpeffects bounds-template data.csv`` starts a file with the names and types of
# the columns, and leaves the ranges to you. Next: :doc:`choosing_method`.

# %%
# References
# ----------
#
# - Dwork, C., McSherry, F., Nissim, K. and Smith, A. (2006). Calibrating noise to sensitivity
#   in private data analysis. Theory of Cryptography, 265-284. doi:10.1007/11681878_14
