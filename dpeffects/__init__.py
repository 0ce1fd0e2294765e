"""Differentially private treatment effects, written the R way."""
