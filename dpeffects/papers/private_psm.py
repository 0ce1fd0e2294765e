"""Verdicts on PrivATE (paper 000)."""
