"""
A conditional effect with its confidence band
=============================================

The line is the effect at each value of one covariate, the band its 95% confidence interval:
sampling error, privacy noise and shrinkage. Where the band does not include the dotted line, the
effect there differs from 0.
"""

import dpeffects as dpe
from dpeffects import plots

data = dpe.simulate("cate_1", n=3000, seed=1)
fit = dpe.dp_cate(
    "outcome ~ treatment | x1 + x2",
    data,
    method="dr_learner",
    release="function",
    epsilon=2,
    delta=1e-5,
)
ax = plots.curve(fit, "x1", covers="effect")

# %%
# Bars below the curve are shares of records, as released, and the curve is pale where there are
# few. Effects by group have their shares at the right, from the same release.
births = dpe.load_data("birthweight")
fit = dpe.dp_cate(
    "outcome ~ treatment | married + mage + medu",
    births,
    method="dr_learner",
    release="groups",
    by="prenatal_first_trimester",
    epsilon=4,
)
ax = plots.curve(fit)
