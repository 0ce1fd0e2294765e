"""
Overlap of the propensity score
===============================

The distribution of the propensity score among the treated (upwards) and controls (downwards), from
noisy counts; whiskers hold 95% of the privacy noise. Scores at which one of the arms has hardly any
records are where treated and controls cannot be compared.
"""

import dpeffects as dpe
from dpeffects import plots

data = dpe.simulate("confounded", n=20_000, seed=1)
balance = dpe.dp_balance("outcome ~ treatment | x1 + x2 + x3 + x4", data, epsilon=1)
ax = plots.overlap(balance)
