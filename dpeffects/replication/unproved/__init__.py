"""Releases whose guarantee is claimed, a library's, or none; results are marked."""
