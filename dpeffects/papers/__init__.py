"""The papers behind the methods: what they print, what was measured here, and the verdicts."""

from dpeffects.papers.claims import Found, Verdicts, claim, papers, references, verdicts
from dpeffects.papers.tables import kept, made, spread, table, tables

__all__ = [
    "Found",
    "Verdicts",
    "claim",
    "kept",
    "made",
    "papers",
    "references",
    "spread",
    "table",
    "tables",
    "verdicts",
]
