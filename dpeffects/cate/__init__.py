"""Conditional effects: as a function, at points, and by group."""
