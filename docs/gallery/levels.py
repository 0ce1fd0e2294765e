"""
Ordered levels in two arms
==========================

Each mark is the proportion of an arm's records at one level, with its 95% confidence interval.
Compare the two arms within a level.
"""

import numpy as np
import pandas as pd

import dpeffects as dpe
from dpeffects import plots

rng = np.random.default_rng(1)
drug = rng.integers(0, 2, 2000)
names = np.array(["none", "mild", "severe"])
pain = names[np.searchsorted([-0.3, 0.8], rng.normal(-0.5 * drug, 1.0))]
fit = dpe.dp_ordinal(
    "pain ~ drug",
    pd.DataFrame({"drug": drug, "pain": pain}),
    bounds={"pain": list(names)},
    epsilon=1,
    design="randomised",
)
ax = plots.levels(fit)
