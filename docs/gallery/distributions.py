"""
Distributions of an outcome in two arms
=======================================

Both distributions with a joint band; the points are the quantiles that were asked for.
"""

import dpeffects as dpe
from dpeffects import plots

trial = dpe.load_data("lalonde")
fit = dpe.dp_qte("earnings_1978 ~ treatment", trial, epsilon=4, design="randomised")
ax = plots.distributions(fit)
