"""
Balance of the covariates (love plot)
=====================================

Standardised mean differences before and after weighting; whiskers hold 95% of the privacy noise.
Marks in the grey area, below 0.1, are usually called balanced; hollow marks may be noise only.
"""

import dpeffects as dpe
from dpeffects import plots

data = dpe.simulate("confounded", n=20_000, seed=1)
balance = dpe.dp_balance("outcome ~ treatment | x1 + x2 + x3 + x4", data, epsilon=1)
ax = plots.love(balance)
