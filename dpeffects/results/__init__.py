"""What a user gets back: a Result, its Summary and Report, and several results side by side."""

from dpeffects.render import Notes, Pairs, Prose, Summary, Table
from dpeffects.results.compare import Comparison, compare
from dpeffects.results.report import Report
from dpeffects.results.result import Result

__all__ = [
    "Comparison",
    "Notes",
    "Pairs",
    "Prose",
    "Report",
    "Result",
    "Summary",
    "Table",
    "compare",
]
