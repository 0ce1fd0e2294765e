"""
Effects by group
================

One interval a group. At the right are shares of the records, from the same release.
"""

import dpeffects as dpe
from dpeffects import plots

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
