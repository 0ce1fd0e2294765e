"""
An estimate and its interval
============================

The thick bar is the interval that sampling error alone would give; what sticks out is the price of
privacy.
"""

import dpeffects as dpe
from dpeffects import plots

nsw = dpe.load_data("lalonde")
fits = [
    dpe.dp_ate("earnings_1978 ~ treatment", nsw, "diff_in_means", epsilon=epsilon)
    for epsilon in (0.5, 1, 4)
]
ax = plots.estimate(*fits, names=["epsilon 0.5", "epsilon 1", "epsilon 4"])
