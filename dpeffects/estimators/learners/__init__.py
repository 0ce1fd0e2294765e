"""Learners of conditional effects."""
