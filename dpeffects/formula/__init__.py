"""``"y ~ t | x1 + x2"`` to a frozen Formula, row-wise expressions, their ranges and encoding."""

from dpeffects.formula.parser import Formula, has_dot, parse

__all__ = ["Formula", "has_dot", "parse"]
