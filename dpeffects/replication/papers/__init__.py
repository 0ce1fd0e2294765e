"""The papers behind the methods: what they print, what was measured here, and the verdicts."""

from dpeffects.replication.papers.claim_checks import ClaimCheck
from dpeffects.replication.papers.stored_tables import kept, made, spread, table, table_names
from dpeffects.replication.papers.verdict import Verdicts, papers, references, verdicts

__all__ = [
    "ClaimCheck",
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
