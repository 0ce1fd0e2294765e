"""
An estimate and its interval
============================

The thick bar is the interval that sampling error alone would give, the thinner one adds privacy
noise, and the whiskers add what is allowed for biases that may be left.
"""

import dpeffects as dpe
from dpeffects import plots

births = dpe.load_data("birthweight")
formula = "outcome ~ treatment | prenatal_first_trimester + married + mage + first_baby + medu"
fits = [dpe.dp_ate(formula, births, epsilon=epsilon) for epsilon in (0.5, 1, 4)]
ax = plots.estimate(*fits, names=["epsilon 0.5", "epsilon 1", "epsilon 4"])
