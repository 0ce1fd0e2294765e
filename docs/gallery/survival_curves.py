"""
Survival curves of two arms
===========================

The band holds for both curves at all times simultaneously; a curve ends where it is mostly noise.
Below are the numbers at risk, rounded to what the privacy noise allows.
"""

import dpeffects as dpe
from dpeffects import plots

trial = dpe.simulate("survival", n=5000, seed=1, randomised=True)
fit = dpe.dp_survival(
    "Surv(time, event) ~ treatment", trial, horizon=360, epsilon=1, design="randomised"
)
ax = plots.survival(fit)
