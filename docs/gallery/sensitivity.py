"""
An effect against the bias of confounding
=========================================

Dotted lines are the biases that move the interval, and then the estimate, to zero.
"""

import dpeffects as dpe
from dpeffects import plots

nsw = dpe.load_data("lalonde")
fit = dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=4)
ax = plots.sensitivity(fit.sensitivity(bias=300))
