"""Verdicts on DP-CATE (paper 001)."""
