"""What a user gets back: a Result, and its Summary."""

from dpeffects.render import Notes, Pairs, Prose, Summary, Table
from dpeffects.results.result import Result

__all__ = ["Notes", "Pairs", "Prose", "Result", "Summary", "Table"]
