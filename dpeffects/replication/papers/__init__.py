"""The papers behind the methods: what they print, what was measured here, and the verdicts."""

from dpeffects.replication.papers import (  # each registers claims
    paper_000,
    paper_001,
    paper_003,
    paper_004,
)
from dpeffects.replication.papers.on_file import kept, made, spread, table, table_names
from dpeffects.replication.papers.verdict import (
    Found,
    Verdicts,
    claim,
    papers,
    references,
    verdicts,
)

__all__ = [
    "Found",
    "Verdicts",
    "claim",
    "kept",
    "made",
    "paper_000",
    "paper_001",
    "paper_003",
    "paper_004",
    "papers",
    "references",
    "spread",
    "table",
    "table_names",
    "verdicts",
]
