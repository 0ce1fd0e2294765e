"""Verdicts on PP-IPW (paper 004)."""
