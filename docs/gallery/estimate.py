"""
An estimate and its confidence interval
=======================================

The black line with ends is the 95% confidence interval. The yellow bar is the part that sampling
error alone would give, the blue bar adds privacy noise, and what is left allows for possible bias.
"""

import dpeffects as dpe
from dpeffects import plots

births = dpe.load_data("birthweight")
formula = "outcome ~ treatment | prenatal_first_trimester + married + mage + first_baby + medu"
fits = [dpe.dp_ate(formula, births, epsilon=epsilon) for epsilon in (0.5, 1, 4)]
ax = plots.estimate(*fits, names=["epsilon 0.5", "epsilon 1", "epsilon 4"])
