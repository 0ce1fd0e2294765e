"""
Error against epsilon
=====================

Each line is the median error of a method over simulated runs, and the whiskers hold the middle half
of the runs. A line that stops falling shows the error that remains without privacy noise.
"""

import pandas as pd

import dpeffects as dpe
from dpeffects import plots

formula = dpe.data_info("confounded").formula
rows = []
for seed in range(5):
    data = dpe.simulate("confounded", n=10_000, seed=seed)
    truth = float((data["mu1"] - data["mu0"]).mean())
    for method in ("diff_in_means", "private_ipw", "auto"):
        for epsilon in (0.5, 1, 2, 4):
            fit = dpe.dp_ate(formula, data, method, epsilon=epsilon)
            error = abs(fit.estimate - truth)
            rows.append({"method": method, "epsilon": epsilon, "error": error})
ax = plots.errors(pd.DataFrame(rows))
