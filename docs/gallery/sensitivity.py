"""
Sensitivity to an unmeasured confounder
=======================================

Each point is a confounder of two values: how much more frequent it is among the treated, and what
it adds to the outcome. A contour joins confounders that leave the same adjusted estimate; beyond
the black line the effect has changed its sign, beyond the red line its confidence interval
includes 0.
"""

import dpeffects as dpe
from dpeffects import plots

births = dpe.load_data("birthweight")
formula = "outcome ~ treatment | prenatal_first_trimester + married + mage + first_baby + medu"
fit = dpe.dp_ate(formula, births, epsilon=1)
ax = plots.sensitivity(fit.sensitivity(prevalence_difference=0.2, confounder_effect=-150))
