"""
Several outcomes and subgroups (forest plot)
============================================

Squares are effects on all records, hollow circles effects in subgroups, lines 95% confidence
intervals; outcomes with different units have panels of their own. A small P for interaction is
evidence that the effect differs between the subgroups.
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
ax = plots.outcomes(fit, "married")
