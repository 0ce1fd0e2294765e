"""The leaderboard: methods x data x epsilon, all on the same samples, against a known effect."""

from dpeffects.evidence.leaderboard.benchmark import bench
from dpeffects.evidence.leaderboard.board import Leaderboard
from dpeffects.evidence.leaderboard.candidates import Entry, entries
from dpeffects.evidence.leaderboard.problems import Task, tasks

__all__ = ["Entry", "Leaderboard", "Task", "bench", "entries", "tasks"]
