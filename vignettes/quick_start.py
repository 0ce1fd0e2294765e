"""
Quick start
===========

One line to a private treatment effect. ``make demo`` runs this file; every run draws fresh noise,
so the numbers differ from run to run.
"""

# %%
# The National Supported Work programme gave training to some of 445 people, chosen at random. The
# data come with bounds that follow from what the variables mean.

import dpeffects as dpe

nsw = dpe.load_data("lalonde")

# %%
# A formula says what depends on what: outcome, treatment, and after the bar the covariates. The
# method is PrivATE's matching on propensity scores, and epsilon is the whole price of the call.

fit = dpe.dp_ate(
    "earnings_1978 ~ treatment | age + education + black + hispanic + married + no_degree"
    " + earnings_1974 + earnings_1975",
    nsw,
    method="private_psm",
    epsilon=1,
)
print(fit.summary())

# %%
# Read it from the top. A line between asterisks is what nobody should overlook. The guarantee says
# what is protected. The standard error has two parts, the people who were drawn and the noise that
# protects them. The budget lists every number that was released, its price, and its proof.
#
# The treatment was randomised, so covariates need no adjustment here, and noisy sums by arm do
# far better for the same epsilon:

trial = dpe.dp_ate("earnings_1978 ~ treatment", nsw, method="diff_in_means", epsilon=1)
trial.tidy()

# %%
# Results hold released numbers only: print them, bind the frames of several, or export them.

low, high = trial.conf_int(0.95)
print(f"Estimated effect on earnings: {trial.estimate:,.0f} dollars a year,")
print(f"95 % interval {low:,.0f} to {high:,.0f}.")
print(trial.guarantee.sentence())

# %%
# Where to go on: :doc:`choosing_bounds` for data of your own, :doc:`choosing_method` for method and
# epsilon, :doc:`reading_budget` for what was paid, and :doc:`study` for all of it in order.
