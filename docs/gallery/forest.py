"""
Several sites, one effect
=========================

Squares grow with the weight of a site; the diamond is the combined effect.
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
