"""The leaderboard: methods x data x epsilon, all on the same samples, against a known effect."""

from dpeffects.bench.api import bench
from dpeffects.bench.entries import Entry, entries
from dpeffects.bench.result import Leaderboard
from dpeffects.bench.tasks import Task, tasks

__all__ = ["Entry", "Leaderboard", "Task", "bench", "entries", "tasks"]
