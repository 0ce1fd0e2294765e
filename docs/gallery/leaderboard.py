"""
Leaderboard
===========

Each mark is the median error of a method on one data set, over the error of the best method there.
The grey band is within 10% of the best; hollow marks are not ranked, and their names say why.
"""

from pathlib import Path

import pandas as pd

from dpeffects import plots

results = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
cells = pd.read_csv(results / "leaderboard.csv")
ax = plots.leaderboard(cells, epsilon=1)

# %%
# On one data set, errors against epsilon; what is not proved is named in the picture.
chosen = ["auto", "private_ipw", "sample_aggregate", "folds_aipw", "diff_in_means"]
part = cells[(cells["data"] == "confounded") & cells["fit"].isin(chosen)]
ax = plots.errors(part.rename(columns={"fit": "method"}))
