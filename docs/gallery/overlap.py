"""
Overlap of the arms
===================

Noisy histograms of the propensity score, out of their own budget.
"""

import dpeffects as dpe
from dpeffects import plots

data = dpe.simulate("confounded", n=20_000, seed=1)
balance = dpe.dp_balance("outcome ~ treatment | x1 + x2 + x3 + x4", data, epsilon=1)
ax = plots.overlap(balance)
