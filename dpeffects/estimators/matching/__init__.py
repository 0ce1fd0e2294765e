"""Matching on scores and on strata."""
