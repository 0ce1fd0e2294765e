"""The public names of report and their places (see `dpeffects.lazy`)."""

from dpeffects.report import plots
from dpeffects.report.comparison import Comparison, compare

__all__ = ["Comparison", "compare", "plots"]
