"""
Half-width against epsilon
==========================

The half-width of the planned 95% confidence interval for each epsilon, before any budget is spent.
Where the line becomes flat, a larger epsilon hardly helps: sampling error is left.
"""

import dpeffects as dpe
from dpeffects import plots

study = dpe.plan(
    "y ~ t | age + sex",
    n=5000,
    epsilon=1,
    bounds={"y": (0, 1), "age": (18, 90), "sex": ["f", "m"]},
    outcome_sd=0.2,
    repeats=2,
)
ax = plots.half_width(study, epsilons=(0.2, 0.5, 1, 2, 5))
