"""
Several sites, one effect
=========================

Squares are the estimates of the sites and grow with their weight; lines are 95% confidence
intervals. The diamond is the combined effect, as wide as its confidence interval.
"""

import dpeffects as dpe
from dpeffects import plots

nsw = dpe.load_data("lalonde")
formula = "earnings_1978 ~ treatment"
releases = [
    dpe.site_release(formula, nsw[k::3], site=site, method="diff_in_means", epsilon=epsilon)
    for k, (site, epsilon) in enumerate({"North": 4, "South": 2, "East": 1}.items())
]
ax = plots.forest(dpe.combine(releases, rule="ivw"))
