"""
Several outcomes and subgroups
==============================

Effects of a whole study, on all records (squares) and at the levels of a factor (circles). They are
drawn in standard deviations of the outcome; the numbers are in its units.
"""

import dpeffects as dpe
from dpeffects import plots

trial = dpe.load_data("lalonde")
fit = dpe.dp_study(
    "earnings_1978 + I(earnings_1978 > 0) ~ treatment | age + black",
    trial,
    subgroups="married",
    epsilon=4,
    design="randomised",
)
ax = plots.outcomes(fit, by="married")
