"""What a user gets back: a Result, and its Summary."""

from dpeffects.results.result import Result
from dpeffects.results.summary import Notes, Pairs, Summary, Table

__all__ = ["Notes", "Pairs", "Result", "Summary", "Table"]
