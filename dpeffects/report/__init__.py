"""What results look like: summaries and their formats, paragraphs, release records, plots.

Importing this package registers how each type of result is summarised, described and drawn.
"""

from dpeffects.report import (
    about_arms,
    about_average,
    about_balance,
    about_conditional,
    about_late,
    about_moments,
    about_quantiles,
    about_randomisation,
    about_rates,
    about_sensitivity,
    about_simulations,
    about_sites,
    about_study,
    about_survival,
    about_tables,
    about_tests,
    html,
    latex,
    markdown,
    plots,
    review_record,
    text,
    word,
)
from dpeffects.report.comparison import Comparison, compare

__all__ = [
    "Comparison",
    "about_arms",
    "about_average",
    "about_balance",
    "about_conditional",
    "about_late",
    "about_moments",
    "about_quantiles",
    "about_randomisation",
    "about_rates",
    "about_sensitivity",
    "about_simulations",
    "about_sites",
    "about_study",
    "about_survival",
    "about_tables",
    "about_tests",
    "compare",
    "html",
    "latex",
    "markdown",
    "plots",
    "review_record",
    "text",
    "word",
]
