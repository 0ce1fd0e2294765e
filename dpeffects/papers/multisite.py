"""Verdicts on many sites (papers 002 and 003)."""
