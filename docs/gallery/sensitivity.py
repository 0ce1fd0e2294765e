"""
An effect against the bias of confounding
=========================================

How the effect and its interval would move if a confounder is missing. Dotted lines are the biases
that move the interval, and then the estimate, to zero; the mark is the bias that was stated.
"""

import dpeffects as dpe
from dpeffects import plots

births = dpe.load_data("birthweight")
formula = "outcome ~ treatment | prenatal_first_trimester + married + mage + first_baby + medu"
fit = dpe.dp_ate(formula, births, epsilon=1)
ax = plots.sensitivity(fit.sensitivity(prevalence_difference=0.2, confounder_effect=-150))
