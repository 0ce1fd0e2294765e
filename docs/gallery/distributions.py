"""
Distributions of an outcome in two arms
=======================================

Each line is the cumulative distribution of the outcome in one arm, with a band that holds for both
lines as a whole. An arm whose line lies further to the right has larger outcomes; points are the
quantiles that were requested.
"""

import dpeffects as dpe
from dpeffects import plots

trial = dpe.load_data("lalonde")
fit = dpe.dp_qte("earnings_1978 ~ treatment", trial, epsilon=4, design="randomised")
ax = plots.distributions(fit)
