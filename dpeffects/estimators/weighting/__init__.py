"""Inverse probability weighting, and the propensity models that all methods release."""
