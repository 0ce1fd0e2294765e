"""Generators of synthetic records: a library in an environment of its own, behind one process."""
