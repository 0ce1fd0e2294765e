"""The papers behind the methods: what they print, what was measured here, and the verdicts."""

from dpeffects.papers import dp_cate, multisite, private_ipw, private_psm  # each registers claims
from dpeffects.papers.claims import Found, Verdicts, claim, papers, references, verdicts
from dpeffects.papers.tables import kept, made, spread, table, table_names

__all__ = [
    "Found",
    "Verdicts",
    "claim",
    "dp_cate",
    "kept",
    "made",
    "multisite",
    "papers",
    "private_ipw",
    "private_psm",
    "references",
    "spread",
    "table",
    "table_names",
    "verdicts",
]
