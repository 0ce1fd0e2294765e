"""The leaderboard: methods x data x epsilon, all on the same samples, against a known effect."""

from dpeffects.leaderboard.benchmark import bench
from dpeffects.leaderboard.board import Leaderboard
from dpeffects.leaderboard.candidates import Entry, entries
from dpeffects.leaderboard.problems import Task, tasks

__all__ = ["Entry", "Leaderboard", "Task", "bench", "entries", "tasks"]
