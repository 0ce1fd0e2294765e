"""
Where the budget went
=====================

One bar for each release of a result, with its epsilon and its percentage of the total. Long bars
are where a larger share would cost the other releases most.
"""

import dpeffects as dpe
from dpeffects import plots

data = dpe.simulate("confounded", n=20_000, seed=1)
fit = dpe.dp_ate(dpe.data_info("confounded").formula, data, epsilon=1)
ax = plots.budget(fit)
