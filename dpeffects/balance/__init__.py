"""Overlap and balance of the two arms, before an effect is estimated."""
