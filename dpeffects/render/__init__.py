"""A summary as titled blocks, and its four renderings. Knows nothing of privacy or effects."""

from dpeffects.render.blocks import Block, Notes, Pairs, Prose, Shown, Summary, Table

__all__ = ["Block", "Notes", "Pairs", "Prose", "Shown", "Summary", "Table"]
