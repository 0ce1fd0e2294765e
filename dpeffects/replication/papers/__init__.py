"""The papers behind the methods: what they print, what was measured here, and the verdicts."""

from dpeffects.replication.papers.judged import Found
from dpeffects.replication.papers.on_file import kept, made, spread, table, table_names
from dpeffects.replication.papers.verdict import Verdicts, papers, references, verdicts

__all__ = [
    "Found",
    "Verdicts",
    "kept",
    "made",
    "papers",
    "references",
    "spread",
    "table",
    "table_names",
    "verdicts",
]
